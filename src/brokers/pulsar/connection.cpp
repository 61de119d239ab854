#include "brokers/pulsar/connection.h"

#include <algorithm>
#include <utility>

namespace outbox::pulsar {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// What brokers take where they do not say.
constexpr std::size_t kUsualBytes = std::size_t{5} << 20;

}  // namespace

Connection::Connection(std::unique_ptr<net::Socket> socket, const net::Host& host)
    : socket_(std::move(socket)), host_(host), heard_at_(Clock::now()), asked_at_(heard_at_) {}

Result<std::unique_ptr<Connection>> Connection::open(const PulsarConfig& config,
                                                     const net::Host& host,
                                                     const std::string& proxy_to) {
    net::SocketFault broken;
    auto socket = net::Socket::connect(config, host, config.connect_timeout, broken);
    std::optional<Fault> fault;
    std::unique_ptr<Connection> connection;
    if (socket == nullptr) {
        fault = fault_of_socket(std::move(broken));
    } else {
        connection.reset(new Connection(std::move(socket), host));
        fault = connection->begin(config, proxy_to);
    }
    if (!fault) return connection;
    return to_error(*fault, name_of_host(host));
}

Result<std::unique_ptr<Connection>> Connection::open_any(const PulsarConfig& config,
                                                         std::size_t first) {
    ErrorInfo error;
    for (std::size_t i = 0; i < config.hosts.size(); ++i) {
        auto connection = open(config, config.hosts[(first + i) % config.hosts.size()], {});
        if (connection.ok()) return connection;
        error = connection.error();
    }
    return error;
}

std::optional<Fault> Connection::begin(const PulsarConfig& config, const std::string& proxy_to) {
    const auto token = net::password_of(config);
    if (!token.ok()) return Fault{"TOKEN", token.error().message};
    token_ = *token;
    Connect hello{.auth_method = {}, .auth_data = *token, .proxy_to = proxy_to};
    if (!token->empty()) {
        hello.auth_method = "token";
    } else if (!config.cert_file.empty()) {
        hello.auth_method = "tls";
    }
    line_.clear();
    append_connect(hello, line_);
    std::optional<Fault> fault;
    const auto answer = ask(Command::Kind::kConnected, config.connect_timeout, fault);
    if (answer) max_bytes_ = answer->max_bytes > 0 ? answer->max_bytes : kUsualBytes;
    return fault;
}

bool Connection::has_old_token(const PulsarConfig& config) const {
    const auto token = net::password_of(config);
    return token.ok() && *token != token_;
}

std::optional<Fault> Connection::look_up(const std::string& topic, milliseconds most) {
    line_.clear();
    append_lookup(topic, 0, false, line_);
    std::optional<Fault> fault;
    const auto answer = ask(Command::Kind::kLookup, most, fault);
    if (answer && answer->failed) fault = fault_of_request(answer->error, answer->text);
    return fault;
}

std::optional<Command> Connection::ask(Command::Kind kind, milliseconds most,
                                       std::optional<Fault>& fault) {
    write(line_);
    const auto end = Clock::now() + most;
    while (true) {
        auto ended = exchange();
        while (const auto answer = next(fault)) {
            if (answer->kind == kind) return answer;
            if (answer->kind != Command::Kind::kError) continue;
            fault = fault_of_request(answer->error, answer->text);
            return std::nullopt;
        }
        if (!fault && ended) fault = std::move(ended);
        const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
        if (!fault && left.count() <= 0) fault = Fault{"SILENT", "no answer in time"};
        if (fault) return std::nullopt;
        socket_->wait(left);
    }
}

void Connection::ping() {
    line_.clear();
    append_ping(line_);
    write(line_);
}

std::optional<Fault> Connection::exchange() {
    std::string& buffer = reader_.buffer();
    const std::size_t before = buffer.size();
    auto ended = socket_->exchange(buffer);
    if (buffer.size() > before) heard_at_ = Clock::now();
    heard_ += buffer.size() - before;
    if (ended) return fault_of_socket(*std::move(ended));
    return std::nullopt;
}

std::optional<Command> Connection::next(std::optional<Fault>& fault) {
    std::string broken;
    while (auto command = reader_.next(broken)) {
        if (command->kind != Command::Kind::kPing) return command;
        line_.clear();
        append_pong(line_);
        write(line_);
    }
    if (!broken.empty()) fault = Fault{"ENDED", "it does not speak Pulsar's protocol: " + broken};
    return std::nullopt;
}

std::optional<Fault> Connection::look_for_silence(bool waiting, milliseconds most) {
    const auto now = Clock::now();
    // Whoever says nothing while nothing is asked is not silent.
    if (!waiting) heard_at_ = now;
    if (now - heard_at_ > most) {
        return Fault{"SILENT", "no answer for " + std::to_string(most.count() / 1000) + " s"};
    }
    if (now - std::max(heard_at_, asked_at_) > most / 4) {
        ping();
        asked_at_ = now;
    }
    return std::nullopt;
}

}  // namespace outbox::pulsar
