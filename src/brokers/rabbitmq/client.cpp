#include "brokers/rabbitmq/client.h"

#include <algorithm>
#include <array>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <utility>

#include "brokers/rabbitmq/connection.h"
#include "brokers/rabbitmq/message.h"

namespace outbox::rabbitmq {
namespace {

constexpr std::int64_t kUsPerS = 1'000'000;

// Makes the exchange where it should; turns confirms on.
std::optional<Fault> set_up(amqp_connection_state_t connection, const RabbitmqConfig& config) {
    if (config.declare) {
        amqp_exchange_declare(connection, kChannel, bytes_of(config.exchange),
                              bytes_of(config.exchange_type), /*passive=*/0, /*durable=*/1,
                              /*auto_delete=*/0, /*internal=*/0, amqp_empty_table);
        if (auto fault = fault_of(amqp_get_rpc_reply(connection), Doing::kPublish)) return fault;
    }
    amqp_confirm_select(connection, kChannel);
    return fault_of(amqp_get_rpc_reply(connection), Doing::kLogin);
}

std::vector<std::pair<std::string, std::string>> texts_of(const amqp_table_t& table) {
    std::vector<std::pair<std::string, std::string>> texts;
    for (int i = 0; i < table.num_entries; ++i) {
        const amqp_table_entry_t& entry = table.entries[i];
        if (entry.value.kind != AMQP_FIELD_KIND_UTF8) continue;
        texts.emplace_back(text_of(entry.key), text_of(entry.value.value.bytes));
    }
    return texts;
}

}  // namespace

bool Returned::is_of(const spi::Record& record) const {
    const bool has_key = record.key.data() != nullptr;
    if (id != record.id || routing_key != routing_key_of(record) || type != record.event_type ||
        body != record.value || headers.size() != record.headers.size() + (has_key ? 1 : 0)) {
        return false;
    }
    const bool same = std::equal(record.headers.begin(), record.headers.end(), headers.begin(),
                                 [](const spi::HeaderView& one, const auto& other) {
                                     return one.name == other.first && one.value == other.second;
                                 });
    return same && (!has_key || headers.back().second == record.key);
}

struct Client::Parts {
    Connection connection;
    amqp_bytes_t exchange{};
    std::vector<amqp_table_entry_t> headers = {};  // of the last message
    struct Returning {
        std::optional<Word> word = {};  // whose content comes next
        std::uint64_t body_left = 0;
    };
    std::array<Returning, kMostChannels + 1> returning = {};  // by channel
    std::array<bool, kMostChannels + 1> closed = {};          // and it was not told that we know
    bool ended = false;
    bool broken = false;  // in the middle of a message

    void take_method(const amqp_frame_t& frame, std::vector<Word>& out);
    static void take_content(const amqp_frame_t& frame, Returning& returning,
                             std::vector<Word>& out);
    void end(Fault fault, std::vector<Word>& out) {
        ended = true;
        out.push_back({.kind = Word::Kind::kEnded, .fault = std::move(fault)});
    }
};

Client::Client(const RabbitmqConfig& config, std::unique_ptr<Parts> parts, std::size_t host)
    : config_(config), parts_(std::move(parts)), host_(host) {
    parts_->exchange = bytes_of(config_.exchange);
}

Client::~Client() {
    if (!parts_->ended && !parts_->broken) say_goodbye(parts_->connection.get());
}

Result<std::unique_ptr<Client>> Client::open(const RabbitmqConfig& config, std::size_t first) {
    auto opened = open_connection(config, first, "outbox relay");
    if (!opened.ok()) return opened.error();
    const auto fault = set_up(opened->connection.get(), config);
    if (fault) return to_error(*fault, name_of_host(config.hosts[opened->host]));
    auto parts = std::make_unique<Parts>();
    parts->connection = std::move(opened->connection);
    return std::unique_ptr<Client>(new Client(config, std::move(parts), opened->host));
}

std::string Client::where() const {
    return name_of_host(config_.hosts[host_]);
}

Status Client::look_for_exchange() {
    if (config_.exchange.empty()) return {};
    amqp_connection_state_t connection = parts_->connection.get();
    amqp_exchange_declare(connection, kChannel, parts_->exchange, bytes_of("topic"), /*passive=*/1,
                          /*durable=*/0, /*auto_delete=*/0, /*internal=*/0, amqp_empty_table);
    const auto fault = fault_of(amqp_get_rpc_reply(connection), Doing::kPublish);
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

std::uint16_t Client::channels() const {
    const int most = amqp_get_channel_max(parts_->connection.get());  // 0: no limit
    return most == 0 ? kMostChannels
                     : static_cast<std::uint16_t>(std::min<int>(most, kMostChannels));
}

// Both answers are passed over when they come: what is published meanwhile the broker reads behind
// the requests, and where it refuses them it ends the connection.
std::optional<Fault> Client::open_channel(std::uint16_t channel) {
    amqp_connection_state_t connection = parts_->connection.get();
    int status = AMQP_STATUS_OK;
    if (std::exchange(parts_->closed[channel], false)) {
        amqp_channel_close_ok_t close_ok{};
        status = amqp_send_method(connection, channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &close_ok);
    }
    amqp_channel_open_t open{};
    amqp_confirm_select_t confirm{};
    if (status == AMQP_STATUS_OK) {
        status = amqp_send_method(connection, channel, AMQP_CHANNEL_OPEN_METHOD, &open);
    }
    if (status == AMQP_STATUS_OK) {
        status = amqp_send_method(connection, channel, AMQP_CONFIRM_SELECT_METHOD, &confirm);
    }
    if (status == AMQP_STATUS_OK) return std::nullopt;
    parts_->broken = true;
    return fault_of_status(status, Doing::kPublish);
}

std::optional<Fault> Client::publish(const spi::Record& record, std::uint16_t channel) {
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
    }
    if (const std::string_view type = content_type_of(record); type.data() != nullptr) {
        properties._flags |= AMQP_BASIC_CONTENT_TYPE_FLAG;
        properties.content_type = bytes_of(type);
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
    const int status = amqp_basic_publish(parts_->connection.get(), channel, parts_->exchange,
                                          bytes_of(routing_key_of(record)), /*mandatory=*/1,
                                          /*immediate=*/0, &properties, bytes_of(record.value));
    if (status == AMQP_STATUS_OK) return std::nullopt;
    parts_->broken = true;
    return fault_of_status(status, Doing::kPublish);
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
            parts_->end(fault_of_status(status, Doing::kPublish), out);
        } else if (frame.frame_type == AMQP_FRAME_METHOD) {
            parts_->take_method(frame, out);
        } else if (frame.channel <= kMostChannels) {
            parts_->take_content(frame, parts_->returning[frame.channel], out);
        }
    }
}

void Client::Parts::take_method(const amqp_frame_t& frame, std::vector<Word>& out) {
    const amqp_method_t& method = frame.payload.method;
    const std::uint16_t channel = frame.channel;
    if (auto fault = fault_of_method(method, Doing::kPublish)) {
        if (method.id == AMQP_CONNECTION_CLOSE_METHOD || channel > kMostChannels) {
            end(*std::move(fault), out);
            return;
        }
        closed[channel] = true;
        returning[channel] = {};
        out.push_back(
            {.kind = Word::Kind::kClosed, .channel = channel, .fault = *std::move(fault)});
        return;
    }
    if (channel > kMostChannels) return;
    switch (method.id) {
        case AMQP_BASIC_ACK_METHOD: {
            const auto& ack = *static_cast<amqp_basic_ack_t*>(method.decoded);
            out.push_back({Word::Kind::kAck, channel, ack.delivery_tag, ack.multiple != 0});
            break;
        }
        case AMQP_BASIC_NACK_METHOD: {
            const auto& nack = *static_cast<amqp_basic_nack_t*>(method.decoded);
            out.push_back({Word::Kind::kNack, channel, nack.delivery_tag, nack.multiple != 0});
            break;
        }
        case AMQP_BASIC_RETURN_METHOD: {
            const auto& back = *static_cast<amqp_basic_return_t*>(method.decoded);
            returning[channel].word =
                Word{.kind = Word::Kind::kReturned,
                     .channel = channel,
                     .returned = {.routing_key = text_of(back.routing_key)},
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
void Client::Parts::take_content(const amqp_frame_t& frame, Returning& returning,
                                 std::vector<Word>& out) {
    if (!returning.word) return;
    Returned& returned = returning.word->returned;
    if (frame.frame_type == AMQP_FRAME_HEADER) {
        const auto& properties =
            *static_cast<amqp_basic_properties_t*>(frame.payload.properties.decoded);
        returned.id = text_of(properties.message_id);
        returned.type = text_of(properties.type);
        returned.headers = texts_of(properties.headers);
        returning.body_left = frame.payload.properties.body_size;
    } else if (frame.frame_type == AMQP_FRAME_BODY) {
        returned.body += text_of(frame.payload.body_fragment);
        returning.body_left -=
            std::min<std::uint64_t>(returning.body_left, frame.payload.body_fragment.len);
    }
    if (returning.body_left > 0) return;
    out.push_back(*std::move(returning.word));
    returning.word.reset();
}

bool Client::wait(std::chrono::milliseconds most, bool to_send, int wake_fd) {
    return rabbitmq::wait(parts_->connection.get(), most, to_send, wake_fd);
}

void Client::cut() const noexcept {
    ::shutdown(amqp_get_sockfd(parts_->connection.get()), SHUT_RDWR);
}

}  // namespace outbox::rabbitmq
