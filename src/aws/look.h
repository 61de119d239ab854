#pragma once

#include <string>

#include <outbox/result.h>

#include "aws/config.h"

namespace outbox::aws {

/// That the service is there and knows the key, as far as looking tells: listing topics is a right
/// of its own, and not to have it is no fault. Blocks up to the connect timeout, and for
/// the access key (`net::kKeyTime`). Errors: those of the table.
Status look_at_service(const Config& config);

/// Which topics keep an order, and which do not, and where the access key is from. Blocks and fails
/// as above.
Result<std::string> describe_topics(const Config& config);

}  // namespace outbox::aws
