// What a new owner and a status page read of the side tables.
#include <algorithm>
#include <array>
#include <charconv>

#include "core/sql_text.h"
#include "databases/postgres/owners.h"
#include "databases/postgres/record/recorder.h"
#include "databases/postgres/source/route_ledgers.h"

namespace outbox::postgres {
namespace {

constexpr std::int64_t kRedeliveryBytes = 8 << 20;  // of dead letters that are loaded at once
constexpr const char* kCancelled = "57014";
constexpr const char* kLocked = "55P03";  // the session's lock_timeout
constexpr const char* kLookWithin = "300ms";
// The first time there is no figure yet but the planner's, of a table that it may never have seen.
constexpr const char* kFirstLookWithin = "3s";
constexpr std::chrono::seconds kLowestEvery{60};
constexpr spi::Position kLateCommits = 2 * spi::PositionSet::kSegmentSize;
constexpr std::size_t kOwedLimit = 500;  // at once
constexpr std::chrono::milliseconds kOwedWaitMin{1'000};
constexpr std::chrono::milliseconds kOwedWaitMax{60'000};
constexpr std::int64_t kCountLimit = 20'000;  // above, the backlog is the planner's estimate
constexpr double kRemovedByThenS = 5;         // a finished row that nobody holds or keeps

std::string any_of_conditions(const Table& table) {
    std::string out;
    for (const std::string& condition : unfinished_conditions(table)) {
        out += (out.empty() ? "(" : " OR ") + condition;
    }
    return out + ")";
}

}  // namespace

Result<std::vector<spi::Delivery>> PostgresRecorder::load_deliveries(std::string_view route) {
    Result<Rows> rows = query(
        "SELECT event_id, position, key, attempts, "
        "(extract(epoch FROM next_attempt_at) * 1000000)::bigint, error_code, last_error "
        "FROM " +
            table_.side + "outbox_delivery WHERE source = $1 AND route = $2 ORDER BY position",
        Params().text(table_.source).text(route));
    if (!rows.ok()) return rows.status();
    std::vector<spi::Delivery> deliveries;
    for (int row = 0; row < rows->size(); ++row) {
        spi::Delivery delivery;
        delivery.route = route;
        delivery.event_id = rows->string(row, 0);
        delivery.position = rows->integer(row, 1);
        delivery.key = rows->string(row, 2);
        delivery.attempts = static_cast<std::uint32_t>(rows->integer(row, 3));
        delivery.next_attempt_us = rows->integer(row, 4);
        delivery.error_code = rows->string(row, 5);
        delivery.error = rows->string(row, 6);
        deliveries.push_back(std::move(delivery));
    }
    return deliveries;
}

Result<std::vector<spi::DeadLetter>> PostgresRecorder::load_redeliveries(std::string_view route,
                                                                         std::int64_t after_dead_id,
                                                                         std::size_t limit) {
    Result<Rows> rows = query(
        "SELECT dead_id, position, id, aggregate_type, aggregate_id, event_type, payload, headers, "
        "metadata, tenant_id, schema_id, schema_version, "
        "(extract(epoch FROM occurred_at) * 1000000)::bigint, topic, key, routing_key, attempts, "
        "error_code, error, unmatched FROM (SELECT *, sum(octet_length(payload)) OVER (ORDER BY "
        "dead_id ROWS "
        "BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM (SELECT * FROM " +
            table_.side +
            "outbox_dead_letters WHERE source = $1 AND route = $2 AND retry_requested_at IS NOT "
            "NULL "
            "AND dead_id > $3 ORDER BY dead_id LIMIT $4) l) l WHERE coalesce(before, 0) < $5 ORDER "
            "BY dead_id",
        Params()
            .text(table_.source)
            .text(route)
            .integer(after_dead_id)
            .integer(static_cast<std::int64_t>(limit))
            .integer(kRedeliveryBytes));
    if (!rows.ok()) return rows.status();
    std::vector<spi::DeadLetter> letters(static_cast<std::size_t>(rows->size()));
    for (int row = 0; row < rows->size(); ++row) {
        spi::DeadLetter& letter = letters[static_cast<std::size_t>(row)];
        const auto copy = [&](int column) {
            const std::string_view text = rows->text(row, column);
            return text.data() == nullptr ? text : letter.event.copy(text);
        };
        letter.dead_id = rows->integer(row, 0);
        letter.route = route;
        letter.position = rows->integer(row, 1);
        letter.attempts = static_cast<std::uint32_t>(rows->integer(row, 16));
        letter.error_code = rows->string(row, 17);
        letter.error = rows->string(row, 18);
        letter.unmatched = rows->boolean(row, 19);
        spi::EventView event;
        event.position = letter.position;
        event.id = copy(2);
        event.aggregate_type = copy(3);
        event.aggregate_id = copy(4);
        event.event_type = copy(5);
        if (const std::string_view payload = rows->text(row, 6); payload.data() != nullptr) {
            event.payload = letter.event.copy(decode_bytea(payload));
        }
        event.headers = copy(7);
        event.metadata = copy(8);
        event.tenant_id = copy(9);
        event.schema_id = copy(10);
        event.schema_version = copy(11);
        event.occurred_at_us = rows->integer(row, 12);
        event.topic = copy(13);
        event.key = copy(14);
        event.routing_key = copy(15);
        letter.event.add(event);
    }
    return letters;
}

Result<std::vector<spi::DeadKey>> PostgresRecorder::load_dead_keys(std::string_view route) {
    Result<Rows> rows = query(
        "SELECT DISTINCT coalesce(tenant_id, ''), coalesce(nullif(key, ''), aggregate_id) FROM " +
            table_.side +
            "outbox_dead_letters "
            "WHERE source = $1 AND route = $2 AND NOT unmatched AND coalesce(nullif(key, ''), "
            "aggregate_id) <> ''",
        Params().text(table_.source).text(route));
    if (!rows.ok()) return rows.status();
    std::vector<spi::DeadKey> keys;
    for (int row = 0; row < rows->size(); ++row) {
        keys.push_back({rows->string(row, 0), rows->string(row, 1)});
    }
    return keys;
}

// An operator's command may make the table at any time; a stranger's is not read.
Result<std::vector<std::string>> PostgresRecorder::load_paused_tenants() {
    const std::string name = table_.side + "outbox_paused_tenants";
    Result<Rows> there =
        query("SELECT to_regclass($1) IS NOT NULL, (parse_ident($2))[1]",
              Params().text(name).text(table_.side.substr(0, table_.side.size() - 1)));
    if (!there.ok()) return there.status();
    std::vector<std::string> tenants;
    if (!there->boolean(0, 0)) return tenants;
    constexpr std::array<std::string_view, 1> kNames{"outbox_paused_tenants"};
    Result<Rows> rows =
        query(foreign_objects_sql(there->text(0, 1), kNames, {owners_, true}), Params());
    if (!rows.ok()) return rows.status();
    if (!rows->empty()) return foreign_owner(rows->string(0, 0));
    rows = query("SELECT tenant_id FROM " + name + " WHERE source = $1 ORDER BY tenant_id",
                 Params().text(table_.schema + "." + table_.name));
    if (!rows.ok()) return rows.status();
    for (int row = 0; row < rows->size(); ++row) tenants.push_back(rows->string(row, 0));
    return tenants;
}

// A statement of `limit` at most; none where it took longer.
Result<std::optional<Rows>> PostgresRecorder::query_within(const std::string& limit,
                                                           const std::string& sql,
                                                           const Params& params) {
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    // A look takes less time than the server would compile it in.
    Status status = (*connection)
                        ->execute("BEGIN; SET LOCAL jit = off; SET LOCAL statement_timeout = " +
                                  quote_literal(limit));
    if (!status.ok()) return status;
    Result<Rows> rows = (*connection)->query(sql, params);
    status = (*connection)->execute(rows.ok() ? "COMMIT" : "ROLLBACK");
    const bool late = !rows.ok() && (rows.error().backend_code == kCancelled ||
                                     rows.error().backend_code == kLocked);
    if (late && status.ok()) return std::optional<Rows>();
    if (!rows.ok()) return rows.status();
    if (!status.ok()) return status;
    return std::optional<Rows>(std::move(*rows));
}

// The rows that are owed their end, a part at a time; those that the owner's table goes on to
// refuse are tried ever more seldom.
Status PostgresRecorder::end_owed(std::uint64_t epoch) {
    const auto now = Clock::now();
    if (now < next_owed_) return {};
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    const Result<Rows> rows = (*connection)
                                  ->query("SELECT event_id FROM " + table_.side +
                                              "outbox_route_done WHERE source = $1 AND route = '' "
                                              "AND event_id > $2 AND event_id !~ "
                                              "'^md5:[0-9a-f]{32}:' ORDER BY event_id LIMIT " +
                                              std::to_string(kOwedLimit),
                                          Params().text(table_.source).text(owed_after_));
    if (!rows.ok()) return rows.status();
    std::vector<std::string> owed;
    for (int row = 0; row < rows->size(); ++row) owed.push_back(rows->string(row, 0));
    owed_after_ = owed.size() == kOwedLimit ? owed.back() : std::string();
    if (owed.empty()) {
        return {};
    }
    has_dead_ = true;  // as far as is known here
    refusal_.clear();
    Status status = (*connection)->execute("BEGIN; SET CONSTRAINTS ALL IMMEDIATE");
    if (status.ok()) status = identity_.check_table(**connection);
    std::size_t ended = 0;
    if (status.ok()) {
        const auto marked = mark(**connection, std::move(owed), true);
        status = marked.status();
        if (marked.ok()) ended = *marked;
    }
    if (status.ok()) status = fence_.commit(**connection, epoch, {});
    if (!status.ok()) {
        session_.drop();
        return status;
    }
    const bool in_vain = ended == 0 && !refusal_.empty();
    owed_wait_ = in_vain ? std::clamp(owed_wait_ * 2, kOwedWaitMin, kOwedWaitMax)
                         : std::chrono::milliseconds(0);
    next_owed_ = now + owed_wait_;
    return {};
}

// The attempts of events whose rows were deleted while nobody relayed: who had read them forgets
// them with the event.
Status PostgresRecorder::forget_deleted(Connection& connection, std::uint64_t epoch) {
    if (!last_stats_ || last_stats_->failing == 0) return {};
    if (!table_.by_position && last_stats_->backlog > kCountLimit) return {};  // it would take long
    const std::string lacks = " AND NOT EXISTS (SELECT FROM " + table_.sql + " t WHERE ";
    std::string deleted;
    if (table_.by_position) {
        deleted = lacks + "t." + quote_identifier(table_.position) + " = d.position)";
    } else {
        const std::string rows = lacks + any_of_conditions(table_) + " AND ";
        const std::string id = table_.quoted("id") + "::text";
        const std::string prefix = quote_literal(table_.id_prefix());
        // Of a long id there is a digest alone.
        deleted = rows + id + " = d.event_id)" + rows + prefix + " || " + id +
                  " = d.event_id) AND strpos(d.event_id, " + prefix + " || 'xxh128:') = 0";
    }
    Status status = connection.execute(std::string("BEGIN; SET LOCAL statement_timeout = ") +
                                       quote_literal(kLookWithin));
    if (!status.ok()) return status;
    status = fence_.commit(
        connection, epoch,
        {{"DELETE FROM " + table_.side + "outbox_delivery d WHERE source = $1" + deleted,
          Params().text(table_.source)}});
    if (!status.ok() && status.error().backend_code == kCancelled) {
        return connection.execute("ROLLBACK");
    }
    return status;
}

Result<spi::Position> PostgresRecorder::tidy(std::uint64_t epoch) {
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    const auto now = Clock::now();
    if (now - looked_for_deleted_ >= kLowestEvery && last_stats_) {
        looked_for_deleted_ = now;
        if (Status status = forget_deleted(**connection, epoch); !status.ok()) {
            session_.drop();
            return status;
        }
    }
    if (!table_.by_position) {
        if (Status status = identity_.check_table(**connection); !status.ok()) return status;
        if (Status status = end_owed(epoch); !status.ok()) return status;
        return spi::Position{0};
    }
    if (now - looked_for_lowest_ < kLowestEvery) return lowest_;
    looked_for_lowest_ = now;
    const std::string position = quote_identifier(table_.position);
    auto rows = query_within(kLookWithin,
                             "SELECT coalesce((SELECT min(" + position + ") FROM " + table_.sql +
                                 "), (SELECT max(segment) * 65536 FROM " + table_.side +
                                 "outbox_ledger WHERE "
                                 "source = $1), 0)",
                             Params().text(table_.source));
    if (!rows.ok()) return rows.status();
    if (!*rows) return lowest_;
    // What commits late may still fill and finish a place somewhat below.
    lowest_ = std::max<spi::Position>(0, (*rows)->integer(0, 0) - kLateCommits);
    Status status = (*connection)->execute("BEGIN");
    if (status.ok()) status = fence_.commit(**connection, epoch, {ledger_.forget_below(lowest_)});
    if (status.ok()) return lowest_;
    session_.drop();
    return status;
}

// Rows that somebody numbered by hand, where the sequence never comes or has not come; or twice.
Status PostgresRecorder::look_outside(Stats& stats) {
    if (const spi::Position twice = identity_.twice(); twice != 0) {
        ++stats.owed;
        stats.refusal = "two rows of " + table_.sql + " have position " + std::to_string(twice) +
                        " (its sequence was set back), and one of them is not sent, as may be "
                        "others. Set the sequence beyond the highest position, and write the rows "
                        "of after that again without a position";
        return {};
    }
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    const auto last = identity_.last_position(**connection);
    if (!last.ok() && last.error().code == ErrorCode::kNoRights) return {};  // a person's role
    if (!last.ok()) return last.status();
    const std::string position = quote_identifier(table_.position);
    const std::string select = "(SELECT " + position + " FROM " + table_.sql + " WHERE " + position;
    const auto rows = query_within(kLookWithin,
                                   "SELECT coalesce(" + select + " < 1 LIMIT 1), " + select +
                                       " > $1 ORDER BY " + position + " DESC LIMIT 1))",
                                   Params().integer(*last));
    if (!rows.ok()) return rows.status();
    if (!*rows || (*rows)->text(0, 0).data() == nullptr) return {};
    const auto now = identity_.last_position(**connection);
    if (!now.ok()) return now.status();
    const std::int64_t outside = (*rows)->integer(0, 0);
    if (outside >= 1 && outside <= *now) return {};
    ++stats.owed;
    stats.refusal = "the row at position " + std::to_string(outside) +
                    " was numbered by hand (OVERRIDING SYSTEM VALUE) and is not sent: the sequence "
                    "is at " +
                    std::to_string(*now) + ". Write it again without a position";
    return {};
}

// One part for each state, so that the owner's partial index serves it.
Result<spi::Recorder::Stats> PostgresRecorder::stats() {
    const std::string from = " FROM " + table_.sql + " t";
    const auto apart = tenants_are_served_apart();
    if (!apart.ok()) return apart.status();
    if (table_.keep) return stats_of_kept(*apart);
    std::vector<Unfinished> parts;
    for (const std::string& condition : unfinished_conditions(table_)) {
        const std::string rows = from + " WHERE " + condition + tenants_;
        parts.push_back({rows, rows});
    }
    const bool first = !looked_;
    auto found =
        stats_of("", parts, {.rows = from + " WHERE " + any_of_conditions(table_)}, *apart);
    if (found.ok() && table_.has_side_tables && found->oldest_age_s >= kRemovedByThenS) {
        if (Status status = leave_out_finished(*found, first, *apart); !status.ok()) return status;
    }
    return found;
}

// Asked for the whole of a table, of which relays serve some tenants each. A relay knows its own
// alone.
Result<bool> PostgresRecorder::tenants_are_served_apart() {
    if (!serves_all_ || !table_.has_side_tables) return false;
    const Result<Rows> routes = query("SELECT EXISTS (SELECT FROM " + table_.side +
                                          "outbox_routes WHERE " + kOfTable + " AND source <> $1)",
                                      Params().text(table_.source));
    if (!routes.ok()) return routes.status();
    return routes->boolean(0, 0);
}

// Of a table of ours: the view knows whose ledger counts for which row.
std::string PostgresRecorder::unsent_rows() const {
    return " FROM (SELECT * FROM " + quote_identifier(table_.schema) +
           ".outbox_status WHERE status IN ('PENDING', 'RETRYING') ORDER BY position) t";
}

// Rows that every route has finished and that are still there, as somebody holds them or the table
// keeps them, are no backlog; nor are those that are owed their mark. Not each time: it reads what
// is finished, and mostly the oldest rows are on their way out.
Status PostgresRecorder::leave_out_finished(Stats& stats, bool first, bool apart) {
    const std::string of_sources = apart ? kOfTable : "source = $1";
    const std::string sources =
        "ANY (ARRAY(SELECT source FROM " + table_.side + "outbox_routes WHERE " + of_sources + "))";
    std::string with;
    std::string open = not_done(table_, apart ? sources : "$1", "''");
    std::string join;
    if (table_.by_position) {
        const std::string position = "t." + quote_identifier(table_.position);
        // The owner's columns may have any name.
        with =
            "WITH l AS MATERIALIZED (SELECT segment AS outbox_l_segment, bit_or(done) AS "
            "outbox_l_done FROM (SELECT l.segment, bit_and(l.done | l.done) AS done FROM " +
            table_.side + "outbox_ledger l JOIN " + table_.side +
            "outbox_routes r USING (source, route) WHERE " + of_sources +
            " GROUP BY l.source, l.segment HAVING count(*) = (SELECT count(*) FROM " + table_.side +
            "outbox_routes o WHERE o.source = l.source)) each GROUP BY segment) ";
        join = " LEFT JOIN l ON l.outbox_l_segment = " + position + " / 65536";
        open = "CASE WHEN l.outbox_l_segment IS NULL OR " + position +
               " < 0 THEN true ELSE get_bit(l.outbox_l_done, (" + position +
               " % 65536)::int) = 0 END";
    }
    std::vector<std::string> parts;
    if (apart && table_.has_scheduled) {
        parts.push_back(unsent_rows());
    } else {
        for (const std::string& condition : unfinished_conditions(table_)) {
            parts.push_back(" FROM " + table_.sql + " t" + join + " WHERE " + condition + tenants_ +
                            " AND " + open);
        }
    }
    std::string count;
    std::vector<std::string> oldest;
    for (const std::string& rows : parts) {
        count +=
            (count.empty() ? "" : " + ") + ("(SELECT count(*) FROM (SELECT 1" + rows + " LIMIT " +
                                            std::to_string(kCountLimit + 1) + ") x)");
        oldest.push_back(rows);
    }
    const auto found = query_within(first ? kFirstLookWithin : kLookWithin,
                                    with + "SELECT " + count + ", " + age_of(oldest) + ", $1::text",
                                    Params().text(table_.source));
    if (!found.ok()) return found.status();
    if (!*found) return {};  // it takes long: as it was told
    const std::int64_t waiting = (*found)->integer(0, 0);
    stats.oldest_age_s = static_cast<double>((*found)->integer(0, 1)) / 1000.0;
    if (waiting > kCountLimit) {
        stats.at_least = waiting;
        stats.backlog = std::max(stats.backlog, waiting);
        return {};
    }
    stats.backlog = waiting;
    stats.estimated = false;
    stats.without_finished = true;
    return {};
}

// Of rows that stay, those above what is settled, without those that every route has finished: at
// most so many that the places which the ledgers leave open are fewer.
Result<spi::Recorder::Stats> PostgresRecorder::stats_of_kept(bool apart) {
    const Result<Rows> settled = query("SELECT coalesce(min(settled), 0), count(*) FROM " +
                                           table_.side + "outbox_routes WHERE source = $1",
                                       Params().text(table_.source));
    if (!settled.ok()) return settled.status();
    const std::string from = " FROM " + table_.sql + " t";
    const std::string upto = settled->string(0, 0);
    if (apart) {
        return stats_of("", {{unsent_rows(), unsent_rows()}},
                        {.rows = from + " WHERE t.position > " + upto}, apart);
    }
    const std::string last = "(SELECT max(position) FROM " + table_.sql + ")";
    const std::string with =
        "WITH l AS MATERIALIZED (SELECT segment, bit_and(done | done) AS done FROM " + table_.side +
        "outbox_ledger WHERE source = $1 AND segment >= " + upto +
        " / 65536 GROUP BY segment HAVING count(*) >= " + settled->string(0, 1) +
        "), open AS MATERIALIZED (SELECT l.segment * 65536 + i AS position FROM l, "
        "generate_series(0, 65535) i WHERE bit_count(l.done) < 65536 AND get_bit(l.done, i) = 0 "
        "AND l.segment * 65536 + i > " +
        upto + " AND l.segment * 65536 + i <= " + last +
        "), unknown AS MATERIALIZED (SELECT s FROM generate_series(" + upto + " / 65536, " + last +
        " / 65536) s WHERE s NOT IN (SELECT segment FROM l) ORDER BY s) ";
    const std::string open = from + " JOIN open o ON o.position = t.position WHERE true" + tenants_;
    const std::string unknown =
        " FROM unknown CROSS JOIN LATERAL (SELECT *" + from + " WHERE t.position > " + upto +
        " AND t.position BETWEEN s * 65536 AND s * 65536 + 65535" + tenants_;
    // Numbers that were rolled back count, until the ledgers know it.
    Roughly roughly{.rows = from + " WHERE t.position > " + upto,
                    .less = "(SELECT coalesce(sum(CASE WHEN segment = " + upto +
                            " / 65536 THEN bit_count(substring(done from (" + upto +
                            " % 65536 + 2)::int)) ELSE bit_count(done) END), 0) FROM l)"};
    if (serves_all_) {
        roughly.count = "coalesce(" + last + ", 0) - " + upto + " - " + roughly.less;
    }
    // The first row above what is settled is open; unless it stands behind a number of a
    // transaction that has not ended.
    const std::string first =
        from + " WHERE t.position > " + upto + tenants_ + " ORDER BY t.position LIMIT 1000";
    roughly.oldest = " FROM (SELECT t.*" + first +
                     ") t LEFT JOIN l ON l.segment = t.position / 65536 WHERE l.segment IS NULL OR "
                     "get_bit(l.done, (t.position % 65536)::int) = 0";
    return stats_of(with,
                    {{open, open}, {unknown + ") t", unknown + " ORDER BY t.position LIMIT 1) t"}},
                    roughly, apart);
}

// In milliseconds, of the oldest row that one of these has.
std::string PostgresRecorder::age_of(const std::vector<std::string>& oldest) const {
    if (!table_.has("occurred_at")) return "0";
    const std::string available =
        table_.has("available_at") ? finite_time(table_, "available_at") : "NULL::timestamptz";
    std::string times;
    for (const std::string& rows : oldest) {
        times += (times.empty() ? "" : ", ") +
                 ("(SELECT greatest(" + finite_time(table_, "occurred_at") + ", " + available +
                  ")" + rows + " ORDER BY " + order_by(table_) + " LIMIT 1)");
    }
    return "(coalesce(greatest(extract(epoch FROM clock_timestamp() - least(" + times +
           ")), 0), 0) * 1000)::bigint";
}

// Each part has its rows, and with the second at least the oldest of them.
Result<spi::Recorder::Stats> PostgresRecorder::stats_of(const std::string& with,
                                                        const std::vector<Unfinished>& parts,
                                                        const Roughly& roughly, bool apart) {
    std::string count;
    std::vector<std::string> oldest;
    for (const Unfinished& part : parts) {
        count +=
            (count.empty() ? "" : " + ") + ("(SELECT count(*) FROM (SELECT 1" + part.rows +
                                            " LIMIT " + std::to_string(kCountLimit + 1) + ") x)");
        oldest.push_back(part.oldest);
    }
    const std::string scheduled =
        table_.has_scheduled
            ? "(SELECT count(*) FROM " + quote_identifier(table_.schema) + ".outbox_scheduled)"
            : "0";
    const std::string of_sources = std::string(" WHERE ") + (apart ? kOfTable : "source = $1");
    const std::string side =
        table_.has_side_tables
            ? "(SELECT count(*) FROM " + table_.side + "outbox_delivery" + of_sources +
                  "), (SELECT count(*) FROM " + table_.side + "outbox_dead_letters" + of_sources +
                  "), (SELECT count(*) FROM (SELECT FROM " + table_.side + "outbox_route_done" +
                  of_sources + " AND route = '' LIMIT " + std::to_string(kCountLimit) + ") o), "
            : "0 * length($1::text), 0, 0, ";
    const std::string others = side + scheduled;
    const std::string counted = with + "SELECT " + count + ", " + age_of(oldest) + ", " + others;
    auto found = query_within(looked_ ? kLookWithin : kFirstLookWithin, counted,
                              Params().text(table_.source));
    looked_ = true;
    if (!found.ok()) return found.status();
    const bool in_time = found->has_value();
    // What the backlog takes too long for is known nevertheless.
    if (!in_time) {
        found = query_within(kLookWithin, "SELECT 0, 0, " + others, Params().text(table_.source));
        if (!found.ok()) return found.status();
    }
    Stats stats = last_stats_.value_or(Stats{});
    if (*found) {
        const Rows& rows = **found;
        if (in_time) {
            stats.backlog = rows.integer(0, 0);
            stats.oldest_age_s = static_cast<double>(rows.integer(0, 1)) / 1000.0;
        }
        stats.failing = rows.integer(0, 2);
        stats.dead = rows.integer(0, 3);
        stats.owed = rows.integer(0, 4);
        stats.refusal = stats.owed > 0 ? refusal_ : std::string();
        const std::size_t refused = due_.except.size() + refused_before_;
        stats.owed += static_cast<std::int64_t>(refused);
        stats.due_refusal = refused > 0 ? due_refusal_ : std::string();
        stats.scheduled = rows.integer(0, 5);
        if (table_.by_position) {
            if (Status status = look_outside(stats); !status.ok()) return status;
        }
        last_stats_ = stats;
        if (in_time && stats.backlog <= kCountLimit) return stats;
    }
    if (Status status = estimate(with, roughly, in_time, stats); !status.ok()) return status;
    stats.estimated = true;
    return stats;
}

// Dead rows that a held snapshot keeps can make the count slow, as can ledgers with many events
// between others that are finished.
Status PostgresRecorder::estimate(const std::string& with, const Roughly& roughly, bool in_time,
                                  Stats& stats) {
    const std::int64_t counted = in_time ? stats.backlog : 0;
    if (!in_time && !roughly.oldest.empty()) {
        const auto age =
            query_within(kLookWithin, with + "SELECT " + age_of({roughly.oldest}) + ", $1::text",
                         Params().text(table_.source));
        if (!age.ok()) return age.status();
        if (*age) stats.oldest_age_s = static_cast<double>((*age)->integer(0, 0)) / 1000.0;
    }
    std::int64_t about = 0;
    if (roughly.count.empty()) {
        const auto plan =
            query_within(kLookWithin, "EXPLAIN SELECT 1" + roughly.rows + tenants_, {});
        if (!plan.ok()) return plan.status();
        const std::string line = *plan ? (*plan)->string(0, 0) : std::string();
        const auto at = line.find("rows=");
        if (at == std::string::npos) return {};
        std::from_chars(line.data() + at + 5, line.data() + line.size(), about);
    }
    const auto rest = query_within(
        kLookWithin,
        with + "SELECT (" +
            (roughly.count.empty() ? std::to_string(about) + " - " + roughly.less : roughly.count) +
            ")::bigint, $1::text",
        Params().text(table_.source));
    if (!rest.ok()) return rest.status();
    if (*rest) about = (*rest)->integer(0, 0);
    if (*rest || roughly.count.empty()) stats.backlog = std::max(counted, about);
    return {};
}

}  // namespace outbox::postgres
