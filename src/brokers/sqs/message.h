#pragma once

#include <span>
#include <string>
#include <string_view>

#include "aws/message.h"
#include "aws/service.h"

namespace outbox::sqs {

/// The message as an entry of a SendMessageBatch: its members behind "Id", without braces.
[[nodiscard]] std::string entry(const aws::Message& message);

/// A SendMessageBatch of such entries, with the ids "0", "1", ...
[[nodiscard]] aws::Call batch(std::string_view url, std::span<const std::string_view> entries);

}  // namespace outbox::sqs
