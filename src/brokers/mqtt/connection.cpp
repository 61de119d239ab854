#include "brokers/mqtt/connection.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/utf8.h"

namespace outbox::mqtt {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kKeepAlive{60};
constexpr std::uint8_t kFirstError = 0x80;
constexpr std::uint8_t kNotAuthorized = 0x87;

}  // namespace

Connection::Connection(std::unique_ptr<net::Socket> socket, std::size_t host)
    : socket_(std::move(socket)), host_(host), keep_alive_(kKeepAlive), spoke_at_(Clock::now()) {}

// A broker that hears nothing of an end takes it for a failure.
Connection::~Connection() {
    line_.clear();
    append_disconnect(line_);
    socket_->write(line_);
    std::string ignored;
    static_cast<void>(socket_->exchange(ignored));
}

Result<std::unique_ptr<Connection>> Connection::open(const MqttConfig& config, std::size_t first) {
    const auto password = net::password_of(config);
    if (!password.ok()) return password.error();
    ErrorInfo error;
    for (std::size_t i = 0; i < config.hosts.size(); ++i) {
        const std::size_t host = (first + i) % config.hosts.size();
        net::SocketFault broken;
        auto socket =
            net::Socket::connect(config, config.hosts[host], config.connect_timeout, broken);
        std::optional<Fault> fault;
        std::unique_ptr<Connection> connection;
        if (socket == nullptr) {
            fault = fault_of_socket(std::move(broken));
        } else {
            connection.reset(new Connection(std::move(socket), host));
            fault = connection->begin(config, *password);
        }
        if (!fault) return connection;
        error = to_error(*fault, name_of_host(config.hosts[host]));
    }
    return error;
}

std::optional<Fault> Connection::begin(const MqttConfig& config, const std::string& password) {
    line_.clear();
    append_connect({.user = config.user,
                    .password = password,
                    .keep_alive_s = static_cast<std::uint16_t>(kKeepAlive.count())},
                   line_);
    write(line_);
    const auto end = Clock::now() + config.connect_timeout;
    while (true) {
        auto ended = exchange();
        std::optional<Fault> fault;
        if (const auto answer = next(fault)) {
            if (answer->kind != Packet::Kind::kConnected) return Fault{"0x82", "no CONNACK"};
            // MQTT 3.1.1 has small numbers of its own, 1 for a version that it does not speak.
            if (answer->code == 1) return Fault{"0x84", "it speaks no MQTT 5"};
            if (answer->code == kNotAuthorized) return Fault{"REFUSED", "not authorized"};
            if (answer->code != 0) return fault_of_code(answer->code, answer->reason);
            if (!answer->takes_qos_1) return fault_of_code(0x9B, "");
            if (config.retain && !answer->keeps_last) return fault_of_code(0x9A, "");
            receive_max_ = answer->receive_max > 0 ? answer->receive_max
                                                   : std::numeric_limits<std::uint16_t>::max();
            max_packet_ = answer->max_packet;
            if (answer->keep_alive_s > 0) keep_alive_ = std::chrono::seconds(answer->keep_alive_s);
            return std::nullopt;
        }
        if (fault) return fault;
        if (ended) return ended;
        const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
        if (left.count() <= 0) return Fault{"SILENT", "no answer to CONNECT"};
        wait(left);
    }
}

void Connection::write(const std::string& bytes) {
    socket_->write(bytes);
    spoke_at_ = Clock::now();
}

void Connection::publish(const Publish& message) {
    line_.clear();
    append_publish(message, line_);
    write(line_);
}

void Connection::ping() {
    line_.clear();
    append_ping(line_);
    write(line_);
}

std::optional<Fault> Connection::exchange() {
    if (Clock::now() - spoke_at_ > keep_alive_ / 2) ping();
    std::string& buffer = reader_.buffer();
    const std::size_t before = buffer.size();
    auto ended = socket_->exchange(buffer);
    heard_ += buffer.size() - before;
    if (ended) return fault_of_socket(*std::move(ended));
    return std::nullopt;
}

std::optional<Packet> Connection::next(std::optional<Fault>& fault) {
    std::string broken;
    while (auto packet = reader_.next(broken)) {
        if (packet->kind == Packet::Kind::kPong) continue;
        if (packet->kind != Packet::Kind::kDisconnect) return packet;
        fault = packet->code < kFirstError ? Fault{"ENDED", "the broker has ended the connection"}
                                           : fault_of_code(packet->code, packet->reason);
        return std::nullopt;
    }
    if (!broken.empty()) fault = Fault{"ENDED", "it does not speak MQTT's protocol: " + broken};
    return std::nullopt;
}

}  // namespace outbox::mqtt
