#pragma once

#include <string_view>

#include <outbox/result.h>

namespace outbox::sqs {

/// What SQS asks of a queue's name: up to 80 letters, digits, '-' and '_', at its end ".fifo" or
/// not; or the URL of a queue, which ends with one. Errors: kTopicInvalid/dead_letter.
Status check_queue(std::string_view topic);

/// The topic is a queue's URL.
[[nodiscard]] bool is_queue_url(std::string_view topic);

}  // namespace outbox::sqs
