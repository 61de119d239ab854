#include "brokers/nats/connection.h"

#include <array>
#include <charconv>
#include <random>
#include <utility>

#include "core/utf8.h"

namespace outbox::nats {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int kRandomChars = 22;

milliseconds until(Clock::time_point end) {
    return std::max(std::chrono::duration_cast<milliseconds>(end - Clock::now()), milliseconds(0));
}

std::string random_token() {
    constexpr std::string_view kChars =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    std::random_device random;
    std::uniform_int_distribution<std::size_t> any(0, kChars.size() - 1);
    std::string token;
    for (int i = 0; i < kRandomChars; ++i) token += kChars[any(random)];
    return token;
}

void append_number(std::uint64_t number, std::string& out) {
    std::array<char, 24> digits;
    out.append(digits.data(),
               std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

// `why` may hold what the server sent.
Fault strange(std::string_view why) {
    return {"ENDED", "it does not speak NATS' protocol: " + to_printable(why)};
}

Fault silent(std::string_view what) {
    return {"SILENT", "no answer to " + std::string(what)};
}

}  // namespace

Connection::Connection(std::unique_ptr<net::Socket> socket, std::size_t host)
    : socket_(std::move(socket)), host_(host) {}

Result<std::unique_ptr<Connection>> Connection::open(const NatsConfig& config, std::size_t first,
                                                     std::string_view as) {
    ErrorInfo error;
    for (std::size_t i = 0; i < config.hosts.size(); ++i) {
        const std::size_t host = (first + i) % config.hosts.size();
        net::SocketFault broken;
        auto socket =
            net::Socket::connect_in_clear(config.hosts[host], config.connect_timeout, broken);
        std::optional<Fault> fault;
        std::unique_ptr<Connection> connection;
        if (socket == nullptr) {
            fault = fault_of_socket(std::move(broken));
        } else {
            connection.reset(new Connection(std::move(socket), host));
            fault = connection->begin(config, as);
        }
        if (!fault) return connection;
        error = to_error(*fault, name_of_host(config.hosts[host]));
    }
    return error;
}

std::optional<Fault> Connection::begin(const NatsConfig& config, std::string_view as) {
    if (auto fault = greet(config)) return fault;
    const auto line = connect_line(config, server_, as);
    if (!line.ok()) return Fault{"CREDS", line.error().message};
    socket_->write(*line);
    inbox_ = config.inbox_prefix + "." + random_token() + ".";
    socket_->write("SUB " + inbox_ + "* 1\r\n");
    // The server says only by this answer that it has taken CONNECT.
    auto fault = flush(config.connect_timeout);
    if (fault && fault->name == "PERMISSIONS") {
        fault->text += " (what is published is answered there)";
    }
    return fault;
}

// The server begins, and TLS comes behind its first line.
std::optional<Fault> Connection::greet(const NatsConfig& config) {
    const auto end = Clock::now() + config.connect_timeout;
    while (true) {
        auto ended = exchange();
        std::string broken;
        if (const auto frame = reader_.next(broken)) {
            if (frame->kind == Frame::Kind::kError) return fault_of_error(frame->text);
            if (frame->kind != Frame::Kind::kInfo) broken = "it does not begin as NATS does";
            if (broken.empty()) {
                auto info = read_info(frame->text);
                if (!info.ok()) return strange("INFO is no JSON");
                server_ = *std::move(info);
                break;
            }
        }
        if (!broken.empty()) return strange(broken);
        if (ended) return ended;
        if (until(end).count() == 0) return silent("the connection");
        wait(until(end));
    }
    if (!server_.headers) return Fault{"OLD", "NATS " + server_.version + " knows no headers"};
    if (!config.tls) {
        if (server_.tls_wanted) return Fault{"TLS WANTED", "the server wants TLS"};
        return std::nullopt;
    }
    if (!server_.tls_wanted && !server_.tls_offered) {
        return Fault{"NO TLS", "the server has no TLS"};
    }
    // Whoever is on the way could have written it, and it would count as the server's.
    if (reader_.has_more()) return Fault{"TLS", "something came in clear before TLS began"};
    auto failed = socket_->secure(config, config.hosts[host_], until(end));
    if (failed) return fault_of_socket(*std::move(failed));
    return std::nullopt;
}

std::string_view Connection::reply_subject(std::uint64_t number) {
    reply_ = inbox_;
    append_number(number, reply_);
    return reply_;
}

std::string_view Connection::series_subject(std::uint64_t number) {
    if (series_.empty()) {
        series_ = inbox_ + "s.";
        socket_->write("SUB " + series_ + "* 2\r\n");
    }
    reply_ = series_;
    append_number(number, reply_);
    return reply_;
}

void Connection::stop_series() {
    if (!series_.empty()) socket_->write("UNSUB 2\r\n");
    series_.clear();
}

std::optional<std::uint64_t> Connection::number_of(std::string_view reply_subject) const {
    if (!reply_subject.starts_with(inbox_)) return std::nullopt;
    std::string_view digits = reply_subject.substr(inbox_.size());
    if (digits.starts_with("s.")) digits.remove_prefix(2);
    std::uint64_t number = 0;
    if (!net::read_number<std::uint64_t>(digits, 0, UINT64_MAX, number)) return std::nullopt;
    return number;
}

void Connection::publish(std::string_view subject, std::string_view reply, std::string_view headers,
                         std::string_view payload) {
    line_.clear();
    append_message(subject, reply, headers, payload, line_);
    socket_->write(line_);
}

std::optional<Fault> Connection::exchange() {
    std::string& buffer = reader_.buffer();
    const std::size_t before = buffer.size();
    auto ended = socket_->exchange(buffer);
    heard_ += buffer.size() - before;
    if (ended) return fault_of_socket(*std::move(ended));
    return std::nullopt;
}

std::optional<Frame> Connection::next(std::optional<Fault>& fault) {
    if (kept_.empty()) return read(fault);
    shown_ = std::move(kept_.front());
    kept_.pop_front();
    return Frame{.kind = Frame::Kind::kMessage,
                 .text = {},
                 .subject = shown_.subject,
                 .reply = shown_.reply,
                 .headers = shown_.headers,
                 .payload = shown_.payload};
}

std::optional<Frame> Connection::read(std::optional<Fault>& fault) {
    std::string broken;
    while (const auto frame = reader_.next(broken)) {
        switch (frame->kind) {
            case Frame::Kind::kMessage:
                return frame;
            case Frame::Kind::kPing:
                socket_->write("PONG\r\n");
                break;
            case Frame::Kind::kPong:
                ++pongs_;
                break;
            case Frame::Kind::kError:
                fault = fault_of_error(frame->text);
                return std::nullopt;
            case Frame::Kind::kInfo:
                if (auto info = read_info(frame->text); info.ok()) server_ = *std::move(info);
                break;
            case Frame::Kind::kOk:
                break;
        }
    }
    if (!broken.empty()) fault = strange(broken);
    return std::nullopt;
}

std::optional<std::string> Connection::ask(std::string_view subject, std::string_view payload,
                                           milliseconds most, std::optional<Fault>& fault) {
    const std::string reply = inbox_ + "q" + std::to_string(++questions_);
    publish(subject, reply, {}, payload);
    const auto end = Clock::now() + most;
    while (true) {
        auto ended = exchange();
        while (const auto frame = read(fault)) {
            if (frame->subject != reply) {
                kept_.push_back({std::string(frame->subject), std::string(frame->reply),
                                 std::string(frame->headers), std::string(frame->payload)});
                continue;
            }
            if (HeaderLines(frame->headers).status() != "503") return std::string(frame->payload);
            fault = Fault{"NO RESPONDERS", "nobody answers " + std::string(subject)};
            return std::nullopt;
        }
        if (!fault && ended) fault = std::move(ended);
        if (!fault && until(end).count() == 0) fault = silent(subject);
        if (fault) return std::nullopt;
        wait(until(end));
    }
}

std::optional<Fault> Connection::flush(milliseconds most) {
    const std::uint64_t before = pongs_;
    ping();
    const auto end = Clock::now() + most;
    while (true) {
        auto ended = exchange();
        std::optional<Fault> fault;
        while (const auto frame = read(fault)) {
            kept_.push_back({std::string(frame->subject), std::string(frame->reply),
                             std::string(frame->headers), std::string(frame->payload)});
        }
        if (fault) return fault;
        if (pongs_ > before) return std::nullopt;
        if (ended) return ended;
        if (until(end).count() == 0) return silent("PING");
        wait(until(end));
    }
}

}  // namespace outbox::nats
