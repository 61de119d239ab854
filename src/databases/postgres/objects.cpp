#include "databases/postgres/objects.h"

#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include <outbox/consumer/claims.h>

#include "core/redact.h"
#include "databases/postgres/client.h"
#include "databases/postgres/errors.h"
#include "databases/postgres/owners.h"
#include "databases/postgres/params.h"
#include "databases/postgres/statement.h"

namespace outbox::postgres {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kConnectTime{5};
constexpr milliseconds kRequestTime{15'000};
constexpr std::size_t kBytesPerMs = 1'000;  // as slow as a way there may be

constexpr const char* kSession =
    "SET client_min_messages = error; SET lock_timeout = '5s'; "
    "SET standard_conforming_strings = on; ";

// The schema, and whether the table is there. From here on the path is the catalog's.
constexpr const char* kPlace =
    "SELECT coalesce((SELECT c.relnamespace::pg_catalog.regnamespace::pg_catalog.text "
    "FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) "
    "pg_catalog.to_regclass('outbox_objects')::pg_catalog.oid), "
    "pg_catalog.quote_ident(pg_catalog.current_schema()::pg_catalog.text)), "
    "(SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON "
    "n.oid OPERATOR(pg_catalog.=) c.relnamespace WHERE c.oid OPERATOR(pg_catalog.=) "
    "pg_catalog.to_regclass('outbox_objects')::pg_catalog.oid), "
    "pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)";

std::string table_sql(const std::string& schema) {
    return "CREATE TABLE IF NOT EXISTS " + schema +
           ".outbox_objects (name text PRIMARY KEY CHECK (length(name) = 64), "
           "bytes bytea NOT NULL, written_at timestamptz NOT NULL)";
}

class Objects final : public claim::ObjectStore {
  public:
    Objects(std::string url, std::string shown) : target_(std::move(url)), url_(std::move(shown)) {}

    [[nodiscard]] const std::string& url() const override { return url_; }

    Status put(std::string_view name, std::string_view bytes,
               const std::stop_token& stop) override {
        Status status = ready(stop);
        if (status.ok() && !has_table_) status = make_table(stop);
        if (!status.ok()) return status;
        Params params;
        params.text(name).lend_bytes(bytes);
        const std::string sql =
            "INSERT INTO " + schema_ +
            ".outbox_objects (name, bytes, written_at) VALUES ($1, $2, clock_timestamp()) "
            "ON CONFLICT (name) DO UPDATE SET bytes = excluded.bytes, "
            "written_at = excluded.written_at";
        return run(sql.c_str(), params, bytes.size(), stop).status();
    }

    Result<std::string> get(std::string_view name, std::size_t max_bytes,
                            const std::stop_token& stop) override {
        if (Status status = ready(stop); !status.ok()) return status;
        if (!has_table_) {
            drop();  // and looked for again
            return no_object_table(*this, " in schema " + schema_);
        }
        Params params;
        params.text(name).integer(static_cast<std::int64_t>(max_bytes));
        const std::string sql =
            "SELECT octet_length(bytes) > $2, CASE WHEN octet_length(bytes) <= $2 THEN bytes END "
            "FROM " +
            schema_ + ".outbox_objects WHERE name = $1";
        const auto rows = run(sql.c_str(), params, max_bytes, stop);
        if (!rows.ok()) return rows.status();
        if (rows->empty()) return object_gone(*this, name);
        if (rows->boolean(0, 0)) return object_too_large(*this, name, max_bytes);
        return rows->string(0, 1);
    }

  private:
    // Connected, and the table looked for.
    Status ready(const std::stop_token& stop) {
        if (connection_.sound() && !connection_.replaced()) return {};
        drop();
        if (Status status = connect(); !status.ok()) return status;
        // Written means durable.
        auto session = run((std::string(kSession) + kDurable).c_str(), {}, 0, stop);
        if (!session.ok()) return session.status();
        const auto place = run(kPlace, {}, 0, stop);
        if (!place.ok()) return place.status();
        if (place->text(0, 0).data() == nullptr) {
            return failed("3F000",
                          "no schema of the search path exists, or this role has no USAGE on it");
        }
        schema_ = place->string(0, 0);
        has_table_ = place->text(0, 1).data() != nullptr;
        return has_table_ ? require_owner(stop) : Status();
    }

    Status connect() {
        constexpr std::array kName{Setting{"fallback_application_name", "outbox objects"}};
        if (Status status = connection_.connect(target_, kConnectTime, kName); !status.ok()) {
            return {status.error().code, Advice::kRetryDestination, status.error().message};
        }
        if (!connection_.in_time()) {
            return failed("", "no answer within 5 s; check host, port and that the server runs");
        }
        if (!connection_.sound()) return broken();
        connection_.send_without_waiting();
        return {};
    }

    Status make_table(const std::stop_token& stop) {
        auto made = run(table_sql(schema_).c_str(), {}, 0, stop);
        // Two that make it at once: the later one meets the former's catalog rows.
        if (!made.ok() && made.error().backend_code == "23505") {
            made = run(table_sql(schema_).c_str(), {}, 0, stop);
        }
        if (!made.ok()) {
            ErrorInfo error = made.error();
            error.message += "; have it made: " + table_sql(schema_);
            return error;
        }
        has_table_ = true;
        return require_owner(stop);
    }

    // Its owner could have our role run anything.
    Status require_owner(const std::stop_token& stop) {
        constexpr std::array<std::string_view, 1> kNames{"outbox_objects"};
        const auto name =
            run(("SELECT (parse_ident($q$" + schema_ + "$q$))[1]").c_str(), {}, 0, stop);
        if (!name.ok()) return name.status();
        const std::string sql = foreign_objects_sql(name->string(0, 0), kNames, {{}, true});
        const auto foreign = run(sql.c_str(), {}, 0, stop);
        if (!foreign.ok() || foreign->empty()) return foreign.status();
        const std::string whose = foreign->string(0, 0);
        drop();
        return ErrorInfo{ErrorCode::kNoRights, Advice::kRetryDestination,
                         std::string(kForeignOwnerState),
                         "object store " + url_ + ": " + whose +
                             ", who could have it run anything with the rights of this role; have "
                             "it dropped, or given to an owner of the database or the schema"};
    }

    Result<Rows> run(const char* sql, const Params& params, std::size_t bytes,
                     const std::stop_token& stop) {
        connection_.limit_waits(
            {.most = kRequestTime + milliseconds(bytes / kBytesPerMs), .stop = stop});
        Rows rows = params.count() == 0
                        ? connection_.answer_to(sql)
                        : connection_.collect(send(connection_.handle(), sql, params));
        if (connection_.silent()) {
            drop();
            return ErrorInfo{ErrorCode::kSinkTimeout, Advice::kRetryDestination, "TIMEOUT",
                             "object store " + url_ + ": no answer in time"};
        }
        if (rows.succeeded()) return rows;
        if (rows.state().data() == nullptr) return broken();
        return failed(rows.state(), rows.message());
    }

    ErrorInfo broken() {
        const std::string message = connection_.message();
        std::string_view text = message;
        const std::string state(sqlstate_in(message, &text));
        return failed(state, text);
    }

    // The table may be another, or gone, behind an error: it is looked for again.
    ErrorInfo failed(std::string_view state, std::string_view text) {
        ErrorInfo error = store_error(state, text, "object store " + url_);
        drop();
        return error;
    }

    void drop() {
        connection_.close();
        has_table_ = false;
    }

    const std::string target_;
    const std::string url_;
    Client connection_;
    std::string schema_;  // of the table, quoted
    bool has_table_ = false;
};

// What a person needs to find it, and no more.
std::string shown(const std::string& url) {
    const std::string plain = redact(url);
    const std::string whole = plain.substr(0, plain.find('?'));
    const std::size_t at = whole.rfind('@');
    return at == std::string::npos ? whole : "postgresql://" + whole.substr(at + 1);
}

}  // namespace

Result<std::unique_ptr<claim::ObjectStore>> open_objects(const std::string& url) {
    const std::string fault = url_fault(url);
    if (fault.empty()) {
        return std::unique_ptr<claim::ObjectStore>(std::make_unique<Objects>(url, shown(url)));
    }
    return ErrorInfo{ErrorCode::kConfigInvalid,
                     Advice::kStop,
                     {},
                     "not the URL of an object store (" + fault +
                         "...): write postgresql://USER@HOST:PORT/DATABASE"};
}

}  // namespace outbox::postgres

outbox::ClaimStore outbox::libpq_claims(std::string_view url) {
    static_cast<void>(postgres::open_objects(std::string(url)).value_or_throw());
    return {
        .open = [url = std::string(url)] { return postgres::open_objects(url).value_or_throw(); }};
}
