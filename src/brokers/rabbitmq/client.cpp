#include "brokers/rabbitmq/client.h"

#include <algorithm>
#include <amqp.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <array>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <utility>

#include "brokers/rabbitmq/message.h"

namespace outbox::sinks::rabbitmq {
namespace {

constexpr amqp_channel_t kChannel = 1;
constexpr std::chrono::milliseconds kFarewell{200};
constexpr std::int64_t kUsPerS = 1'000'000;

struct Destroy {
    void operator()(amqp_connection_state_t connection) const {
        amqp_destroy_connection(connection);
    }
};
using Connection = std::unique_ptr<amqp_connection_state_t_, Destroy>;

amqp_bytes_t bytes_of(std::string_view text) {
    amqp_bytes_t bytes;
    bytes.len = text.size();
    bytes.bytes = const_cast<char*>(text.data());  // it is only read
    return bytes;
}

std::string text_of(amqp_bytes_t bytes) {
    return bytes.len == 0 ? std::string() : std::string(static_cast<char*>(bytes.bytes), bytes.len);
}

timeval timeval_of(std::chrono::milliseconds time) {
    timeval value{};
    value.tv_sec = static_cast<time_t>(time.count() / 1000);
    value.tv_usec = static_cast<suseconds_t>(time.count() % 1000 * 1000);
    return value;
}

amqp_table_entry_t text_entry(std::string_view name, std::string_view value) {
    amqp_table_entry_t entry{};
    entry.key = bytes_of(name);
    entry.value.kind = AMQP_FIELD_KIND_UTF8;
    entry.value.value.bytes = bytes_of(value);
    return entry;
}

amqp_table_entry_t flag_entry(std::string_view name) {
    amqp_table_entry_t entry{};
    entry.key = bytes_of(name);
    entry.value.kind = AMQP_FIELD_KIND_BOOLEAN;
    entry.value.value.boolean = 1;
    return entry;
}

Fault fault_of_status(int status, bool at_login) {
    const char* name = "CLOSED";
    if (status == AMQP_STATUS_HOSTNAME_RESOLUTION_FAILED) name = "RESOLVE";
    if (status == AMQP_STATUS_TIMEOUT) name = "TIMEOUT";
    if (status == AMQP_STATUS_HEARTBEAT_TIMEOUT) name = "HEARTBEAT";
    if (status <= AMQP_STATUS_SSL_ERROR) name = "TLS";
    return {name, amqp_error_string2(status), at_login};
}

// Methods that end channel or connection.
std::optional<Fault> fault_of_method(const amqp_method_t& method, bool at_login) {
    if (method.id == AMQP_CONNECTION_CLOSE_METHOD) {
        const auto& close = *static_cast<amqp_connection_close_t*>(method.decoded);
        return Fault{std::to_string(close.reply_code), text_of(close.reply_text), at_login};
    }
    if (method.id == AMQP_CHANNEL_CLOSE_METHOD) {
        const auto& close = *static_cast<amqp_channel_close_t*>(method.decoded);
        return Fault{std::to_string(close.reply_code), text_of(close.reply_text), false};
    }
    return std::nullopt;
}

std::optional<Fault> fault_of(const amqp_rpc_reply_t& reply, bool at_login) {
    switch (reply.reply_type) {
        case AMQP_RESPONSE_NORMAL:
            return std::nullopt;
        case AMQP_RESPONSE_LIBRARY_EXCEPTION:
            return fault_of_status(reply.library_error, at_login);
        case AMQP_RESPONSE_SERVER_EXCEPTION:
            if (auto fault = fault_of_method(reply.reply, at_login)) return fault;
            break;
        case AMQP_RESPONSE_NONE:
            break;
    }
    return Fault{"CLOSED", "the connection ended", at_login};
}

// The certificates that are trusted, and our own.
std::optional<Fault> set_tls(amqp_socket_t* socket, const RabbitmqConfig& config) {
    const auto bad_file = [](const std::string& file) {
        return Fault{"SETTING", "cannot use the file " + file, true};
    };
    amqp_ssl_socket_set_verify_peer(socket, config.verify ? 1 : 0);
    amqp_ssl_socket_set_verify_hostname(socket, config.verify ? 1 : 0);
    amqp_ssl_socket_set_ssl_versions(socket, AMQP_TLSv1_2, AMQP_TLSvLATEST);
    if (config.ca_file.empty()) {
        SSL_CTX_set_default_verify_paths(
            static_cast<SSL_CTX*>(amqp_ssl_socket_get_context(socket)));
    } else if (amqp_ssl_socket_set_cacert(socket, config.ca_file.c_str()) != AMQP_STATUS_OK) {
        return bad_file(config.ca_file);
    }
    if (!config.cert_file.empty() &&
        amqp_ssl_socket_set_key(socket, config.cert_file.c_str(), config.key_file.c_str()) !=
            AMQP_STATUS_OK) {
        return bad_file(config.cert_file + " or " + config.key_file);
    }
    return std::nullopt;
}

std::optional<Fault> connect(amqp_connection_state_t connection, const RabbitmqConfig& config,
                             const Host& host) {
    amqp_socket_t* socket =
        config.tls ? amqp_ssl_socket_new(connection) : amqp_tcp_socket_new(connection);
    if (socket == nullptr) return Fault{"CLOSED", "out of memory", true};
    if (config.tls) {
        if (auto fault = set_tls(socket, config)) return fault;
    }
    const timeval timeout = timeval_of(config.connect_timeout);
    amqp_set_handshake_timeout(connection, &timeout);
    amqp_set_rpc_timeout(connection, &timeout);
    const int status = amqp_socket_open_noblock(socket, host.name.c_str(), host.port, &timeout);
    if (status != AMQP_STATUS_OK) return fault_of_status(status, true);
    return std::nullopt;
}

std::optional<Fault> log_in(amqp_connection_state_t connection, const RabbitmqConfig& config,
                            const std::string& password) {
    std::array<amqp_table_entry_t, 3> abilities = {flag_entry("connection.blocked"),
                                                   flag_entry("basic.nack"),
                                                   flag_entry("publisher_confirms")};
    amqp_table_entry_t capabilities{};
    capabilities.key = bytes_of("capabilities");
    capabilities.value.kind = AMQP_FIELD_KIND_TABLE;
    capabilities.value.value.table = {static_cast<int>(abilities.size()), abilities.data()};
    std::array<amqp_table_entry_t, 3> entries = {text_entry("product", "outbox"),
                                                 text_entry("connection_name", "outbox relay"),
                                                 capabilities};
    const amqp_table_t properties{static_cast<int>(entries.size()), entries.data()};
    const auto heartbeat_s = static_cast<int>(config.heartbeat.count());
    const auto reply = amqp_login_with_properties(
        connection, config.vhost.c_str(), 0, AMQP_DEFAULT_FRAME_SIZE, heartbeat_s, &properties,
        AMQP_SASL_METHOD_PLAIN, config.user.c_str(), password.c_str());
    return fault_of(reply, true);
}

std::optional<Fault> open_channel(amqp_connection_state_t connection,
                                  const RabbitmqConfig& config) {
    amqp_channel_open(connection, kChannel);
    if (auto fault = fault_of(amqp_get_rpc_reply(connection), true)) return fault;
    if (config.declare) {
        amqp_exchange_declare(connection, kChannel, bytes_of(config.exchange),
                              bytes_of(config.exchange_type), /*passive=*/0, /*durable=*/1,
                              /*auto_delete=*/0, /*internal=*/0, amqp_empty_table);
        if (auto fault = fault_of(amqp_get_rpc_reply(connection), false)) return fault;
    }
    amqp_confirm_select(connection, kChannel);
    return fault_of(amqp_get_rpc_reply(connection), true);
}

}  // namespace

struct Client::Parts {
    Connection connection;
    amqp_bytes_t exchange{};
    std::vector<amqp_table_entry_t> headers = {};  // of the last message
    std::optional<Word> returning = {};            // whose content comes next
    std::uint64_t body_left = 0;
    bool ended = false;
    bool broken = false;  // in the middle of a message

    void take_method(const amqp_frame_t& frame, std::vector<Word>& out);
    void take_content(const amqp_frame_t& frame, std::vector<Word>& out);
    void end(Fault fault, std::vector<Word>& out) {
        ended = true;
        out.push_back({.kind = Word::Kind::kEnded, .fault = std::move(fault)});
    }
};

Client::Client(const RabbitmqConfig& config, std::unique_ptr<Parts> parts, std::size_t host)
    : config_(config), parts_(std::move(parts)), host_(host) {
    parts_->exchange = bytes_of(config_.exchange);
}

// In order where that cannot block: a broker logs a warning of a client that just goes.
Client::~Client() {
    if (parts_->ended || parts_->broken || !wait(std::chrono::milliseconds(0), true, -1)) return;
    const timeval timeout = timeval_of(kFarewell);
    amqp_set_rpc_timeout(parts_->connection.get(), &timeout);
    amqp_connection_close(parts_->connection.get(), AMQP_REPLY_SUCCESS);
}

Result<std::unique_ptr<Client>> Client::open(const RabbitmqConfig& config, std::size_t first) {
    std::optional<ErrorInfo> error;
    for (std::size_t i = 0; i < config.hosts.size(); ++i) {
        auto client = open_one(config, (first + i) % config.hosts.size());
        if (client.ok()) return client;
        if (!error) error = client.error();
    }
    return *std::move(error);
}

Result<std::unique_ptr<Client>> Client::open_one(const RabbitmqConfig& config, std::size_t host) {
    const auto password = password_of(config);
    if (!password.ok()) return password.error();
    auto parts = std::make_unique<Parts>();
    parts->connection.reset(amqp_new_connection());
    parts->ended = true;  // until it is open
    std::unique_ptr<Client> client(new Client(config, std::move(parts), host));
    amqp_connection_state_t connection = client->parts_->connection.get();
    std::optional<Fault> fault = connect(connection, config, config.hosts[host]);
    if (!fault) fault = log_in(connection, config, *password);
    if (!fault) fault = open_channel(connection, config);
    if (fault) return to_error(*fault, client->where());
    client->parts_->ended = false;
    return client;
}

std::string Client::where() const {
    const Host& host = config_.hosts[host_];
    return "RabbitMQ at " + host.name + ":" + std::to_string(host.port);
}

Status Client::look_for_exchange() {
    if (config_.exchange.empty()) return {};
    amqp_connection_state_t connection = parts_->connection.get();
    amqp_exchange_declare(connection, kChannel, parts_->exchange, bytes_of("topic"), /*passive=*/1,
                          /*durable=*/0, /*auto_delete=*/0, /*internal=*/0, amqp_empty_table);
    const auto fault = fault_of(amqp_get_rpc_reply(connection), false);
    if (!fault) return {};
    parts_->ended = true;
    return to_error(*fault, where());
}

std::string Client::cluster_name() const {
    const amqp_table_t* properties = amqp_get_server_properties(parts_->connection.get());
    for (int i = 0; properties != nullptr && i < properties->num_entries; ++i) {
        const amqp_table_entry_t& entry = properties->entries[i];
        const bool is_text = entry.value.kind == AMQP_FIELD_KIND_UTF8;
        if (is_text && text_of(entry.key) == "cluster_name") {
            return text_of(entry.value.value.bytes);
        }
    }
    return {};
}

std::size_t Client::max_frame_bytes() const {
    return static_cast<std::size_t>(amqp_get_frame_max(parts_->connection.get()));
}

std::optional<Fault> Client::publish(const spi::Record& record) {
    std::vector<amqp_table_entry_t>& headers = parts_->headers;
    headers.clear();
    amqp_basic_properties_t properties{};
    properties._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG |
                        AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_APP_ID_FLAG;
    properties.delivery_mode = AMQP_DELIVERY_PERSISTENT;
    properties.message_id = bytes_of(record.id);
    properties.app_id = bytes_of("outbox");
    for (const spi::HeaderView& header : record.headers) {
        headers.push_back(text_entry(header.name, header.value));
        if (header.name != "content-type") continue;
        properties._flags |= AMQP_BASIC_CONTENT_TYPE_FLAG;
        properties.content_type = bytes_of(header.value);
    }
    if (record.key.data() != nullptr) headers.push_back(text_entry(kKeyHeader, record.key));
    if (record.value.data() == nullptr) headers.push_back(flag_entry(kNullHeader));
    properties.headers = {static_cast<int>(headers.size()), headers.data()};
    if (!record.event_type.empty()) {
        properties._flags |= AMQP_BASIC_TYPE_FLAG;
        properties.type = bytes_of(record.event_type);
    }
    if (record.occurred_at_us > 0) {
        properties._flags |= AMQP_BASIC_TIMESTAMP_FLAG;
        properties.timestamp = static_cast<std::uint64_t>(record.occurred_at_us / kUsPerS);
    }
    const int status = amqp_basic_publish(parts_->connection.get(), kChannel, parts_->exchange,
                                          bytes_of(routing_key_of(record)), /*mandatory=*/1,
                                          /*immediate=*/0, &properties, bytes_of(record.value));
    if (status == AMQP_STATUS_OK) return std::nullopt;
    parts_->broken = true;
    return fault_of_status(status, false);
}

void Client::gather(bool on) {
    const int value = on ? 1 : 0;
    ::setsockopt(amqp_get_sockfd(parts_->connection.get()), IPPROTO_TCP, TCP_CORK, &value,
                 sizeof value);
}

void Client::hear(std::vector<Word>& out) {
    amqp_connection_state_t connection = parts_->connection.get();
    while (!parts_->ended) {
        amqp_maybe_release_buffers(connection);
        amqp_frame_t frame;
        const timeval at_once{};
        const int status = amqp_simple_wait_frame_noblock(connection, &frame, &at_once);
        if (status == AMQP_STATUS_TIMEOUT) return;
        if (status != AMQP_STATUS_OK) {
            parts_->end(fault_of_status(status, false), out);
        } else if (frame.frame_type == AMQP_FRAME_METHOD) {
            parts_->take_method(frame, out);
        } else {
            parts_->take_content(frame, out);
        }
    }
}

void Client::Parts::take_method(const amqp_frame_t& frame, std::vector<Word>& out) {
    const amqp_method_t& method = frame.payload.method;
    if (auto fault = fault_of_method(method, false)) {
        end(*std::move(fault), out);
        return;
    }
    switch (method.id) {
        case AMQP_BASIC_ACK_METHOD: {
            const auto& ack = *static_cast<amqp_basic_ack_t*>(method.decoded);
            out.push_back({Word::Kind::kAck, ack.delivery_tag, ack.multiple != 0});
            break;
        }
        case AMQP_BASIC_NACK_METHOD: {
            const auto& nack = *static_cast<amqp_basic_nack_t*>(method.decoded);
            out.push_back({Word::Kind::kNack, nack.delivery_tag, nack.multiple != 0});
            break;
        }
        case AMQP_BASIC_RETURN_METHOD: {
            const auto& back = *static_cast<amqp_basic_return_t*>(method.decoded);
            returning = {.kind = Word::Kind::kReturned,
                         .fault = {std::to_string(back.reply_code), text_of(back.reply_text)}};
            break;
        }
        case AMQP_CONNECTION_BLOCKED_METHOD: {
            const auto& blocked = *static_cast<amqp_connection_blocked_t*>(method.decoded);
            out.push_back(
                {.kind = Word::Kind::kBlocked, .fault = {"BLOCKED", text_of(blocked.reason)}});
            break;
        }
        case AMQP_CONNECTION_UNBLOCKED_METHOD:
            out.push_back({.kind = Word::Kind::kUnblocked});
            break;
        default:
            break;
    }
}

// Of a returned message: its properties, then its body in pieces.
void Client::Parts::take_content(const amqp_frame_t& frame, std::vector<Word>& out) {
    if (!returning) return;
    if (frame.frame_type == AMQP_FRAME_HEADER) {
        const auto& properties =
            *static_cast<amqp_basic_properties_t*>(frame.payload.properties.decoded);
        returning->id = text_of(properties.message_id);
        body_left = frame.payload.properties.body_size;
    } else if (frame.frame_type == AMQP_FRAME_BODY) {
        body_left -= std::min<std::uint64_t>(body_left, frame.payload.body_fragment.len);
    }
    if (body_left > 0) return;
    out.push_back(*std::move(returning));
    returning.reset();
}

bool Client::wait(std::chrono::milliseconds most, bool to_send, int wake_fd) {
    amqp_connection_state_t connection = parts_->connection.get();
    if (amqp_frames_enqueued(connection) != 0 || amqp_data_in_buffer(connection) != 0) most = {};
    const auto events = static_cast<short>(to_send ? POLLIN | POLLOUT : POLLIN);
    std::array<pollfd, 2> files = {pollfd{amqp_get_sockfd(connection), events, 0},
                                   pollfd{wake_fd, POLLIN, 0}};
    ::poll(files.data(), files.size(), static_cast<int>(most.count()));
    return (files[0].revents & POLLOUT) != 0;
}

void Client::cut() const noexcept {
    ::shutdown(amqp_get_sockfd(parts_->connection.get()), SHUT_RDWR);
}

}  // namespace outbox::sinks::rabbitmq
