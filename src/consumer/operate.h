#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/operations.h"

namespace outbox::consumer {

/// Connects to the database of a consumer, whose tables must belong to the current role, a
/// superuser, the owner of database or schema, or one of `owners`. What is done to dead letters is
/// also written into outbox_audit, in the same transaction, as done by `os_user`. Errors as
/// `Operations` of a source.
Result<std::unique_ptr<ConsumerOperations>> open_operations(const std::string& url,
                                                            int connect_timeout_s,
                                                            std::vector<std::string> owners = {},
                                                            const std::string& os_user = {});

}  // namespace outbox::consumer
