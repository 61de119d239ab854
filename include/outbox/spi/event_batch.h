#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/spi/position_set.h>

namespace outbox::spi {

/// One event as the relay carries it. The views point into the batch that holds the event. A view
/// whose `data()` is null stands for SQL NULL; an empty one with data for an empty value.
struct EventView {
    Position position = 0;
    std::string_view id;
    std::string_view aggregate_type;
    std::string_view aggregate_id;
    std::string_view event_type;
    std::string_view payload;
    std::string_view headers;  ///< A JSON object of strings, or null.
    std::string_view tenant_id;
    std::string_view schema_id;
    std::string_view schema_version;
    std::string_view topic;
    std::string_view key;
    std::string_view routing_key;
    std::string_view metadata;         ///< Mapped metadata columns: a JSON object, or null.
    std::string_view defect;           ///< Why this row can never be sent; empty: nothing.
    std::int64_t occurred_at_us = 0;   ///< Microseconds since the Unix epoch; 0: not known.
    std::int64_t available_at_us = 0;  ///< When a delayed event became due; 0: was not delayed.
    bool payload_is_json = false;      ///< It is known to be, as its column holds nothing else.
    std::uint32_t attempts = 0;        ///< Failed attempts that the source remembers.
    std::int64_t next_attempt_us = 0;  ///< Not before this time (Unix epoch); 0: at once.

    /// The key that order is kept by: `key`, else the aggregate id, else null (no order). An empty
    /// one is none, for destinations, too.
    [[nodiscard]] std::string_view order_key() const {
        if (!key.empty()) return key;
        return aggregate_id.empty() ? std::string_view() : aggregate_id;
    }

    /// What its age counts from: a delayed event is not late before it is due. 0: not known.
    [[nodiscard]] std::int64_t waits_since_us() const {
        return available_at_us > occurred_at_us ? available_at_us : occurred_at_us;
    }
};

/// Events together with the bytes they point to. Movable, not copyable: views stay valid when the
/// batch is moved. Not thread-safe; owned by one thread at a time.
class EventBatch {
  public:
    /// Copies `bytes` into the batch; the copy lives as long as the batch or until `clear`.
    [[nodiscard]] std::string_view copy(std::string_view bytes);

    /// Room for `size` bytes that live as long as the batch or until `clear`.
    [[nodiscard]] char* allocate(std::size_t size);

    void add(const EventView& event) { events_.push_back(event); }

    /// Adds `event` with a copy of all its bytes.
    void add_copy(const EventView& event);

    [[nodiscard]] const std::vector<EventView>& events() const { return events_; }
    [[nodiscard]] std::vector<EventView>& events() { return events_; }
    [[nodiscard]] bool empty() const { return events_.empty(); }
    [[nodiscard]] std::size_t size() const { return events_.size(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }  ///< Bytes handed out so far.

    /// Positions that the reader has proved will never hold an event (closed holes), disjoint.
    std::vector<PositionRange> closed;

    /// Unfinished events of a tenant that `ReadLimits::aside` named, which a reader returned by
    /// their positions alone. None of the tenant's is among `events` of the same read.
    struct Aside {
        std::string tenant_id;
        std::vector<Position> positions;  ///< Ascending.
    };
    std::vector<Aside> aside;

    /// Forgets all events; keeps up to 1 MiB of memory for the next use.
    void clear();

  private:
    struct Block {
        std::unique_ptr<char[]> data;
        std::size_t capacity = 0;
        std::size_t used = 0;
    };
    std::vector<EventView> events_;
    std::vector<Block> blocks_;
    std::size_t bytes_ = 0;
};

}  // namespace outbox::spi
