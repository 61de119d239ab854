#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/sql_text.h"
#include "databases/postgres/arrays.h"
#include "databases/postgres/record/fence.h"
#include "databases/postgres/session.h"
#include "databases/postgres/snapshots.h"
#include "databases/postgres/source/lease.h"
#include "databases/postgres/webhook/endpoints.h"
#include "databases/postgres/webhook/place.h"
#include "databases/postgres/webhook/store.h"

namespace outbox::postgres {
namespace {

constexpr const char* kFetchName = "outbox_webhook_fetch";
constexpr const char* kSource = "outbox_webhook_deliveries";
constexpr std::chrono::seconds kMaxWait{10};
constexpr int kSweptRows = 5'000;
// What an outcome is of.
constexpr const char* kSameRow =
    "d.endpoint_id = o.endpoint_id AND d.event_id = o.event_id AND d.position = o.position";

std::string time_of(const std::string& microseconds) {
    return "'epoch'::timestamptz + NULLIF(" + microseconds + ", 0) * interval '1 microsecond'";
}

// Whether the endpoint that `said` speaks of is there and as it was then.
std::string unchanged(const WebhookTables& tables, const std::string& said) {
    return "EXISTS (SELECT FROM " + tables.endpoints + " e WHERE e.endpoint_id = " + said +
           ".endpoint_id AND e.revision = " + said + ".revision AND " +
           microseconds_of("e.created_at") + " = " + said + ".created)";
}

// Of `rows`, which are of one endpoint and in `order`, those that are not in memory, up to the one
// that reaches the bytes.
std::string part(const std::string& rows, const std::string& condition, const std::string& order) {
    return "(SELECT * FROM (SELECT d.*, sum(coalesce(octet_length(d.payload), 0)) OVER (ORDER BY " +
           order +
           " ROWS UNBOUNDED PRECEDING) - coalesce(octet_length(d.payload), 0) AS before "
           "FROM (SELECT r.position, r.event_id, r.event_type, r.key, r.headers, r.payload, "
           "r.occurred_at, r.attempts, r.first_failed_at, r.next_attempt_at FROM " +
           rows + " r WHERE " + condition +
           "r.position NOT IN (SELECT unnest($4::bigint[])) "
           "AND (s.around = 0 OR coalesce(r.key, '') = '' OR (s.n, r.key) NOT IN (SELECT w.n, "
           "w.key FROM "
           "unnest($5::bigint[], $6::text[]) AS w(n, key))) ORDER BY " +
           order + " LIMIT s.max_rows) d) b WHERE b.before < $8)";
}

// A fresh delivery waits for an earlier one of its key that failed. Behind the deliveries, with an
// empty event_id: up to where fresh ones were looked at and whether that was the bound, for each
// slice that has one; and the life of positions, with what the look knows of writers.
std::string fetch_sql(const WebhookTables& tables) {
    const std::string bound = std::to_string(webhook::kMaxLookedAt);
    const std::string of_endpoint =
        tables.deliveries + " r WHERE r.endpoint_id = s.endpoint_id AND NOT r.dead AND ";
    const std::string fresh =
        of_endpoint + "r.attempts = 0 AND r.position > s.after ORDER BY r.position ";
    const std::string failing =
        " f WHERE f.endpoint_id = s.endpoint_id AND f.attempts > 0 AND NOT f.dead";
    // Where none fails there is none to look for.
    const std::string waits =
        "(NOT s.bounded OR coalesce(r.key, '') = '' OR NOT EXISTS (SELECT FROM " +
        tables.deliveries + failing +
        " AND f.key IS NOT NULL AND hashtextextended(f.key, 0) = "
        "hashtextextended(r.key, 0) AND f.key = r.key AND "
        "f.position < r.position)) AND ";
    // Two ranges of the index.
    const std::string failed = "SELECT * FROM " + of_endpoint + "r.attempts > 0 AND ";
    const std::string due = "(" + failed + "r.next_attempt_at <= " + time_of("$7::bigint") +
                            " UNION ALL " + failed + "r.next_attempt_at > " +
                            time_of("$13::bigint") + ")";
    const std::string looked_at =
        "(SELECT * FROM " + fresh + "LIMIT CASE WHEN s.bounded THEN " + bound + " END)";
    const std::string order = "s.n, d.attempts = 0, d.position";
    return "WITH s AS (SELECT s.*, s.around = 1 OR EXISTS (SELECT FROM " + tables.deliveries +
           failing +
           ") AS bounded FROM unnest($1::text[], $2::bigint[], $3::bigint[], $10::bigint[], "
           "$11::bigint[], $12::bigint[]) WITH ORDINALITY AS s(endpoint_id, after, max_rows, "
           "around, created, revision, n) WHERE " +
           unchanged(tables, "s") +
           ") "
           "SELECT d.endpoint_id, d.position, d.event_id, d.event_type, d.key, d.headers::text, "
           "d.payload, " +
           microseconds_of("d.occurred_at") + ", d.attempts::bigint, " +
           microseconds_of("d.first_failed_at") + ", " + microseconds_of("d.next_attempt_at") +
           ", d.n, d.attempts = 0 FROM (SELECT s.endpoint_id, s.n, d.*, "
           "sum(coalesce(octet_length(d.payload), 0)) "
           "OVER (ORDER BY " +
           order +
           " ROWS UNBOUNDED PRECEDING) - coalesce(octet_length(d.payload), 0) AS before_all FROM "
           "s CROSS JOIN LATERAL (" +
           part(due, "", "next_attempt_at") + " UNION ALL " + part(looked_at, waits, "position") +
           ") d) d WHERE d.before_all < $9 "
           "UNION ALL SELECT s.endpoint_id, coalesce(l.last, 0), '', '', NULL, NULL, NULL, "
           "l.rows, 0, 0, 0, s.n, false FROM s CROSS JOIN LATERAL (SELECT max(r.position) AS last, "
           "count(*) AS rows FROM (SELECT r.position FROM " +
           fresh + "LIMIT " + bound +
           ") r) l WHERE s.bounded "
           "UNION ALL SELECT '', coalesce(pg_relation_filenode(pg_get_serial_sequence(" +
           quote_literal(tables.deliveries) + ", 'position')::regclass)::bigint, 0), '', " +
           kLookSql +
           ", NULL, NULL, NULL, 0, 0, 0, 0, 0, "
           "false ORDER BY 12, 13, 2";
}

class PostgresOutlet final : public webhook::Outlet {
  public:
    explicit PostgresOutlet(webhook::StoreConfig config)
        : config_(std::move(config)),
          session_(source_config(config_),
                   [this](Connection& connection) { return begin(connection); }) {}

    Result<std::optional<std::uint64_t>> acquire(const std::string& owner,
                                                 std::chrono::milliseconds ttl) override {
        const auto connection = connected();
        if (!connection.ok()) return connection.status();
        return told(lease_->acquire(owner, ttl));
    }
    Result<bool> renew(std::uint64_t epoch, std::chrono::milliseconds ttl) override {
        const auto connection = connected();
        if (!connection.ok()) return connection.status();
        return told(lease_->renew(epoch, ttl));
    }
    Status release(std::uint64_t epoch) override {
        return lease_ ? lease_->release(epoch) : Status();
    }

    Result<std::vector<webhook::Endpoint>> endpoints() override {
        const auto connection = connected();
        if (!connection.ok()) return connection.status();
        auto read = read_endpoints(**connection, tables_.endpoints);
        if (!read.ok()) return failed(read.error());
        return read;
    }

    Result<std::vector<webhook::Backlog>> backlog(
        std::span<const webhook::BacklogOf> endpoints) override {
        std::vector<std::string> ids;
        std::vector<std::int64_t> after;
        for (const webhook::BacklogOf& one : endpoints) {
            ids.push_back(one.endpoint_id);
            after.push_back(one.after);
        }
        const auto rows = query(
            "SELECT s.id, EXISTS (SELECT FROM " + tables_.deliveries +
                " d WHERE d.endpoint_id = s.id AND d.position > s.after AND d.attempts = 0 AND NOT "
                "d.dead), "
                "coalesce((SELECT " +
                microseconds_of("f.next_attempt_at") + " FROM " + tables_.deliveries +
                " f WHERE f.endpoint_id = s.id AND f.attempts > 0 AND NOT f.dead ORDER BY "
                "f.next_attempt_at LIMIT 1), 0) FROM unnest($1::text[], $2::bigint[]) AS s(id, "
                "after)",
            Params().texts(ids).integers(after));
        if (!rows.ok()) return rows.status();
        std::vector<webhook::Backlog> out;
        for (int row = 0; row < rows->size(); ++row) {
            out.push_back({rows->string(row, 0), rows->boolean(row, 1), rows->integer(row, 2)});
        }
        return out;
    }

    Result<webhook::Read> fetch(std::span<const webhook::Slice> slices, const webhook::Due& due,
                                const webhook::MaxBytes& max,
                                std::vector<webhook::Delivery>& out) override {
        const auto connection = connected();
        if (!connection.ok()) return connection.status();
        if (Status status = ask_long_open(due.now_us); !status.ok()) return status;
        const Params params = of(slices, due, max);
        // In binary, as payloads would double as text.
        const Rows rows = (*connection)
                              ->collect(send_prepared((*connection)->handle(), kFetchName, params,
                                                      Format::kBinary)
                                            ? 1
                                            : 0);
        if (!rows.succeeded()) return failed((*connection)->error_of(rows));
        out.reserve(out.size() + static_cast<std::size_t>(rows.size()));
        webhook::Read read{0, session_number_, std::vector<webhook::Looked>(slices.size())};
        for (int row = 0; row < rows.size(); ++row) {
            if (rows.text(row, 2).empty()) {
                const auto slice = static_cast<std::size_t>(rows.integer(row, 11));
                if (slice == 0) {
                    read.life = rows.integer(row, 1);
                    read.writers = snapshots_.looked(rows.text(row, 3), due.now_us);
                } else {
                    const bool more = rows.integer(row, 7) >= std::int64_t{webhook::kMaxLookedAt};
                    read.looked.at(slice - 1) = {rows.integer(row, 1), more};
                }
                continue;
            }
            webhook::Delivery& delivery = out.emplace_back();
            delivery.endpoint_id = rows.string(row, 0);
            delivery.position = rows.integer(row, 1);
            delivery.event_id = rows.string(row, 2);
            delivery.event_type = rows.string(row, 3);
            if (!rows.text(row, 4).empty()) delivery.key = rows.string(row, 4);
            delivery.headers = rows.string(row, 5);
            delivery.payload = rows.string(row, 6);
            delivery.occurred_at_us = rows.integer(row, 7);
            delivery.attempts = rows.integer(row, 8);
            delivery.first_failed_at_us = rows.integer(row, 9);
            delivery.next_attempt_at_us = rows.integer(row, 10);
        }
        return read;
    }

    // Locks: README.md.
    Result<std::vector<std::string>> record(
        std::uint64_t epoch, std::span<const webhook::Outcome> outcomes,
        std::span<const webhook::EndpointChange> changes) override {
        const auto connection = connected();
        if (!connection.ok()) return connection.status();
        if (Status begun = (*connection)->execute("BEGIN"); !begun.ok()) {
            return failed(begun.error());
        }
        auto held = hold_endpoints(**connection, tables_, endpoints_of(outcomes, changes));
        if (!held.ok()) return failed(held.error());
        const auto part = [&](const auto& all) {
            std::vector<std::remove_cvref_t<decltype(all[0])>> here;
            std::copy_if(all.begin(), all.end(), std::back_inserter(here),
                         [&](const auto& one) { return held->here.contains(one.endpoint_id); });
            return here;
        };
        auto left = write(**connection, held->elsewhere.empty() ? outcomes : part(outcomes));
        if (!left.ok()) return failed(left.error());
        for (std::string& endpoint : *left) {
            held->here.erase(endpoint);
            held->elsewhere.push_back(std::move(endpoint));
        }
        std::vector<Connection::Statement> statements;
        add_changes(held->elsewhere.empty() ? changes : part(changes), statements);
        const Status status = fence().commit(**connection, epoch, std::move(statements));
        if (!status.ok()) return failed(status.error());
        return std::move(held->elsewhere);
    }

    Result<std::vector<webhook::Count>> count(const std::string& endpoint_id, std::int64_t after,
                                              std::size_t max_rows) override {
        const auto rows = query(
            "SELECT endpoint_id, count(*) FILTER (WHERE NOT dead), count(*) FILTER (WHERE dead), "
            "max(position) FROM (SELECT endpoint_id, position, dead FROM " +
                tables_.deliveries +
                " WHERE (endpoint_id, position) > ($1, $2) ORDER BY endpoint_id, position LIMIT "
                "$3) d GROUP BY endpoint_id ORDER BY endpoint_id",
            Params().text(endpoint_id).integer(after).integer(static_cast<std::int64_t>(max_rows)));
        if (!rows.ok()) return rows.status();
        std::vector<webhook::Count> out;
        for (int row = 0; row < rows->size(); ++row) {
            out.push_back({rows->string(row, 0), rows->integer(row, 1), rows->integer(row, 2),
                           rows->integer(row, 3)});
        }
        return out;
    }

    Result<std::int64_t> sweep(const std::string& endpoint_id) override {
        const auto rows =
            query("DELETE FROM " + tables_.deliveries +
                      " WHERE endpoint_id = $1 AND position IN (SELECT position FROM " +
                      tables_.deliveries + " WHERE endpoint_id = $1 AND NOT EXISTS (SELECT FROM " +
                      tables_.endpoints + " e WHERE e.endpoint_id = $1) LIMIT " +
                      std::to_string(kSweptRows) + " FOR UPDATE SKIP LOCKED)",
                  Params().text(endpoint_id));
        if (!rows.ok()) return rows.status();
        return rows->affected();
    }

  private:
    Status begin(Connection& connection) {
        auto tables = webhook_tables(connection, config_, Missing::kMake);
        if (!tables.ok()) return tables.status();
        tables_ = *std::move(tables);
        // It may be another server.
        snapshots_ = {};
        ++session_number_;
        connection.limit_waits(kMaxWait);
        // What is lost with the server is delivered again, no more. No wait for a row lasts as long
        // as the lease.
        Status status = connection.execute(
            "SET statement_timeout = '8s'; SET lock_timeout = '2s'; SET synchronous_commit = off");
        if (status.ok()) {
            status = connection.prepare(kFetchName, fetch_sql(tables_), of({}, {}, {}));
        }
        // One that is kept knows what it wrote last: another owner may have the same epoch.
        if (status.ok() && (!lease_ || lease_table_ != tables_.lease)) {
            lease_table_ = tables_.lease;
            lease_ = std::make_unique<PostgresLease>(
                source_config(config_), LeaseRow{kSource, tables_.lease},
                [](Connection& /*connection*/) { return Status(); });
        }
        return status;
    }

    Status ask_long_open(std::int64_t now_us) {
        const std::vector<std::uint32_t>* open = snapshots_.long_open(now_us);
        if (open == nullptr) return {};
        const auto writes =
            query(any_writes_sql(tables_.deliveries), Params().untyped(array_literal(*open)));
        if (writes.ok()) snapshots_.answered(writes->boolean(0, 0), now_us);
        return writes.status();
    }

    static Params of(std::span<const webhook::Slice> slices, const webhook::Due& due,
                     const webhook::MaxBytes& max) {
        std::vector<std::string> endpoints;
        std::vector<std::int64_t> after;
        std::vector<std::int64_t> rows;
        std::vector<std::int64_t> held;
        std::vector<std::int64_t> around;
        std::vector<std::int64_t> numbers;
        std::vector<std::int64_t> created;
        std::vector<std::int64_t> revisions;
        std::vector<std::string> keys;
        for (const webhook::Slice& slice : slices) {
            endpoints.push_back(slice.endpoint_id);
            created.push_back(slice.created_at_us);
            revisions.push_back(slice.revision);
            after.push_back(slice.after);
            rows.push_back(static_cast<std::int64_t>(slice.max_rows));
            around.push_back(slice.around ? 1 : 0);
            for (const webhook::Slice::Held& one : slice.held) held.push_back(one.position);
            for (const std::string& key : slice.without_keys) {
                numbers.push_back(static_cast<std::int64_t>(endpoints.size()));
                keys.push_back(key);
            }
        }
        Params params;
        params.texts(endpoints).integers(after).integers(rows).integers(held).integers(numbers);
        params.texts(keys).integer(due.now_us).integer(static_cast<std::int64_t>(max.of_endpoint));
        params.integer(static_cast<std::int64_t>(max.of_all)).integers(around);
        params.integers(created).integers(revisions).integer(due.latest_us);
        return params;
    }

    static std::vector<std::string> endpoints_of(std::span<const webhook::Outcome> outcomes,
                                                 std::span<const webhook::EndpointChange> changes) {
        std::set<std::string> ids;
        for (const webhook::Outcome& outcome : outcomes) ids.insert(outcome.endpoint_id);
        for (const webhook::EndpointChange& change : changes) ids.insert(change.endpoint_id);
        return {ids.begin(), ids.end()};
    }

    // Gives the endpoints of which not all is written, as another transaction holds the rows.
    Result<std::vector<std::string>> write(Connection& connection,
                                           std::span<const webhook::Outcome> outcomes) const {
        if (outcomes.empty()) return std::vector<std::string>();
        std::vector<Connection::Statement> statements;
        add_done(outcomes, statements);
        add_failed(outcomes, statements);
        std::vector<std::int64_t> counts;
        if (Status status = connection.run_pipeline(statements, &counts); !status.ok()) {
            return status;
        }
        const auto written = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
        if (written == static_cast<std::int64_t>(outcomes.size())) {
            return std::vector<std::string>();
        }
        return left_of(connection, outcomes);
    }

    // Some were passed over: they are gone, or the endpoint was changed, or they are held.
    Result<std::vector<std::string>> left_of(Connection& connection,
                                             std::span<const webhook::Outcome> outcomes) const {
        std::vector<std::string> endpoints;
        std::vector<std::string> events;
        std::vector<std::int64_t> numbers[4];
        for (const webhook::Outcome& outcome : outcomes) {
            endpoints.push_back(outcome.endpoint_id);
            events.push_back(outcome.event_id);
            const bool done = outcome.kind == webhook::Outcome::Kind::kDone;
            const std::int64_t values[] = {outcome.position, done ? 0 : outcome.attempts,
                                           outcome.created_at_us, outcome.revision};
            for (std::size_t i = 0; i < std::size(values); ++i) numbers[i].push_back(values[i]);
        }
        Params params;
        params.texts(endpoints).texts(events);
        for (const auto& column : numbers) params.integers(column);
        const auto rows = connection.query(
            "SELECT DISTINCT d.endpoint_id FROM " + tables_.deliveries +
                " d JOIN unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], "
                "$6::bigint[]) AS o(endpoint_id, event_id, position, attempts, created, revision) "
                "ON " +
                kSameRow + " WHERE o.attempts = 0 OR (d.attempts <> o.attempts AND " +
                unchanged(tables_, "o") + ")",
            params);
        if (!rows.ok()) return rows.status();
        std::vector<std::string> left;
        for (int row = 0; row < rows->size(); ++row) left.push_back(rows->string(row, 0));
        return left;
    }

    // Those of the outcomes that no other transaction holds: it may hold them for any time.
    // `position`: the parameter; $1 are the endpoints and $2 the events.
    [[nodiscard]] std::string is_free(const std::string& position) const {
        return "d.ctid = ANY(ARRAY(SELECT d.ctid FROM " + tables_.deliveries +
               " d JOIN unnest($1::text[], $2::text[], " + position +
               "::bigint[]) AS o(endpoint_id, event_id, position) ON " + kSameRow +
               " FOR UPDATE OF d SKIP LOCKED))";
    }

    void add_done(std::span<const webhook::Outcome> outcomes,
                  std::vector<Connection::Statement>& statements) const {
        std::vector<std::string> endpoints;
        std::vector<std::string> events;
        std::vector<std::int64_t> positions;
        for (const webhook::Outcome& outcome : outcomes) {
            if (outcome.kind != webhook::Outcome::Kind::kDone) continue;
            positions.push_back(outcome.position);
            endpoints.push_back(outcome.endpoint_id);
            events.push_back(outcome.event_id);
        }
        if (events.empty()) return;
        statements.push_back({"DELETE FROM " + tables_.deliveries + " d WHERE " + is_free("$3"),
                              Params().texts(endpoints).texts(events).integers(positions)});
    }

    void add_failed(std::span<const webhook::Outcome> outcomes,
                    std::vector<Connection::Statement>& statements) const {
        std::vector<std::string> endpoints;
        std::vector<std::string> events;
        std::vector<std::string> errors;
        std::vector<std::int64_t> attempts;
        std::vector<std::int64_t> first;
        std::vector<std::int64_t> next;
        std::vector<std::int64_t> codes;
        std::vector<std::int64_t> dead;
        std::vector<std::int64_t> positions;
        std::vector<std::int64_t> created;
        std::vector<std::int64_t> revisions;
        for (const webhook::Outcome& outcome : outcomes) {
            if (outcome.kind == webhook::Outcome::Kind::kDone) continue;
            positions.push_back(outcome.position);
            endpoints.push_back(outcome.endpoint_id);
            events.push_back(outcome.event_id);
            errors.push_back(outcome.last_error);
            attempts.push_back(outcome.attempts);
            first.push_back(outcome.first_failed_at_us);
            next.push_back(outcome.next_attempt_at_us);
            codes.push_back(outcome.last_status);
            dead.push_back(outcome.kind == webhook::Outcome::Kind::kDead ? 1 : 0);
            created.push_back(outcome.created_at_us);
            revisions.push_back(outcome.revision);
        }
        if (events.empty()) return;
        statements.push_back(
            {"UPDATE " + tables_.deliveries + " d SET attempts = o.attempts, first_failed_at = " +
                 time_of("o.first") + ", next_attempt_at = " + time_of("o.next") +
                 ", last_status = NULLIF(o.code, 0), last_error = o.error, dead = o.dead = 1 "
                 "FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], "
                 "$6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], "
                 "$11::bigint[]) AS o(endpoint_id, event_id, error, attempts, first, next, code, "
                 "dead, position, created, revision) WHERE " +
                 kSameRow + " AND " + is_free("$9") + " AND " + unchanged(tables_, "o"),
             Params()
                 .texts(endpoints)
                 .texts(events)
                 .texts(errors)
                 .integers(attempts)
                 .integers(first)
                 .integers(next)
                 .integers(codes)
                 .integers(dead)
                 .integers(positions)
                 .integers(created)
                 .integers(revisions)});
    }

    // What an operator changed meanwhile stays, and one that has the id of another that is gone is
    // not that one.
    void add_changes(std::span<const webhook::EndpointChange> changes,
                     std::vector<Connection::Statement>& statements) const {
        std::vector<std::string> ids;
        std::vector<std::string> errors;
        std::vector<std::int64_t> numbers[8];
        for (const webhook::EndpointChange& change : changes) {
            ids.push_back(change.endpoint_id);
            errors.push_back(change.last_error);
            const std::int64_t values[] = {change.delivered,       change.created_at_us,
                                           change.revision,        change.failing_since_us,
                                           change.failures,        change.last_attempt_at_us,
                                           change.paused_until_us, change.last_status};
            for (std::size_t i = 0; i < std::size(values); ++i) numbers[i].push_back(values[i]);
        }
        if (ids.empty()) return;
        Params params;
        params.texts(ids).texts(errors);
        for (const auto& column : numbers) params.integers(column);
        const auto kept = [](const std::string& column, const std::string& value) {
            return column + " = CASE WHEN e.revision = c.revision THEN " + value + " ELSE e." +
                   column + " END";
        };
        statements.push_back(
            {"UPDATE " + tables_.endpoints +
                 " e SET delivered_total = e.delivered_total + c.delivered, " +
                 kept("failing_since", time_of("c.since")) + ", " +
                 kept("failures", "c.failures::integer") + ", " +
                 kept("last_attempt_at", time_of("c.attempt")) + ", " +
                 kept("paused_until", time_of("c.pause")) + ", " +
                 kept("last_status", "NULLIF(c.code, 0)::integer") + ", " +
                 kept("last_error", "NULLIF(c.error, '')") +
                 " FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], "
                 "$6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[]) AS "
                 "c(endpoint_id, error, delivered, created, revision, since, failures, attempt, "
                 "pause, code) WHERE e.endpoint_id = c.endpoint_id AND c.created = " +
                 microseconds_of("e.created_at"),
             params});
        for (const webhook::EndpointChange& change : changes) {
            if (!change.disabled_because) continue;
            statements.push_back(
                {"UPDATE " + tables_.endpoints +
                     " SET state = 'disabled', reason = $3, revision = revision + 1, updated_at = "
                     "clock_timestamp() WHERE endpoint_id = $1 AND revision = $2 AND $4 = " +
                     microseconds_of("created_at"),
                 Params()
                     .text(change.endpoint_id)
                     .integer(change.revision)
                     .text(*change.disabled_because)
                     .integer(change.created_at_us)});
        }
    }

    [[nodiscard]] Fence fence() const { return {kSource, tables_.lease}; }

    Result<Rows> query(const std::string& sql, const Params& params) {
        const auto connection = connected();
        if (!connection.ok()) return connection.status();
        auto rows = (*connection)->query(sql, params);
        if (!rows.ok()) return failed(rows.error());
        return rows;
    }

    Result<Connection*> connected() {
        auto connection = session_.get();
        if (!connection.ok()) return webhook_error(connection.error());
        return connection;
    }

    ErrorInfo failed(const ErrorInfo& error) {
        if (error.code != ErrorCode::kLeaseLost) session_.drop();
        return webhook_error(error);
    }

    // The lease's table may be made again elsewhere: a new session asks where it is.
    template <typename Value>
    Result<Value> told(Result<Value> result) {
        if (result.ok()) return result;
        ErrorInfo error = webhook_error(result.error());
        session_.drop();
        return error;
    }

    webhook::StoreConfig config_;
    WebhookTables tables_;
    Session session_;
    std::unique_ptr<PostgresLease> lease_;
    std::string lease_table_;  // that lease_ is of
    Snapshots snapshots_;
    std::uint64_t session_number_ = 0;
};

}  // namespace

Result<std::unique_ptr<webhook::Outlet>> open_webhook_outlet(const webhook::StoreConfig& config) {
    return std::unique_ptr<webhook::Outlet>(std::make_unique<PostgresOutlet>(config));
}

}  // namespace outbox::postgres
