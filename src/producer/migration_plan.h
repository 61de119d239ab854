#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/producer/migrate.h>

namespace outbox::producer {

/// A migration as the library carries it.
struct EmbeddedMigration {
    std::string_view side;
    int version = 0;
    std::string_view name;
    std::string_view checksum;
    std::string_view text;
};

/// A row of outbox_migrations.
struct RecordedMigration {
    std::string side;
    int version = 0;
    std::string name;
    std::string checksum;
};

/// Those of a database ("postgres", "sqlite") and the wanted sides, in the order of application.
std::vector<EmbeddedMigration> embedded_migrations(std::string_view database, MigrationSide side);

/// The next one to apply, or none. Throws `kMigrationRefused` where the record does not fit the
/// build. `where` names the database in messages, without secrets.
std::optional<EmbeddedMigration> next_migration(std::span<const EmbeddedMigration> known,
                                                std::span<const RecordedMigration> recorded,
                                                const std::string& where);

/// The error for an `outbox_events` that `migrate` did not make.
[[noreturn]] void refuse_foreign_table(const std::string& where, const std::string& table,
                                       const std::vector<std::string>& columns);

/// The error for a table, view or function of ours that belongs to somebody else. `what`: "table
/// outbox_lease belongs to role mallory".
[[noreturn]] void refuse_foreign_owner(const std::string& where, const std::string& what);

/// The error for something that has the name of an index of ours. `what`: as misplaced_index says
/// it.
[[noreturn]] void refuse_misplaced_index(const std::string& where, const std::string& what);

/// The error for a side that is there in part. `recorded`: it was migrated, and `what` is missing;
/// else `what` is left of it.
[[noreturn]] void refuse_partial(const std::string& where, std::string_view side, bool recorded,
                                 const std::vector<std::string>& what);

/// The error for `--payload` beside a table that has another type.
[[noreturn]] void refuse_payload_type(const std::string& where, std::string_view actual,
                                      std::string_view wanted);

/// The error for `--max-payload` where `count` delayed events have larger payloads, up to `largest`
/// bytes: none of them would become an event.
[[noreturn]] void refuse_payload_limit(const std::string& where, std::int64_t limit,
                                       std::int64_t count, std::int64_t largest);

[[nodiscard]] std::string_view payload_type_name(PayloadType type);

/// What `migrate` does differently for each database. Errors are thrown.
class MigrationTarget {
  public:
    MigrationTarget() = default;
    MigrationTarget(const MigrationTarget&) = delete;
    MigrationTarget& operator=(const MigrationTarget&) = delete;
    virtual ~MigrationTarget() = default;

    [[nodiscard]] virtual std::string_view database() const = 0;
    [[nodiscard]] virtual std::string where() const = 0;
    /// Begins a transaction that no other migration of this database runs beside.
    virtual void begin_alone() = 0;
    virtual std::vector<RecordedMigration> recorded() = 0;
    /// Columns of outbox_events and the type of its payload; empty where there is no table.
    struct EventTable {
        std::string name;
        std::vector<std::string> columns;
        std::string payload_type;
    };
    virtual EventTable event_table() = 0;
    /// The objects that a side's migrations make: those that are there and that nothing else makes,
    /// and those that are not there. Throws `kMigrationRefused` where the name of one of its
    /// indexes is taken.
    struct Presence {
        std::vector<std::string> there;
        std::vector<std::string> missing;
    };
    virtual Presence look_for(std::string_view side) = 0;
    /// False: somebody holds what it needs. The transaction is over, and may begin again.
    virtual bool apply(const EmbeddedMigration& migration, PayloadType payload) = 0;
    virtual void commit() = 0;
    virtual void finish() = 0;
};

std::vector<Migration> run_migrations(MigrationTarget& target, const MigrateOptions& options);

}  // namespace outbox::producer
