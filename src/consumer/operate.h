#pragma once

#include <memory>
#include <string>

#include "core/operations.h"

namespace outbox::consumer {

/// Connects to the database of a consumer. Errors as `Operations` of a source.
Result<std::unique_ptr<ConsumerOperations>> open_operations(const std::string& url,
                                                            int connect_timeout_s);

}  // namespace outbox::consumer
