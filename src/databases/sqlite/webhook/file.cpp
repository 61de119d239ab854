#include "core/embedded_sql.h"
#include "core/url.h"
#include "databases/sqlite/webhook/store.h"
#include "webhook/endpoint_columns.h"

namespace outbox::sqlite {
namespace {

constexpr const char* kTablesExist =
    "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN "
    "('outbox_webhook_endpoints', 'outbox_webhook_deliveries', 'outbox_webhook_lease')";
constexpr std::int64_t kTables = 3;

struct Columns {
    Statement& row;
    int next = 0;

    std::string text() { return row.string(next++); }
    std::int64_t number() { return row.integer(next++); }
    std::optional<std::string> maybe() {
        const int column = next++;
        return row.is_null(column) ? std::nullopt : std::optional(row.string(column));
    }
};

constexpr const char* kEndpoints =
    "SELECT endpoint_id, url, events, tenant_id, state, reason, secrets, revision, created_at, "
    "updated_at, failing_since, failures, last_attempt_at, paused_until, last_status, last_error, "
    "delivered_total, missed_total FROM outbox_webhook_endpoints ORDER BY endpoint_id LIMIT ?";

Status look_for_tables(Database& database, bool& there) {
    Statement tables(database, kTablesExist);
    there = tables.step() && tables.integer(0) == kTables;
    return tables.status();
}

}  // namespace

Result<std::string> webhook_path(const webhook::StoreConfig& config) {
    const auto invalid = [](std::string message) {
        return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "", std::move(message)};
    };
    const auto url = parse_url(config.target);
    if (!url.ok()) return url.error();
    if (!url->authority.empty() || url->path.size() < 2) {
        return invalid("'webhook+" + redact(config.target) +
                       "' names no file: write webhook+sqlite:///absolute/path.db, with three "
                       "slashes");
    }
    if (!url->query.empty() || !config.owners.empty()) {
        return invalid("unknown parameter '" +
                       (url->query.empty() ? "owner" : url->query.front().first) +
                       "' in the URL of a file with webhooks");
    }
    return url->path;
}

Result<std::unique_ptr<Database>> open_webhook_file(const std::string& path, int busy_timeout_s,
                                                    bool make, bool& there) {
    constexpr int kMillis = 1'000;
    auto opened = Database::open(path, busy_timeout_s * kMillis, Role::kMailbox);
    if (!opened.ok()) return opened.status();
    Status status = look_for_tables(**opened, there);
    if (status.ok() && !there && make) {
        status = (*opened)->execute("BEGIN IMMEDIATE;" +
                                    std::string(embedded_sql_text("consumer/sqlite/webhooks.sql")) +
                                    "COMMIT;");
        there = status.ok();
    }
    if (!status.ok()) return status;
    return opened;
}

Result<std::vector<webhook::Endpoint>> read_endpoints(Database& database) {
    Statement row(database, kEndpoints);
    row.bind(static_cast<std::int64_t>(webhook::kMaxEndpoints));
    std::vector<webhook::Endpoint> out;
    while (row.step()) {
        Columns columns{row};
        webhook::read_endpoint(columns, out.emplace_back());
    }
    if (Status status = row.status(); !status.ok()) return status;
    return out;
}

}  // namespace outbox::sqlite
