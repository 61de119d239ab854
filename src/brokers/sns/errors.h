#pragma once

#include <span>

#include "aws/faults.h"

namespace outbox::sns {

/// What SNS alone reports.
[[nodiscard]] std::span<const aws::FaultRow> faults();

}  // namespace outbox::sns
