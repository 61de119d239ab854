#pragma once

#include <string_view>
#include <vector>

#include <outbox/result.h>

#include "runtime/properties_file.h"

namespace outbox::runtime {

/// Whether this is JSON rather than properties, of which none begins so.
[[nodiscard]] bool is_connector_json(std::string_view text);

/// A connector's options as they go to Kafka Connect's REST API: {"name": ..., "config": {...}}, or
/// the config alone; numbers and booleans as their text, null as if it were not there. In the order
/// of their names. Errors: kConfigInvalid, with the place, where it is no such object.
Result<std::vector<Property>> read_connector_json(std::string_view text);

}  // namespace outbox::runtime
