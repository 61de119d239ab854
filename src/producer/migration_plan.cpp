#include "producer/migration_plan.h"

#include <algorithm>
#include <charconv>

#include "core/embedded_sql.h"
#include "core/table_shape.h"

namespace outbox::producer {
namespace {

[[noreturn]] void refuse(std::string message) {
    throw Error(ErrorCode::kMigrationRefused, Advice::kStop,
                std::move(message) + " Nothing was changed.");
}

std::string label(std::string_view side, int version, std::string_view name) {
    return std::string(side) + " migration " + std::to_string(version) + " (" + std::string(name) +
           ")";
}

// "producer/postgres/0001_producer.sql"; files without a number are no migrations of their own.
std::optional<EmbeddedMigration> parse_migration(const EmbeddedSql& file,
                                                 std::string_view database) {
    const auto slash = file.path.find('/');
    std::string_view rest = file.path.substr(slash + 1);
    if (!rest.starts_with(database) || rest.size() <= database.size()) return {};
    rest.remove_prefix(database.size() + 1);
    EmbeddedMigration migration{file.path.substr(0, slash), 0, {}, file.sha256, file.text};
    const auto [end, error] =
        std::from_chars(rest.data(), rest.data() + rest.size(), migration.version);
    if (error != std::errc() || *end != '_') return {};
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()) + 1);
    migration.name = rest.substr(0, rest.rfind('.'));
    return migration;
}

void check_record(std::span<const EmbeddedMigration> known, const RecordedMigration& row,
                  const std::string& where) {
    const auto match = std::find_if(known.begin(), known.end(), [&](const auto& migration) {
        return migration.side == row.side && migration.version == row.version;
    });
    if (match == known.end()) {
        const bool side_wanted =
            std::any_of(known.begin(), known.end(),
                        [&](const auto& migration) { return migration.side == row.side; });
        if (!side_wanted) return;
        refuse(where + " is newer than this build: it has the " +
               label(row.side, row.version, row.name) +
               ", which this build does not know. Use the newer release of outbox.");
    }
    if (match->checksum != row.checksum) {
        refuse("In " + where + " the " + label(row.side, row.version, row.name) +
               " was applied with other content (checksum " + row.checksum.substr(0, 12) +
               ", this build has " + std::string(match->checksum.substr(0, 12)) +
               "). Use the release that made the tables; a change belongs into a new migration.");
    }
}

// Before the first migration of a side nothing may be there, and after the last one all; and what
// keeps a later side from being made is met before the first one is.
void look_at_rest(MigrationTarget& target, std::span<const EmbeddedMigration> known,
                  const std::optional<EmbeddedMigration>& next) {
    for (const EmbeddedMigration& migration : known) {
        if (migration.version != 1) continue;
        const auto objects = target.look_for(migration.side);
        if (next && next->side != migration.side) continue;
        const auto& wrong = next ? objects.there : objects.missing;
        if (!wrong.empty()) refuse_partial(target.where(), migration.side, !next, wrong);
    }
}

}  // namespace

std::vector<EmbeddedMigration> embedded_migrations(std::string_view database, MigrationSide side) {
    std::vector<EmbeddedMigration> found;
    const auto add_side = [&](std::string_view name) {
        for (const EmbeddedSql& file : embedded_sql()) {
            const auto migration = parse_migration(file, database);
            if (migration && migration->side == name) found.push_back(*migration);
        }
    };
    if (side != MigrationSide::kConsumer) add_side("producer");
    if (side != MigrationSide::kProducer) add_side("consumer");
    return found;
}

std::optional<EmbeddedMigration> next_migration(std::span<const EmbeddedMigration> known,
                                                std::span<const RecordedMigration> recorded,
                                                const std::string& where) {
    for (const RecordedMigration& row : recorded) check_record(known, row, where);
    for (const EmbeddedMigration& migration : known) {
        bool applied = false;
        for (const RecordedMigration& row : recorded) {
            if (row.side != migration.side) continue;
            applied = applied || row.version == migration.version;
        }
        if (applied) continue;
        for (const RecordedMigration& row : recorded) {
            if (row.side == migration.side && row.version > migration.version) {
                refuse("In " + where + " the " +
                       label(migration.side, migration.version, migration.name) +
                       " is missing though a later one was applied. Restore the rows of "
                       "outbox_migrations.");
            }
        }
        return migration;
    }
    return {};
}

void refuse_foreign_table(const std::string& where, const std::string& table,
                          const std::vector<std::string>& columns) {
    std::string message = where + " has a table " + table + " that outbox migrate did not make";
    const auto shape = recognise_table_shape(columns);
    const std::string preset = shape ? "\"" + std::string(shape->preset) + "\"" : std::string();
    if (shape) message += " (" + std::string(shape->description) + ": preset " + preset + ")";
    if (shape) {
        message += ". Relay from it as it is: `outbox relay --table " + table +
                   " --from ... --to ...` recognises it; in outbox.toml: [source.table] preset = " +
                   preset + ".";
    } else {
        message += ", and its columns fit none of the presets:";
        for (const TableShape& known : table_shapes()) {
            message +=
                " \"" + std::string(known.preset) + "\" (" + std::string(known.description) + ");";
        }
        message +=
            " map its columns in outbox.toml under [source.table] and run `outbox relay "
            "--table " +
            table + " --from ... --to ...`.";
    }
    refuse(message +
           " The consumer's tables are made beside it by `outbox migrate --only "
           "consumer`.");
}

void refuse_foreign_owner(const std::string& where, const std::string& what) {
    refuse("In " + where + " the " + what +
           ", who could have it run anything with the rights of this role. If that role may make "
           "the outbox's tables name it: --owner ROLE; else have it dropped.");
}

void refuse_misplaced_index(const std::string& where, const std::string& what) {
    refuse("In " + where + " the " + what + ", and migrate again.");
}

void refuse_partial(const std::string& where, std::string_view side, bool recorded,
                    const std::vector<std::string>& what) {
    std::string names;
    for (const std::string& name : what) names += (names.empty() ? "" : ", ") + name;
    refuse(where + " has only a part of the " + std::string(side) + "'s tables: " + names +
           (recorded ? " is missing though its migration was applied."
                     : " is there without a row in outbox_migrations.") +
           " Remove the rest with `outbox migrate --uninstall --only " + std::string(side) +
           "` and migrate again, or restore what was removed: `outbox migrate --print` has its "
           "statement.");
}

void refuse_payload_type(const std::string& where, std::string_view actual,
                         std::string_view wanted) {
    refuse("The payload of outbox_events in " + where + " is " + std::string(actual) + ", not " +
           std::string(wanted) +
           ": migrate does not change the type of a table that is there. Leave --payload away, or "
           "change the type with ALTER TABLE.");
}

std::string_view payload_type_name(PayloadType type) {
    switch (type) {
        case PayloadType::kJsonb:
            return "jsonb";
        case PayloadType::kJson:
            return "json";
        case PayloadType::kText:
            return "text";
        case PayloadType::kBytea:
            return "bytea";
    }
    return "jsonb";
}

void refuse_payload_limit(const std::string& where, std::int64_t limit, std::int64_t count,
                          std::int64_t largest) {
    throw Error(ErrorCode::kMigrationRefused, Advice::kStop,
                where + " has " + std::to_string(count) + " delayed event" +
                    (count == 1 ? "" : "s") + " with more than " + std::to_string(limit) +
                    " bytes of payload, which would never be sent. The limit stays what it is: "
                    "give --max-payload of at least " +
                    std::to_string(largest) +
                    ", wait until they are due, or cancel them (`outbox scheduled cancel`).");
}

std::vector<Migration> run_migrations(MigrationTarget& target, const MigrateOptions& options) {
    const auto known = embedded_migrations(target.database(), options.side);
    std::vector<Migration> applied;
    while (true) {
        target.begin_alone();
        const auto recorded = target.recorded();
        const auto next = next_migration(known, recorded, target.where());
        PayloadType payload = options.payload.value_or(PayloadType::kJsonb);
        if (options.side != MigrationSide::kConsumer) {
            const auto table = target.event_table();
            if (next && next->side == "producer" && next->version == 1 && !table.columns.empty() &&
                !is_native_table(table.columns)) {
                refuse_foreign_table(target.where(), table.name, table.columns);
            }
            for (const auto type : {PayloadType::kJsonb, PayloadType::kJson, PayloadType::kText,
                                    PayloadType::kBytea}) {
                if (payload_type_name(type) != table.payload_type) continue;
                if (options.payload && *options.payload != type) {
                    refuse_payload_type(target.where(), table.payload_type,
                                        payload_type_name(*options.payload));
                }
                payload = type;
            }
        }
        if (!next || next->version == 1) look_at_rest(target, known, next);
        if (!next) break;
        if (!target.apply(*next, payload)) continue;
        target.commit();
        applied.push_back({std::string(next->side), next->version, std::string(next->name)});
    }
    target.commit();
    target.finish();
    return applied;
}

}  // namespace outbox::producer
