#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/spi/sink.h>

namespace outbox::rabbitmq {

// What a record has and a message has not stands in headers of these names; an event's own header
// cannot have them.
inline constexpr std::string_view kKeyHeader = "outbox-key";
inline constexpr std::string_view kNullHeader = "outbox-null";  ///< The value is null, not empty.
/// An event's own that also becomes a property of its message.
inline constexpr std::string_view kContentTypeHeader = "content-type";

/// The event's own routing key, else the topic.
[[nodiscard]] std::string_view routing_key_of(const spi::Record& record);

/// That of the format, else of the event's header, else JSON's where the value is JSON; else null.
[[nodiscard]] std::string_view content_type_of(const spi::Record& record);

/// Why no record can have a header of that name; else nothing.
[[nodiscard]] std::optional<std::string> why_not_header(std::string_view name);

/// Why no message can carry the record; else nothing. `max_frame_bytes`: the connection's, in which
/// the headers must fit (AMQP 0-9-1, 4.2.6). Without allocation where there is nothing to say.
[[nodiscard]] std::optional<std::string> why_not_carried(const spi::Record& record,
                                                         std::size_t max_frame_bytes);

}  // namespace outbox::rabbitmq
