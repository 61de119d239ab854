#include <chrono>
#include <optional>
#include <string>

#include <outbox/adapters/sqlite_idempotency.h>

#include "consumer/idempotency_answers.h"
#include "consumer/sqlite_errors.h"

namespace outbox {
namespace {

constexpr const char* kDoing = "claiming an Idempotency-Key";
constexpr std::int64_t kMicroseconds = 1'000'000;
constexpr std::int64_t kMicrosecondsPerMs = 1'000;

std::int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

[[noreturn]] void fail(sqlite3* database) {
    ErrorInfo error = consumer::sqlite_error(database, kDoing);
    // In the caller's hands it is the transaction that has to run again.
    if ((sqlite3_errcode(database) & 0xff) == SQLITE_BUSY) {
        error.code = ErrorCode::kConflict;
        error.advice = Advice::kRetryEvent;
        error.message += "; roll back and run the transaction again, with BEGIN IMMEDIATE";
    }
    throw Error(std::move(error));
}

void require_transaction(sqlite3* database) {
    if (sqlite3_get_autocommit(database) == 0) return;
    throw Error(ErrorCode::kNoTransaction, Advice::kStop,
                "claim_key needs the open transaction that does the request's work: call it "
                "between BEGIN IMMEDIATE and COMMIT");
}

/// One statement, run once. Texts must outlive it.
class Use {
  public:
    Use(sqlite3* database, const std::string& sql) : database_(database) {
        sqlite3_stmt* compiled = nullptr;
        if (sqlite3_prepare_v2(database, sql.c_str(), -1, &compiled, nullptr) != SQLITE_OK) {
            fail(database);
        }
        statement_.reset(compiled);
    }
    Use& text(std::string_view value) {
        check(sqlite3_bind_text64(statement_.get(), ++index_,
                                  value.data() == nullptr ? "" : value.data(), value.size(),
                                  SQLITE_STATIC, SQLITE_UTF8));
        return *this;
    }
    Use& blob(std::string_view value) {
        check(sqlite3_bind_blob64(statement_.get(), ++index_,
                                  value.data() == nullptr ? "" : value.data(), value.size(),
                                  SQLITE_STATIC));
        return *this;
    }
    Use& number(std::int64_t value) {
        check(sqlite3_bind_int64(statement_.get(), ++index_, value));
        return *this;
    }
    Use& number_or_null(std::optional<std::int64_t> value) {
        if (value) return number(*value);
        ++index_;
        return *this;
    }
    bool next() {
        const int code = sqlite3_step(statement_.get());
        if (code != SQLITE_ROW && code != SQLITE_DONE) fail(database_);
        return code == SQLITE_ROW;
    }
    /// Runs it; how many rows it changed.
    int changes() {
        next();
        return sqlite3_changes(database_);
    }
    [[nodiscard]] bool is_null(int column) const {
        return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
    }
    [[nodiscard]] std::int64_t integer(int column) const {
        return sqlite3_column_int64(statement_.get(), column);
    }
    [[nodiscard]] std::string bytes(int column) const {
        const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_.get(), column));
        const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column));
        return data == nullptr ? std::string() : std::string(data, size);
    }

  private:
    void check(int code) {
        if (code != SQLITE_OK) fail(database_);
    }
    sqlite3* database_;
    consumer::SqliteStatement statement_;
    int index_ = 0;
};

// The same rules as the SQL function idempotency_claim of PostgreSQL, where they are explained.
constexpr const char* kEnter =
    "INSERT INTO outbox_idempotency AS i (scope, key, fingerprint, lease_until, expires_at) "
    "VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (scope, key) DO UPDATE SET "
    "  attempt = CASE WHEN i.expires_at <= ?6 THEN 1 ELSE i.attempt + 1 END, "
    "  fingerprint = excluded.fingerprint, lease_until = excluded.lease_until, "
    "  status = NULL, headers = NULL, body = NULL, "
    "  created_at = excluded.created_at, expires_at = excluded.expires_at "
    "WHERE i.expires_at <= ?6 OR (i.status IS NULL AND i.lease_until <= ?6 "
    "                             AND i.fingerprint = excluded.fingerprint)";
constexpr const char* kRead =
    "SELECT attempt, fingerprint, lease_until, status, headers, body FROM outbox_idempotency "
    "WHERE scope = ?1 AND key = ?2";

std::string quoted(std::string_view name) {
    std::string out = "\"";
    for (const char c : name) {
        if (c == '"') out += '"';
        out += c;
    }
    return out + "\"";
}

bool enter_adopted(sqlite3* transaction, const IdempotentRequest& request,
                   const AdoptedKeys& adopted) {
    return Use(transaction, "INSERT INTO " + quoted(adopted.table) + " (" +
                                quoted(adopted.scope_column) + ", " + quoted(adopted.key_column) +
                                ") VALUES (?1, ?2) ON CONFLICT DO NOTHING")
               .text(request.scope)
               .text(request.key)
               .changes() == 1;
}

IdempotentAnswer answer_of(const Use& row, const std::string& fingerprint) {
    if (row.bytes(1) != fingerprint) return consumer::other_request();
    if (!row.is_null(3)) {
        return consumer::repeat_of(static_cast<int>(row.integer(3)), row.bytes(4), row.bytes(5));
    }
    return row.is_null(2) ? consumer::answer_not_kept() : consumer::still_running();
}

}  // namespace

IdempotencyClaim claim_key(sqlite3* transaction, const IdempotentRequest& request,
                           const ClaimOptions& options) {
    consumer::check_claim(options);
    require_transaction(transaction);
    if (request.key.empty()) return {.is_new = true, .attempt = 0, .answer = {}};
    const std::string fingerprint = request_fingerprint(request);
    const std::int64_t now = now_us();
    std::optional<std::int64_t> lease_until;
    if (options.lease_ms > 0) lease_until = now + options.lease_ms * kMicrosecondsPerMs;
    const bool entered = Use(transaction, kEnter)
                             .text(request.scope)
                             .text(request.key)
                             .text(fingerprint)
                             .number_or_null(lease_until)
                             .number(now + options.retention_s * kMicroseconds)
                             .number(now)
                             .changes() == 1;
    Use row(transaction, kRead);
    row.text(request.scope).text(request.key).next();
    IdempotencyClaim claim;
    claim.attempt = static_cast<std::uint32_t>(row.integer(0));
    if (!entered) {
        claim.answer = answer_of(row, fingerprint);
        return claim;
    }
    claim.is_new = claim.attempt > 1 || options.adopted.table.empty() ||
                   enter_adopted(transaction, request, options.adopted);
    if (!claim.is_new) claim.answer = consumer::answer_not_kept();
    return claim;
}

void complete_key(sqlite3* transaction, const IdempotentRequest& request,
                  const IdempotencyClaim& claim, const IdempotentAnswer& answer) {
    require_transaction(transaction);
    if (claim.attempt == 0) return;
    const std::string headers = consumer::storable_headers(answer.headers);
    const int changed =
        Use(transaction,
            "UPDATE outbox_idempotency SET status = ?4, headers = ?5, body = ?6, "
            "lease_until = NULL WHERE scope = ?1 AND key = ?2 AND attempt = ?3 AND status IS NULL")
            .text(request.scope)
            .text(request.key)
            .number(claim.attempt)
            .number(answer.status)
            .text(headers)
            .blob(answer.body)
            .changes();
    if (changed != 1) consumer::throw_lease_lost(request);
}

void release_key(sqlite3* transaction, const IdempotentRequest& request,
                 const IdempotencyClaim& claim) {
    require_transaction(transaction);
    if (claim.attempt == 0) return;
    Use(transaction,
        "UPDATE outbox_idempotency SET lease_until = 0 WHERE scope = ?1 AND key = ?2 "
        "AND attempt = ?3 AND status IS NULL AND lease_until IS NOT NULL")
        .text(request.scope)
        .text(request.key)
        .number(claim.attempt)
        .next();
}

}  // namespace outbox
