#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <outbox/error.h>

namespace outbox::rabbitmq {

/// What the connection was used for.
enum class Doing : std::uint8_t { kLogin, kPublish, kConsume };

/// What broker or client library report, in their own words.
struct Fault {
    /// AMQP's reply code ("404"), or what happened to the connection ("RESOLVE", "TLS", ...).
    std::string name;
    std::string text;
    Doing doing = Doing::kPublish;
};

/// The user has as many channels as it may have.
[[nodiscard]] bool refuses_channel(const Fault& fault);

/// The one table from such faults to ours. `what` says what failed ("RabbitMQ at host:5672").
ErrorInfo to_error(const Fault& fault, std::string_view what);

/// Whether the end of a connection may be the fault of a message that was under way.
bool may_be_a_message(const Fault& fault);

/// Whether "access to topic 'KEY' in exchange" refuses this routing key, or may do: of a long one
/// the broker tells the beginning.
bool refuses_routing_key(const Fault& fault, std::string_view routing_key);

/// The size of "message size N is larger than configured max size"; 0: it is about something else.
std::uint64_t refused_size(const Fault& fault);

}  // namespace outbox::rabbitmq
