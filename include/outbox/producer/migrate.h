#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/error.h>
#include <outbox/limits.h>

namespace outbox {

/// Whose tables a migration makes. A consumer's stand also beside an outbox table of another shape.
enum class MigrationSide : std::uint8_t { kProducer, kConsumer, kBoth };

/// The type of `outbox_events.payload`. SQLite checks that `kJsonb` and `kJson` are JSON and stores
/// text.
enum class PayloadType : std::uint8_t { kJsonb, kJson, kText, kBytea };

/// What becomes of rows of `outbox_events` that every route has published. PostgreSQL.
enum class TableLayoutKind : std::uint8_t {
    kDelete,  ///< They are deleted: the table holds the backlog.
    kKeep,    ///< They stay for the relay's `retention`, and go by whole segments (docs/keep.md).
};

/// Which tables `migrate` makes, and how. Where a value is none a table that is there keeps what it
/// has.
struct MigrateOptions {
    MigrationSide side = MigrationSide::kBoth;
    /// None: `kJsonb` for a new table. A table that is there keeps its type; asking for another
    /// one is refused.
    std::optional<PayloadType> payload;
    /// Largest payload that `outbox_events` and `outbox_scheduled` take from now on, 1,024 to
    /// 1,000,000,000; rows that are there stay. None: what they took before, which is 1,048,576 in
    /// new ones. Writers have a limit of their own (`max_payload_bytes`).
    std::optional<std::int64_t> max_payload_bytes{};
    /// PostgreSQL 15 or newer. Changes the layout of `outbox_events`, while no relay runs; writers
    /// wait as long as that takes, for no more than a million events. `kDelete` gives up the
    /// history. None: it stays what it is, `kDelete` in a new table.
    std::optional<TableLayoutKind> layout{};
    /// PostgreSQL, what is printed: the schema's name. What runs uses the current schema.
    std::string schema = "public";
    std::chrono::seconds connect_timeout{kConnectTimeoutS};
    /// PostgreSQL: roles that may own the outbox's tables, views and functions, besides the current
    /// one and superusers. What belongs to another is refused: its owner could have it run anything
    /// with the rights of whoever uses it.
    std::vector<std::string> owners{};
    /// Told, from within the call, what the database does not allow and nothing fails for, with the
    /// statement that would allow it. Empty: nobody is told.
    std::function<void(std::string_view)> note{};
};

/// One step of the schema's history.
struct Migration {
    std::string side;  ///< "producer" or "consumer".
    int version = 0;
    std::string name;
};

/// Brings the database up to this build's tables; does nothing where it is already. Gives the
/// migrations applied now. Each runs in a transaction of its own and is recorded there, so that an
/// interrupted run is continued by the next. On PostgreSQL the publication `outbox` is made beside
/// `outbox_events`, too, where the role may: with it the relay can take events from the log.
///
/// `url`: postgresql://... (PostgreSQL 14 or newer, tables go to the current schema) or
/// sqlite:///path (the file is made if it is not there, and put into WAL mode).
/// Thread safety: any; runs at the same time wait for each other. Blocks on the database.
/// Throws `Error`: `kMigrationRefused` (the database is newer, a migration was changed, a table
/// belongs to another role, there is an `outbox_events` of another shape, its layout cannot be
/// changed now, or another transaction holds a lock that this needs for 20 s and longer: nothing
/// was changed but by migrations before), `kNoRights`, `kConnectFailed`, `kAuthFailed`,
/// `kNoSuchDatabase`, `kUnsupported`, `kConfigInvalid`, `kQueryFailed`.
std::vector<Migration> migrate(const std::string& url, const MigrateOptions& options = {});

/// The SQL that `migrate` runs on an empty database of this URL's kind, without connecting. For
/// PostgreSQL it names `options.schema`.
/// Throws `Error` `kConfigInvalid`.
std::string migration_sql(const std::string& url, const MigrateOptions& options = {});

/// Removes the tables, views and functions that `migrate` made of `options.side`, with all that
/// they hold, in one transaction; gives their names. An `outbox_events` of another shape stays.
/// Also removes what is left after a part was removed by hand.
///
/// Thread safety and blocking as `migrate`; waits 10 s at most for writers of the tables.
/// Throws as `migrate`; `kMigrationRefused`, too, while events, delayed events, dead letters,
/// messages in mailboxes or open sagas are there, or a relay runs: nothing was changed.
std::vector<std::string> uninstall(const std::string& url, const MigrateOptions& options = {});

/// The SQL that `uninstall` runs, without connecting, as `migration_sql`.
std::string uninstall_sql(const std::string& url, const MigrateOptions& options = {});

}  // namespace outbox
