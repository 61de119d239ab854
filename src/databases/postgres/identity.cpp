#include "databases/postgres/identity.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "core/sql_text.h"

namespace outbox::postgres {
namespace {

constexpr const char* kSameTable = "outbox_same_table";

std::string server_sql() {
    return "SELECT system_identifier, pg_is_in_recovery(), CASE WHEN NOT pg_is_in_recovery() THEN "
           "pg_walfile_name(pg_current_wal_lsn()) END, CASE WHEN NOT pg_is_in_recovery() "
           "THEN pg_current_wal_flush_lsn() END, (SELECT oid FROM pg_database WHERE datname = "
           "current_database()), " +
           std::string(kStatisticsSince) + " FROM pg_control_system()";
}

Status reset(const Table& table, const std::string& what) {
    return {ErrorCode::kTableReset, Advice::kStop,
            "table " + table.sql + " " + what +
                ", so that positions no longer mean the same events. If that was meant, start the "
                "relay again: it compares the table with what it has recorded, and goes on with "
                "what the table holds or says what has to be settled first"};
}

Status wrong_server(const std::string& answers, const std::string& was) {
    return {ErrorCode::kWrongServer, Advice::kStop,
            "the database cluster " + answers + " answers where " + was +
                " was; check the address. If the cluster was replaced on purpose, start the "
                "relay again"};
}

}  // namespace

// By way of XML, as nothing else reads from a relation whose name is not known beforehand.
std::string last_of_sequence(const std::string& sequence) {
    return "coalesce(pg_sequence_last_value(" + sequence +
           "), substring(query_to_xml(format('SELECT last_value - 1 AS n FROM %s', " + sequence +
           "), true, false, '')::text FROM '<n>(-?[0-9]+)</n>')::bigint)";
}

std::string last_given(const Table& table) {
    return "SELECT " + last_of_sequence("s::regclass") + " AS last FROM pg_get_serial_sequence(" +
           quote_literal(table.sql) + ", " + quote_literal(table.position) +
           ") AS s WHERE has_sequence_privilege(s, 'SELECT')";
}

// Those that belong to the table, or that a default of its columns takes numbers from.
std::string sequences_of(const Table& table) {
    return "pg_class s WHERE s.relkind = 'S' AND s.oid IN (SELECT objid FROM pg_depend WHERE "
           "classid = 'pg_class'::regclass AND refclassid = 'pg_class'::regclass AND refobjid = "
           "to_regclass(" +
           quote_literal(table.sql) +
           ") AND deptype IN ('a', 'i') UNION ALL SELECT d.refobjid FROM pg_attrdef a JOIN "
           "pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = a.oid AND d.refclassid "
           "= 'pg_class'::regclass WHERE a.adrelid = to_regclass(" +
           quote_literal(table.sql) + "))";
}

// A row that waits for another route is there; where it is not, and its number is still to be
// given, the numbers were set back.
std::string ids_set_back(const Table& table, const std::string& sources) {
    return "EXISTS (SELECT FROM (SELECT max(event_id::bigint) AS id FROM " + table.side +
           "outbox_route_done WHERE " + sources +
           " AND route <> '' AND event_id ~ '^[0-9]{1,18}$' GROUP BY source) top WHERE top.id > "
           "(SELECT max(CASE WHEN has_sequence_privilege(s.oid, 'SELECT') THEN " +
           last_of_sequence("s.oid::regclass") + " END) FROM " + sequences_of(table) +
           ") AND NOT EXISTS (SELECT FROM " + table.sql + " t WHERE " + table.quoted("id") +
           " = top.id))";
}

// A sequence that begins anew gets a new file, and so does one of a table that becomes unlogged, or
// logged. That of an unlogged table begins anew with each crash, in its file.
std::string life_of(const Table& table) {
    const std::string name = quote_literal(table.sql);
    const std::string persistence =
        "(SELECT relpersistence::text || CASE relpersistence WHEN 'u' THEN coalesce(extract(epoch "
        "FROM " +
        std::string(kStatisticsSince) +
        "), 0)::text ELSE '' END FROM pg_class WHERE oid = to_regclass(" + name + "))";
    if (!table.by_position) {
        if (table.uuid_id) return "''";
        // Nothing tells how such numbers are made: a table that is rewritten may have been emptied.
        const std::string other =
            table.integer_id ? "pg_relation_filenode(to_regclass(" + name + "))::text" : "NULL";
        return "to_regclass(" + name +
               ")::oid::text || '/' || coalesce((SELECT "
               "string_agg(pg_relation_filenode(s.oid)::text, ',' ORDER BY s.oid) FROM " +
               sequences_of(table) + "), " + other + ", '') || '/' || " + persistence;
    }
    return "to_regclass(" + name +
           ")::oid::text || '/' || pg_relation_filenode("
           "pg_get_serial_sequence(" +
           name + ", " + quote_literal(table.position) + ")::regclass)::text || '/' || " +
           persistence;
}

// The sequence's last value needs a right on it that a relay may lack; then it is NULL. The look at
// the table itself: whoever would empty it waits for the transaction that has asked this.
Identity::Identity(const Table& table)
    : table_(table),
      sequence_("SELECT " + life_of(table) + ", " +
                (table.by_position
                     ? "(SELECT CASE WHEN has_sequence_privilege(s, 'SELECT') THEN " +
                           last_of_sequence("s::regclass") + " END FROM pg_get_serial_sequence(" +
                           quote_literal(table.sql) + ", " + quote_literal(table.position) +
                           ") AS s), pg_current_wal_flush_lsn()"
                     : "NULL::bigint, pg_current_wal_flush_lsn(), EXISTS (SELECT FROM " +
                           table.sql + " WHERE false)")),
      lease_("SELECT epoch, coalesce(" + std::string(kExpiresUs) + ", 0), " +
             std::string(kAcquiredUs) + ", owner IS NOT NULL FROM " + table.side +
             "outbox_lease WHERE source = $1") {}

void Identity::begin_term() {
    const core::Lock lock(mutex_);
    life_.clear();
    twice_ = 0;
    known_.reached = 0;
    if (std::exchange(changed_, Status()).ok()) return;
    timeline_ = 0;
    database_oid_.clear();
    statistics_since_.clear();
    known_.lsn = 0;
}

Identity::Known Identity::known() const {
    const core::Lock lock(mutex_);
    return known_;
}

Result<ServerIdentity> Identity::ask(Connection& connection) {
    Result<Rows> rows = connection.query(server_sql());
    if (!rows.ok()) return rows.status();
    if (rows->boolean(0, 1)) {
        return ErrorInfo{ErrorCode::kConnectFailed, Advice::kRetryDestination, "25006",
                         "the server is a standby; point the URL at the primary, or list all hosts "
                         "with target_session_attrs=read-write"};
    }
    ServerIdentity server;
    server.system_id = rows->string(0, 0);
    server.timeline = timeline_of(rows->text(0, 2));
    server.lsn = pgoutput::parse_lsn(rows->text(0, 3)).value_or(0);
    server.database_oid = rows->string(0, 4);
    server.statistics_since = rows->string(0, 5);
    if (Status met = connection.meet(server.system_id, server.timeline); !met.ok()) return met;
    return server;
}

Status Identity::check(Connection& connection) {
    const Known before = known();
    const Result<ServerIdentity> server = ask(connection);
    if (!server.ok()) return server.status();
    bool is_older = is_past(*server, before);
    Status status = compare(*server, before);
    if (status.ok()) {
        status = compare_lease(connection, before);
        is_older = !status.ok() && status.error().code == ErrorCode::kServerChanged;
    }
    if (status.ok()) return check_table(connection);
    if (is_older) connection.refuse();
    const core::Lock lock(mutex_);
    if (status.error().code == ErrorCode::kServerChanged) changed_ = status;
    return status;
}

Status Identity::check_lease(Connection& connection) {
    const Result<ServerIdentity> server = ask(connection);
    if (!server.ok()) return server.status();
    const core::Lock lock(mutex_);
    if (!system_id_.empty() && server->system_id != system_id_) {
        return wrong_server(server->system_id, system_id_);
    }
    return {};
}

Status Identity::check(ReplicationStream& stream) {
    const Known before = known();
    const Result<ServerIdentity> server = stream.identify();
    if (!server.ok()) return server.status();
    if (is_past(*server, before)) stream.refuse();
    return compare(*server, before);
}

// A state that was restored.
bool Identity::is_past(const ServerIdentity& server, const Known& before) const {
    const core::Lock lock(mutex_);
    return server.system_id == system_id_ && server.timeline == timeline_ &&
           server.lsn < before.lsn;
}

Status Identity::compare(const ServerIdentity& server, const Known& before) {
    const core::Lock lock(mutex_);
    if (!system_id_.empty() && server.system_id != system_id_) {
        return wrong_server(server.system_id, system_id_);
    }
    if (!changed_.ok()) return changed_;  // what was seen of it may be another's by now
    system_id_ = server.system_id;
    if (timeline_ != 0 && server.timeline != timeline_) {
        return changed("the server is on timeline " + std::to_string(server.timeline) +
                       " and was on " + std::to_string(timeline_) +
                       ": a standby was promoted, or a backup restored");
    }
    if (!database_oid_.empty() && !server.database_oid.empty() &&
        server.database_oid != database_oid_) {
        return changed(
            "another database answers to the name, as where a copy was put in its place");
    }
    if (server.lsn < before.lsn) {
        return changed("the server's log ends at " + pgoutput::format_lsn(server.lsn) +
                       " and reached " + pgoutput::format_lsn(before.lsn) +
                       " before: an older state was restored");
    }
    // What was read before the crash and is not recorded may be gone, and its positions others'.
    // What is recorded is not: that commit flushed the log up to itself.
    if (!statistics_since_.empty() && !server.statistics_since.empty() &&
        server.statistics_since != statistics_since_) {
        return {ErrorCode::kServerChanged, Advice::kStop,
                "the server has recovered from a crash (its statistics began anew at " +
                    server.statistics_since + ")"};
    }
    timeline_ = server.timeline;
    if (!server.database_oid.empty()) database_oid_ = server.database_oid;
    if (!server.statistics_since.empty()) statistics_since_ = server.statistics_since;
    known_.lsn = std::max(known_.lsn, server.lsn);
    return {};
}

// A copy that was put in the server's place while the lease was held, and whose log was written
// past where the old one ended before anybody looked, is told by nothing else.
Status Identity::compare_lease(Connection& connection, const Known& before) {
    if (before.lease.epoch == 0) return {};
    const Result<Rows> rows = connection.query(lease_, Params().text(table_.source));
    // Who cannot see it soon has no lease.
    if (!rows.ok()) return {};
    if (!rows->empty()) {
        const LeaseWritten now{static_cast<std::uint64_t>(rows->integer(0, 0)), rows->integer(0, 1),
                               rows->integer(0, 2)};
        const bool same = now.epoch == before.lease.epoch;
        const bool held = rows->boolean(0, 3);
        // What else the database holds is for the one to judge who has it.
        if (now.epoch > before.lease.epoch ||
            (same && held && now.acquired_us != before.lease.acquired_us)) {
            return {ErrorCode::kLeaseLost, Advice::kStop,
                    "another relay holds the lease, with epoch " + std::to_string(now.epoch)};
        }
        // That of a renewal without an answer is later.
        if (same && now.expires_us >= before.lease.expires_us) return {};
    }
    const core::Lock lock(mutex_);
    return changed(
        "the lease is as it was before this relay renewed it: an older state of the database was "
        "restored");
}

Status Identity::changed(std::string message) {
    left_timeline_ = timeline_;
    return {ErrorCode::kServerChanged, Advice::kStop, std::move(message)};
}

Status Identity::check_table(Connection& connection) {
    const Known before = known();
    return compare_table(connection.query(sequence_), before);
}

Status Identity::prepare(Connection& connection) const {
    return connection.prepare(kSameTable, sequence_, {});
}

Status Identity::check_read(Connection& connection) {
    const Known before = known();
    return compare_table(connection.query_prepared(kSameTable, {}), before);
}

std::string Identity::seen_sql() const {
    return "(SELECT concat(log_end, '|', last, '|', life) FROM (" + sequence_ +
           ") AS i (life, last, log_end))";
}

Status Identity::check_seen(std::string_view seen, spi::Position reached) {
    const std::size_t first = seen.find('|');
    const std::size_t second = first == seen.npos ? first : seen.find('|', first + 1);
    if (second == seen.npos) {
        return {ErrorCode::kQueryFailed, Advice::kRetryDestination,
                "the server tells of table " + table_.sql + " with '" + std::string(seen) + "'"};
    }
    std::int64_t last = std::numeric_limits<std::int64_t>::max();  // where it may not be asked
    std::from_chars(seen.data() + first + 1, seen.data() + second, last);
    return compare_table(std::string(seen.substr(second + 1)), last,
                         {pgoutput::parse_lsn(seen.substr(0, first)).value_or(0), reached, {}});
}

Status Identity::compare_table(const Result<Rows>& rows, const Known& before) {
    if (!rows.ok()) return rows.status();
    const bool knows = rows->text(0, 1).data() != nullptr;
    const std::int64_t last =
        knows ? rows->integer(0, 1) : std::numeric_limits<std::int64_t>::max();
    return compare_table(rows->string(0, 0), last,
                         {pgoutput::parse_lsn(rows->text(0, 2)).value_or(0), before.reached, {}});
}

// `seen`: the end of the log now, and the position that was reached before the table was asked.
Status Identity::compare_table(const std::string& life, std::int64_t last_position,
                               const Known& seen) {
    const core::Lock lock(mutex_);
    known_.lsn = std::max(known_.lsn, seen.lsn);
    if (!life_.empty() && life != life_) {
        if (!table_.by_position) {
            return {ErrorCode::kServerChanged, Advice::kStop,
                    "table " + table_.sql +
                        " was replaced, or got a numbering that begins anew: its rows may be "
                        "others than those of the same ids before"};
        }
        const bool same = life.substr(0, life.find('/')) == life_.substr(0, life_.find('/'));
        return reset(table_, same ? "got a numbering that begins anew (TRUNCATE ... RESTART "
                                    "IDENTITY, or a change of its sequence)"
                                  : "was replaced by another one of its name");
    }
    if (last_position < seen.reached) {
        return reset(table_, "has a sequence at " + std::to_string(last_position) +
                                 ", and positions had reached " + std::to_string(seen.reached));
    }
    life_ = life;
    return {};
}

void Identity::lease_written(LeaseWritten lease) {
    const core::Lock lock(mutex_);
    known_.lease = lease;
}

void Identity::reached(spi::Position position) {
    const core::Lock lock(mutex_);
    known_.reached = std::max(known_.reached, position);
}

void Identity::stands_twice(spi::Position position) {
    const core::Lock lock(mutex_);
    twice_ = position;
}

spi::Position Identity::twice() const {
    const core::Lock lock(mutex_);
    return twice_;
}

void Identity::returned(const spi::EventBatch& batch, std::size_t first) {
    const core::Lock lock(mutex_);
    for (const spi::EventView& event : std::span(batch.events()).subspan(first)) {
        published_.returned(event.position, event.id);
    }
}

void Identity::finished(std::span<const spi::Position> positions, Lsn log_end) {
    const core::Lock lock(mutex_);
    published_.finished(positions, log_end);
}

std::int64_t Identity::left_timeline() const {
    const core::Lock lock(mutex_);
    return left_timeline_;
}

std::vector<spi::Ghost> Identity::removed_behind(Lsn lsn) const {
    const core::Lock lock(mutex_);
    return published_.removed_behind(lsn);
}

void Identity::forget_change() {
    const core::Lock lock(mutex_);
    left_timeline_ = 0;
    published_ = {};
}

Result<spi::Position> Identity::last_position(Connection& connection) {
    Result<Rows> rows = connection.query(sequence_);
    if (!rows.ok()) return rows.status();
    if (rows->text(0, 1).data() != nullptr) return rows->integer(0, 1);
    return ErrorInfo{ErrorCode::kNoRights, Advice::kStop, "42501",
                     "user " + connection.user() + " may not ask the sequence of " + table_.sql +
                         " how far it is: GRANT SELECT ON SEQUENCE; relay --check names it"};
}

std::string Identity::life() const {
    const core::Lock lock(mutex_);
    return life_;
}

}  // namespace outbox::postgres
