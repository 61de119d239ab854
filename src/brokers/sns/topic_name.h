#pragma once

#include <string>
#include <string_view>

#include <outbox/result.h>

namespace outbox::sns {

/// What SNS asks of a topic's name: up to 256 letters, digits, '-' and '_', at its end ".fifo" or
/// not; or the ARN of a topic, which ends with one. Errors: kTopicInvalid/dead_letter.
Status check_topic(std::string_view topic);

/// The topic is an ARN.
[[nodiscard]] bool is_arn(std::string_view topic);

/// "arn:aws:sns:eu-central-1:123456789012:orders".
[[nodiscard]] std::string arn_of(std::string_view region, std::string_view account,
                                 std::string_view name);

}  // namespace outbox::sns
