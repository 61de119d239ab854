#pragma once

#include <functional>
#include <string_view>

namespace outbox {

/// Whether `text` is one JSON value by the grammar of RFC 8259: in UTF-8, without byte order mark,
/// of any depth. Builds nothing, allocates nothing up to 64 levels.
[[nodiscard]] bool is_json(std::string_view text);

/// Calls `take` with the text of name (its quotes included) and value of each member of a JSON
/// object, in their order. False: `text` is not one JSON object; what was taken then counts for
/// nothing.
[[nodiscard]] bool for_each_json_member(
    std::string_view text,
    const std::function<void(std::string_view name, std::string_view value)>& take);

}  // namespace outbox
