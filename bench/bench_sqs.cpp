// Beside which the sink of SQS is measured, without a client library: batches of ten over 32
// connections, as the sink has, written in advance, neither signed nor read but for their length.
//   bench_sqs HOST PORT USER PASSWORD QUEUE COUNT BYTES
// Prints one JSON object. USER and PASSWORD are for nothing: ElasticMQ asks nobody.

#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
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

constexpr std::size_t kConnections = 32;
constexpr long kBatch = 10;

struct Connection {
    int descriptor = -1;
    std::string in;
    bool busy = false;
};

int connect_to(const char* host, const char* port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = ::htons(static_cast<std::uint16_t>(std::atoi(port)));
    const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::inet_pton(AF_INET, host, &address.sin_addr) != 1 ||
        ::connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        throw std::runtime_error("it does not answer");
    }
    const int on = 1;
    ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return descriptor;
}

std::string request_for(char** words) {
    const std::string host = std::string(words[0]) + ":" + words[1];
    const std::string value(std::strtoul(words[6], nullptr, 10), 'x');
    std::string body =
        R"({"QueueUrl":"http://)" + host + "/000000000000/" + words[4] + R"(","Entries":[)";
    for (long i = 0; i < kBatch; ++i) {
        body +=
            std::string(i == 0 ? "" : ",") + R"({"Id":")" + std::to_string(i) +
            R"(","MessageBody":")" + value +
            R"(","MessageAttributes":{"outbox-key":{"DataType":"String","StringValue":"key"}}})";
    }
    body += "]}";
    return "POST / HTTP/1.1\r\nHost: " + host +
           "\r\nContent-Type: application/x-amz-json-1.0\r\nX-Amz-Target: "
           "AmazonSQS.SendMessageBatch\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
}

// True: the whole answer has come.
bool has_answer(const std::string& in) {
    constexpr std::string_view kLength = "ontent-Length: ";
    const std::size_t end = in.find("\r\n\r\n");
    const std::size_t at = in.find(kLength);
    if (end == std::string::npos || at > end) return false;
    if (!in.starts_with("HTTP/1.1 200")) throw std::runtime_error(in.substr(0, 1'000));
    return in.size() >= end + 4 + std::strtoul(in.c_str() + at + kLength.size(), nullptr, 10);
}

double publish(char** words) {
    const std::string request = request_for(words);
    const long batches = std::strtol(words[5], nullptr, 10) / kBatch;
    std::vector<Connection> all(kConnections);
    for (Connection& one : all) one.descriptor = connect_to(words[0], words[1]);
    long sent = 0;
    long done = 0;
    const auto start = Clock::now();
    while (done < batches) {
        std::vector<pollfd> waiting;
        for (Connection& one : all) {
            if (!one.busy && sent < batches) {
                const auto count = ::send(one.descriptor, request.data(), request.size(), 0);
                if (count != static_cast<ssize_t>(request.size())) {
                    throw std::runtime_error("it takes nothing");
                }
                one.busy = true;
                ++sent;
            }
            waiting.push_back({one.descriptor, POLLIN, 0});
        }
        ::poll(waiting.data(), waiting.size(), 1'000);
        for (std::size_t i = 0; i < all.size(); ++i) {
            if ((waiting[i].revents & POLLIN) == 0) continue;
            std::array<char, 65'536> bytes{};
            const auto count = ::recv(all[i].descriptor, bytes.data(), bytes.size(), 0);
            if (count <= 0) throw std::runtime_error("it has closed the connection");
            all[i].in.append(bytes.data(), static_cast<std::size_t>(count));
            if (!has_answer(all[i].in)) continue;
            all[i].in.clear();
            all[i].busy = false;
            ++done;
        }
    }
    const std::chrono::duration<double> took = Clock::now() - start;
    for (const Connection& one : all) ::close(one.descriptor);
    return static_cast<double>(batches * kBatch) / took.count();
}

}  // namespace

int main(int count, char** words) try {
    if (count != 8) {
        std::fprintf(stderr, "see the first lines of bench_sqs.cpp\n");
        return 2;
    }
    std::printf("{\"per_s\": %.0f}\n", publish(words + 1));
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "bench_sqs: %s\n", error.what());
    return 1;
}
