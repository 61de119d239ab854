#pragma once

#include <optional>
#include <string_view>

#include "consumer/cloud_events.h"

namespace outbox::consumer {

/// Whether the JSON converter of Kafka Connect may have written the text with its schema, as
/// Debezium Server does with headers unless it is told otherwise. Costs next to nothing.
[[nodiscard]] bool may_have_schema(std::string_view text);

/// The id in a header `id` that is JSON: with its schema, or quoted. None: it is not.
[[nodiscard]] std::optional<std::string> debezium_id(std::string_view header_id);

/// A message of format `debezium` whose header `id` is such a text, as format `raw` would have it:
/// id, headers and value without their schemas. Where there is no header `id`, since the broker
/// keeps it elsewhere: one whose headers all are. `sure`: that it is of this format is known, so
/// that a value alone may have a schema, and headers may be JSON without one. None: there is
/// nothing to take away. `known_id`: as of `read_message`; where the header has another id it
/// stays.
[[nodiscard]] std::optional<Translated> read_debezium(bool sure, std::string_view known_id,
                                                      const HeaderList& headers,
                                                      std::string_view value);

}  // namespace outbox::consumer
