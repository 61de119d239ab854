#include <algorithm>
#include <optional>
#include <string>

#include <outbox/adapters/sqlite_idempotency.h>

#include "consumer/env.h"
#include "consumer/idempotency_answers.h"
#include "databases/sqlite/receive/transaction.h"

namespace outbox {
namespace {

constexpr const char* kDoing = "claiming an Idempotency-Key";
constexpr std::int64_t kMicroseconds = 1'000'000;
constexpr std::int64_t kMicrosecondsPerMs = 1'000;

using consumer::quoted_name;

sqlite::Statement use(sqlite3* database, const std::string& sql) {
    return consumer::callers_statement(database, sql, kDoing);
}

// The same rules as the SQL function idempotency_claim of PostgreSQL, where they are explained.
constexpr const char* kEnter =
    "INSERT INTO outbox_idempotency AS i "
    "  (scope, key, fingerprint, lease_until, expires_at, created_at) "
    "VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (scope, key) DO UPDATE SET "
    "  attempt = CASE WHEN i.attempt = 1 AND (i.status IS NOT NULL OR i.lease_until IS NULL) "
    "    THEN 1 ELSE i.attempt + 1 END, "
    "  fingerprint = excluded.fingerprint, lease_until = excluded.lease_until, "
    "  status = NULL, headers = NULL, body = NULL, "
    "  created_at = excluded.created_at, expires_at = excluded.expires_at "
    "WHERE i.expires_at <= ?6 OR (i.status IS NULL AND i.lease_until <= ?6 "
    "                             AND i.fingerprint = excluded.fingerprint)";
constexpr const char* kRead =
    "SELECT attempt, fingerprint, lease_until, status, headers, body FROM outbox_idempotency "
    "WHERE scope = ?1 AND key = ?2";

constexpr const char* kEndLease =
    "UPDATE outbox_idempotency SET lease_until = NULL WHERE scope = ?1 AND key = ?2";

bool enter_adopted(sqlite3* transaction, const IdempotentRequest& request,
                   const AdoptedKeys& adopted) {
    return use(transaction, "INSERT INTO " + quoted_name(adopted.table) + " (" +
                                quoted_name(adopted.scope_column) + ", " +
                                quoted_name(adopted.key_column) +
                                ") VALUES (?1, ?2) ON CONFLICT DO NOTHING")
               .lend(request.scope)
               .lend(request.key)
               .changed() == 1;
}

IdempotentAnswer answer_of(const sqlite::Statement& row, const std::string& fingerprint) {
    if (row.string(1) != fingerprint) return consumer::other_request();
    if (!row.is_null(3)) {
        return consumer::repeat_of(static_cast<int>(row.integer(3)), row.string(4), row.string(5));
    }
    return row.is_null(2) ? consumer::answer_not_kept() : consumer::still_running();
}

}  // namespace

IdempotencyClaim claim_key(sqlite3* transaction, const IdempotentRequest& request,
                           const ClaimOptions& options) {
    consumer::check_claim(options);
    consumer::require_transaction(transaction, "claim_key");
    if (request.key.empty()) return {.is_new = true, .attempt = 0, .answer = {}};
    const std::string fingerprint = request_fingerprint(request);
    const std::int64_t now = consumer::callers_clock().wall_us();
    std::optional<std::int64_t> lease_until;
    if (options.lease_ms > 0) lease_until = now + options.lease_ms * kMicrosecondsPerMs;
    const bool entered =
        use(transaction, kEnter)
            .lend(request.scope)
            .lend(request.key)
            .lend(fingerprint)
            .bind_or_null(lease_until)
            .bind(std::max(now + options.retention_s * kMicroseconds, lease_until.value_or(now)))
            .bind(now)
            .changed() == 1;
    sqlite::Statement row = use(transaction, kRead);
    row.lend(request.scope).lend(request.key).step();
    IdempotencyClaim claim;
    claim.attempt = static_cast<std::uint32_t>(row.integer(0));
    if (!entered) {
        claim.answer = answer_of(row, fingerprint);
        return claim;
    }
    claim.is_new = claim.attempt > 1 || options.adopted.table.empty() ||
                   enter_adopted(transaction, request, options.adopted);
    if (claim.is_new) return claim;
    claim.answer = consumer::answer_not_kept();
    // Who takes the lease over would do once more what the application's table knew.
    use(transaction, kEndLease).lend(request.scope).lend(request.key).changed();
    return claim;
}

void complete_key(sqlite3* transaction, const IdempotentRequest& request,
                  const IdempotencyClaim& claim, const IdempotentAnswer& answer) {
    consumer::require_transaction(transaction, "claim_key");
    if (claim.attempt == 0) return;
    const std::string headers = consumer::storable_headers(answer.headers);
    const std::int64_t changed =
        use(transaction,
            "UPDATE outbox_idempotency SET status = ?4, headers = ?5, body = ?6, "
            "lease_until = NULL WHERE scope = ?1 AND key = ?2 AND attempt = ?3 AND status IS NULL")
            .lend(request.scope)
            .lend(request.key)
            .bind(claim.attempt)
            .bind(answer.status)
            .lend(headers)
            .lend_blob(answer.body)
            .changed();
    if (changed != 1) consumer::throw_lease_lost(request);
}

void release_key(sqlite3* transaction, const IdempotentRequest& request,
                 const IdempotencyClaim& claim) {
    consumer::require_transaction(transaction, "claim_key");
    if (claim.attempt == 0) return;
    use(transaction,
        "UPDATE outbox_idempotency SET lease_until = 0 WHERE scope = ?1 AND key = ?2 "
        "AND attempt = ?3 AND status IS NULL AND lease_until IS NOT NULL")
        .lend(request.scope)
        .lend(request.key)
        .bind(claim.attempt)
        .step();
}

}  // namespace outbox
