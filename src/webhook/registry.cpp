#include "webhook/registry.h"

#include <algorithm>
#include <utility>

#include "consumer/operator_sql.h"
#include "webhook/endpoint_columns.h"

namespace outbox::webhook {
namespace {

using consumer::number;

constexpr std::int64_t kMaxCounted = 1'000;  // deliveries before one

struct Columns {
    const consumer::Sql::Row& row;
    std::size_t next = 0;

    std::string text() { return row[next++].value_or(""); }
    std::int64_t number() { return consumer::number(row[next++]); }
    std::optional<std::string> maybe() { return row[next++]; }
};
using Rows = consumer::Sql::Rows;

ErrorInfo conflict(std::string message) {
    return {ErrorCode::kConflict, Advice::kStop, {}, std::move(message)};
}

class SqlRegistry final : public Registry {
  public:
    SqlRegistry(std::unique_ptr<consumer::Sql> sql, std::string os_user)
        : sql_(std::move(sql)), os_user_(std::move(os_user)) {}

    Result<bool> has_tables() override {
        const auto rows = sql_->run(sql_->table_count("outbox_webhook_lease"), {});
        if (!rows.ok()) return rows.status();
        return number((*rows)[0][0]) > 0;
    }

    Result<Delivering> delivering() override {
        const auto rows = sql_->run("SELECT owner, CASE WHEN expires_at > " + sql_->now() +
                                        " THEN 1 ELSE 0 END FROM outbox_webhook_lease",
                                    {});
        if (!rows.ok()) return rows.status();
        if (rows->empty()) return Delivering();
        return Delivering{number((*rows)[0][1]) != 0, (*rows)[0][0].value_or("")};
    }

    Status add(const Endpoint& endpoint) override {
        return in_transaction([&]() -> Status {
            std::int64_t added = 0;
            const auto rows = sql_->run(
                "INSERT INTO outbox_webhook_endpoints (endpoint_id, url, events, tenant_id, "
                "secrets) SELECT $1, $2, $3, NULLIF($4, ''), $5 WHERE (SELECT count(*) FROM "
                "outbox_webhook_endpoints) < " +
                    std::to_string(kMaxEndpoints) + " ON CONFLICT (endpoint_id) DO NOTHING",
                {endpoint.id, endpoint.url, endpoint.events, endpoint.tenant.value_or(""),
                 endpoint.secrets},
                &added);
            if (!rows.ok()) return rows.status();
            if (added == 0) {
                return conflict("there is an endpoint " + endpoint.id + ", or there are " +
                                std::to_string(kMaxEndpoints) + " already");
            }
            return audit("webhook add", endpoint.id + " " + endpoint.url, 0);
        });
    }

    Result<std::vector<EndpointReport>> list(bool count) override { return read("", {}, count); }

    Result<std::optional<EndpointReport>> get(const std::string& id) override {
        auto found = read(" WHERE e.endpoint_id = $1", {id}, true);
        if (!found.ok()) return found.status();
        if (found->empty()) return std::optional<EndpointReport>();
        return std::optional(std::move(found->front()));
    }

    Result<EndpointDeliveries> deliveries_of_event(const std::string& id,
                                                   std::size_t limit) override {
        return deliveries("d.event_id = $1", id, limit);
    }

    Result<EndpointDeliveries> deliveries_of_key(const std::string& key,
                                                 std::size_t limit) override {
        return deliveries("d.key = $1", key, limit);
    }

    Status set_secrets(const std::string& id, std::int64_t revision,
                       const std::string& secrets) override {
        return in_transaction([&]() -> Status {
            const auto changed = change("secrets = $1", " AND revision = $3",
                                        {secrets, id, std::to_string(revision)});
            if (!changed.ok()) return changed.status();
            if (*changed == 0) {
                return conflict("endpoint " + id +
                                " was changed or deleted meanwhile; nothing was changed");
            }
            return audit("webhook rotate", id, 0);
        });
    }

    Result<bool> disable(const std::string& id, const std::string& reason) override {
        bool known = false;
        Status status = in_transaction([&]() -> Status {
            const auto changed = change("state = 'disabled', reason = $1", "", {reason, id});
            if (!changed.ok()) return changed.status();
            known = *changed != 0;
            return known ? audit("webhook disable", id + ": " + reason, 0) : Status();
        });
        if (!status.ok()) return status;
        return known;
    }

    Result<bool> enable(const std::string& id) override {
        bool known = false;
        Status status = in_transaction([&]() -> Status {
            const auto changed = change(
                "state = 'enabled', reason = $1, failing_since = NULL, failures = 0, "
                "paused_until = NULL",
                "", {"", id});
            if (!changed.ok()) return changed.status();
            known = *changed != 0;
            if (!known) return {};
            std::int64_t again = 0;
            const auto fresh = sql_->run(
                "UPDATE outbox_webhook_deliveries SET dead = (1 = 0), attempts = 0, "
                "first_failed_at = NULL, next_attempt_at = NULL "
                "WHERE endpoint_id = $1 AND attempts > 0",
                {id}, &again);
            if (!fresh.ok()) return fresh.status();
            return audit("webhook enable", id, again);
        });
        if (!status.ok()) return status;
        return known;
    }

    // Whoever is writing deliveries holds the endpoint's row, so that what it writes is there when
    // the second statement looks.
    Result<std::optional<std::int64_t>> remove(const std::string& id) override {
        std::optional<std::int64_t> removed;
        Status status = in_transaction([&]() -> Status {
            std::int64_t endpoints = 0;
            const auto gone = sql_->run(
                "DELETE FROM outbox_webhook_endpoints WHERE endpoint_id = $1", {id}, &endpoints);
            if (!gone.ok()) return gone.status();
            if (endpoints == 0) return {};
            std::int64_t deliveries = 0;
            const auto dropped = sql_->run(
                "DELETE FROM outbox_webhook_deliveries WHERE endpoint_id = $1", {id}, &deliveries);
            if (!dropped.ok()) return dropped.status();
            removed = deliveries;
            return audit("webhook delete", id, deliveries);
        });
        if (!status.ok()) return status;
        return removed;
    }

  private:
    template <typename Work>
    Status in_transaction(const Work& work) {
        Status status = sql_->run("BEGIN", {}).status();
        if (!status.ok()) return status;
        status = work();
        const Status ended = sql_->run(status.ok() ? "COMMIT" : "ROLLBACK", {}).status();
        return status.ok() ? ended : status;
    }

    // $1 is the new value, $2 the endpoint.
    Result<std::int64_t> change(const std::string& set, const std::string& condition,
                                const std::vector<std::string>& parameters) {
        std::int64_t changed = 0;
        const auto rows = sql_->run("UPDATE outbox_webhook_endpoints SET " + set +
                                        ", revision = revision + 1, updated_at = " + sql_->now() +
                                        " WHERE endpoint_id = $2" + condition,
                                    parameters, &changed);
        if (!rows.ok()) return rows.status();
        return changed;
    }

    Status audit(const std::string& action, const std::string& detail, std::int64_t events) {
        return consumer::write_audit(
            *sql_, {.os_user = os_user_, .source = "webhooks", .action = action, .detail = detail},
            events);
    }

    Result<std::vector<EndpointReport>> read(const std::string& condition,
                                             const std::vector<std::string>& parameters,
                                             bool count) {
        const auto time = [this](const std::string& column) { return sql_->microseconds(column); };
        const std::string figures =
            count ? ", d.waiting, d.failing, d.dead, " + time("d.oldest") + ", " + time("d.next")
                  : ", 0, 0, 0, 0, 0";
        const std::string join =
            count ? " LEFT JOIN (SELECT endpoint_id, "
                    "sum(CASE WHEN dead THEN 0 ELSE 1 END) AS waiting, "
                    "sum(CASE WHEN attempts > 0 AND NOT dead THEN 1 ELSE 0 END) AS failing, "
                    "sum(CASE WHEN dead THEN 1 ELSE 0 END) AS dead, "
                    "min(CASE WHEN dead THEN NULL ELSE created_at END) AS oldest, "
                    "min(CASE WHEN dead THEN NULL ELSE next_attempt_at END) AS next "
                    "FROM outbox_webhook_deliveries" +
                        std::string(parameters.empty() ? "" : " WHERE endpoint_id = $1") +
                        " GROUP BY endpoint_id) d ON d.endpoint_id = e.endpoint_id"
                  : "";
        const auto rows = sql_->run(
            "SELECT e.endpoint_id, e.url, e.events, e.tenant_id, e.state, e.reason, e.secrets, "
            "e.revision, " +
                time("e.created_at") + ", " + time("e.updated_at") + ", " +
                time("e.failing_since") + ", e.failures, " + time("e.last_attempt_at") + ", " +
                time("e.paused_until") +
                ", e.last_status, e.last_error, e.delivered_total, e.missed_total" + figures +
                " FROM outbox_webhook_endpoints e" + join + condition +
                " ORDER BY e.created_at, e.endpoint_id",
            parameters);
        if (!rows.ok()) return rows.status();
        std::vector<EndpointReport> out;
        for (const consumer::Sql::Row& row : *rows) out.push_back(report(row));
        return out;
    }

    Result<EndpointDeliveries> deliveries(const std::string& condition, const std::string& value,
                                          std::size_t limit) {
        const auto time = [this](const std::string& column) { return sql_->microseconds(column); };
        const std::string of_endpoint =
            " FROM outbox_webhook_deliveries b WHERE b.endpoint_id = d.endpoint_id AND NOT b.dead "
            "AND b.position < d.position";
        const auto rows = sql_->run(
            "SELECT d.endpoint_id, d.event_id, d.event_type, CASE WHEN d.dead THEN 1 ELSE 0 END, " +
                time("d.created_at") + ", d.attempts, " + time("d.first_failed_at") + ", " +
                time("d.next_attempt_at") +
                ", d.last_error, CASE WHEN e.state = 'disabled' THEN 1 ELSE 0 END, e.reason, " +
                time("e.paused_until") + ", e.last_error, (SELECT b.event_id" + of_endpoint +
                " AND b.attempts > 0 AND b.key = d.key ORDER BY b.position LIMIT 1), "
                "(SELECT count(*) FROM (SELECT 1" +
                of_endpoint + " LIMIT " + std::to_string(kMaxCounted + 1) +
                ") x) FROM outbox_webhook_endpoints e JOIN outbox_webhook_deliveries d "
                "ON d.endpoint_id = e.endpoint_id WHERE " +
                condition +
                " ORDER BY CASE WHEN d.dead THEN 1 ELSE 0 END, d.attempts DESC, e.endpoint_id, "
                "d.position LIMIT " +
                std::to_string(limit + 1),
            {value});
        if (!rows.ok()) return rows.status();
        EndpointDeliveries out;
        for (const consumer::Sql::Row& row : *rows) out.found.push_back(delivery(row));
        out.more = out.found.size() > limit;
        if (out.more) out.found.pop_back();
        const auto by = delivering();
        if (by.ok()) {
            for (EndpointDelivery& one : out.found) one.served = by->held;
        }
        return out;
    }

    static EndpointDelivery delivery(const consumer::Sql::Row& row) {
        EndpointDelivery out;
        Columns next{row};
        out.endpoint = next.text();
        out.event_id = next.text();
        out.event_type = next.text();
        out.dead = next.number() != 0;
        out.written_at_us = next.number();
        out.failing.attempts = next.number();
        out.failing.first_failed_us = next.number();
        out.failing.next_attempt_us = next.number();
        out.failing.error = next.text();
        out.endpoint_disabled = next.number() != 0;
        out.disabled_because = next.text();
        out.paused_until_us = next.number();
        out.last_error = next.text();
        out.behind = next.text();
        const std::int64_t earlier = next.number();
        out.earlier = {std::min(earlier, kMaxCounted), earlier > kMaxCounted};
        return out;
    }

    static EndpointReport report(const consumer::Sql::Row& row) {
        EndpointReport out;
        Columns next{row};
        read_endpoint(next, out.endpoint);
        out.waiting = next.number();
        out.failing = next.number();
        out.dead = next.number();
        out.oldest_at_us = next.number();
        out.next_due_at_us = next.number();
        return out;
    }

    std::unique_ptr<consumer::Sql> sql_;
    std::string os_user_;
};

}  // namespace

std::unique_ptr<Registry> Registry::make(std::unique_ptr<consumer::Sql> sql, std::string os_user) {
    return std::make_unique<SqlRegistry>(std::move(sql), std::move(os_user));
}

}  // namespace outbox::webhook
