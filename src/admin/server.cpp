#include "admin/server.h"

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <deque>
#include <fcntl.h>
#include <functional>
#include <list>
#include <optional>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "admin/listener.h"
#include "core/mutex.h"

namespace outbox::admin {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

using Pages = std::map<std::string, AdminServer::Page>;
using Response = http::response<http::string_body>;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

HttpResponse problem(unsigned status, const std::string& text) {
    return {status, "text/plain; charset=utf-8", text + "\n"};
}

constexpr milliseconds kTurnLook{500};

class Session;

// Runs what may block, one after the other. Waiting jobs go with it; the one that runs is awaited.
// No more of them ask the site than there are connections.
class Worker {
  public:
    ~Worker() {
        {
            const core::Lock lock(mutex_);
            ended_ = true;
        }
        wake_.notify_one();
        if (thread_.joinable()) thread_.join();
    }
    void start() {
        thread_ = std::thread([this] { run(); });
    }
    void post(std::function<void()> job) {
        {
            const core::Lock lock(mutex_);
            jobs_.push_back(std::move(job));
        }
        wake_.notify_one();
    }
    // For how long it has been at the job that runs.
    [[nodiscard]] milliseconds busy() {
        const core::Lock lock(mutex_);
        if (!busy_since_) return milliseconds(0);
        return std::chrono::duration_cast<milliseconds>(steady_clock::now() - *busy_since_);
    }

  private:
    void run() {
        while (true) {
            std::function<void()> job;
            {
                const core::Lock lock(mutex_);
                busy_since_.reset();
                wake_.wait(mutex_,
                           [this]() OUTBOX_REQUIRES(mutex_) { return ended_ || !jobs_.empty(); });
                if (ended_) return;
                job = std::move(jobs_.front());
                jobs_.pop_front();
                busy_since_ = steady_clock::now();
            }
            job();
        }
    }

    core::Mutex mutex_;
    core::Condition wake_;
    std::deque<std::function<void()>> jobs_ OUTBOX_GUARDED_BY(mutex_);
    std::optional<steady_clock::time_point> busy_since_ OUTBOX_GUARDED_BY(mutex_);
    bool ended_ OUTBOX_GUARDED_BY(mutex_) = false;
    std::thread thread_;
};

struct Shared {
    Pages pages;
    AdminServer::Site site;
    Worker* worker = nullptr;  // null: there is no site
    bool check_host = true;
    std::chrono::seconds request_timeout{};
    std::list<Session*> sessions;  // who has waited longest for a request comes first
    std::list<Session*> ending;    // were cut off

    // Nothing: it is for the site.
    [[nodiscard]] std::optional<HttpResponse> answer(
        const http::request<http::string_body>& request) const {
        const std::string target(request.target().data(), request.target().size());
        const auto page = pages.find(target.substr(0, target.find('?')));
        if (page == pages.end() && worker != nullptr) return std::nullopt;
        const auto host = request[http::field::host];
        if (check_host && !names_this_machine({host.data(), host.size()})) {
            return problem(403, "the Host header does not name this machine");
        }
        if (request.method() != http::verb::get && request.method() != http::verb::head) {
            return problem(405, "only GET and HEAD are served here");
        }
        if (page != pages.end()) return page->second();
        std::string known;
        for (const auto& [path, ignored] : pages) known += " " + path;
        return problem(404, "not found; there are" + known);
    }
};

// Beast takes the body's end from some encodings and leaves others to be read as the next request.
bool has_odd_length(const http::request<http::string_body>& request) {
    const auto encodings = request.count(http::field::transfer_encoding);
    if (encodings == 0) return request.count(http::field::content_length) > 1;
    return encodings > 1 || request.count(http::field::content_length) > 0 ||
           request.version() < 11 ||
           !beast::iequals(request[http::field::transfer_encoding], "chunked");
}

HttpRequest plain(http::request<http::string_body>&& request) {
    const auto text = [](auto view) { return std::string(view.data(), view.size()); };
    const std::string target = text(request.target());
    const auto query = target.find('?');
    const bool head = request.method() == http::verb::head;
    return {.method = head ? "GET" : text(request.method_string()),
            .path = target.substr(0, query),
            .query = query == std::string::npos ? std::string() : target.substr(query + 1),
            .host = text(request[http::field::host]),
            .origin = text(request[http::field::origin]),
            .authorization = text(request[http::field::authorization]),
            .content_type = text(request[http::field::content_type]),
            .body = std::move(request.body())};
}

// What failed is for nobody outside to read.
HttpResponse answer_of(const std::function<HttpResponse()>& page) {
    try {
        return page();
    } catch (const std::exception&) {
        return problem(500, "this page failed");
    }
}

// One connection. Shared by the callbacks that are pending on it; gone with the last of them.
class Session : public std::enable_shared_from_this<Session> {
  public:
    Session(tcp::socket socket, Shared& shared)
        : stream_(std::move(socket)), turn_(stream_.get_executor()), shared_(shared) {
        place_ = shared_.sessions.insert(shared_.sessions.end(), this);
    }
    ~Session() { (ended_ ? shared_.ending : shared_.sessions).erase(place_); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // No longer counts; it goes with its last callback.
    void cut_off() {
        shared_.ending.splice(shared_.ending.end(), shared_.sessions, place_);
        ended_ = true;
        is_cut_off_ = true;
        turn_.cancel();
        stream_.close();
    }

    void read() {
        if (ended_) return;
        shared_.sessions.splice(shared_.sessions.end(), shared_.sessions, place_);
        keep_alive_ = false;
        parser_.emplace();
        parser_->header_limit(kMaxHeaderBytes);
        parser_->body_limit(kMaxBodyBytes);
        stream_.expires_after(shared_.request_timeout);
        http::async_read(stream_, buffer_, *parser_,
                         [self = shared_from_this()](beast::error_code error, std::size_t) {
                             self->have_request(error);
                         });
    }

  private:
    void have_request(beast::error_code error) {
        if (error == http::error::header_limit) return write(problem(431, "headers too large"));
        if (error == http::error::body_limit) return write(problem(413, "body too large"));
        if (error) {
            const bool malformed = error.category() == make_error_code(http::error{}).category() &&
                                   error != http::error::end_of_stream &&
                                   error != http::error::partial_message;
            if (malformed) write(problem(400, "not a valid HTTP request"));
            return;
        }
        if (has_odd_length(parser_->get())) {
            return write(problem(400, "Transfer-Encoding is chunked, or there is none"));
        }
        // Who checks the first and who goes by the last would not mean the same.
        if (parser_->get().count(http::field::host) > 1) {
            return write(problem(400, "more than one Host header"));
        }
        keep_alive_ = parser_->get().keep_alive();
        head_ = parser_->get().method() == http::verb::head;
        bool for_site = false;
        const HttpResponse answer = answer_of([&] {
            auto page = shared_.answer(parser_->get());
            for_site = !page;
            return page ? *std::move(page) : HttpResponse();
        });
        if (for_site) return ask_site(plain(parser_->release()));
        write(answer);
    }

    // Shared by the server's thread and the site's.
    struct Question {
        HttpRequest request;
        std::atomic<bool> has_answer{false};  // or gets one
    };

    std::optional<HttpResponse> known_answer(const HttpRequest& request) {
        if (!shared_.site.at_once) return std::nullopt;
        bool known = true;
        HttpResponse answer = answer_of([&] {
            auto found = shared_.site.at_once(request, shared_.worker->busy());
            known = found.has_value();
            return found ? *std::move(found) : HttpResponse();
        });
        return known ? std::optional(std::move(answer)) : std::nullopt;
    }

    // Only the server's own thread touches the connection, and lets go of it.
    void ask_site(HttpRequest request) {
        if (const auto answer = known_answer(request)) return write(*answer);
        const auto question = std::make_shared<Question>(std::move(request));
        stream_.expires_never();
        shared_.worker->post(
            [self = shared_from_this(), question, executor = stream_.get_executor()]() mutable {
                std::optional<HttpResponse> answer;
                // Where nobody waits for the answer any more, others wait for their turn.
                if (!self->is_cut_off_ && !question->has_answer.exchange(true)) {
                    answer = answer_of([&] { return self->shared_.site.ask(question->request); });
                }
                asio::post(executor, [self = std::move(self), answer = std::move(answer)] {
                    if (answer) self->write(*answer);
                });
            });
        await_turn(question);
    }

    // Until it has come, or the site says that it is in vain.
    void await_turn(const std::shared_ptr<Question>& question) {
        turn_.expires_after(kTurnLook);
        turn_.async_wait([self = shared_from_this(), question](beast::error_code error) {
            if (error || self->ended_ || question->has_answer) return;
            const auto answer = self->known_answer(question->request);
            if (!answer) return self->await_turn(question);
            if (!question->has_answer.exchange(true)) self->write(*answer);
        });
    }

    void write(const HttpResponse& answer) {
        if (ended_) return;
        turn_.cancel();
        response_ = Response(static_cast<http::status>(answer.status), 11);
        response_.set(http::field::content_type, answer.content_type);
        response_.set(http::field::cache_control, "no-store");
        response_.set("X-Content-Type-Options", "nosniff");
        if (answer.status == 405) response_.set(http::field::allow, "GET, HEAD");
        for (const auto& [name, value] : answer.headers) response_.set(name, value);
        response_.keep_alive(keep_alive_);
        response_.content_length(answer.body.size());
        if (!head_) response_.body() = answer.body;
        stream_.expires_after(shared_.request_timeout);
        http::async_write(stream_, response_,
                          [self = shared_from_this()](beast::error_code error, std::size_t) {
                              if (!error && self->keep_alive_) return self->read();
                              self->end();
                          });
    }

    // Sends what is left before the socket goes with this object.
    void end() {
        beast::error_code ignored;
        std::ignore = stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    }

    beast::tcp_stream stream_;
    asio::steady_timer turn_;
    Shared& shared_;
    std::list<Session*>::iterator place_;
    bool ended_ = false;
    std::atomic<bool> is_cut_off_{false};  // the same, for the second thread
    beast::flat_buffer buffer_{kMaxHeaderBytes + kMaxBodyBytes};
    std::optional<http::request_parser<http::string_body>> parser_;
    Response response_;
    bool keep_alive_ = false;
    bool head_ = false;
};

}  // namespace

std::string_view host_name(std::string_view host) {
    if (host.starts_with('[')) {
        const auto end = host.find(']');
        return end == std::string_view::npos ? std::string_view() : host.substr(1, end - 1);
    }
    return host.substr(0, host.find(':'));
}

bool names_this_machine(std::string_view host) {
    const std::string_view name = host_name(host);
    if (beast::iequals(name, "localhost")) return true;
    boost::system::error_code error;
    asio::ip::make_address(std::string(name), error);
    return !error;
}

bool is_loopback(const std::string& host) {
    try {
        asio::io_context context;
        const auto found = tcp::resolver(context).resolve(host, "0", tcp::resolver::passive);
        return found.begin()->endpoint().address().is_loopback();
    } catch (const boost::system::system_error&) {
        return false;
    }
}

class AdminServer::Impl {
  public:
    // Has a descriptor of its own for it.
    Status listen(const Listener& listener) {
        const int own = fcntl(listener.descriptor(), F_DUPFD_CLOEXEC, 0);
        beast::error_code error;
        if (own < 0) {
            error.assign(errno, boost::system::system_category());
        } else if (acceptor_.assign(listener.is_v6() ? tcp::v6() : tcp::v4(), own, error); error) {
            close(own);
        }
        if (!error) shared_.check_host = acceptor_.local_endpoint(error).address().is_loopback();
        if (!error) return {};
        return {ErrorCode::kConfigInvalid, Advice::kStop, "cannot listen: " + error.message()};
    }

    void serve(Pages pages, std::chrono::seconds request_timeout, Site site) {
        shared_.pages = std::move(pages);
        if (site.ask) {
            shared_.site = std::move(site);
            shared_.worker = &worker_.emplace();
            worker_->start();
        }
        shared_.request_timeout = request_timeout;
        accept();
        thread_ = std::thread([this] { context_.run(); });
    }

    // Nobody is served any more, and the address is free.
    void leave() {
        context_.stop();
        if (thread_.joinable()) thread_.join();
        beast::error_code ignored;
        std::ignore = acceptor_.close(ignored);
        while (!shared_.sessions.empty()) shared_.sessions.front()->cut_off();
    }
    void await_site() { worker_.reset(); }
    [[nodiscard]] bool has_site() const { return worker_.has_value(); }

    [[nodiscard]] std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

  private:
    void accept() {
        acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
            if (error == asio::error::operation_aborted) return;
            // A probe must be answered whatever else is connected.
            if (!error) {
                if (shared_.sessions.size() >= kMaxConnections) shared_.sessions.front()->cut_off();
                std::make_shared<Session>(std::move(socket), shared_)->read();
            }
            if (error) return accept_later();
            accept();
        });
    }

    // Out of descriptors, for example: do not spin.
    void accept_later() {
        retry_.expires_after(std::chrono::milliseconds(100));
        retry_.async_wait([this](boost::system::error_code error) {
            if (!error) accept();
        });
    }

    Shared shared_;  // outlives the sessions, which live in the context's queues
    asio::io_context context_{1};
    tcp::acceptor acceptor_{context_};
    asio::steady_timer retry_{context_};
    std::thread thread_;
    std::optional<Worker> worker_;
};

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

AdminServer::~AdminServer() {
    if (impl_ == nullptr) return;
    impl_->leave();
    impl_->await_site();
}

std::future<void> AdminServer::let_go(std::unique_ptr<AdminServer> server) {
    std::promise<void> gone;
    std::future<void> result = gone.get_future();
    server->impl_->leave();
    if (!server->impl_->has_site()) {
        gone.set_value();
        return result;
    }
    std::thread([impl = std::move(server->impl_), gone = std::move(gone)]() mutable {
        impl->await_site();
        impl.reset();
        gone.set_value();
    }).detach();
    return result;
}

Result<std::unique_ptr<AdminServer>> AdminServer::start(const std::string& host, std::uint16_t port,
                                                        std::map<std::string, Page> pages,
                                                        std::chrono::seconds request_timeout,
                                                        Site site) {
    const auto listener = Listener::open(host, port);
    if (!listener.ok()) return listener.error();
    return start(**listener, std::move(pages), request_timeout, std::move(site));
}

Result<std::unique_ptr<AdminServer>> AdminServer::start(const Listener& listener,
                                                        std::map<std::string, Page> pages,
                                                        std::chrono::seconds request_timeout,
                                                        Site site) {
    auto impl = std::make_unique<Impl>();
    Status status = impl->listen(listener);
    if (!status.ok()) return status;
    impl->serve(std::move(pages), request_timeout, std::move(site));
    return std::unique_ptr<AdminServer>(new AdminServer(std::move(impl)));
}

std::uint16_t AdminServer::port() const {
    return impl_->port();
}

}  // namespace outbox::admin
