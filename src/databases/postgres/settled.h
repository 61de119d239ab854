#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace outbox::postgres {

/// How far a table that several write, and that is read by its positions, has been seen for good: a
/// writer takes a position before others see its row, so that a lower one may come to be seen after
/// a higher one. For writers that have a transaction id before they take a position. Pure.
class Settled {
  public:
    /// A look saw all rows between `from()`, or the beginning, and `last`. `snapshot`: its own, by
    /// `pg_current_snapshot()`.
    void looked(std::string_view snapshot, std::int64_t last, std::int64_t now_us);
    /// Where the next look may begin, if all that was seen by then is dealt with. 0: at the
    /// beginning.
    [[nodiscard]] std::int64_t from() const { return from_; }

    /// Transactions that have been open for `kLongUs` since the look that waits for them, worth
    /// asking whether they write the table at all; as `xid`, which has 32 bits.
    [[nodiscard]] const std::vector<std::uint32_t>* long_open(std::int64_t now_us) const;
    /// Whether any of those has written the table, as was asked before the next look.
    void answered(bool any_writes, std::int64_t now_us);

  private:
    static constexpr std::int64_t kLongUs = 100'000;

    struct Look {
        std::uint64_t end = 0;  // transactions from here on take higher positions than it saw
        std::int64_t last = 0;
        std::vector<std::uint32_t> open;
        std::int64_t ask_at_us = 0;
        bool none_writes = false;
    };
    std::optional<Look> waiting_;
    std::int64_t settled_ = 0;  // no row comes to be seen below
    std::int64_t from_ = 0;
};

}  // namespace outbox::postgres
