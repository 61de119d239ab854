#include "sources/sqlite/operate.h"

#include <algorithm>
#include <utility>

#include "sources/sqlite/client.h"
#include "sources/sqlite/lease.h"
#include "sources/sqlite/table.h"

namespace outbox::sqlite {
namespace {

constexpr std::int64_t kRateIsFreshUs = 15'000'000;

// A relay for some tenants only writes "table/tenant,...": it belongs to the table, too.
constexpr const char* kOfTable = "(source = ?1 OR substr(source, 1, length(?1) + 1) = ?1 || '/')";

// The ids go in as one JSON array, so that their number needs no own statement.
std::string where_dead(const DeadFilter& filter) {
    std::string where = std::string(" WHERE ") + kOfTable;
    if (!filter.ids.empty()) where += " AND id IN (SELECT value FROM json_each(?2))";
    if (!filter.route.empty()) where += " AND route = ?3";
    if (!filter.event_type.empty()) where += " AND event_type = ?4";
    if (!filter.key.empty()) where += " AND coalesce(nullif(key, ''), aggregate_id) = ?5";
    if (!filter.error_code.empty()) where += " AND error_code = ?6";
    return where;
}

std::string json_array(const std::vector<std::string>& texts) {
    constexpr const char* kDigits = "0123456789abcdef";
    std::string json = "[";
    for (const std::string& text : texts) {
        json += json.size() > 1 ? ",\"" : "\"";
        for (const char c : text) {
            const auto byte = static_cast<unsigned char>(c);
            if (c == '"' || c == '\\') {
                json.append("\\").append(1, c);
            } else if (byte < 0x20) {
                json.append("\\u00").append(1, kDigits[byte >> 4U]).append(1, kDigits[byte & 15U]);
            } else {
                json += c;
            }
        }
        json += '"';
    }
    return json + "]";
}

DeadInfo dead_of(const Statement& row) {
    DeadInfo dead;
    dead.dead_id = row.integer(0);
    dead.id = row.string(1);
    dead.route = row.string(2);
    dead.position = row.integer(3);
    dead.aggregate_type = row.string(4);
    dead.aggregate_id = row.string(5);
    dead.event_type = row.string(6);
    dead.tenant_id = row.string(7);
    dead.schema_id = row.string(8);
    dead.schema_version = row.string(9);
    dead.topic = row.string(10);
    dead.key = row.string(11);
    dead.routing_key = row.string(12);
    dead.headers = row.string(13);
    dead.metadata = row.string(14);
    dead.attempts = row.integer(15);
    dead.error_code = row.string(16);
    dead.error = row.string(17);
    dead.occurred_at_us = row.integer(18);
    dead.died_at_us = row.integer(19);
    dead.retry_requested_at_us = row.integer(20);
    dead.payload_is_null = row.text(21).data() == nullptr;
    dead.payload = row.string(21);
    return dead;
}

class SqliteOperations final : public Operations {
  public:
    SqliteOperations(std::unique_ptr<Database> database, std::string table)
        : database_(std::move(database)), table_(std::move(table)) {}

    Result<LeaseInfo> lease() override {
        Statement row(*database_,
                      "SELECT owner, epoch, owner IS NOT NULL AND expires_at > ?2 AS held, "
                      "acquired_at, expires_at - ?2, locked, source FROM outbox_lease WHERE " +
                          std::string(kOfTable) + " ORDER BY held DESC, epoch DESC");
        row.bind(table_).bind(now_us());
        LeaseInfo lease;
        for (bool first = true; !lease.held && row.step(); first = false) {
            const bool gone =
                row.integer(5) != 0 && owner_is_gone(database_->path(), row.string(6));
            const bool held = row.integer(2) != 0 && !gone;
            if (!held && !first) continue;
            lease.owner = row.string(0);
            lease.epoch = static_cast<std::uint64_t>(row.integer(1));
            lease.held = held;
            lease.acquired_at_us = lease.owner.empty() ? 0 : row.integer(3);
            lease.expires_in_ms = lease.held ? row.integer(4) / 1000 : 0;
        }
        if (Status status = row.status(); !status.ok()) return status;
        return lease;
    }

    Result<std::vector<RouteInfo>> routes() override {
        const std::string of_table = kOfTable;
        // A rate that no relay has renewed for a while is not one any more. A bare column beside
        // max() is that row's: circuit and error are the newest.
        Statement rows(
            *database_,
            "SELECT route, sum(published), sum(dead_total), sum(failing), sum(dead), "
            "max(circuit), max(last_error), sum(rate), max(updated), max(path), max(path_reason) "
            "FROM ("
            "SELECT route, sum(published_total) AS published, sum(dead_total) AS dead_total, "
            "0 AS failing, 0 AS dead, circuit, last_error, path, path_reason, sum(CASE WHEN "
            "updated_at > ?2 THEN "
            "rate_per_s ELSE 0 END) AS rate, max(updated_at) AS updated FROM outbox_route_stats "
            "WHERE " +
                of_table +
                " GROUP BY route "
                "UNION ALL SELECT route, 0, 0, count(*), 0, NULL, NULL, NULL, NULL, 0, 0 FROM "
                "outbox_delivery "
                "WHERE " +
                of_table +
                " GROUP BY route "
                "UNION ALL SELECT route, 0, 0, 0, count(*), NULL, NULL, NULL, NULL, 0, 0 FROM "
                "outbox_dead_letters "
                "WHERE " +
                of_table + " GROUP BY route) GROUP BY route ORDER BY route");
        rows.bind(table_).bind(now_us() - kRateIsFreshUs);
        std::vector<RouteInfo> routes;
        while (rows.step()) {
            RouteInfo route;
            route.name = rows.string(0);
            route.published_total = rows.integer(1);
            route.dead_total = rows.integer(2);
            route.failing = rows.integer(3);
            route.dead = rows.integer(4);
            route.circuit = rows.string(5);
            route.last_error = rows.string(6);
            route.rate_per_s = rows.number(7);
            route.updated_at_us = rows.integer(8);
            route.path = rows.string(9);
            route.path_reason = rows.string(10);
            routes.push_back(std::move(route));
        }
        if (Status status = rows.status(); !status.ok()) return status;
        return routes;
    }

    Result<std::vector<DeadInfo>> dead(const DeadFilter& filter, std::int64_t after_dead_id,
                                       std::size_t limit, bool with_payload) override {
        Statement rows(*database_,
                       "SELECT dead_id, id, route, position, aggregate_type, aggregate_id, "
                       "event_type, tenant_id, schema_id, schema_version, topic, key, routing_key, "
                       "headers, metadata, attempts, error_code, error, occurred_at, died_at, "
                       "retry_requested_at, " +
                           std::string(with_payload ? "payload" : "NULL") +
                           " FROM outbox_dead_letters" + where_dead(filter) +
                           " AND dead_id > ?7 ORDER BY dead_id LIMIT ?8");
        bind(rows, filter);
        rows.bind(after_dead_id).bind(static_cast<std::int64_t>(limit));
        std::vector<DeadInfo> letters;
        while (rows.step()) letters.push_back(dead_of(rows));
        if (Status status = rows.status(); !status.ok()) return status;
        return letters;
    }

    Result<std::int64_t> count_dead(const DeadFilter& filter) override {
        Statement row(*database_, "SELECT count(*) FROM outbox_dead_letters" + where_dead(filter) +
                                      " AND ?7 IS NULL");
        bind(row, filter);
        const std::int64_t count = row.step() ? row.integer(0) : 0;
        if (Status status = row.status(); !status.ok()) return status;
        return count;
    }

    Result<std::int64_t> retry_dead(const DeadFilter& filter) override {
        Statement update(*database_,
                         "UPDATE outbox_dead_letters SET retry_requested_at = "
                         "coalesce(retry_requested_at, ?7)" +
                             where_dead(filter));
        bind(update, filter);
        return change(update.bind(now_us()));
    }

    Result<std::int64_t> discard_dead(const DeadFilter& filter) override {
        Statement remove(
            *database_, "DELETE FROM outbox_dead_letters" + where_dead(filter) + " AND ?7 IS NULL");
        return change(bind(remove, filter));
    }

  private:
    // Every statement names ?7, so that each of the first six can be bound.
    Statement& bind(Statement& statement, const DeadFilter& filter) const {
        statement.bind(table_).bind(json_array(filter.ids)).bind(filter.route);
        return statement.bind(filter.event_type).bind(filter.key).bind(filter.error_code);
    }

    Result<std::int64_t> change(Statement& statement) {
        if (Status status = statement.run(); !status.ok()) return status;
        return database_->changes();
    }

    std::unique_ptr<Database> database_;
    std::string table_;
};

}  // namespace

Result<std::unique_ptr<Operations>> open_operations(const SqliteSourceConfig& config,
                                                    const std::string& table) {
    const Result<std::string> path = database_path(config.url);
    if (!path.ok()) return path.status();
    auto database = Database::open(*path, config.busy_timeout_ms);
    if (!database.ok()) return database.error();
    Statement any(**database,
                  "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name IN ('outbox_lease', "
                  "'outbox_delivery', 'outbox_dead_letters', 'outbox_route_stats'))");
    const bool none = any.step() && any.integer(0) == 0;
    if (Status status = any.status(); !status.ok()) return status;
    any.reset();
    if (none) return std::unique_ptr<Operations>(new NoOperations);
    return std::unique_ptr<Operations>(
        std::make_unique<SqliteOperations>(std::move(*database), table));
}

}  // namespace outbox::sqlite
