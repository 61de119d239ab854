#include "brokers/rabbitmq/receive/inlet.h"

#include <algorithm>
#include <limits>
#include <poll.h>
#include <utility>

#include <outbox/consumer/rabbitmq.h>

#include "brokers/rabbitmq/connection.h"
#include "brokers/rabbitmq/message.h"
#include "brokers/rabbitmq/receive/arrival.h"
#include "net/certificates.h"

namespace outbox::rabbitmq {
namespace {

using consumer::Arrival;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

Fault closed() {
    return {"CLOSED", "the connection ended", Doing::kConsume};
}

}  // namespace

struct RabbitmqInlet::Parts {
    Connection connection;
    bool is_sound = true;                       // until it fails
    Clock::time_point spoke_at = Clock::now();  // when we last sent something
    std::optional<Arrival> coming = {};         // whose content comes next
    std::uint64_t body_left = 0;
    bool is_no_stream = false;  // as it has said
    // What was taken and is not acknowledged, from `first_tag` on; true: it is, out of turn.
    std::deque<bool> acknowledged = {};
    std::uint64_t first_tag = 1;

    std::optional<Fault> take(const amqp_frame_t& frame, const std::string& queue,
                              std::vector<Arrival>& out);
    std::optional<Fault> take_method(const amqp_method_t& method, const std::string& queue);
    std::optional<Fault> ask_whether_stream(const std::string& queue);
    bool send_ack(std::uint64_t tag, bool multiple) {
        return amqp_basic_ack(connection.get(), kChannel, tag, multiple ? 1 : 0) == AMQP_STATUS_OK;
    }
};

RabbitmqInlet::RabbitmqInlet(RabbitmqConfig config, const Queue::Limits& limits)
    : config_(std::move(config)),
      prefetch_(std::min<std::size_t>(limits.messages, std::numeric_limits<std::uint16_t>::max())) {
}

RabbitmqInlet::~RabbitmqInlet() {
    disconnect();
}

ErrorInfo RabbitmqInlet::error_of(const Fault& fault) const {
    return to_error(fault, name_of_host(config_.hosts[next_host_]) + ", " + queue());
}

std::string RabbitmqInlet::queue() const {
    return "queue '" + config_.queue + "' of vhost '" + config_.vhost + "'";
}

Status RabbitmqInlet::connect() {
    disconnect();
    auto opened = open_connection(config_, next_host_, "outbox consumer");
    if (!opened.ok()) return opened.error();
    next_host_ = opened->host;
    parts_ = std::make_unique<Parts>();
    parts_->connection = std::move(opened->connection);
    if (auto fault = begin()) return error_of(*fault);
    return {};
}

std::optional<Fault> RabbitmqInlet::begin() {
    amqp_connection_state_t connection = parts_->connection.get();
    amqp_basic_qos(connection, kChannel, 0, static_cast<std::uint16_t>(prefetch_), /*global=*/0);
    if (auto fault = fault_of(amqp_get_rpc_reply(connection), Doing::kConsume)) return fault;
    amqp_basic_consume(connection, kChannel, bytes_of(config_.queue), amqp_empty_bytes,
                       /*no_local=*/0, /*no_ack=*/0, /*exclusive=*/0, amqp_empty_table);
    return fault_of(amqp_get_rpc_reply(connection), Doing::kConsume);
}

// No basic.cancel first: a queue with a single active consumer would give the next one what comes
// after the messages in our hands. So the last acknowledgements may go unheard: a channel holds
// them back from a quorum queue that has 32 of its commands before it.
void RabbitmqInlet::disconnect() {
    if (parts_ == nullptr) return;
    say_goodbye(parts_->connection.get());
    parts_.reset();
}

Status RabbitmqInlet::fetch(consumer::Amount room, milliseconds most, int wake_fd,
                            std::vector<Arrival>& out) {
    if (room.records == 0 || room.bytes == 0) return keep_alive(most, wake_fd);
    amqp_connection_state_t connection = parts_->connection.get();
    rabbitmq::wait(connection, most, false, wake_fd);
    const std::size_t until = out.size() + room.records;
    for (std::size_t bytes = 0; out.size() < until && bytes < room.bytes;) {
        amqp_maybe_release_buffers(connection);
        amqp_frame_t frame;
        const timeval at_once{};
        const int status = amqp_simple_wait_frame_noblock(connection, &frame, &at_once);
        if (status == AMQP_STATUS_TIMEOUT) break;
        const std::size_t before = out.size();
        const auto fault = status == AMQP_STATUS_OK ? parts_->take(frame, config_.queue, out)
                                                    : fault_of_status(status, Doing::kConsume);
        if (fault) return error_of(*fault);
        if (out.size() > before) bytes += out.back().bytes();
    }
    return {};
}

// Nothing is read, so that the broker waits; what it must hear of us is sent all the same.
Status RabbitmqInlet::keep_alive(milliseconds most, int wake_fd) {
    pollfd file{wake_fd, POLLIN, 0};
    ::poll(&file, 1, static_cast<int>(most.count()));
    const auto now = Clock::now();
    if (now - parts_->spoke_at < config_.heartbeat / 2) return {};
    amqp_frame_t frame{};
    frame.frame_type = AMQP_FRAME_HEARTBEAT;
    parts_->spoke_at = now;
    const int status = amqp_send_frame(parts_->connection.get(), &frame);
    if (status == AMQP_STATUS_OK) return {};
    return error_of(fault_of_status(status, Doing::kConsume));
}

std::optional<Fault> RabbitmqInlet::Parts::take(const amqp_frame_t& frame, const std::string& queue,
                                                std::vector<Arrival>& out) {
    if (frame.frame_type == AMQP_FRAME_METHOD) return take_method(frame.payload.method, queue);
    if (!coming) return std::nullopt;
    if (frame.frame_type == AMQP_FRAME_HEADER) {
        const auto& properties =
            *static_cast<amqp_basic_properties_t*>(frame.payload.properties.decoded);
        body_left = frame.payload.properties.body_size;
        if (read_properties(properties, *coming) && !is_no_stream) {
            if (auto fault = ask_whether_stream(queue)) return fault;
            is_no_stream = true;
        }
        if (coming->payload) coming->payload->reserve(body_left);
    } else if (frame.frame_type == AMQP_FRAME_BODY) {
        const std::string_view part(static_cast<char*>(frame.payload.body_fragment.bytes),
                                    frame.payload.body_fragment.len);
        body_left -= std::min<std::uint64_t>(body_left, part.size());
        if (coming->payload) coming->payload->append(part);
    }
    if (body_left > 0) return std::nullopt;
    out.push_back(*std::move(coming));
    coming.reset();
    return std::nullopt;
}

// A shovel carries the offsets of a stream into other queues, so they prove nothing. But no queue
// takes a second consumer that wants it alone; a stream first refuses one without a prefetch.
std::optional<Fault> RabbitmqInlet::Parts::ask_whether_stream(const std::string& queue) {
    constexpr amqp_channel_t kAsking = 2;
    amqp_channel_open(connection.get(), kAsking);
    if (auto fault = fault_of(amqp_get_rpc_reply(connection.get()), Doing::kConsume)) return fault;
    amqp_basic_consume(connection.get(), kAsking, bytes_of(queue), amqp_empty_bytes,
                       /*no_local=*/0, /*no_ack=*/0, /*exclusive=*/1, amqp_empty_table);
    auto fault = fault_of(amqp_get_rpc_reply(connection.get()), Doing::kConsume);
    if (!fault) {
        amqp_channel_close(connection.get(), kAsking, AMQP_REPLY_SUCCESS);
        return std::nullopt;
    }
    amqp_channel_close_ok_t heard{};
    amqp_send_method(connection.get(), kAsking, AMQP_CHANNEL_CLOSE_OK_METHOD, &heard);
    if (fault->name == "403") return std::nullopt;
    if (fault->name == "406" || fault->name == "540") {
        return Fault{"STREAM", "it is a stream", Doing::kConsume};
    }
    return fault;
}

std::optional<Fault> RabbitmqInlet::Parts::take_method(const amqp_method_t& method,
                                                       const std::string& queue) {
    if (auto fault = fault_of_method(method, Doing::kConsume)) return fault;
    if (method.id == AMQP_BASIC_CANCEL_METHOD) {
        return Fault{"CANCEL", "the broker hands out no more of it", Doing::kConsume};
    }
    if (method.id != AMQP_BASIC_DELIVER_METHOD) return std::nullopt;
    const auto& deliver = *static_cast<amqp_basic_deliver_t*>(method.decoded);
    acknowledged.push_back(false);
    coming.emplace();
    coming->number = deliver.delivery_tag;
    coming->where =
        "message " + std::to_string(deliver.delivery_tag) + " taken of queue '" + queue + "'";
    coming->topic = text_of(deliver.routing_key);
    coming->payload.emplace();
    coming->deliveries = deliver.redelivered != 0 ? 2 : 1;
    return std::nullopt;
}

// Those without a gap in one word, the others each by itself: what fails and waits holds up none.
Status RabbitmqInlet::acknowledge(std::span<const std::uint64_t> numbers) {
    std::vector<std::uint64_t> single;
    std::uint64_t last = 0;
    auto& acknowledged = parts_->acknowledged;
    for (const std::uint64_t tag : numbers) acknowledged[tag - parts_->first_tag] = true;
    std::uint64_t end = parts_->first_tag;
    while (!acknowledged.empty() && acknowledged.front()) {
        acknowledged.pop_front();
        ++end;
    }
    parts_->first_tag = end;
    for (const std::uint64_t tag : numbers) {
        if (tag >= end) {
            single.push_back(tag);
        } else {
            last = std::max(last, tag);
        }
    }
    parts_->spoke_at = Clock::now();
    bool sent = last == 0 || parts_->send_ack(last, true);
    for (const std::uint64_t tag : single) sent = sent && parts_->send_ack(tag, false);
    return sent ? Status() : Status(error_of(closed()));
}

Result<std::optional<std::int64_t>> RabbitmqInlet::waiting() {
    amqp_connection_state_t connection = parts_->connection.get();
    const amqp_queue_declare_ok_t* answer = amqp_queue_declare(
        connection, kChannel, bytes_of(config_.queue), /*passive=*/1, /*durable=*/0,
        /*exclusive=*/0, /*auto_delete=*/0, amqp_empty_table);
    if (answer != nullptr) return std::optional<std::int64_t>(answer->message_count);
    return error_of(fault_of(amqp_get_rpc_reply(connection), Doing::kConsume).value_or(closed()));
}

}  // namespace outbox::rabbitmq

namespace outbox {

Queue rabbitmq_queue(std::string_view url) {
    const rabbitmq::RabbitmqConfig config = rabbitmq::make_queue_config(url).value_or_throw();
    net::check_files(config).or_throw();
    return {.open = [config](const Queue::Limits& limits) -> std::unique_ptr<consumer::Inlet> {
        rabbitmq::RabbitmqConfig timed = config;
        timed.connect_timeout = std::chrono::ceil<std::chrono::seconds>(limits.connect_timeout);
        return std::make_unique<rabbitmq::RabbitmqInlet>(std::move(timed), limits);
    }};
}

}  // namespace outbox
