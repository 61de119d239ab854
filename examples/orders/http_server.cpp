#include "http_server.h"

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cctype>
#include <csignal>
#include <iostream>
#include <optional>
#include <set>
#include <stdexcept>

namespace orders {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

using Message = http::response<http::string_body>;

constexpr std::size_t kMaxDiscardBytes = std::size_t{64} * 1024 * 1024;
constexpr std::chrono::seconds kDiscardTimeout{5};
constexpr std::chrono::milliseconds kAcceptPause{50};

/// Where to go on after an awaited call: on the socket's thread, with the error in `ec`.
auto into(error_code& ec) {
    return asio::redirect_error(asio::use_awaitable, ec);
}

Message to_message(HttpResponse response, unsigned version, bool keep_alive) {
    Message message(static_cast<http::status>(response.status), version);
    message.set(http::field::content_type, "application/json");
    for (const auto& [name, value] : response.headers) message.set(name, value);
    message.body() = std::move(response.body);
    message.keep_alive(keep_alive);
    message.prepare_payload();
    return message;
}

HttpResponse problem(int status, const std::string& text) {
    return {status, "{\"error\":\"" + text + "\"}\n"};
}

/// What to answer when the request itself could not be read; none when there is nobody to answer.
std::optional<HttpResponse> answer_to(const error_code& ec, const HttpLimits& limits) {
    if (ec == http::error::body_limit)
        return problem(
            413, "the body is larger than " + std::to_string(limits.max_body_bytes) + " bytes");
    if (ec == http::error::header_limit)
        return problem(
            431, "the header is larger than " + std::to_string(limits.max_header_bytes) + " bytes");
    if (ec.category() == make_error_code(http::error::end_of_stream).category() &&
        ec != http::error::end_of_stream && ec != http::error::partial_message)
        return problem(400, "not a valid HTTP request");
    return std::nullopt;
}

/// What of a request is wrong that its parser lets pass. Beast takes the body's end from some
/// encodings and leaves others to be read as the next request.
std::optional<HttpResponse> refuse_header(const http::request<http::string_body>& request) {
    const auto encodings = request.count(http::field::transfer_encoding);
    const auto lengths = request.count(http::field::content_length);
    const bool chunked = encodings == 1 && lengths == 0 && request.version() == 11 &&
                         beast::iequals(request[http::field::transfer_encoding], "chunked");
    if (encodings > 0 ? !chunked : lengths > 1)
        return problem(400, "Transfer-Encoding is chunked, or there is none");
    if (request.count("Idempotency-Key") > 1)
        return problem(400, "there is more than one Idempotency-Key");
    return std::nullopt;
}

std::string media_type(std::string_view value) {
    value = value.substr(0, value.find(';'));
    while (value.ends_with(' ')) value.remove_suffix(1);
    std::string type(value);
    std::transform(type.begin(), type.end(), type.begin(), ::tolower);
    return type;
}

}  // namespace

class HttpServer::Impl {
  public:
    Impl(const std::string& address, std::uint16_t port, HttpLimits limits, Handler handler)
        : limits_(limits),
          handler_(std::move(handler)),
          io_(1),
          acceptor_(io_),
          signals_(io_, SIGINT, SIGTERM),
          grace_(io_),
          workers_(limits.workers) {
        const tcp::endpoint endpoint(asio::ip::make_address(address), port);
        error_code ec;
        acceptor_.open(endpoint.protocol());
        acceptor_.set_option(tcp::acceptor::reuse_address(true));
        static_cast<void>(acceptor_.bind(endpoint, ec));
        if (!ec) static_cast<void>(acceptor_.listen(asio::socket_base::max_listen_connections, ec));
        if (ec)
            throw std::runtime_error("cannot listen on " + address + ":" + std::to_string(port) +
                                     ": " + ec.message() + "; set PORT to a free port");
    }

    [[nodiscard]] std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

    bool run() {
        asio::co_spawn(io_, accept_all(), asio::detached);
        signals_.async_wait([this](const error_code& ec, int) {
            if (!ec) begin_shutdown();
        });
        io_.run();
        workers_.join();
        return !cut_off_;
    }

  private:
    struct Connection {
        explicit Connection(tcp::socket socket) : stream(std::move(socket)) {}
        beast::tcp_stream stream;
        beast::flat_buffer buffer;
        bool idle = true;  // no byte of a request has been read since the last answer
    };

    asio::awaitable<void> accept_all() {
        while (!stopping_) {
            error_code ec;
            tcp::socket socket(io_);
            co_await acceptor_.async_accept(socket, into(ec));
            if (stopping_) break;
            if (ec) {  // out of file descriptors, or the peer went away: neither is the end
                asio::steady_timer pause(io_, kAcceptPause);
                co_await pause.async_wait(into(ec));
                continue;
            }
            asio::co_spawn(io_, serve(std::move(socket)), asio::detached);
        }
    }

    asio::awaitable<void> serve(tcp::socket socket) {
        Connection connection(std::move(socket));
        connections_.insert(&connection);
        if (connections_.size() > limits_.max_connections) {
            connection.idle = false;
            co_await refuse(connection, problem(503, "too many connections; try again later"));
        } else {
            while (!stopping_ && co_await serve_one(connection)) {
            }
        }
        error_code ignored;
        static_cast<void>(connection.stream.socket().shutdown(tcp::socket::shutdown_both, ignored));
        connections_.erase(&connection);
        if (stopping_ && connections_.empty()) grace_.cancel();
    }

    /// One request and its answer. False: the connection ends.
    asio::awaitable<bool> serve_one(Connection& connection) {
        auto& stream = connection.stream;
        http::request_parser<http::string_body> parser;
        parser.header_limit(static_cast<std::uint32_t>(limits_.max_header_bytes));
        parser.body_limit(limits_.max_body_bytes);
        parser.eager(false);

        error_code ec;
        if (connection.buffer.size() == 0) {
            connection.idle = true;
            stream.expires_after(limits_.idle_timeout);
            const auto room = connection.buffer.prepare(4096);
            const std::size_t got = co_await stream.async_read_some(room, into(ec));
            if (ec) co_return false;
            connection.buffer.commit(got);
        }
        connection.idle = false;
        stream.expires_after(limits_.request_timeout);
        co_await http::async_read_header(stream, connection.buffer, parser, into(ec));
        if (!ec) {
            if (auto answer = refuse_header(parser.get())) {
                co_await refuse(connection, *answer);
                co_return false;
            }
        }
        if (!ec && beast::iequals(parser.get()[http::field::expect], "100-continue")) {
            http::response<http::empty_body> go_on(http::status::continue_, parser.get().version());
            co_await http::async_write(stream, go_on, into(ec));
        }
        if (!ec) co_await http::async_read(stream, connection.buffer, parser, into(ec));
        if (ec) {
            if (auto answer = answer_to(ec, limits_)) co_await refuse(connection, *answer);
            co_return false;
        }

        const unsigned version = parser.get().version();
        const bool keep_alive = parser.get().keep_alive();
        const bool is_head = parser.get().method() == http::verb::head;
        HttpResponse response = co_await answer(to_request(parser.release()));
        Message message = to_message(std::move(response), version, keep_alive && !stopping_);
        if (is_head) message.body().clear();  // the length stays that of the body
        stream.expires_after(limits_.request_timeout);
        co_await http::async_write(stream, message, into(ec));
        co_return !ec && message.keep_alive();
    }

    static HttpRequest to_request(http::request<http::string_body> request) {
        HttpRequest out;
        out.method = std::string(request.method_string());
        out.path = std::string(request.target());
        out.path = out.path.substr(0, out.path.find('?'));
        const auto key = request.find("Idempotency-Key");
        if (key != request.end()) out.idempotency_key = std::string(key->value());
        const auto type = request[http::field::content_type];
        out.content_type = media_type({type.data(), type.size()});
        out.from_page = request.count(http::field::origin) > 0;
        out.body = std::move(request.body());
        return out;
    }

    /// Asks the handler, again after each pause that it wants.
    asio::awaitable<HttpResponse> answer(HttpRequest request) {
        while (true) {
            HttpResponse response = co_await handle(request);
            if (response.ask_again_ms <= 0 || stopping_) co_return response;
            error_code ignored;
            asio::steady_timer pause(io_, std::chrono::milliseconds(response.ask_again_ms));
            co_await pause.async_wait(into(ignored));
            request.waited_ms += response.ask_again_ms;
        }
    }

    /// Runs the handler on a worker and comes back to the socket's thread.
    asio::awaitable<HttpResponse> handle(HttpRequest request) {
        return asio::co_spawn(workers_, call_handler(std::move(request)), asio::use_awaitable);
    }

    asio::awaitable<HttpResponse> call_handler(HttpRequest request) {
        try {
            co_return handler_(request);
        } catch (const std::exception& error) {
            std::cerr << "order-service: " << request.method << " " << request.path << ": "
                      << error.what() << std::endl;
            co_return problem(500, "internal error; see the log of the service");
        }
    }

    /// Answers, then reads away what the client is still sending: closing at once would reset the
    /// connection and the client might never see the answer.
    asio::awaitable<void> refuse(Connection& connection, HttpResponse response) {
        error_code ec;
        Message message = to_message(std::move(response), 11, false);
        connection.stream.expires_after(kDiscardTimeout);
        co_await http::async_write(connection.stream, message, into(ec));
        if (ec) co_return;
        static_cast<void>(connection.stream.socket().shutdown(tcp::socket::shutdown_send, ec));
        std::array<char, 16 * 1024> scratch;
        for (std::size_t discarded = 0; !ec && discarded < kMaxDiscardBytes;)
            discarded +=
                co_await connection.stream.async_read_some(asio::buffer(scratch), into(ec));
    }

    void begin_shutdown() {
        stopping_ = true;
        error_code ignored;
        static_cast<void>(acceptor_.close(ignored));
        for (Connection* connection : connections_)
            if (connection->idle) connection->stream.close();
        if (connections_.empty()) return;
        grace_.expires_after(limits_.shutdown_grace);
        grace_.async_wait([this](const error_code& ec) {
            if (ec) return;
            cut_off_ = true;
            for (Connection* connection : connections_) connection->stream.close();
            io_.stop();
        });
    }

    const HttpLimits limits_;
    const Handler handler_;
    asio::io_context io_;
    tcp::acceptor acceptor_;
    asio::signal_set signals_;
    asio::steady_timer grace_;
    std::set<Connection*> connections_;  // only touched on the socket thread, as is the rest
    bool stopping_ = false;
    bool cut_off_ = false;
    asio::thread_pool workers_;
};

HttpServer::HttpServer(const std::string& address, std::uint16_t port, HttpLimits limits,
                       Handler handler)
    : impl_(std::make_unique<Impl>(address, port, limits, std::move(handler))) {}

HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const {
    return impl_->port();
}

bool HttpServer::run() {
    return impl_->run();
}

}  // namespace orders
