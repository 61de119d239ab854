#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace outbox {

/// What a JSON string says: `json` without its quotes, or, where it has escapes, what `storage`
/// then holds. None: it is no JSON string, or has half a surrogate pair. `json` is one value that
/// was scanned before (`json_scan.h`).
[[nodiscard]] std::optional<std::string_view> json_string(std::string_view json,
                                                          std::string& storage);

}  // namespace outbox
