#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>
#include <outbox/spi/sink.h>

namespace outbox::codec {

/// Format `raw`: the value is the payload as stored, the key is the event's order key, and
/// everything else travels in headers: `id`, `type`, `aggregate_type`, `occurred_at` (RFC 3339,
/// UTC, microseconds), `tenant_id`, `schema_id`, `schema_version`, where the event has them; then
/// the mapped metadata columns; then the event's own headers, `traceparent` among them. A later
/// name never overrides an earlier one, and the seven above belong to Outbox even when they are
/// absent.
///
/// Not thread-safe: keeps scratch memory, so that events without headers cost no allocation.
class RawEncoder {
  public:
    /// The record of an event, without its token. Its views point into the event and into `arena`,
    /// which should be the batch that holds the event: both must outlive the record. Header
    /// values that are not strings become JSON text.
    /// Errors: kInvalidEvent/dead_letter when `headers` or `metadata` is not a JSON object.
    Result<spi::Record> encode(const spi::EventView& event, std::string_view topic,
                               spi::EventBatch& arena);

  private:
    void add(std::string_view name, std::string_view value);
    Status add_object(const spi::EventView& event, std::string_view what, std::string_view json,
                      spi::EventBatch& arena);
    std::string_view occurred_at(std::int64_t time_us, spi::EventBatch& arena);

    std::vector<spi::HeaderView> headers_;
    std::int64_t second_ = INT64_MIN;  // the second that `text_` shows
    char text_[32] = {};
};

}  // namespace outbox::codec
