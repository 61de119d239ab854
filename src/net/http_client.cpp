#include "net/http_client.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <curl/curl.h>
#include <iterator>
#include <netinet/in.h>
#include <sys/socket.h>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "core/ascii.h"
#include "core/utf8.h"
#include "net/header_line.h"

namespace outbox::net {
namespace {

using Kind = HttpFault::Kind;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMaxHeaderBytes = std::size_t{64} << 10;  // of an answer
constexpr std::size_t kMaxIdle = 32;                            // handles kept for later requests
constexpr int kTimeToAnswer = 4;  // such a part of its time, at least, is the server's
constexpr int kFirstFinal = 200;  // status; those below are interim

struct CloseEasy {
    void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct CloseMulti {
    void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};
struct FreeList {
    void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Easy = std::unique_ptr<CURL, CloseEasy>;
using List = std::unique_ptr<curl_slist, FreeList>;

void append(List& list, const std::string& line) {
    curl_slist* longer = curl_slist_append(list.get(), line.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    static_cast<void>(list.release());
    list.reset(longer);
}

std::optional<std::string> why_not_sent(const HttpRequest& request) {
    if (why_not_header_name(request.method)) return "the method is no word";
    for (const auto& [name, value] : request.headers) {
        if (auto why = why_not_header_name(name)) return why;
        if (value.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos) {
            return "the value of the header '" + name + "' has a line break or NUL in it";
        }
    }
    if (request.url.find('\0') != std::string::npos) return "the URL has a NUL in it";
    const std::string scheme = lower(request.url.substr(0, request.url.find("://")));
    if (scheme != "http" && scheme != "https") return "its URL is not one of http or https";
    return std::nullopt;
}

// As curl wants it: any host and port of the URL, the address, the URL's port.
std::optional<std::string> connect_to(const std::string& address) {
    in6_addr parsed{};
    if (::inet_pton(AF_INET, address.c_str(), &parsed) == 1) return "::" + address + ":";
    if (::inet_pton(AF_INET6, address.c_str(), &parsed) == 1) return "::[" + address + "]:";
    return std::nullopt;
}

Kind kind_of(CURLcode code) {
    switch (code) {
        case CURLE_URL_MALFORMAT:
        case CURLE_LOGIN_DENIED:  // a user in the URL
            return Kind::kRequest;
        case CURLE_COULDNT_RESOLVE_HOST:
            return Kind::kResolve;
        case CURLE_COULDNT_CONNECT:
            return Kind::kConnect;
        case CURLE_SSL_CONNECT_ERROR:
        case CURLE_PEER_FAILED_VERIFICATION:
        case CURLE_SSL_CIPHER:
        case CURLE_SSL_ISSUER_ERROR:
        case CURLE_SSL_INVALIDCERTSTATUS:
        case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
        case CURLE_SSL_CLIENTCERT:
            return Kind::kTls;
        case CURLE_SSL_CERTPROBLEM:
        case CURLE_SSL_CACERT_BADFILE:
        case CURLE_SSL_CRL_BADFILE:
            return Kind::kSetting;
        case CURLE_OUT_OF_MEMORY:
        case CURLE_FAILED_INIT:
            return Kind::kLocal;
        case CURLE_UNSUPPORTED_PROTOCOL:  // HTTP/0.9, as other schemes do not come so far
        case CURLE_WEIRD_SERVER_REPLY:
        case CURLE_HTTP2:
        case CURLE_HTTP2_STREAM:
        case CURLE_BAD_CONTENT_ENCODING:
            return Kind::kProtocol;
        default:
            return Kind::kEnded;
    }
}

struct Transfer {
    HttpRequest request;
    HttpOutcome outcome;
    Clock::time_point deadline;
    milliseconds rest_time{0};
    Clock::time_point* next_deadline = nullptr;  // the client's
    bool has_status = false;                     // of the answer, and not of an interim one
    std::size_t max_body = 0;
    std::size_t header_bytes = 0;
    bool too_large = false;
    std::optional<Clock::time_point> connected;  // or tried to, since then
    bool has_connection = false;
    int no_socket = 0;  // why there was none
    List headers;
    List connect_to;
    std::array<char, CURL_ERROR_SIZE> error{};
    Easy easy;  // uses all of the above
};

extern "C" std::size_t outbox_http_take_body(char* bytes, std::size_t, std::size_t count,
                                             void* user) {
    auto& transfer = *static_cast<Transfer*>(user);
    std::string& body = transfer.outcome.body;
    const std::size_t taken = std::min(count, transfer.max_body - body.size());
    body.append(bytes, taken);
    if (taken == count) return count;
    transfer.too_large = true;
    return 0;  // ends it
}

// " 200 OK".
void take_status(Transfer& transfer, std::string_view text) {
    const bool is_interim = text.starts_with(" 1");
    if (is_interim || transfer.has_status || transfer.rest_time.count() == 0) return;
    transfer.has_status = true;
    transfer.deadline = std::min(transfer.deadline, Clock::now() + transfer.rest_time);
    *transfer.next_deadline = std::min(*transfer.next_deadline, transfer.deadline);
}

extern "C" std::size_t outbox_http_take_header(char* bytes, std::size_t, std::size_t count,
                                               void* user) {
    auto& transfer = *static_cast<Transfer*>(user);
    const std::string_view line(bytes, count);
    transfer.header_bytes += count;
    if (transfer.header_bytes > kMaxHeaderBytes) {
        transfer.too_large = true;
        return 0;
    }
    if (line.starts_with("HTTP/")) {
        transfer.outcome.headers.clear();  // those before were of a preliminary answer
        take_status(transfer, line.substr(std::min(line.find(' '), line.size())));
    } else if (const std::size_t colon = line.find(':'); colon != std::string_view::npos) {
        transfer.outcome.headers.emplace_back(lower(trimmed(line.substr(0, colon))),
                                              trimmed(line.substr(colon + 1)));
    }
    return count;
}

extern "C" curl_socket_t outbox_http_open_socket(void* user, curlsocktype, curl_sockaddr* address) {
    auto& transfer = *static_cast<Transfer*>(user);
    if (!transfer.connected) transfer.connected = Clock::now();
    const int opened =
        ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (opened < 0) transfer.no_socket = errno;
    return opened < 0 ? CURL_SOCKET_BAD : opened;
}

extern "C" int outbox_http_has_connection(void* user, char*, char*, int, int) {
    auto& transfer = *static_cast<Transfer*>(user);
    if (!transfer.connected) transfer.connected = Clock::now();
    transfer.has_connection = true;
    return CURL_PREREQFUNC_OK;
}

}  // namespace

std::string_view word_of(HttpFault::Kind kind) {
    switch (kind) {
        case Kind::kRequest:
            return "REQUEST";
        case Kind::kResolve:
            return "RESOLVE";
        case Kind::kConnect:
            return "CONNECT";
        case Kind::kTls:
            return "TLS";
        case Kind::kSetting:
            return "SETTING";
        case Kind::kLocal:
            return "LOCAL";
        case Kind::kNoConnection:
            return "NO CONNECTION";
        case Kind::kTimeout:
            return "TIMEOUT";
        case Kind::kTooLarge:
            return "TOO LARGE";
        case Kind::kProtocol:
            return "PROTOCOL";
        case Kind::kEnded:
            break;
    }
    return "ENDED";
}

std::string_view HttpOutcome::header(std::string_view name) const {
    const auto found = std::find_if(headers.begin(), headers.end(),
                                    [name](const auto& header) { return header.first == name; });
    return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

class HttpClient::Impl {
  public:
    explicit Impl(const HttpOptions& options) : options_(options) {
        static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
        if (ready == CURLE_OK) multi_.reset(curl_multi_init());
        if (!multi_) throw std::bad_alloc();
        curl_multi_setopt(multi_.get(), CURLMOPT_MAX_HOST_CONNECTIONS,
                          static_cast<long>(options.max_connections_per_host));
        curl_multi_setopt(multi_.get(), CURLMOPT_MAX_TOTAL_CONNECTIONS,
                          static_cast<long>(options.max_connections));
        curl_multi_setopt(multi_.get(), CURLMOPT_MAXCONNECTS,
                          static_cast<long>(options.max_connections));
    }
    ~Impl() { cancel_all(); }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    void start(std::uint64_t token, HttpRequest request);
    void poll(milliseconds max_wait, std::vector<HttpOutcome>& out, int wake_fd);
    [[nodiscard]] std::size_t under_way() const { return transfers_.size() + refused_.size(); }
    void cancel(std::uint64_t token);
    void cancel_all();

  private:
    using Transfers = std::unordered_multimap<std::uint64_t, std::unique_ptr<Transfer>>;

    void refuse(std::uint64_t token, std::string why);
    void set_up(Transfer& transfer);
    void set_up_method(Transfer& transfer);
    void set_up_headers(Transfer& transfer);
    void set_up_tls(CURL* easy) const;
    void drive(std::vector<HttpOutcome>& out);
    void judge(Transfer& done, CURLcode code) const;
    void end_late(std::vector<HttpOutcome>& out);
    HttpOutcome take(Transfers::iterator place);
    void release(Transfer& transfer);

    const HttpOptions options_;
    std::unique_ptr<CURLM, CloseMulti> multi_;
    std::vector<Easy> idle_;
    Transfers transfers_;
    std::vector<HttpOutcome> refused_;
    Clock::time_point next_deadline_ = Clock::time_point::max();  // none is earlier
};

void HttpClient::Impl::refuse(std::uint64_t token, std::string why) {
    refused_.push_back({.token = token, .fault = HttpFault{Kind::kRequest, std::move(why)}});
}

void HttpClient::Impl::start(std::uint64_t token, HttpRequest request) {
    if (auto why = why_not_sent(request)) return refuse(token, *std::move(why));
    auto transfer = std::make_unique<Transfer>();
    transfer->request = std::move(request);
    if (const auto& pinned = transfer->request.pinned_address) {
        const auto target = connect_to(*pinned);
        if (!target) return refuse(token, "'" + to_printable(*pinned) + "' is no address");
        append(transfer->connect_to, *target);
    }
    transfer->outcome.token = token;
    transfer->max_body = options_.max_response_bytes;
    transfer->deadline = Clock::now() + transfer->request.timeout;
    transfer->rest_time = options_.rest_time;
    transfer->next_deadline = &next_deadline_;
    next_deadline_ = std::min(next_deadline_, transfer->deadline);
    if (idle_.empty()) {
        transfer->easy.reset(curl_easy_init());
        if (!transfer->easy) throw std::bad_alloc();
    } else {
        transfer->easy = std::move(idle_.back());
        idle_.pop_back();
    }
    set_up(*transfer);
    curl_multi_add_handle(multi_.get(), transfer->easy.get());
    transfers_.emplace(token, std::move(transfer));
}

void HttpClient::Impl::set_up(Transfer& transfer) {
    CURL* const easy = transfer.easy.get();
    const HttpRequest& request = transfer.request;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, &transfer);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer.error.data());
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, outbox_http_take_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, outbox_http_take_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, &transfer);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, outbox_http_open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, &transfer);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, outbox_http_has_connection);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, &transfer);

    curl_easy_setopt(easy, CURLOPT_URL, request.url.c_str());
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);  // as it was signed
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    // Else the end of a request waits for a resolver that does not answer.
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(
        easy, CURLOPT_HTTP_VERSION,
        static_cast<long>(options_.http2 ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
    // Connections that have HTTP/2 are shared. None is waited for (CURLOPT_PIPEWAIT): it is to an
    // address and port, and a handshake of one name that hangs would hold all others there.
    // Not its timeout: that of a request which waits for a connection would not come.
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                     static_cast<long>(std::max(request.connect_timeout, milliseconds(1)).count()));
    if (request.idle_timeout.count() > 0) {
        curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME,
                         static_cast<long>(request.idle_timeout.count()));
    }
    if (transfer.connect_to) {
        curl_easy_setopt(easy, CURLOPT_CONNECT_TO, transfer.connect_to.get());
    }
    set_up_tls(easy);
    set_up_method(transfer);
    set_up_headers(transfer);
}

void HttpClient::Impl::set_up_tls(CURL* easy) const {
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, options_.verify ? 1L : 0L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, options_.verify ? 2L : 0L);
    if (!options_.ca_file.empty()) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, options_.ca_file.c_str());
        curl_easy_setopt(easy, CURLOPT_CAPATH, nullptr);  // no other authority counts
    }
    if (!options_.cert_file.empty()) {
        curl_easy_setopt(easy, CURLOPT_SSLCERT, options_.cert_file.c_str());
        curl_easy_setopt(easy, CURLOPT_SSLKEY, options_.key_file.c_str());
    }
}

void HttpClient::Impl::set_up_method(Transfer& transfer) {
    CURL* const easy = transfer.easy.get();
    const std::string& method = transfer.request.method;
    const std::string& body = transfer.request.body;
    if (method == "HEAD") {
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    } else if (!body.empty() || method == "POST" || method == "PUT" || method == "PATCH") {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body.c_str());
    } else {
        curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
    }
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method.c_str());
}

void HttpClient::Impl::set_up_headers(Transfer& transfer) {
    const HttpRequest& request = transfer.request;
    // An empty value takes out the header that curl would add; ours is written "name;" then.
    for (const char* const name : {"Accept", "Content-Type", "Expect", "User-Agent"}) {
        const std::string lower_name = lower(name);
        const bool own =
            std::any_of(request.headers.begin(), request.headers.end(),
                        [&](const auto& header) { return lower(header.first) == lower_name; });
        if (!own) append(transfer.headers, std::string(name) + ":");
    }
    const auto add = [&](const HttpHeaders& headers) {
        for (const auto& [name, value] : headers) {
            append(transfer.headers, value.empty() ? name + ";" : name + ": " + value);
        }
    };
    add(request.headers);
    if (request.sigv4) {
        add(sign(*request.sigv4, request.method, request.url, request.headers, request.body,
                 std::chrono::system_clock::now()));
    }
    curl_easy_setopt(transfer.easy.get(), CURLOPT_HTTPHEADER, transfer.headers.get());
}

void HttpClient::Impl::poll(milliseconds max_wait, std::vector<HttpOutcome>& out, int wake_fd) {
    const auto end = Clock::now() + max_wait;
    const std::size_t before = out.size();
    while (true) {
        drive(out);
        const auto now = Clock::now();
        if (out.size() > before || now >= end) return;
        const auto wait = std::chrono::ceil<milliseconds>(std::min(end, next_deadline_) - now);
        curl_waitfd wake{wake_fd, CURL_WAIT_POLLIN, 0};
        curl_multi_poll(multi_.get(), &wake, wake_fd >= 0 ? 1 : 0,
                        static_cast<int>(std::max(wait, milliseconds(0)).count()), nullptr);
        if (wake.revents != 0) return drive(out);
    }
}

void HttpClient::Impl::drive(std::vector<HttpOutcome>& out) {
    std::move(refused_.begin(), refused_.end(), std::back_inserter(out));
    refused_.clear();
    int running = 0;
    curl_multi_perform(multi_.get(), &running);
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
        if (message->msg != CURLMSG_DONE) continue;
        const CURLcode code = message->data.result;
        Transfer* done = nullptr;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &done);
        judge(*done, code);
        const auto range = transfers_.equal_range(done->outcome.token);
        const auto place = std::find_if(range.first, range.second, [done](const auto& one) {
            return one.second.get() == done;
        });
        out.push_back(take(place));
    }
    if (Clock::now() >= next_deadline_) end_late(out);
}

void HttpClient::Impl::judge(Transfer& done, CURLcode code) const {
    auto& fault = done.outcome.fault;
    if (done.header_bytes > kMaxHeaderBytes) {
        fault = HttpFault{Kind::kTooLarge, "its headers have more than " +
                                               std::to_string(kMaxHeaderBytes) + " bytes"};
    } else if (done.too_large && options_.cut_responses) {
        done.outcome.cut = true;
    } else if (done.too_large) {
        fault = HttpFault{Kind::kTooLarge,
                          "its body has more than " + std::to_string(done.max_body) + " bytes"};
    } else if (done.no_socket != 0 && code == CURLE_COULDNT_CONNECT) {
        fault = HttpFault{Kind::kLocal,
                          "no socket: " + std::generic_category().message(done.no_socket)};
    } else if (code == CURLE_OPERATION_TIMEDOUT && done.has_connection) {
        fault =
            HttpFault{Kind::kTimeout, "nothing came within " +
                                          std::to_string(done.request.idle_timeout.count()) + " s"};
    } else if (code == CURLE_OPERATION_TIMEDOUT) {
        fault = HttpFault{
            Kind::kConnect,
            "no connection within " + std::to_string(done.request.connect_timeout.count()) + " ms"};
    } else if (code != CURLE_OK) {
        const char* text = done.error[0] != '\0' ? done.error.data() : curl_easy_strerror(code);
        fault = HttpFault{kind_of(code), to_printable(text)};
    }
}

void HttpClient::Impl::end_late(std::vector<HttpOutcome>& out) {
    const auto now = Clock::now();
    next_deadline_ = Clock::time_point::max();
    for (auto one = transfers_.begin(); one != transfers_.end();) {
        Transfer& transfer = *one->second;
        if (transfer.deadline > now) {
            next_deadline_ = std::min(next_deadline_, transfer.deadline);
            ++one;
            continue;
        }
        if (transfer.has_status) {
            transfer.outcome.cut = true;
        } else {
            const std::string within =
                " within " + std::to_string(transfer.request.timeout.count()) + " ms";
            const bool had_time =
                transfer.connected &&
                now - *transfer.connected >= transfer.request.timeout / kTimeToAnswer;
            transfer.outcome.fault =
                had_time ? HttpFault{Kind::kTimeout, "no answer" + within}
                         : HttpFault{Kind::kNoConnection, "no connection was free for it" + within};
        }
        const auto late = one++;
        out.push_back(take(late));
    }
}

HttpOutcome HttpClient::Impl::take(Transfers::iterator place) {
    Transfer& transfer = *place->second;
    long status = 0;
    curl_easy_getinfo(transfer.easy.get(), CURLINFO_RESPONSE_CODE, &status);
    transfer.outcome.status = static_cast<int>(status);
    if (status != 0 && status < kFirstFinal) {
        transfer.outcome.status = 0;
        transfer.outcome.headers.clear();
        if (!transfer.outcome.fault) {
            transfer.outcome.fault =
                HttpFault{Kind::kProtocol, "status " + std::to_string(status) + " and no answer"};
        }
    }
    const char* peer = nullptr;
    curl_easy_getinfo(transfer.easy.get(), CURLINFO_PRIMARY_IP, &peer);
    if (peer != nullptr) transfer.outcome.peer = peer;
    HttpOutcome outcome = std::move(transfer.outcome);
    release(transfer);
    transfers_.erase(place);
    return outcome;
}

void HttpClient::Impl::release(Transfer& transfer) {
    curl_multi_remove_handle(multi_.get(), transfer.easy.get());
    if (idle_.size() >= kMaxIdle) return;
    curl_easy_reset(transfer.easy.get());
    idle_.push_back(std::move(transfer.easy));
}

void HttpClient::Impl::cancel(std::uint64_t token) {
    const auto range = transfers_.equal_range(token);
    for (auto one = range.first; one != range.second; ++one) release(*one->second);
    transfers_.erase(range.first, range.second);
    std::erase_if(refused_, [token](const HttpOutcome& one) { return one.token == token; });
}

void HttpClient::Impl::cancel_all() {
    for (const auto& [token, transfer] : transfers_) release(*transfer);
    transfers_.clear();
    refused_.clear();
}

HttpClient::HttpClient(const HttpOptions& options) : impl_(std::make_unique<Impl>(options)) {}
HttpClient::~HttpClient() = default;

void HttpClient::start(std::uint64_t token, HttpRequest request) {
    impl_->start(token, std::move(request));
}

void HttpClient::poll(milliseconds max_wait, std::vector<HttpOutcome>& out, int wake_fd) {
    impl_->poll(max_wait, out, wake_fd);
}

std::size_t HttpClient::under_way() const {
    return impl_->under_way();
}

void HttpClient::cancel(std::uint64_t token) {
    impl_->cancel(token);
}

void HttpClient::cancel_all() {
    impl_->cancel_all();
}

}  // namespace outbox::net
