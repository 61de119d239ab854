#include "databases/postgres/webhook/endpoints.h"

#include <optional>
#include <string_view>

#include "webhook/endpoint_columns.h"

namespace outbox::postgres {
namespace {

struct Columns {
    const Rows& rows;
    int row;
    int next = 0;

    std::string text() { return rows.string(row, next++); }
    std::int64_t number() { return rows.integer(row, next++); }
    std::optional<std::string> maybe() {
        const std::string_view text = rows.text(row, next++);
        return text.data() == nullptr ? std::nullopt : std::optional<std::string>(text);
    }
};

}  // namespace

std::string microseconds_of(const std::string& column) {
    return "coalesce(CASE WHEN isfinite(" + column + ") THEN (extract(epoch FROM " + column +
           ") * 1000000)::bigint END, 0)";
}

Result<HeldEndpoints> hold_endpoints(Connection& connection, const WebhookTables& tables,
                                     const std::vector<std::string>& ids) {
    const std::string select =
        "SELECT endpoint_id FROM " + tables.endpoints + " WHERE endpoint_id = ANY($1::text[])";
    const auto held = connection.query(
        select + " ORDER BY endpoint_id FOR NO KEY UPDATE SKIP LOCKED", Params().texts(ids));
    if (!held.ok()) return held.status();
    HeldEndpoints out;
    for (int row = 0; row < held->size(); ++row) out.here.insert(held->string(row, 0));
    if (out.here.size() == ids.size()) return out;
    const auto there = connection.query(select, Params().texts(ids));
    if (!there.ok()) return there.status();
    for (int row = 0; row < there->size(); ++row) {
        std::string id = there->string(row, 0);
        if (!out.here.contains(id)) out.elsewhere.push_back(std::move(id));
    }
    return out;
}

Result<std::vector<webhook::Endpoint>> read_endpoints(Connection& connection,
                                                      const std::string& table) {
    const auto rows = connection.query(
        "SELECT endpoint_id, url, events, tenant_id, state, reason, secrets, revision, " +
        microseconds_of("created_at") + ", " + microseconds_of("updated_at") + ", " +
        microseconds_of("failing_since") + ", failures, " + microseconds_of("last_attempt_at") +
        ", " + microseconds_of("paused_until") +
        ", coalesce(last_status, 0), coalesce(last_error, ''), delivered_total, missed_total "
        "FROM " +
        table + " ORDER BY endpoint_id LIMIT " + std::to_string(webhook::kMaxEndpoints));
    if (!rows.ok()) return rows.status();
    std::vector<webhook::Endpoint> out;
    out.reserve(static_cast<std::size_t>(rows->size()));
    for (int row = 0; row < rows->size(); ++row) {
        Columns columns{*rows, row};
        webhook::read_endpoint(columns, out.emplace_back());
    }
    return out;
}

}  // namespace outbox::postgres
