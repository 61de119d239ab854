#pragma once

#include <string>
#include <string_view>

#include "core/utf8.h"

namespace outbox::schema {

inline constexpr std::size_t kMaxShown = 100;  ///< Bytes of a name, or of a number.

/// What another wrote, for a sentence: printable, and cut.
inline std::string shown(std::string_view text, std::size_t max_bytes = kMaxShown) {
    return to_printable(text.substr(0, max_bytes));
}

inline std::string quoted(std::string_view text) {
    return "'" + shown(text) + "'";
}

}  // namespace outbox::schema
