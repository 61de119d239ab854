#pragma once

#include <span>

#include "aws/faults.h"

namespace outbox::sqs {

/// What SQS alone reports.
[[nodiscard]] std::span<const aws::FaultRow> faults();

}  // namespace outbox::sqs
