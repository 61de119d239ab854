#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/result.h>

namespace outbox::admin {

class Listener;

/// A request as a page sees it: headers without their names, empty where they were not sent.
struct HttpRequest {
    std::string method = {};  ///< "GET", also where it was HEAD; "POST", ...
    std::string path = {};
    std::string query = {};  ///< Behind the '?', as it was sent.
    std::string host = {};
    std::string origin = {};
    std::string authorization = {};
    std::string content_type = {};
    std::string body = {};
};

/// What is answered; the server forbids that it is cached.
struct HttpResponse {
    unsigned status = 200;
    std::string content_type = "application/json";
    std::string body;
    std::vector<std::pair<std::string, std::string>> headers = {};  ///< Further ones.
};

inline constexpr std::uint32_t kMaxHeaderBytes = 8192;
inline constexpr std::uint64_t kMaxBodyBytes = 16'384;
/// One more ends the one that has waited longest for a request.
inline constexpr std::size_t kMaxConnections = 32;
/// For a request to arrive, and for its answer to be taken.
inline constexpr std::chrono::seconds kRequestTimeout{5};

/// True when `host` is an address of the loopback interface, or a name of one.
[[nodiscard]] bool is_loopback(const std::string& host);

/// The name in a Host header, without its port.
[[nodiscard]] std::string_view host_name(std::string_view host);
/// Whether it is "localhost" or an address, which no foreign name can be made to lead to.
[[nodiscard]] bool names_this_machine(std::string_view host);

/// Serves a few pages over HTTP/1.1 on one thread of its own until destroyed. GET and HEAD only.
/// On a loopback address the Host header must name this machine (localhost or an address), so
/// that a page in a browser cannot reach it under a foreign name.
class AdminServer {
  public:
    /// Called on the server's thread; must not block for long.
    using Page = std::function<HttpResponse()>;
    /// Answers all other paths, with any method and Host: to look at those is its own.
    struct Site {
        /// Called on the server's thread, now and then while a request waits for its turn; must
        /// not block for long. `busy`: for how long `ask` has been at work on an earlier request, 0
        /// where it is not. Nothing: `ask` is called in its turn.
        std::function<std::optional<HttpResponse>(const HttpRequest& request,
                                                  std::chrono::milliseconds busy)>
            at_once;
        /// Called on a second thread, one request at a time; may block: the rest is served
        /// meanwhile. Null: there is no site.
        std::function<HttpResponse(const HttpRequest& request)> ask;
    };

    /// Listens at once. Port 0: any free one. Errors: kConfigInvalid when the address is in use,
    /// not ours, or not an address.
    static Result<std::unique_ptr<AdminServer>> start(
        const std::string& host, std::uint16_t port, std::map<std::string, Page> pages,
        std::chrono::seconds request_timeout = kRequestTimeout, Site site = {});
    /// The same on an address that is listened on already, and stays so when the server has ended.
    static Result<std::unique_ptr<AdminServer>> start(const Listener& listener,
                                                      std::map<std::string, Page> pages,
                                                      std::chrono::seconds request_timeout,
                                                      Site site);
    /// Waits for what the site is at work on.
    ~AdminServer();
    AdminServer(const AdminServer&) = delete;
    AdminServer& operator=(const AdminServer&) = delete;

    [[nodiscard]] std::uint16_t port() const;

    /// Ends the server at once: its own address is free, no page is called any more. What the site
    /// is at work on goes on without it, for nobody. Ready when the site is gone, too.
    static std::future<void> let_go(std::unique_ptr<AdminServer> server);

  private:
    class Impl;
    explicit AdminServer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace outbox::admin
