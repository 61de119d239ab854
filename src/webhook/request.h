#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outbox::webhook {

using Headers = std::vector<std::pair<std::string, std::string>>;

/// The event's id as `webhook-id` carries it and signatures cover it: '.', which would let two
/// messages have one signature, '%', blanks and what is not ASCII become "%XX". UUIDs stay as they
/// are.
[[nodiscard]] std::string webhook_id(std::string_view event_id);

/// Why no request carries a header of that name; else nothing.
[[nodiscard]] std::optional<std::string> why_not_header(std::string_view name);

/// Why no request can carry an event with these headers (a JSON object of strings, or empty): HTTP
/// does not allow one of the names. Else nothing. Names that are ours or say how the request is
/// sent are no reason: who hands on another request's headers has them, and they are left out.
[[nodiscard]] std::optional<std::string> why_not_carried(std::string_view headers_json);

/// The headers of an event (a JSON object of strings, or empty) as a request carries them, names in
/// lower case, of those that differ in that alone the first. Left out: `webhook-*` and whatever
/// says how the request itself is sent (`host`, `content-length`, `connection`, ...), names that
/// HTTP does not allow, which an earlier version or another hand wrote, and what is no string.
/// Values that no line can hold are written as RFC 8187 does (`net/header_line.h`).
[[nodiscard]] Headers event_headers(std::string_view json);

/// Adds `content-type` where the event has none of its own: "application/json" where the payload is
/// JSON, "application/octet-stream" where it is anything else but empty.
void add_content_type(std::string_view payload, Headers& headers);

}  // namespace outbox::webhook
