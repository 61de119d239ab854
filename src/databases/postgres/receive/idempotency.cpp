#include <libpq-fe.h>
#include <string>

#include <outbox/adapters/libpq_idempotency.h>

#include "consumer/idempotency_answers.h"
#include "databases/postgres/receive/prepared.h"
#include "databases/postgres/receive/transaction.h"

namespace outbox {
namespace {

constexpr const char* kDoing = "claiming an Idempotency-Key";
constexpr const char* kAdoptedKeys = "AdoptedKeys";

constexpr const char* kClaim =
    "SELECT state, attempt, status, headers::text, body FROM idempotency_claim($1, $2, $3, "
    "$4::bigint * interval '1 second', $5::bigint * interval '1 millisecond')";
constexpr const char* kComplete =
    "SELECT idempotency_complete($1, $2, $3::integer, $4::integer, $5::json, $6)";
// Nothing of the transaction may be committed where the claim is another's.
constexpr const char* kLeaseLostState = "OBK01";
constexpr const char* kCompleteStrictly =
    "SELECT idempotency_complete($1, $2, $3::integer, $4::integer, $5::json, $6, true)";
constexpr consumer::Prepared kKeptClaim{"outbox_claim_1", kClaim};
constexpr consumer::Prepared kKeptComplete{"outbox_complete_1", kCompleteStrictly};
constexpr const char* kRelease = "SELECT idempotency_release($1, $2, $3::integer)";

consumer::Rows run(PGconn* transaction, const consumer::Params& params, const char* sql) {
    consumer::require_transaction(transaction, "claim_key");
    consumer::Rows result = postgres::execute(transaction, sql, params);
    if (!result.succeeded()) {
        throw Error(consumer::receive_error(transaction, result.get(), kDoing));
    }
    return result;
}

// True: the application's own table did not know the key.
bool enter_adopted(PGconn* transaction, const IdempotentRequest& request,
                   const AdoptedKeys& adopted) {
    const auto column = [&](const std::string& name) {
        return consumer::identifier(transaction, name, kAdoptedKeys);
    };
    const std::string sql = "INSERT INTO " +
                            consumer::table_identifier(transaction, adopted.table, kAdoptedKeys) +
                            " (" + column(adopted.scope_column) + ", " +
                            column(adopted.key_column) + ") VALUES ($1, $2) ON CONFLICT DO NOTHING";
    // The columns say what type the values have.
    consumer::Params params;
    params.untyped(request.scope).untyped(request.key);
    const auto result = run(transaction, params, sql.c_str());
    return result.affected() == 1;
}

/// The parameters of a claim.
struct Claiming {
    Claiming(const IdempotentRequest& request, const ClaimOptions& options)
        : fingerprint(request_fingerprint(request)) {
        params.text(request.scope).text(request.key).text(fingerprint).number(options.retention_s);
        if (options.lease_ms > 0) {
            params.number(options.lease_ms);
        } else {
            params.null();
        }
    }
    Claiming(const Claiming&) = delete;
    Claiming& operator=(const Claiming&) = delete;

    const std::string fingerprint;
    consumer::Params params;
};

/// The parameters of a completion.
struct Completing {
    Completing(const IdempotentRequest& request, const IdempotencyClaim& claim,
               const IdempotentAnswer& answer) {
        params.text(request.scope).text(request.key).number(claim.attempt).number(answer.status);
        params.untyped(consumer::storable_headers(answer.headers));
        params.lend_bytes(answer.body);
    }
    consumer::Params params;
};

IdempotencyClaim without_key() {
    return {.is_new = true, .attempt = 0, .answer = {}};
}

// Of a request that the application's table knew: who takes the lease over would do it once more.
void forget_lease(PGconn* transaction, const IdempotentRequest& request,
                  const IdempotencyClaim& claim) {
    consumer::Params params;
    params.text(request.scope).text(request.key).number(claim.attempt);
    params.null().null().null();
    run(transaction, params, kComplete);
}

IdempotencyClaim claim_in(const consumer::Rows& row, PGconn* transaction,
                          const IdempotentRequest& request, const ClaimOptions& options) {
    const std::string_view state = row.text(0, 0);
    IdempotencyClaim claim;
    claim.attempt = static_cast<std::uint32_t>(row.integer(0, 1));
    if (state == "new") {
        claim.is_new = claim.attempt > 1 || options.adopted.table.empty() ||
                       enter_adopted(transaction, request, options.adopted);
        if (!claim.is_new) {
            claim.answer = consumer::answer_not_kept();
            if (options.lease_ms > 0) forget_lease(transaction, request, claim);
        }
    } else if (state == "running") {
        claim.answer = consumer::still_running();
    } else if (state == "mismatch") {
        claim.answer = consumer::other_request();
    } else if (row.text(0, 2).data() == nullptr) {
        claim.answer = consumer::answer_not_kept();
    } else {
        claim.answer = consumer::repeat_of(static_cast<int>(row.integer(0, 2)), row.text(0, 3),
                                           row.text(0, 4));
    }
    return claim;
}

}  // namespace

IdempotencyClaim claim_key(PGconn* transaction, const IdempotentRequest& request,
                           const ClaimOptions& options) {
    consumer::check_claim(options);
    consumer::require_transaction(transaction, "claim_key");
    if (request.key.empty()) return without_key();
    const Claiming claiming(request, options);
    return claim_in(run(transaction, claiming.params, kClaim), transaction, request, options);
}

IdempotencyClaim begin_and_claim_key(PGconn* connection, const IdempotentRequest& request,
                                     const ClaimOptions& options) {
    consumer::check_claim(options);
    consumer::require_idle(connection, "begin_and_claim_key");
    if (request.key.empty()) {
        const consumer::Step begin{"BEGIN", nullptr, false};
        consumer::begun(connection, {&begin, 1}, kDoing);
        return without_key();
    }
    const Claiming claiming(request, options);
    consumer::keep(connection, kKeptClaim);
    consumer::keep(connection, kKeptComplete);
    const consumer::Rows row =
        consumer::begun_with(connection, kKeptClaim, claiming.params, kDoing);
    try {
        return claim_in(row, connection, request, options);
    } catch (...) {
        static_cast<void>(postgres::execute(connection, "ROLLBACK"));
        throw;
    }
}

void complete_key(PGconn* transaction, const IdempotentRequest& request,
                  const IdempotencyClaim& claim, const IdempotentAnswer& answer) {
    consumer::require_transaction(transaction, "complete_key");
    if (claim.attempt == 0) return;
    const Completing completing(request, claim, answer);
    if (!run(transaction, completing.params, kComplete).boolean(0, 0)) {
        consumer::throw_lease_lost(request);
    }
}

void complete_key_and_commit(PGconn* transaction, const IdempotentRequest& request,
                             const IdempotencyClaim& claim, const IdempotentAnswer& answer) {
    consumer::require_transaction(transaction, "complete_key_and_commit");
    const Completing completing(request, claim, answer);
    const consumer::Step steps[] = {
        consumer::step_of(transaction, kKeptComplete, completing.params),
        {"COMMIT", nullptr, false}};
    const std::span<const consumer::Step> all(steps);
    const consumer::StepResults results =
        consumer::run_together(transaction, claim.attempt == 0 ? all.subspan(1) : all, kDoing);
    if (!results.error) return;
    if (PQtransactionStatus(transaction) != PQTRANS_IDLE) {
        static_cast<void>(postgres::execute(transaction, "ROLLBACK"));
    }
    if (results.error->backend_code == kLeaseLostState) consumer::throw_lease_lost(request);
    // This one has failed; the next is sent otherwise.
    static_cast<void>(consumer::must_send_sql(transaction, *results.error));
    throw Error(*results.error);
}

void release_key(PGconn* transaction, const IdempotentRequest& request,
                 const IdempotencyClaim& claim) {
    if (claim.attempt == 0) return;
    consumer::Params params;
    params.text(request.scope).text(request.key).number(claim.attempt);
    run(transaction, params, kRelease);
}

}  // namespace outbox
