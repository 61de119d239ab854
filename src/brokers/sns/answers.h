#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aws/faults.h"

namespace outbox::sns {

/// What an answer that is no success says; `status` is that of HTTP.
[[nodiscard]] aws::Fault read_fault(int status, std::string_view body);

/// What became of each of `count` entries with the ids "0", "1", ...; nothing: it was taken.
[[nodiscard]] std::vector<std::optional<aws::Fault>> read_batch(std::string_view body,
                                                                std::size_t count);

/// Of ListTopics: ARNs; nothing: it is no such answer.
[[nodiscard]] std::optional<std::vector<std::string>> read_arns(std::string_view body);

}  // namespace outbox::sns
