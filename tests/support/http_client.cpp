#include "tests/support/http_client.h"

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <stdexcept>

namespace outbox::test {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http_ns = beast::http;
using boost::system::error_code;

constexpr std::chrono::seconds kTimeout{60};

// Writes and reads at the same time: a server may answer before it has read everything.
class Exchange {
  public:
    HttpAnswer run(int port, const std::string& bytes) {
        stream_.expires_after(kTimeout);
        stream_.async_connect(
            asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(),
                                    static_cast<unsigned short>(port)),
            [&](error_code ec) {
                if (ec) return finish(ec);
                // The outcome of writing does not matter where there is an answer.
                asio::async_write(stream_, asio::buffer(bytes), [](error_code, std::size_t) {});
                http_ns::async_read(stream_, buffer_, parser_,
                                    [&](error_code read, std::size_t) { finish(read); });
            });
        io_.run();
        if (!outcome_ || *outcome_)
            throw std::runtime_error("no HTTP answer: " +
                                     (outcome_ ? outcome_->message() : "connection ended"));
        return answer();
    }

  private:
    void finish(error_code ec) {
        outcome_ = ec;
        stream_.close();
    }

    HttpAnswer answer() {
        const auto& message = parser_.get();
        HttpAnswer out{static_cast<int>(message.result_int()), message.body(), {}};
        for (const auto& field : message) {
            std::string name(field.name_string());
            std::transform(name.begin(), name.end(), name.begin(), ::tolower);
            out.headers[name] = std::string(field.value());
        }
        return out;
    }

    asio::io_context io_;
    beast::tcp_stream stream_{io_};
    beast::flat_buffer buffer_;
    http_ns::response_parser<http_ns::string_body> parser_;
    std::optional<error_code> outcome_;
};

}  // namespace

HttpAnswer http(int port, const std::string& method, const std::string& target,
                const std::string& body, const std::string& headers) {
    return http_raw(port, method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
                              "Connection: close\r\nContent-Length: " +
                              std::to_string(body.size()) + "\r\n\r\n" + body);
}

HttpAnswer http_raw(int port, const std::string& bytes) {
    return Exchange().run(port, bytes);
}

}  // namespace outbox::test
