#include <functional>
#include <libpq-fe.h>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/sql_text.h"
#include "databases/postgres/arrays.h"
#include "databases/postgres/errors.h"
#include "databases/postgres/session.h"
#include "databases/postgres/webhook/endpoints.h"
#include "databases/postgres/webhook/place.h"
#include "databases/postgres/webhook/store.h"
#include "mailbox/errors.h"

namespace outbox::postgres {
namespace {

constexpr const char* kInsertName = "outbox_webhook_insert";
constexpr const char* kVersionName = "outbox_webhook_version";
constexpr const char* kMissedName = "outbox_webhook_missed";
constexpr const char* kQueuedName = "outbox_webhook_queued";
constexpr Oid kByteaOid = 17;
constexpr Oid kInt8Oid = 20;
constexpr Oid kTextOid = 25;
constexpr Oid kByteaArrayOid = 1001;
constexpr Oid kTextArrayOid = 1009;
constexpr Oid kInt8ArrayOid = 1016;
constexpr std::chrono::seconds kMaxWait{10};

// Positions are given in the order of the targets. The rows of the endpoints are held, so that who
// deletes one sees what is written here. Holding them is a write: the commit of repeats alone waits
// for a synchronous standby as well.
std::string insert_sql(const WebhookTables& tables) {
    return "WITH alive AS MATERIALIZED (SELECT endpoint_id FROM " + tables.endpoints +
           " WHERE endpoint_id IN (SELECT unnest($1::text[])) ORDER BY endpoint_id FOR KEY SHARE), "
           "written AS (INSERT INTO " +
           tables.deliveries +
           " (endpoint_id, event_id, event_type, key, headers, payload, occurred_at) "
           "SELECT a.endpoint_id, r.id, r.type, r.key, r.headers::json, r.payload, "
           "'epoch'::timestamptz + NULLIF(r.at, 0) * interval '1 microsecond' "
           "FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS t(endpoint_id, event, n) "
           "JOIN alive a ON a.endpoint_id = t.endpoint_id "
           "JOIN unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], "
           "$8::bigint[]) WITH ORDINALITY AS r(id, type, key, headers, payload, at, n) "
           "ON r.n = t.event + 1 ORDER BY t.n ON CONFLICT (endpoint_id, event_id) DO NOTHING "
           "RETURNING endpoint_id) SELECT endpoint_id, count(*) FROM written GROUP BY endpoint_id";
}

// `written`: by endpoint, how many.
std::vector<webhook::LeftOut> left_out(std::span<const std::string_view> endpoints,
                                       std::span<const webhook::Target> targets,
                                       const Rows& written) {
    std::map<std::string, std::int64_t, std::less<>> of_endpoint;
    auto rows = static_cast<std::int64_t>(targets.size());
    for (int row = 0; row < written.size(); ++row) {
        of_endpoint.emplace(written.string(row, 0), written.integer(row, 1));
        rows -= written.integer(row, 1);
    }
    std::vector<webhook::LeftOut> out;
    if (rows == 0) return out;
    std::map<std::uint32_t, std::int64_t> wanted;
    for (const webhook::Target& target : targets) ++wanted[target.endpoint];
    for (const auto& [endpoint, count] : wanted) {
        const auto found = of_endpoint.find(endpoints[endpoint]);
        const std::int64_t missing = count - (found == of_endpoint.end() ? 0 : found->second);
        if (missing > 0) out.push_back({endpoint, missing});
    }
    return out;
}

// A row that is made anew differs by its time.
std::string version_sql(const WebhookTables& tables) {
    return "SELECT count(*) || ' ' || coalesce(bit_xor(hashtextextended(endpoint_id, revision # "
           "CASE WHEN isfinite(created_at) THEN (date_part('epoch', created_at) * "
           "1000000)::bigint ELSE 0 END)), 0) FROM " +
           tables.endpoints;
}

// Holds the rows for this statement alone: the commit waits for no disk.
std::string missed_sql(const WebhookTables& tables) {
    const std::string endpoint =
        tables.endpoints +
        " e ON e.endpoint_id = m.endpoint_id AND m.created = " + microseconds_of("e.created_at");
    return "WITH m AS (SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS "
           "m(endpoint_id, created, events)), "
           "held AS MATERIALIZED (SELECT m.endpoint_id, m.events FROM m JOIN " +
           endpoint +
           " ORDER BY e.endpoint_id FOR NO KEY UPDATE OF e SKIP LOCKED), "
           "counted AS (UPDATE " +
           tables.endpoints +
           " e SET missed_total = e.missed_total + held.events FROM held WHERE e.endpoint_id = "
           "held.endpoint_id RETURNING e.endpoint_id, set_config('synchronous_commit', 'off', "
           "true)) "
           "SELECT m.endpoint_id FROM m JOIN " +
           endpoint + " WHERE m.endpoint_id NOT IN (SELECT endpoint_id FROM counted)";
}

std::string queued_sql(const WebhookTables& tables) {
    return "SELECT count(*) FROM (SELECT FROM " + tables.deliveries +
           " WHERE endpoint_id = $1 LIMIT $2) q";
}

class PostgresInlet final : public webhook::Inlet {
  public:
    explicit PostgresInlet(webhook::StoreConfig config)
        : config_(std::move(config)),
          session_(source_config(config_),
                   [this](Connection& connection) { return begin(connection); }) {}

    Status prepare() override { return connected().status(); }

    Result<std::vector<webhook::Endpoint>> look() override {
        missing_ = Missing::kTell;
        session_.drop();
        auto found = look_at_endpoints();
        session_.drop();
        missing_ = Missing::kMake;
        return found;
    }

    // A standby that takes over has the same name. Makes nothing: who only looks asks it, too.
    Result<std::string> destination() override {
        missing_ = Missing::kTell;
        session_.drop();
        auto name = ask_name();
        session_.drop();
        missing_ = Missing::kMake;
        return name;
    }

    Result<std::string> version() override {
        const auto connection = connected();
        if (!connection.ok()) return connection.status();
        const auto version = (*connection)->query_prepared(kVersionName, Params());
        if (!version.ok()) return failed(version.error());
        return version->string(0, 0);
    }

    Result<std::vector<webhook::Endpoint>> endpoints() override {
        const auto connection = connected();
        if (!connection.ok()) return connection.status();
        auto read = read_endpoints(**connection, tables_.endpoints);
        if (!read.ok()) return failed(read.error());
        return read;
    }

    Result<std::int64_t> queued(std::string_view endpoint, std::int64_t most) override {
        const auto connection = connected();
        if (!connection.ok()) return connection.status();
        const auto counted =
            (*connection)->query_prepared(kQueuedName, Params().text(endpoint).integer(most));
        if (!counted.ok()) return failed(counted.error());
        return counted->integer(0, 0);
    }

    Result<std::vector<webhook::LeftOut>> insert(
        std::span<const webhook::Event> events, std::span<const std::string_view> endpoints,
        std::span<const webhook::Target> targets) override {
        const auto connection = connected();
        if (!connection.ok()) return connection.status();
        const auto done =
            (*connection)->query_prepared(kInsertName, of(events, endpoints, targets));
        if (!done.ok()) return failed(done.error());
        return left_out(endpoints, targets, *done);
    }

    Result<std::vector<std::string>> count_missed(
        std::span<const webhook::Missed> missed) override {
        const auto connection = connected();
        if (!connection.ok()) return connection.status();
        std::vector<std::string> ids;
        std::vector<std::int64_t> created;
        std::vector<std::int64_t> events;
        for (const webhook::Missed& one : missed) {
            ids.emplace_back(one.endpoint_id);
            created.push_back(one.created_at_us);
            events.push_back(one.events);
        }
        const auto held =
            (*connection)
                ->query_prepared(kMissedName,
                                 Params().texts(ids).integers(created).integers(events));
        if (!held.ok()) return failed(held.error());
        std::vector<std::string> out;
        for (int row = 0; row < held->size(); ++row) out.push_back(held->string(row, 0));
        return out;
    }

  private:
    Result<std::vector<webhook::Endpoint>> look_at_endpoints() {
        const auto connection = connected();
        if (!connection.ok()) return connection.status();
        const auto there =
            (*connection)
                ->query("SELECT to_regclass(" + quote_literal(tables_.endpoints) + ") IS NOT NULL");
        if (!there.ok()) return webhook_error(there.error());
        if (!there->boolean(0, 0)) return std::vector<webhook::Endpoint>();
        auto read = read_endpoints(**connection, tables_.endpoints);
        if (!read.ok()) return webhook_error(read.error());
        return read;
    }

    // Lends what it keeps until the next call.
    Params of(std::span<const webhook::Event> events, std::span<const std::string_view> endpoints,
              std::span<const webhook::Target> targets) {
        Params params;
        texts(endpoints_, targets.size(),
              [&](std::size_t i) { return endpoints[targets[i].endpoint]; });
        integers(numbers_, targets.size(), [&](std::size_t i) { return targets[i].event; });
        texts(ids_, events.size(), [&](std::size_t i) { return events[i].id; });
        texts(types_, events.size(), [&](std::size_t i) { return not_null(events[i].type); });
        texts(keys_, events.size(), [&](std::size_t i) { return events[i].key; });
        texts(headers_, events.size(), [&](std::size_t i) { return events[i].headers; });
        encode_array(payloads_, kByteaOid, events.size(),
                     [&](std::size_t i) { return events[i].payload; });
        integers(times_, events.size(), [&](std::size_t i) { return events[i].occurred_at_us; });
        params.lend(kTextArrayOid, endpoints_).lend(kInt8ArrayOid, numbers_);
        params.lend(kTextArrayOid, ids_).lend(kTextArrayOid, types_).lend(kTextArrayOid, keys_);
        params.lend(kTextArrayOid, headers_).lend(kByteaArrayOid, payloads_);
        params.lend(kInt8ArrayOid, times_);
        return params;
    }

    static std::string_view not_null(std::string_view text) {
        return text.data() == nullptr ? std::string_view("") : text;
    }

    template <typename Get>
    static void texts(std::string& out, std::size_t size, const Get& get) {
        encode_array(out, kTextOid, size, get);
    }

    template <typename Get>
    static void integers(std::string& out, std::size_t size, const Get& get) {
        std::uint64_t wire = 0;
        encode_array(out, kInt8Oid, size, [&](std::size_t i) {
            wire = htobe64(static_cast<std::uint64_t>(get(i)));
            return std::string_view(reinterpret_cast<const char*>(&wire), sizeof wire);
        });
    }

    Status begin(Connection& connection) {
        auto tables = webhook_tables(connection, config_, missing_);
        if (!tables.ok()) return tables.status();
        tables_ = *std::move(tables);
        if (missing_ == Missing::kTell) return {};
        connection.limit_waits(kMaxWait);
        // Statements end on the server before we stop waiting for them.
        Status status = connection.execute("SET statement_timeout = '8s'; SET lock_timeout = '5s'");
        if (!status.ok()) return status;
        const std::string none;
        Params types;
        types.lend(kTextArrayOid, none).lend(kInt8ArrayOid, none).lend(kTextArrayOid, none);
        types.lend(kTextArrayOid, none).lend(kTextArrayOid, none).lend(kTextArrayOid, none);
        types.lend(kByteaArrayOid, none).lend(kInt8ArrayOid, none);
        status = connection.prepare(kInsertName, insert_sql(tables_), types);
        if (!status.ok()) return status;
        status = connection.prepare(kVersionName, version_sql(tables_), Params());
        if (!status.ok()) return status;
        status = connection.prepare(kMissedName, missed_sql(tables_),
                                    Params().texts({}).integers({}).integers({}));
        if (!status.ok()) return status;
        return connection.prepare(kQueuedName, queued_sql(tables_), Params().text("").integer(0));
    }

    Result<std::string> ask_name() {
        const auto connection = connected();
        if (!connection.ok()) return connection.status();
        const auto name = (*connection)
                              ->query(
                                  "SELECT 'postgresql ' || system_identifier || '/' || "
                                  "current_database() || '.' || "
                                  "(parse_ident(" +
                                  quote_literal(tables_.schema) + "))[1] FROM pg_control_system()");
        if (!name.ok()) return failed(name.error());
        return name->string(0, 0) + ", webhooks";
    }

    Result<Connection*> connected() {
        auto connection = session_.get();
        if (!connection.ok()) return webhook_error(connection.error());
        return connection;
    }

    // Another server, a new plan, a table made again: the next call starts afresh.
    ErrorInfo failed(const ErrorInfo& error) {
        ErrorInfo told = webhook_error(error);
        if (told.advice == Advice::kRetryDestination) session_.drop();
        // As sinks call it that the server ended a statement.
        const ErrorInfo of_sink = mailbox_error(error.backend_code, {});
        if (mailbox::took_too_long(of_sink)) told.code = of_sink.code;
        return told;
    }

    webhook::StoreConfig config_;
    Missing missing_ = Missing::kMake;
    WebhookTables tables_;
    Session session_;
    std::string endpoints_, numbers_, ids_, types_, keys_, headers_, payloads_, times_;
};

}  // namespace

PostgresSourceConfig source_config(const webhook::StoreConfig& config) {
    PostgresSourceConfig out;
    out.url = config.target;
    out.connect_timeout_s = config.connect_timeout_s;
    return out;
}

Result<std::unique_ptr<webhook::Inlet>> open_webhook_inlet(const webhook::StoreConfig& config) {
    return std::unique_ptr<webhook::Inlet>(std::make_unique<PostgresInlet>(config));
}

}  // namespace outbox::postgres
