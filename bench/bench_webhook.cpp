// Both ends of webhooks, beside which script/bench has the relay deliver:
//   bench_webhook receive COUNT QUIET_MS WARM_UP_MS   answers 204 to COUNT requests, or until none
//       came for QUIET_MS; prints its port first. Latencies are those of bodies with "at_us": N,
//       without the first WARM_UP_MS
//   bench_webhook send PORT COUNT BYTES CONNECTIONS   what libcurl does at most, unsigned
// Each prints one JSON object.

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <curl/curl.h>
#include <map>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::string_view kAnswer = "HTTP/1.1 204 No Content\r\n\r\n";
constexpr std::string_view kEndOfHeaders = "\r\n\r\n";

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

class Receiver {
  public:
    Receiver(long count, milliseconds quiet, milliseconds warm_up)
        : count_(count), quiet_(quiet), warm_up_(warm_up) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
        auto* generic = reinterpret_cast<sockaddr*>(&address);
        socklen_t size = sizeof address;
        const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (::bind(listening, generic, size) != 0 || ::listen(listening, 1'024) != 0 ||
            ::getsockname(listening, generic, &size) != 0) {
            throw std::runtime_error("cannot listen");
        }
        polled_.push_back({listening, POLLIN, 0});
        std::printf("%d\n", ::ntohs(address.sin_port));
        std::fflush(stdout);
    }

    // The first request may take its time.
    void run() {
        while (received_ < count_) {
            const int ready = ::poll(polled_.data(), polled_.size(),
                                     received_ == 0 ? -1 : static_cast<int>(quiet_.count()));
            if (ready == 0) break;
            for (std::size_t i = polled_.size(); i-- > 1;) {
                if (polled_[i].revents != 0) read(i);
            }
            if (polled_[0].revents != 0) accept();
        }
    }

    void print() {
        std::sort(latencies_us_.begin(), latencies_us_.end());
        const auto percentile = [&](std::size_t percent) {
            if (latencies_us_.empty()) return 0.0;
            const std::size_t at = latencies_us_.size() * percent / 100;
            return static_cast<double>(latencies_us_[at]) / 1'000;
        };
        const double took = std::chrono::duration<double>(last_ - first_).count();
        std::printf(
            "{\"records\": %ld, \"per_s\": %.0f, \"p50_ms\": %.2f, \"p99_ms\": %.2f, "
            "\"connections\": %zu}\n",
            received_, took > 0 ? static_cast<double>(received_) / took : 0, percentile(50),
            percentile(99), accepted_);
    }

  private:
    void accept() {
        const int descriptor = ::accept4(polled_[0].fd, nullptr, nullptr, SOCK_CLOEXEC);
        if (descriptor < 0) return;
        const int on = 1;
        ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        polled_.push_back({descriptor, POLLIN, 0});
        ++accepted_;
    }

    void read(std::size_t i) {
        const int descriptor = polled_[i].fd;
        std::array<char, 65'536> bytes{};
        const auto count = ::recv(descriptor, bytes.data(), bytes.size(), 0);
        if (count <= 0) {
            ::close(descriptor);
            in_.erase(descriptor);
            polled_.erase(polled_.begin() + static_cast<std::ptrdiff_t>(i));
            return;
        }
        std::string& in = in_[descriptor];
        in.append(bytes.data(), static_cast<std::size_t>(count));
        while (take(in)) {
            if (::send(descriptor, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL) < 0) break;
        }
    }

    // Takes one request from the beginning; false: it is not whole yet.
    bool take(std::string& in) {
        const std::size_t end = in.find(kEndOfHeaders);
        if (end == std::string::npos) return false;
        std::string head = in.substr(0, end);
        std::transform(head.begin(), head.end(), head.begin(),
                       [](unsigned char c) { return std::tolower(c); });
        constexpr std::string_view kLength = "content-length: ";
        const std::size_t at = head.find(kLength);
        if (at == std::string::npos) throw std::runtime_error("a request without a length");
        const std::size_t length = std::strtoul(head.c_str() + at + kLength.size(), nullptr, 10);
        const std::size_t whole = end + kEndOfHeaders.size() + length;
        if (in.size() < whole) return false;
        const auto now = Clock::now();
        if (received_++ == 0) first_ = now;
        last_ = now;
        if (now - first_ >= warm_up_) note_latency(in.substr(whole - length, length));
        in.erase(0, whole);
        return true;
    }

    void note_latency(const std::string& body) {
        constexpr std::string_view kAt = "\"at_us\": ";
        const std::size_t at = body.find(kAt);
        if (at == std::string::npos) return;
        const long written = std::strtol(body.c_str() + at + kAt.size(), nullptr, 10);
        const auto now = std::chrono::system_clock::now().time_since_epoch();
        latencies_us_.push_back(std::chrono::duration_cast<std::chrono::microseconds>(now).count() -
                                written);
    }

    long count_;
    milliseconds quiet_;
    milliseconds warm_up_;
    long received_ = 0;
    std::size_t accepted_ = 0;
    Clock::time_point first_;
    Clock::time_point last_;
    std::vector<pollfd> polled_;  // the first listens
    std::map<int, std::string> in_;
    std::vector<long> latencies_us_;
};

struct Load {
    std::string url;
    std::string body;
    long count;
    long connections;
};

CURL* request(const Load& load, curl_slist* headers) {
    CURL* easy = ::curl_easy_init();
    ::curl_easy_setopt(easy, CURLOPT_URL, load.url.c_str());
    ::curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    ::curl_easy_setopt(easy, CURLOPT_POSTFIELDS, load.body.c_str());
    return easy;
}

// Requests per second.
double send(const Load& load) {
    CURLM* multi = ::curl_multi_init();
    ::curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, load.connections);
    curl_slist* headers = ::curl_slist_append(nullptr, "content-type: application/json");
    std::vector<CURL*> all;
    const auto start = Clock::now();
    for (long i = 0; i < load.connections; ++i) {
        all.push_back(request(load, headers));
        ::curl_multi_add_handle(multi, all.back());
    }
    long begun = load.connections;
    long done = 0;
    while (done < load.count) {
        int running = 0;
        ::curl_multi_perform(multi, &running);
        int left = 0;
        while (CURLMsg* message = ::curl_multi_info_read(multi, &left)) {
            CURL* easy = message->easy_handle;
            long status = 0;
            ::curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
            if (message->data.result != CURLE_OK || status != 204) {
                throw std::runtime_error(::curl_easy_strerror(message->data.result));
            }
            ::curl_multi_remove_handle(multi, easy);
            if (++done >= load.count || begun >= load.count) continue;
            ::curl_multi_add_handle(multi, easy);
            ++begun;
        }
        if (done < load.count) ::curl_multi_poll(multi, nullptr, 0, 1'000, nullptr);
    }
    const double per_s = static_cast<double>(done) / seconds_since(start);
    for (CURL* easy : all) ::curl_easy_cleanup(easy);
    ::curl_multi_cleanup(multi);
    ::curl_slist_free_all(headers);
    return per_s;
}

int usage() {
    std::fprintf(stderr, "see the first lines of bench_webhook.cpp\n");
    return 2;
}

}  // namespace

int main(int count, char** words) try {
    const std::string_view what = count > 1 ? words[1] : "";
    const auto number = [&](int i) { return std::strtol(words[i], nullptr, 10); };
    if (what == "receive" && count == 5) {
        Receiver receiver(number(2), milliseconds(number(3)), milliseconds(number(4)));
        receiver.run();
        receiver.print();
        return 0;
    }
    if (what == "send" && count == 6) {
        std::printf("{\"per_s\": %.0f}\n",
                    send({.url = std::string("http://127.0.0.1:") + words[2] + "/",
                          .body = std::string(static_cast<std::size_t>(number(4)), 'x'),
                          .count = number(3),
                          .connections = number(5)}));
        return 0;
    }
    return usage();
} catch (const std::exception& error) {
    std::fprintf(stderr, "bench_webhook: %s\n", error.what());
    return 1;
}
