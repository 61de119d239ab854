#pragma once

#include <memory>
#include <string>

#include "consumer/operator_sql.h"
#include "core/consumer_operations.h"

namespace outbox::consumer {

/// What operators do in a consumer's database. What is done to dead letters is also written into
/// outbox_audit, in the same transaction, as done by `os_user`.
std::unique_ptr<ConsumerOperations> make_operations(std::unique_ptr<Sql> sql,
                                                    const std::string& os_user = {});

}  // namespace outbox::consumer
