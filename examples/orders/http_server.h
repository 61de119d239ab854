#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orders {

struct HttpRequest {
    std::string method;
    std::string path;  ///< Without the query.
    std::string body;
    std::optional<std::string> idempotency_key;  ///< The header's value, as it was sent.
    std::string content_type;                    ///< In lower case, without parameters.
    bool from_page = false;      ///< A page in a browser sent it (there is an Origin).
    std::int64_t waited_ms = 0;  ///< Since the handler first asked for a pause.
};

struct HttpResponse {
    int status = 200;
    std::string body;  ///< JSON.
    std::vector<std::pair<std::string, std::string>> headers = {};
    /// Above 0: not the answer yet; the handler is called again after this pause, which keeps no
    /// worker. When the server stops meanwhile, it is the answer.
    std::int64_t ask_again_ms = 0;
};

struct HttpLimits {
    std::size_t workers = 8;             ///< Handlers that run at the same time.
    std::size_t max_connections = 2048;  ///< One more is answered 503 and closed.
    std::size_t max_header_bytes = 16 * 1024;
    std::size_t max_body_bytes = 1024 * 1024;  ///< A larger one is answered 413.
    std::chrono::seconds request_timeout{30};  ///< For the whole request to arrive.
    std::chrono::seconds idle_timeout{60};     ///< Between two requests of a connection.
    std::chrono::seconds shutdown_grace{30};
};

/// A small HTTP/1.1 server: one thread for the sockets, `workers` threads for the handler.
class HttpServer {
  public:
    /// Called on several threads at once; may block. An exception is answered 500.
    using Handler = std::function<HttpResponse(const HttpRequest&)>;

    /// Listens at once; port 0 picks a free one. Throws std::runtime_error if it cannot.
    HttpServer(const std::string& address, std::uint16_t port, HttpLimits limits, Handler handler);
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    [[nodiscard]] std::uint16_t port() const;

    /// Serves until SIGINT or SIGTERM, then accepts nothing new, closes idle connections and
    /// finishes requests under way for up to `shutdown_grace`. False: some were cut off.
    [[nodiscard]] bool run();

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace orders
