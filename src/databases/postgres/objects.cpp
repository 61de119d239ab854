#include "databases/postgres/objects.h"

#include <array>
#include <chrono>
#include <libpq-fe.h>
#include <poll.h>
#include <string_view>
#include <utility>

#include <outbox/consumer/claims.h>

#include "core/redact.h"
#include "core/schema_objects.h"
#include "core/transport.h"
#include "databases/postgres/errors.h"
#include "databases/postgres/params.h"
#include "databases/postgres/statement.h"
#include "secrets/password_file.h"

namespace outbox::postgres {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kConnectTime{5};
constexpr milliseconds kLook{100};  // for `stop`
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
        if (connection_ && PQstatus(connection_.get()) == CONNECTION_OK) return {};
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
        const auto target = with_password(target_);
        if (!target.ok()) {
            return {target.error().code, Advice::kRetryDestination, target.error().message};
        }
        const std::array settings{Setting{"fallback_application_name", "outbox objects"},
                                  Setting{"dbname", target->c_str()},
                                  Setting{"client_encoding", "UTF8"}};
        bool in_time = true;
        connection_ = postgres::connect(settings, kConnectTime, in_time);
        if (!connection_ || !in_time) {
            connection_.reset();
            return failed("", "no answer within 5 s; check host, port and that the server runs");
        }
        if (PQstatus(connection_.get()) != CONNECTION_OK) return broken();
        PQsetnonblocking(connection_.get(), 1);
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
        const bool sent = params.count() == 0 ? PQsendQuery(connection_.get(), sql) == 1
                                              : send(connection_.get(), sql, params);
        if (!sent) return broken();
        const auto end = Clock::now() + kRequestTime + milliseconds(bytes / kBytesPerMs);
        Rows last;
        Status status;
        while (true) {
            if (Status waited = wait(end, stop); !waited.ok()) return waited;
            Rows rows(PQgetResult(connection_.get()));
            if (rows.get() == nullptr) break;
            if (!rows.succeeded() && status.ok()) status = refused(rows.get());
            last = std::move(rows);
        }
        if (!status.ok()) return status;
        return last;
    }

    Status wait(Clock::time_point end, const std::stop_token& stop) {
        while (PQisBusy(connection_.get()) != 0) {
            if (PQsocket(connection_.get()) < 0) return {};  // PQgetResult says why
            const int flushed = PQflush(connection_.get());
            if (flushed < 0) return broken();
            pollfd entry{PQsocket(connection_.get()),
                         static_cast<short>(flushed == 1 ? POLLIN | POLLOUT : POLLIN), 0};
            const bool news = ::poll(&entry, 1, static_cast<int>(kLook.count())) > 0;
            if (!news && (stop.stop_requested() || Clock::now() >= end)) {
                drop();
                return ErrorInfo{ErrorCode::kSinkTimeout, Advice::kRetryDestination, "TIMEOUT",
                                 "object store " + url_ + ": no answer in time"};
            }
            if ((entry.revents & POLLIN) != 0 && PQconsumeInput(connection_.get()) != 1) {
                return broken();
            }
        }
        return {};
    }

    ErrorInfo refused(const PGresult* result) {
        const char* state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
        const char* text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
        return failed(state == nullptr ? "" : state, text == nullptr ? "" : text);
    }

    ErrorInfo broken() {
        const std::string message = PQerrorMessage(connection_.get());
        std::string_view text = message;
        const std::string state(sqlstate_in(message, &text));
        return failed(state, redacted_line(text));
    }

    // The table may be another, or gone, behind an error: it is looked for again.
    ErrorInfo failed(std::string_view state, std::string_view text) {
        drop();
        ErrorInfo error{ErrorCode::kSinkUnavailable, Advice::kRetryDestination, std::string(state),
                        "object store " + url_ + ": " + std::string(text)};
        if (state == "54000" || state == "22001") {  // program_limit_exceeded: larger than a field
            error.code = ErrorCode::kPayloadTooLarge;
            error.advice = Advice::kDeadLetter;
        } else if (state == "3D000") {
            error.code = ErrorCode::kNoSuchDatabase;
            error.message += "; make it (createdb), or correct its name in the store's URL";
        } else if (state.starts_with("28")) {
            error.code = ErrorCode::kAuthFailed;
            error.message += "; check user and password";
        } else if (state == "42501") {
            error.code = ErrorCode::kNoRights;
            error.message +=
                "; GRANT SELECT, INSERT, UPDATE ON outbox_objects to the relay's role, "
                "and SELECT to consumers'";
        } else if (state == "53100") {
            error.code = ErrorCode::kDiskFull;
        }
        if (const auto remedy = refusal_remedy(text); !remedy.empty()) {
            error.code = ErrorCode::kConnectFailed;
            error.message += "; " + std::string(remedy);
        }
        return error;
    }

    void drop() {
        connection_.reset();
        has_table_ = false;
    }

    const std::string target_;
    const std::string url_;
    Handle connection_;
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
    char* message = nullptr;
    PQconninfoOption* options = PQconninfoParse(without_password_file(url).c_str(), &message);
    if (options != nullptr) {
        PQconninfoFree(options);
        return std::unique_ptr<claim::ObjectStore>(std::make_unique<Objects>(url, shown(url)));
    }
    // The message quotes the URL, its password included: only what stands before is passed on.
    std::string reason(message == nullptr ? "out of memory" : message);
    PQfreemem(message);
    reason = reason.substr(0, reason.find_first_of("\"\n"));
    return ErrorInfo{ErrorCode::kConfigInvalid,
                     Advice::kStop,
                     {},
                     "not the URL of an object store (" + reason +
                         "...): write postgresql://USER@HOST:PORT/DATABASE"};
}

}  // namespace outbox::postgres

outbox::ClaimStore outbox::libpq_claims(std::string_view url) {
    static_cast<void>(postgres::open_objects(std::string(url)).value_or_throw());
    return {
        .open = [url = std::string(url)] { return postgres::open_objects(url).value_or_throw(); }};
}
