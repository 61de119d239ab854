#pragma once

#include <string_view>

#include <outbox/error.h>

#include "schema/registry_answers.h"

namespace outbox::schema {

/// Whether it is a fault of one schema, while the registry answers for others.
[[nodiscard]] bool is_of_schema(const RegistryFault& fault);

/// The one table from such faults to our errors. `what`: "schema registry https://host:8081".
[[nodiscard]] ErrorInfo to_error(const RegistryFault& fault, std::string_view what);

}  // namespace outbox::schema
