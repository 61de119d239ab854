#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/limits.h>

#include "net/sigv4.h"

namespace outbox::net {

/// One request; owns all it says.
struct HttpRequest {
    std::string method = "GET";
    std::string url;  ///< http or https, without a user in it.
    /// In this order; none may hold a line break. Nothing is added but Host, Content-Length, and
    /// what signs it.
    HttpHeaders headers = {};
    std::string body = {};
    std::optional<SigV4> sigv4 = {};
    /// An address, "192.0.2.1" or "2001:db8::1", to connect to; Host, the name that TLS asks for
    /// and the certificate's stay the URL's, and no name is resolved.
    std::optional<std::string> pinned_address = {};
    std::chrono::milliseconds timeout{30'000};  ///< From `start` to the answer's end.
    std::chrono::milliseconds connect_timeout =
        std::chrono::seconds(kConnectTimeoutS);  ///< With the resolver and TLS.
    std::chrono::seconds idle_timeout{0};  ///< Without a byte either way; 0: the timeout alone.
};

/// Why a request has no answer. Whether the server has acted on it is not known, but for those that
/// say nothing of it: kRequest, kSetting, kLocal and kNoConnection.
struct HttpFault {
    enum class Kind : std::uint8_t {
        kRequest,  ///< It cannot be sent: the URL, a header or the pinned address is malformed.
        kResolve,  ///< The host has no address.
        kConnect,  ///< Nobody listens there, or does not answer in time.
        kTls,      ///< The certificate is not the one that was expected, or the port speaks no TLS.
        kSetting,  ///< A file of certificates cannot be used.
        kLocal,    ///< This process has no memory or no descriptor left for it.
        kNoConnection,  ///< It waited (nearly) all its time for a connection that others had.
        kTimeout,       ///< The request's time is over.
        kTooLarge,      ///< The answer, or its headers.
        kProtocol,      ///< What came is no HTTP.
        kEnded          ///< The server closed the connection, or it broke.
    };
    Kind kind = Kind::kEnded;
    std::string text;  ///< Printable; without headers, path and query of the request.
};

/// The word by which tables of errors know it: "RESOLVE", "CONNECT", "TLS", "SETTING", "LOCAL",
/// "NO CONNECTION", "TIMEOUT", "TOO LARGE", "PROTOCOL", "ENDED", "REQUEST".
[[nodiscard]] std::string_view word_of(HttpFault::Kind kind);

/// What became of the request `token`; each has one.
struct HttpOutcome {
    std::uint64_t token = 0;
    std::optional<HttpFault> fault = {};
    /// What came before a fault stays here, as does the rest; of an interim answer (1xx) nothing.
    int status = 0;
    HttpHeaders headers = {};  ///< Names in lower case.
    std::string body = {};
    bool cut = false;       ///< There was more (`HttpOptions::cut_responses`, `rest_time`).
    std::string peer = {};  ///< The address that it was sent to; empty: there was no connection.

    /// The first header of this name, which is in lower case; empty: there is none.
    [[nodiscard]] std::string_view header(std::string_view name) const;
};

/// What holds for all requests of a client.
struct HttpOptions {
    std::string ca_file = {};    ///< PEM; empty: the system's.
    std::string cert_file = {};  ///< PEM, with `key_file`: who we are.
    std::string key_file = {};
    bool verify = true;                                     ///< The server's certificate and name.
    bool http2 = false;                                     ///< Over TLS, where the server has it.
    std::size_t max_response_bytes = std::size_t{1} << 20;  ///< Of a body.
    bool cut_responses = false;  ///< A longer body is cut and its connection closed, not a fault.
    /// Where it is not 0: what has not come of an answer so long after its status is cut, too.
    std::chrono::milliseconds rest_time{0};
    std::size_t max_connections_per_host = 16;
    std::size_t max_connections = 256;  ///< Idle ones included.
};

/// Sends requests, many at once, and keeps connections. Follows no redirect, reads no settings of
/// proxies or users from the environment, keeps no cookies, raises no signal. A request that finds
/// a kept connection closed under it is sent again on a new one. Not thread-safe.
class HttpClient {
  public:
    explicit HttpClient(const HttpOptions& options = {});
    /// Frees all; what is under way has an unknown outcome. Does not wait for the resolver.
    ~HttpClient();
    HttpClient(const HttpClient&) = delete;
    HttpClient& operator=(const HttpClient&) = delete;

    /// Begins a request; its outcome comes from `poll`, with this token. Never blocks. What is over
    /// the limits of connections waits, within its timeout.
    void start(std::uint64_t token, HttpRequest request);
    /// Drives all and appends the outcomes that are known. Where there is none yet it waits for
    /// one, or until the time is over or `wake_fd` can be read, which it does not do.
    void poll(std::chrono::milliseconds max_wait, std::vector<HttpOutcome>& out, int wake_fd = -1);
    /// Requests without an outcome.
    [[nodiscard]] std::size_t under_way() const;
    /// Ends the requests with this token, or all: they get no outcome any more.
    void cancel(std::uint64_t token);
    void cancel_all();

  private:
    class Impl;
    const std::unique_ptr<Impl> impl_;
};

}  // namespace outbox::net
