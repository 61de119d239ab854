#include <array>
#include <chrono>
#include <libpq-fe.h>
#include <thread>

#include <outbox/producer/migrate.h>

#include "core/explanation.h"
#include "core/sql_text.h"
#include "core/table_shape.h"
#include "core/url.h"
#include "databases/postgres/client.h"
#include "databases/postgres/errors.h"
#include "databases/postgres/owners.h"
#include "databases/postgres/schema_objects.h"
#include "databases/postgres/sql_files.h"
#include "databases/postgres/uninstall.h"
#include "databases/postgres/watch.h"
#include "producer/migration_plan.h"
#include "producer/migrator.h"
#include "producer/uninstall.h"

namespace outbox::producer {
namespace {

using postgres::Rows;
using postgres::SchemaObject;

constexpr std::string_view kLayoutState = "OB006";
constexpr std::string_view kLockTimeoutState = "55P03";

// Whoever writes or reads waits behind whoever waits for a table's lock, and nobody learns what a
// migration waits for: that is for short, and tried again.
constexpr const char* kLockTimeout = "SET LOCAL lock_timeout = '500ms';\n";
constexpr int kLockTries = 14;
constexpr std::chrono::seconds kBetweenLockTries{1};

// Where the tables go, and whose what is there already may be.
struct Place {
    std::string schema;
    std::string quoted_schema;
    std::vector<std::string_view> names;  // of what may be there
    postgres::TrustedOwners owners;

    [[nodiscard]] std::string guard() const {
        return postgres::owner_guard_sql(schema, names, owners);
    }
};

std::string_view side_name(MigrationSide side) {
    return side == MigrationSide::kProducer   ? "producer"
           : side == MigrationSide::kConsumer ? "consumer"
                                              : "";
}

// What runs before the text of each migration; printed by --print, too, where a person sees what
// is waited for.
std::string begin_alone_sql(const char* limit = "") {
    return "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;\n" + std::string(limit) +
           std::string(postgres::kCatalogPath) +
           "SELECT pg_advisory_xact_lock(hashtextextended('outbox_migrations', 0));\n";
}

// Whose lock is waited for, by the rows of pg_locks.
constexpr std::string_view kOtherMigrations =
    "l.locktype = 'advisory' AND l.objsubid = 1 AND ((l.classid::bigint << 32) | "
    "l.objid::bigint) = hashtextextended('outbox_migrations', 0)";
constexpr std::string_view kHoldersOfTables = "l.locktype = 'relation' AND c.oid IS NOT NULL";

// The guard behind it: a table that somebody else made first would run their triggers as us.
std::string record_table(const Place& place) {
    return "CREATE TABLE IF NOT EXISTS " + place.quoted_schema +
           ".outbox_migrations (\n"
           "    side       text NOT NULL,\n"
           "    version    integer NOT NULL,\n"
           "    name       text NOT NULL,\n"
           "    checksum   text NOT NULL,\n"
           "    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),\n"
           "    PRIMARY KEY (side, version)\n"
           ");\n" +
           place.guard();
}

std::vector<TemplateValue> values_of(PayloadType payload) {
    const std::string type(payload_type_name(payload));
    const bool binary = payload == PayloadType::kBytea;
    return {{"payload_type", type},
            {"payload_text", binary ? "payload" : "payload::text"},
            {"dead_payload", binary ? "d.payload" : "convert_from(d.payload, 'UTF8')::" + type}};
}

std::string body(const EmbeddedMigration& migration, PayloadType payload, const Place& place) {
    return record_table(place) +
           postgres::fill_sql(migration.text, place.quoted_schema, values_of(payload)) +
           "\nINSERT INTO " + place.quoted_schema +
           ".outbox_migrations (side, version, name, checksum) VALUES (" +
           quote_literal(migration.side) + ", " + std::to_string(migration.version) + ", " +
           quote_literal(migration.name) + ", " + quote_literal(migration.checksum) + ");\n" +
           place.guard() + postgres::index_guard_sql(place.schema, migration.side);
}

// A change of the layout of outbox_events, behind `begin_alone_sql` as those that follow.
std::string change_of_layout(TableLayoutKind layout, PayloadType payload, const Place& place) {
    const bool keep = layout == TableLayoutKind::kKeep;
    return place.guard() + kLockTimeout +
           postgres::fill_sql(embedded_sql_text(keep ? "producer/postgres/keep.sql"
                                                     : "producer/postgres/delete.sql"),
                              place.quoted_schema, values_of(payload)) +
           place.guard() + "COMMIT;\n";
}

// In a transaction of its own: what it may leave out must not take tables with it.
std::string publication(const Place& place) {
    return postgres::fill_sql(embedded_sql_text("producer/postgres/publication.sql"),
                              place.quoted_schema) +
           "COMMIT;\n";
}

// Without a look at the rows that are there, which held the table's lock as long as it takes. What
// the check says is what `migrations/producer/event_checks.sql` says, with another number.
std::string payload_limit(std::int64_t bytes, bool binary, const Place& place) {
    const std::string most = std::to_string(bytes);
    const std::string size = binary ? "octet_length(payload)" : "octet_length(payload::text)";
    std::string sql = place.guard() + kLockTimeout;
    for (const bool delayed : {false, true}) {
        // What is delayed has to pass when it is due.
        sql += "ALTER TABLE " + place.quoted_schema +
               (delayed ? ".outbox_scheduled" : ".outbox_events") +
               " DROP CONSTRAINT outbox_payload_size,\n    ADD CONSTRAINT outbox_payload_size "
               "CHECK (\n        CASE WHEN " +
               size + " > " + most + "\n             THEN " + place.quoted_schema +
               ".outbox_refuse_payload(" + size + ", " + most + ")\n             ELSE true END)" +
               (delayed ? "" : " NOT VALID") + ";\n";
    }
    return sql + "COMMIT;\n";
}

Place place_of(const MigrateOptions& options) {
    std::string quoted = "\"";
    for (const char c : options.schema) quoted.append(c == '"' ? 2 : 1, c);
    quoted += '"';
    // As quote_ident says it where that needs no quotes.
    const bool plain =
        !options.schema.empty() &&
        options.schema.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
    return {options.schema,
            plain ? options.schema : quoted,
            postgres::objects_of_side(side_name(options.side)),
            {options.owners}};
}

[[noreturn]] void refuse_layout(const std::string& where, const std::string& what) {
    throw Error(ErrorCode::kMigrationRefused, Advice::kStop,
                "The layout of outbox_events in " + where + " cannot be changed: " + what +
                    ". It stays what it is.");
}

// Why a connection could not be made: by the server's state, as its words may be of any language.
ErrorInfo connect_error(const postgres::Client& client, const std::string& url,
                        std::chrono::seconds timeout) {
    const std::string where = "cannot connect to " + redact(url) + ": ";
    const std::string message = client.message();
    std::string_view text;
    if (const std::string_view state = postgres::sqlstate_in(message, &text); !state.empty()) {
        return postgres::migrator_refused(state, where + redacted_line(text));
    }
    std::string_view remedy = postgres::refusal_remedy(message);
    if (remedy.empty()) remedy = "check that the server runs and that host and port are right";
    const std::string reason = client.in_time()
                                   ? redacted_line(message)
                                   : "no answer within " + std::to_string(timeout.count()) + " s";
    const bool wants_password = client.lacks_password();
    return {wants_password ? ErrorCode::kAuthFailed : ErrorCode::kConnectFailed,
            wants_password ? Advice::kStop : Advice::kRetryDestination, "",
            where + reason + "; " + std::string(remedy)};
}

class PostgresTarget final : public MigrationTarget {
  public:
    PostgresTarget(const std::string& url, const MigrateOptions& options)
        : watch_(url, options.connect_timeout, "outbox migrate's watch"),
          makes_events_(options.side != MigrationSide::kConsumer),
          max_payload_bytes_(options.max_payload_bytes),
          layout_(options.layout),
          note_(options.note) {
        const std::string fault = postgres::url_fault(url);
        if (!fault.empty()) throw Error(postgres::url_error(fault));
        // A host that vanished is noticed in about 10 s; a migration may take as long as it likes.
        constexpr std::array kDefaults{
            postgres::Setting{"fallback_application_name", "outbox migrate"},
            postgres::Setting{"keepalives_idle", "5"},
            postgres::Setting{"keepalives_interval", "2"},
            postgres::Setting{"keepalives_count", "3"},
            postgres::Setting{"tcp_user_timeout", "10000"}};
        const Status begun = client_.connect(url, options.connect_timeout, kDefaults);
        if (!begun.ok()) throw Error(begun.error());
        if (!client_.sound()) throw Error(connect_error(client_, url, options.connect_timeout));
        where_ = "Database " + client_.database();
        if (PQserverVersion(client_.handle()) < 140000) {
            throw Error(ErrorCode::kUnsupported, Advice::kStop,
                        where_ + " runs PostgreSQL " +
                            std::to_string(PQserverVersion(client_.handle()) / 10000) +
                            "; outbox needs 14 or newer.");
        }
        if (const Status followed = watch_.follow(client_.handle()); !followed.ok()) {
            throw Error(followed.error());
        }
        watch_.busy();
        watch_.identify(client_);
        // The path of the role holds until the next statement.
        const Rows schema = query(
            "SELECT pg_catalog.quote_ident(pg_catalog.current_schema()::pg_catalog.text), "
            "pg_catalog.current_schema(), "
            "pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)");
        if (schema.text(0, 0).data() == nullptr) {
            throw Error(ErrorCode::kConfigInvalid, Advice::kStop,
                        where_ +
                            " has no current schema: create one that is on the search_path "
                            "of this role.");
        }
        place_.quoted_schema = schema.string(0, 0);
        place_.schema = schema.string(0, 1);
        place_.names = postgres::objects_of_side(side_name(options.side));
        place_.owners.named = options.owners;
    }

    [[nodiscard]] std::string_view database() const override { return "postgres"; }
    [[nodiscard]] std::string where() const override { return where_; }

    void begin_alone() override {
        do {
            wait_for_others();
        } while (!got_locks(exists("outbox_migrations")
                                ? place_.guard() + "LOCK TABLE " + place_.quoted_schema +
                                      ".outbox_migrations IN ACCESS SHARE MODE"
                                : record_table(place_)));
    }

    std::vector<RecordedMigration> recorded() override {
        std::vector<RecordedMigration> rows;
        const Rows result =
            query("SELECT side, version, name, checksum FROM " + place_.quoted_schema +
                  ".outbox_migrations ORDER BY side, version");
        for (int row = 0; row < result.size(); ++row) {
            rows.push_back({result.string(row, 0), static_cast<int>(result.integer(row, 1)),
                            result.string(row, 2), result.string(row, 3)});
        }
        return rows;
    }

    EventTable event_table() override {
        EventTable table{place_.schema + ".outbox_events", {}, {}};
        const Rows result = query(
            "SELECT a.attname, format_type(a.atttypid, NULL) FROM pg_attribute a JOIN pg_class c "
            "ON c.oid = a.attrelid WHERE c.relname = 'outbox_events' AND c.relnamespace = " +
            schema_oid() + " AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum");
        for (int row = 0; row < result.size(); ++row) {
            table.columns.emplace_back(result.string(row, 0));
            if (table.columns.back() == "payload") {
                table.payload_type = result.string(row, 1);
            }
        }
        return table;
    }

    Presence look_for(std::string_view side) override {
        query(postgres::index_guard_sql(place_.schema, side));
        Presence found;
        for (const SchemaObject& object : postgres::schema_objects()) {
            if (object.side != side) continue;
            // The relay makes some of them, too, and sinks make what they deliver into.
            const bool shared = object.beside_adopted || object.on_demand ||
                                object.name == "outbox_mailbox" ||
                                object.name.starts_with("outbox_webhook_");
            if (!exists(object)) {
                found.missing.emplace_back(object.name);
            } else if (!shared) {
                found.there.emplace_back(object.name);
            }
        }
        return found;
    }

    // Gives the names of what there was.
    std::vector<std::string> uninstall(MigrationSide side) {
        const std::string_view wanted = side_name(side);
        std::vector<const SchemaObject*> there;
        for (const SchemaObject& object : postgres::schema_objects()) {
            const bool of_side = wanted.empty() || object.side == wanted;
            const bool shared = object.side.empty() && object.name != "outbox_migrations";
            if (object.kind == SchemaObject::Kind::kIndex) continue;
            if ((shared || (!object.side.empty() && of_side)) && exists(object)) {
                there.push_back(&object);
            }
        }
        // It waits for longer at a time than a migration, and is not tried again.
        remember_holders();
        const Rows result =
            answer_to(postgres::uninstall_body(place_.schema, place_.quoted_schema, side));
        if (result.state() == kLockTimeoutState) give_up("10 s", kHoldersOfTables);
        check(result);
        // Somebody else's table of that name stays, and what the other side needs.
        std::vector<std::string> names;
        for (const SchemaObject* object : there) {
            if (!exists(*object)) names.emplace_back(object->name);
        }
        commit();
        return names;
    }

    bool apply(const EmbeddedMigration& migration, PayloadType payload) override {
        return got_locks(body(migration, payload, place_));
    }
    void commit() override {
        query("COMMIT");
        lock_tries_ = 0;
    }
    void finish() override {
        if (!makes_events_) return;
        if (layout_) change_layout();
        if (max_payload_bytes_) {
            const bool binary = event_table().payload_type == "bytea";
            require_room_for_delayed(binary);
            change_table(payload_limit(*max_payload_bytes_, binary, place_));
        }
        change_table(publication(place_));
        if (note_) tell_publication();
    }

  private:
    // In words that say what to do; the constraint refuses them, too.
    void require_room_for_delayed(bool binary) {
        const std::string size = binary ? "octet_length(payload)" : "octet_length(payload::text)";
        const Rows larger =
            query("SELECT count(*), coalesce(max(" + size + "), 0) FROM " + place_.quoted_schema +
                  ".outbox_scheduled WHERE " + size + " > " + std::to_string(*max_payload_bytes_));
        if (larger.integer(0, 0) == 0) return;
        refuse_payload_limit(where_, *max_payload_bytes_, larger.integer(0, 0),
                             larger.integer(0, 1));
    }

    void change_layout() {
        const bool keep = *layout_ == TableLayoutKind::kKeep;
        const Rows kept = query(
            "SELECT EXISTS (SELECT FROM pg_class WHERE relname = 'outbox_events' AND relkind = 'p' "
            "AND relnamespace = " +
            schema_oid() + ")");
        if (kept.boolean(0, 0) == keep) return;
        const std::string type = event_table().payload_type;
        for (const auto payload :
             {PayloadType::kJsonb, PayloadType::kJson, PayloadType::kText, PayloadType::kBytea}) {
            if (payload_type_name(payload) != type) continue;
            change_table(change_of_layout(*layout_, payload, place_));
            return;
        }
        refuse_layout(where_, "the payload has type " + type);
    }

    // Why the relay could not take events from the log, as far as it depends on no relay.
    void tell_publication() {
        const std::string table = place_.quoted_schema + ".outbox_events";
        const Rows result = query(
            "SELECT current_setting('wal_level'), "
            "EXISTS (SELECT FROM pg_publication WHERE pubname = 'outbox'), "
            "EXISTS (SELECT FROM pg_publication_tables WHERE pubname = 'outbox' AND "
            "tablename = 'outbox_events' AND schemaname = " +
            quote_literal(place_.schema) + ")");
        const auto is = [&](int column) { return result.boolean(0, column); };
        if (!is(1)) {
            note_(
                "publication outbox is missing, as this role may not make it (CREATE on the "
                "database, ownership of the table): the relay will poll until an owner runs: "
                "CREATE PUBLICATION outbox FOR TABLE " +
                table + " WITH (publish = 'insert')");
        } else if (!is(2)) {
            note_("publication outbox is there without " + table +
                  ": the relay will poll until an owner runs: ALTER PUBLICATION outbox ADD TABLE " +
                  table);
        }
        const std::string wal_level = result.string(0, 0);
        if (wal_level != "logical") {
            note_("wal_level is " + wal_level +
                  ": the relay will poll until it is raised: ALTER SYSTEM SET wal_level = logical, "
                  "then restart the server");
        }
    }

    [[nodiscard]] std::string schema_oid() const {
        return "(SELECT oid FROM pg_namespace WHERE nspname = " + quote_literal(place_.schema) +
               ")";
    }

    bool exists(const SchemaObject& object) {
        if (object.kind != SchemaObject::Kind::kFunction) return exists(std::string(object.name));
        const Rows result =
            query("SELECT 1 FROM pg_proc WHERE proname = " + quote_literal(object.name) +
                  " AND pronamespace = " + schema_oid());
        return !result.empty();
    }

    bool exists(const std::string& table) {
        const Rows result = query("SELECT 1 FROM pg_class WHERE relname = " + quote_literal(table) +
                                  " AND relnamespace = " + schema_oid());
        return !result.empty();
    }

    // Runs the rest of a transaction that is alone, with its end.
    void change_table(const std::string& sql) {
        do {
            wait_for_others();
        } while (!got_locks(sql));
        lock_tries_ = 0;
    }

    // Begins a transaction that no other migration runs beside, and that waits for short alone.
    void wait_for_others() {
        for (int tries = 0;;) {
            const Rows result = answer_to(begin_alone_sql(kLockTimeout));
            if (result.state() != kLockTimeoutState) {
                check(result);
                return;
            }
            try_later(++tries, kOtherMigrations);
        }
    }

    // Runs a part of such a transaction. False: it is over, as somebody holds what it locks, and
    // the time for another one has come.
    bool got_locks(const std::string& sql) {
        if (lock_tries_ == 0) remember_holders();
        const Rows result = answer_to(sql);
        if (result.state() != kLockTimeoutState) {
            check(result);
            return true;
        }
        try_later(++lock_tries_, kHoldersOfTables);
        return false;
    }

    void remember_holders() {
        lock_holders_before_ = query(
                                   "SELECT string_agg(DISTINCT quote_literal("
                                   "virtualtransaction), ', ') FROM pg_locks WHERE granted")
                                   .string(0, 0);
    }

    void try_later(int tries, std::string_view holders) {
        if (tries == kLockTries) give_up(std::to_string(kLockTries) + " tries", holders);
        query("ROLLBACK");
        std::this_thread::sleep_for(kBetweenLockTries);
    }

    [[noreturn]] void give_up(const std::string& within, std::string_view holders) {
        query("ROLLBACK");
        throw Error(ErrorCode::kMigrationRefused, Advice::kStop,
                    "A lock that this needs in " + where_ + " was not to be had in " + within +
                        ": " + lock_holders(holders) +
                        ", or run this again later; the tables stay what they are, and everybody "
                        "may go on.");
    }

    // Whose transactions hold such locks, those of tables since before the first try, the oldest
    // first.
    std::string lock_holders(std::string_view which) {
        const bool is_of_tables = which == kHoldersOfTables;
        const Rows rows = query(
            "SELECT DISTINCT coalesce(l.pid, 0), coalesce(p.gid, ''), coalesce(a.usename, p.owner, "
            "''), coalesce(a.application_name, ''), coalesce(a.state, ''), (extract(epoch FROM "
            "coalesce(a.xact_start, p.prepared)) * 1000000)::bigint AS began, (extract(epoch FROM "
            "a.query_start) * 1000000)::bigint, (extract(epoch FROM statement_timestamp()) * "
            "1000000)::bigint FROM pg_locks l LEFT JOIN pg_class c ON c.oid = l.relation AND "
            "c.relname LIKE 'outbox\\_%' AND c.relnamespace = " +
            schema_oid() +
            " LEFT JOIN pg_stat_activity a ON a.pid = l.pid LEFT JOIN pg_locks x ON l.pid IS NULL "
            "AND x.pid IS NULL AND x.locktype = 'transactionid' AND x.virtualtransaction = "
            "l.virtualtransaction LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid "
            "WHERE l.granted AND " +
            std::string(which) +
            " AND l.database = (SELECT oid FROM "
            "pg_database WHERE datname = current_database()) AND l.pid IS DISTINCT FROM "
            "pg_backend_pid()" +
            (is_of_tables ? " AND l.virtualtransaction IN (" + lock_holders_before_ + ")" : "") +
            " ORDER BY began LIMIT 3");
        if (rows.empty() && !is_of_tables) return "other migrations had it in turns. Let them end";
        if (rows.empty()) {
            return "no transaction that has held one of an outbox's tables since the first is to "
                   "be seen. Look for who does while this waits (SELECT * FROM pg_locks WHERE "
                   "granted)";
        }
        std::string text =
            is_of_tables ? "probably held by " : "another migration is under way, of ";
        for (int row = 0; row < rows.size(); ++row) {
            text +=
                (row == 0 ? "" : "; or by ") + describe({.pid = rows.integer(row, 0),
                                                         .prepared = rows.string(row, 1),
                                                         .user = rows.string(row, 2),
                                                         .application = rows.string(row, 3),
                                                         .state = rows.string(row, 4),
                                                         .began_at_us = rows.integer(row, 5),
                                                         .statement_at_us = rows.integer(row, 6)},
                                                        rows.integer(row, 7));
        }
        return text + ". End that transaction";
    }

    Rows answer_to(const std::string& sql) {
        watch_.busy();
        Rows result = client_.answer_to(sql.c_str());
        watch_.idle();
        return result;
    }

    Rows query(const std::string& sql) {
        Rows result = answer_to(sql);
        check(result);
        return result;
    }

    void check(const Rows& result) {
        if (result.succeeded()) return;
        const std::string_view state = result.state();
        const std::string message(result.message());
        if (state == postgres::kForeignOwnerState) refuse_foreign_owner(where_, message);
        if (state == postgres::kMisplacedIndexState) {
            refuse_misplaced_index(where_, misplaced_index(message));
        }
        if (state == kLayoutState) refuse_layout(where_, message);
        if (state == kStillNeededState) refuse_uninstall(where_, message);
        throw Error(postgres::emit_error(client_.handle(), result.get(), "migrating " + where_));
    }

    postgres::Client client_;
    postgres::Watch watch_;  // behind the client, as it has the client's socket
    std::string where_;
    Place place_;
    const bool makes_events_;
    const std::optional<std::int64_t> max_payload_bytes_;
    const std::optional<TableLayoutKind> layout_;
    const std::function<void(std::string_view)> note_;
    int lock_tries_ = 0;
    std::string lock_holders_before_;  // the first try; never empty, as we hold one
};

std::vector<Migration> migrate(const std::string& url, const MigrateOptions& options) {
    PostgresTarget target(url, options);
    return run_migrations(target, options);
}

std::vector<std::string> uninstall(const std::string& url, const MigrateOptions& options) {
    PostgresTarget target(url, options);
    target.begin_alone();
    const auto known = embedded_migrations("postgres", options.side);
    static_cast<void>(next_migration(known, target.recorded(), target.where()));
    return target.uninstall(options.side);
}

std::string uninstall_sql(const MigrateOptions& options) {
    const Place place = place_of(options);
    return begin_alone_sql() + place.guard() +
           postgres::uninstall_body(place.schema, place.quoted_schema, options.side) + "COMMIT;\n";
}

std::string migration_sql(const MigrateOptions& options) {
    const Place place = place_of(options);
    std::string sql;
    for (const auto& migration : embedded_migrations("postgres", options.side)) {
        sql += begin_alone_sql() +
               body(migration, options.payload.value_or(PayloadType::kJsonb), place) +
               "COMMIT;\n\n";
    }
    if (options.side == MigrationSide::kConsumer) return sql;
    if (options.layout) {
        sql +=
            begin_alone_sql() +
            change_of_layout(*options.layout, options.payload.value_or(PayloadType::kJsonb), place);
    }
    if (options.max_payload_bytes) {
        sql += begin_alone_sql() + payload_limit(*options.max_payload_bytes,
                                                 options.payload == PayloadType::kBytea, place);
    }
    return sql + begin_alone_sql() + publication(place);
}

}  // namespace

const Migrator& postgres_migrator() {
    static constexpr std::array<std::string_view, 2> kSchemes{"postgresql", "postgres"};
    static const Migrator migrator{kSchemes,      "postgresql://user@host/database",
                                   migrate,       uninstall,
                                   migration_sql, uninstall_sql};
    return migrator;
}

}  // namespace outbox::producer
