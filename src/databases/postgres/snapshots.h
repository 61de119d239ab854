#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/frontier.h"

namespace outbox::postgres {

/// What looks at a table ask for beside its rows, as text, for `Snapshots`.
inline constexpr const char* kLookSql =
    "pg_current_snapshot()::text || ' ' || pg_current_xact_id()::text";

/// What the looks at one table, each of which says `kLookSql`, tell of those who write it. Pure;
/// for one session.
class Snapshots {
  public:
    [[nodiscard]] core::Frontier::Writers looked(std::string_view look, std::int64_t now_us);

    /// Transactions that have been open for `kLongUs` at least, worth asking whether they write the
    /// table at all; as `xid`, which has 32 bits. Null: there is none.
    [[nodiscard]] const std::vector<std::uint32_t>* long_open(std::int64_t now_us) const;
    /// Whether any of those has written the table, as was asked before the next look.
    void answered(bool any_writes, std::int64_t now_us);

  private:
    static constexpr std::int64_t kLongUs = 100'000;

    struct Open {
        std::uint64_t end = 0;  // those before were asked for, if they were open
        std::vector<std::uint32_t> transactions;
        std::int64_t ask_at_us = 0;
    };
    std::optional<Open> open_;
    std::uint64_t none_writes_before_ = 0;
};

/// Asks whether one of the transactions in $1, an `xid[]`, has written this table, named as in SQL,
/// or removed rows of it.
[[nodiscard]] std::string any_writes_sql(const std::string& table);

}  // namespace outbox::postgres
