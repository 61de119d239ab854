#pragma once

#include <span>
#include <string>
#include <string_view>

#include "aws/message.h"
#include "aws/service.h"

namespace outbox::sns {

/// The message as an entry of a PublishBatch: parameters of the Query protocol without what stands
/// before each of the entry's, joined by '&'.
[[nodiscard]] std::string entry(const aws::Message& message);

/// A PublishBatch of such entries, with the ids "0", "1", ...
[[nodiscard]] aws::Call batch(std::string_view arn, std::span<const std::string_view> entries);

/// A request without parameters.
[[nodiscard]] aws::Call call(std::string_view action);

}  // namespace outbox::sns
