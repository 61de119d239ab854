#pragma once

#include <string>
#include <string_view>

namespace outbox::net {

/// The UUIDv5 of a name in the namespace of a UUID (RFC 9562, section 5.5): always the same for the
/// two, and another for others. Empty where `space` is no UUID.
[[nodiscard]] std::string uuid5(std::string_view space, std::string_view name);

/// A UUIDv4 (RFC 9562, section 5.4).
[[nodiscard]] std::string uuid4();

}  // namespace outbox::net
