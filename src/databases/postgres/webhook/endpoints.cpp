#include "databases/postgres/webhook/endpoints.h"

namespace outbox::postgres {

std::string microseconds_of(const std::string& column) {
    return "coalesce(CASE WHEN isfinite(" + column + ") THEN (extract(epoch FROM " + column +
           ") * 1000000)::bigint END, 0)";
}

Connection::Statement hold_endpoints(const WebhookTables& tables,
                                     const std::vector<std::string>& ids) {
    return {"SELECT FROM " + tables.endpoints +
                " WHERE endpoint_id = ANY($1::text[]) ORDER BY endpoint_id FOR NO KEY UPDATE",
            Params().texts(ids)};
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
        int next = 0;
        const auto text = [&] { return rows->string(row, next++); };
        const auto value = [&] { return rows->integer(row, next++); };
        webhook::Endpoint& endpoint = out.emplace_back();
        endpoint.id = text();
        endpoint.url = text();
        endpoint.events = text();
        if (rows->text(row, next).data() != nullptr) endpoint.tenant = rows->string(row, next);
        ++next;
        endpoint.state = text() == "enabled" ? webhook::Endpoint::State::kEnabled
                                             : webhook::Endpoint::State::kDisabled;
        endpoint.reason = text();
        endpoint.secrets = text();
        endpoint.revision = value();
        endpoint.created_at_us = value();
        endpoint.updated_at_us = value();
        endpoint.failing_since_us = value();
        endpoint.failures = value();
        endpoint.last_attempt_at_us = value();
        endpoint.paused_until_us = value();
        endpoint.last_status = static_cast<int>(value());
        endpoint.last_error = text();
        endpoint.delivered_total = value();
        endpoint.missed_total = value();
    }
    return out;
}

}  // namespace outbox::postgres
