#include "brokers/redis/connection.h"

#include <array>
#include <charconv>
#include <utility>

namespace outbox::redis {
namespace {

using std::chrono::milliseconds;

void append_number(std::string& out, char kind, std::int64_t number) {
    std::array<char, 24> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    out += kind;
    out.append(digits.data(), end);
    out += "\r\n";
}

}  // namespace

std::string_view text_of(const redisReply* reply) {
    return reply == nullptr || reply->str == nullptr ? std::string_view()
                                                     : std::string_view(reply->str, reply->len);
}

std::span<redisReply* const> elements_of(const redisReply& reply) {
    return {reply.element, reply.type == REDIS_REPLY_ARRAY ? reply.elements : 0};
}

void append_command(std::string& out, std::size_t parts) {
    append_number(out, '*', static_cast<std::int64_t>(parts));
}

void append_argument(std::string& out, std::string_view text) {
    append_number(out, '$', static_cast<std::int64_t>(text.size()));
    out.append(text);
    out += "\r\n";
}

void append_argument(std::string& out, std::int64_t number) {
    std::array<char, 24> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    append_argument(out, std::string_view(digits.data(), end));
}

Connection::Connection(std::unique_ptr<net::Socket> socket, std::size_t host)
    : socket_(std::move(socket)), reader_(redisReaderCreate()), host_(host) {}

Result<std::unique_ptr<Connection>> Connection::open(const RedisConfig& config, std::size_t first,
                                                     const Look& is_wanted) {
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
            fault = connection->log_in(config, *password);
            if (!fault) fault = is_wanted(*connection);
        }
        if (!fault) return connection;
        // A replica says less than the failure of the one that should be the primary.
        if (i == 0 || !is_replicas(*fault))
            error = to_error(*fault, name_of_host(config.hosts[host]));
    }
    return error;
}

std::optional<Fault> Connection::log_in(const RedisConfig& config, const std::string& password) {
    std::optional<Fault> fault;
    if (!password.empty() && !config.user.empty()) {
        ask({"AUTH", config.user, password}, config.connect_timeout, fault);
    } else if (!password.empty()) {
        ask({"AUTH", password}, config.connect_timeout, fault);
    }
    if (!fault && config.database != 0) {
        ask({"SELECT", std::to_string(config.database)}, config.connect_timeout, fault);
    }
    return fault;
}

std::optional<Fault> Connection::exchange() {
    in_.clear();
    auto ended = socket_->exchange(in_);
    redisReaderFeed(reader_.get(), in_.data(), in_.size());
    if (ended) return fault_of_socket(*std::move(ended));
    return std::nullopt;
}

Reply Connection::next(std::optional<Fault>& fault) {
    void* reply = nullptr;
    if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
        fault = Fault{"ENDED", std::string("it does not speak Redis' protocol: ") +
                                   static_cast<const char*>(reader_->errstr)};
        return nullptr;
    }
    return Reply(static_cast<redisReply*>(reply));
}

Reply Connection::ask(std::span<const std::string_view> command, milliseconds most,
                      std::optional<Fault>& fault) {
    std::string text;
    append_command(text, command.size());
    for (const std::string_view part : command) append_argument(text, part);
    write(text);
    const auto end = std::chrono::steady_clock::now() + most;
    while (!fault) {
        auto ended = exchange();
        if (Reply reply = next(fault)) {
            if (reply->type != REDIS_REPLY_ERROR) return reply;
            fault = fault_of_reply(text_of(reply.get()));
        }
        if (!fault) fault = std::move(ended);
        if (fault) break;
        const auto left =
            std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
        if (left.count() <= 0) {
            fault = Fault{"SILENT", "no answer to " + std::string(command.front())};
        } else {
            wait(left);
        }
    }
    return nullptr;
}

}  // namespace outbox::redis
