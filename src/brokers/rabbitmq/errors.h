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

/// The one table from such faults to ours. `what` says what failed ("RabbitMQ at host:5672").
ErrorInfo to_error(const Fault& fault, std::string_view what);

/// The routing key that "access to topic 'KEY' in exchange" refuses; empty: it is about all of
/// them.
std::string_view refused_routing_key(const Fault& fault);

/// The size of "message size N is larger than configured max size"; 0: it is about something else.
std::uint64_t refused_size(const Fault& fault);

}  // namespace outbox::rabbitmq
