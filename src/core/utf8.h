#pragma once

#include <string_view>

namespace outbox {

/// True for well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates, up to U+10FFFF).
[[nodiscard]] bool is_utf8(std::string_view text);

}  // namespace outbox
