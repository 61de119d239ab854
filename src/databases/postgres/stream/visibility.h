#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/result.h>

#include "databases/postgres/connection.h"

namespace outbox::postgres {

/// What pg_current_snapshot() says: every transaction before `xmin` has ended, none from `xmax` on
/// had, and of those between the `running` (ascending) were running.
struct SnapshotBounds {
    std::uint64_t xmin = 0;
    std::uint64_t xmax = 0;
    std::vector<std::uint64_t> running;

    /// As PostgreSQL prints it, "10:20:10,14"; nothing for anything else.
    static std::optional<SnapshotBounds> parse(std::string_view text);

    /// Whether the transaction has ended. `xid` is the low half of its id, which is less than 2^31
    /// away from `xmax`, as everywhere in PostgreSQL.
    [[nodiscard]] bool shows(std::uint32_t xid) const;
};

/// Asks whether other sessions see what the log has brought. A commit is in the log before its rows
/// can be seen: until the server gets the processor back, or its synchronous standby answers. An
/// event that went out in between could be answered before its sender's own row is there.
///
/// For one thread.
class Visibility {
  public:
    /// `connection` outlives it and has its waits limited. `life_sql`: as of `life_of`.
    /// `published_sql`: as of `published_as`.
    Visibility(Connection& connection, std::string life_sql, std::string published_sql)
        : connection_(connection),
          life_sql_(std::move(life_sql)),
          published_sql_(std::move(published_sql)) {}

    /// One round trip.
    Result<bool> all_visible(std::span<const std::uint32_t> xids);
    /// The table's life when that was asked: what others see by then, it counts with.
    [[nodiscard]] const std::string& life() const { return life_; }
    /// What was published then: behind a change of it rows may be missing.
    [[nodiscard]] const std::string& published() const { return published_; }

  private:
    Connection& connection_;
    const std::string life_sql_;
    const std::string published_sql_;
    std::string life_;
    std::string published_;
    bool prepared_ = false;
};

}  // namespace outbox::postgres
