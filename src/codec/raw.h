#pragma once

#include <string_view>
#include <vector>

#include "codec/encoder.h"
#include "codec/time_text.h"

namespace outbox::codec {

/// Format `raw`: the value is the payload as stored, the key is the event's order key, and
/// everything else travels in headers: `id`, `type`, `aggregate_type`, `occurred_at` (RFC 3339,
/// UTC, microseconds), `tenant_id`, `schema_id`, `schema_version`, where the event has them; then
/// the mapped metadata columns; then the event's own headers, `traceparent` among them. A later
/// name never overrides an earlier one, and the seven above belong to Outbox even when they are
/// absent.
///
/// Keeps scratch memory, so that events without headers cost no allocation.
class RawEncoder final : public Encoder {
  public:
    /// Header values that are not strings become JSON text.
    /// Errors: kInvalidEvent/dead_letter when `headers` or `metadata` is not a JSON object.
    Result<spi::Record> encode(const spi::EventView& event, std::string_view topic,
                               spi::EventBatch& arena) override;

  private:
    void add(std::string_view name, std::string_view value);
    Status add_members(const spi::EventView& event, spi::EventBatch& arena);

    std::vector<spi::HeaderView> headers_;
    TimeText times_;
};

}  // namespace outbox::codec
