#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace outbox {

/// The candidate that `word` was probably meant to be, or "".
[[nodiscard]] std::string_view closest(std::string_view word,
                                       const std::vector<std::string_view>& candidates);

/// "; did you mean 'X'?", or "" when nothing is close.
[[nodiscard]] std::string did_you_mean(std::string_view word,
                                       const std::vector<std::string_view>& candidates);

}  // namespace outbox
