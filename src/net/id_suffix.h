#pragma once

#include <string>
#include <string_view>

namespace outbox::net {

/// What all ids of a producer end with, so that a destination that drops repeats by the id does not
/// take another's event for one: "@" and 16 hexadecimal digits.
[[nodiscard]] std::string id_suffix(std::string_view producer);

}  // namespace outbox::net
