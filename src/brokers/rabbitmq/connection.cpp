#include "brokers/rabbitmq/connection.h"

#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <array>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/time.h>

#include "net/certificates.h"
#include "net/connect.h"

namespace outbox::rabbitmq {
namespace {

constexpr std::chrono::milliseconds kFarewell{200};

Fault fault_of_socket(net::SocketFault fault) {
    return {std::string(net::word_of(fault.kind)), std::move(fault.text), Doing::kLogin};
}

// librabbitmq connects to an address, and would ask for that name.
void ask_for_host(const SSL* session, int where, int /*value*/) {
    if ((where & SSL_CB_HANDSHAKE_START) == 0) return;
    const auto* name = static_cast<const char*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(session)));
    SSL_set_tlsext_host_name(const_cast<SSL*>(session), name);  // none: it is an address
}

// Which certificate of the server is good, and our own.
std::optional<Fault> set_tls(amqp_socket_t* socket, const RabbitmqConfig& config,
                             const net::Host& host) {
    auto* context = static_cast<SSL_CTX*>(amqp_ssl_socket_get_context(socket));
    amqp_ssl_socket_set_verify_peer(socket, config.verify ? 1 : 0);
    amqp_ssl_socket_set_verify_hostname(socket, 0);  // OpenSSL does, by the host's name
    amqp_ssl_socket_set_ssl_versions(socket, AMQP_TLSv1_2, AMQP_TLSvLATEST);
    const bool has_name = net::expect_host(SSL_CTX_get0_param(context), host);
    SSL_CTX_set_app_data(context, has_name ? const_cast<char*>(host.name.c_str()) : nullptr);
    SSL_CTX_set_info_callback(context, ask_for_host);
    if (auto why = net::load_certificates(context, config)) {
        return fault_of_socket({net::SocketFault::Kind::kSetting, *std::move(why)});
    }
    return std::nullopt;
}

Connection make_connection(const RabbitmqConfig& config) {
    Connection connection(amqp_new_connection());
    const timeval timeout = timeval_of(config.connect_timeout);
    amqp_set_handshake_timeout(connection.get(), &timeout);
    amqp_set_rpc_timeout(connection.get(), &timeout);
    return connection;
}

std::optional<Fault> connect_in_clear(Connection& connection, const RabbitmqConfig& config,
                                      const net::Host& host) {
    net::SocketFault broken;
    const int descriptor = net::connect_to(host, config.connect_timeout, broken);
    if (descriptor < 0) return fault_of_socket(std::move(broken));
    connection = make_connection(config);
    amqp_tcp_socket_set_sockfd(amqp_tcp_socket_new(connection.get()), descriptor);
    return std::nullopt;
}

// The library takes no descriptor for TLS.
std::optional<Fault> connect_by_tls(Connection& connection, const RabbitmqConfig& config,
                                    const net::Host& host) {
    net::SocketFault broken;
    std::optional<Fault> fault;
    const auto act = [&](const std::string& address, std::chrono::milliseconds most) {
        connection = make_connection(config);
        amqp_socket_t* socket = amqp_ssl_socket_new(connection.get());
        fault = set_tls(socket, config, host);
        if (fault) return true;
        const timeval timeout = timeval_of(most);
        const int status = amqp_socket_open_noblock(socket, address.c_str(), host.port, &timeout);
        if (status != AMQP_STATUS_OK) fault = fault_of_status(status, Doing::kLogin);
        return !fault;
    };
    if (net::try_addresses(host, config.connect_timeout, act, broken) || fault) return fault;
    return fault_of_socket(std::move(broken));
}

std::optional<Fault> log_in(amqp_connection_state_t connection, const RabbitmqConfig& config,
                            const std::string& password, std::string_view name) {
    std::array<amqp_table_entry_t, 4> abilities = {
        flag_entry("connection.blocked"), flag_entry("basic.nack"),
        flag_entry("publisher_confirms"), flag_entry("consumer_cancel_notify")};
    amqp_table_entry_t capabilities{};
    capabilities.key = bytes_of("capabilities");
    capabilities.value.kind = AMQP_FIELD_KIND_TABLE;
    capabilities.value.value.table = {static_cast<int>(abilities.size()), abilities.data()};
    std::array<amqp_table_entry_t, 3> entries = {text_entry("product", "outbox"),
                                                 text_entry("connection_name", name), capabilities};
    const amqp_table_t properties{static_cast<int>(entries.size()), entries.data()};
    const auto heartbeat_s = static_cast<int>(config.heartbeat.count());
    const auto reply = amqp_login_with_properties(
        connection, config.vhost.c_str(), 0, AMQP_DEFAULT_FRAME_SIZE, heartbeat_s, &properties,
        AMQP_SASL_METHOD_PLAIN, config.user.c_str(), password.c_str());
    return fault_of(reply, Doing::kLogin);
}

Result<Connection> open_one(const RabbitmqConfig& config, const net::Host& host,
                            std::string_view name) {
    const auto password = password_of(config);
    if (!password.ok()) return password.error();
    Connection connection;
    std::optional<Fault> fault = config.tls ? connect_by_tls(connection, config, host)
                                            : connect_in_clear(connection, config, host);
    if (!fault) fault = log_in(connection.get(), config, *password, name);
    if (!fault) {
        amqp_channel_open(connection.get(), kChannel);
        fault = fault_of(amqp_get_rpc_reply(connection.get()), Doing::kLogin);
    }
    if (fault) return to_error(*fault, name_of_host(host));
    return connection;
}

}  // namespace

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

Fault fault_of_status(int status, Doing doing) {
    const char* name = "CLOSED";
    if (status == AMQP_STATUS_HOSTNAME_RESOLUTION_FAILED) name = "RESOLVE";
    if (status == AMQP_STATUS_TIMEOUT) name = "TIMEOUT";
    if (status == AMQP_STATUS_HEARTBEAT_TIMEOUT) name = "HEARTBEAT";
    if (status <= AMQP_STATUS_SSL_ERROR) name = "TLS";
    return {name, amqp_error_string2(status), doing};
}

std::optional<Fault> fault_of_method(const amqp_method_t& method, Doing doing) {
    if (method.id == AMQP_CONNECTION_CLOSE_METHOD) {
        const auto& close = *static_cast<amqp_connection_close_t*>(method.decoded);
        return Fault{std::to_string(close.reply_code), text_of(close.reply_text), doing};
    }
    if (method.id == AMQP_CHANNEL_CLOSE_METHOD) {
        const auto& close = *static_cast<amqp_channel_close_t*>(method.decoded);
        return Fault{std::to_string(close.reply_code), text_of(close.reply_text), doing};
    }
    return std::nullopt;
}

std::optional<Fault> fault_of(const amqp_rpc_reply_t& reply, Doing doing) {
    switch (reply.reply_type) {
        case AMQP_RESPONSE_NORMAL:
            return std::nullopt;
        case AMQP_RESPONSE_LIBRARY_EXCEPTION:
            return fault_of_status(reply.library_error, doing);
        case AMQP_RESPONSE_SERVER_EXCEPTION:
            if (auto fault = fault_of_method(reply.reply, doing)) return fault;
            break;
        case AMQP_RESPONSE_NONE:
            break;
    }
    return Fault{"CLOSED", "the connection ended", doing};
}

Result<Opened> open_connection(const RabbitmqConfig& config, std::size_t first,
                               std::string_view name) {
    std::optional<ErrorInfo> error;
    for (std::size_t i = 0; i < config.hosts.size(); ++i) {
        const std::size_t host = (first + i) % config.hosts.size();
        auto connection = open_one(config, config.hosts[host], name);
        if (connection.ok()) return Opened{std::move(*connection), host};
        if (!error) error = connection.error();
    }
    return *std::move(error);
}

bool wait(amqp_connection_state_t connection, std::chrono::milliseconds most, bool to_send,
          int wake_fd) {
    if (amqp_frames_enqueued(connection) != 0 || amqp_data_in_buffer(connection) != 0) most = {};
    const auto events = static_cast<short>(to_send ? POLLIN | POLLOUT : POLLIN);
    std::array<pollfd, 2> files = {pollfd{amqp_get_sockfd(connection), events, 0},
                                   pollfd{wake_fd, POLLIN, 0}};
    ::poll(files.data(), files.size(), static_cast<int>(most.count()));
    return (files[0].revents & POLLOUT) != 0;
}

void say_goodbye(amqp_connection_state_t connection) {
    if (!wait(connection, std::chrono::milliseconds(0), true, -1)) return;
    const timeval timeout = timeval_of(kFarewell);
    amqp_set_rpc_timeout(connection, &timeout);
    amqp_connection_close(connection, AMQP_REPLY_SUCCESS);
}

}  // namespace outbox::rabbitmq
