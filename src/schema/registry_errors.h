#pragma once

#include <cstdint>
#include <string_view>

#include <outbox/error.h>

#include "schema/registry_answers.h"

namespace outbox::schema {

/// What a fault concerns. What something else may have said than a registry, or a registry in a bad
/// state, does not tell: where it answers otherwise it is of the one schema.
enum class Concern : std::uint8_t { kSchema, kRegistry, kUnclear };
[[nodiscard]] Concern concern_of(const RegistryFault& fault);

/// The one table from such faults to our errors. `what`: "schema registry https://host:8081".
[[nodiscard]] ErrorInfo to_error(const RegistryFault& fault, std::string_view what);

}  // namespace outbox::schema
