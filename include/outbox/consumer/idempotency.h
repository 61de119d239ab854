#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/event.h>

namespace outbox {

/// A request that may come twice. The views must outlive the call they are given to.
struct IdempotentRequest {
    std::string_view scope;  ///< Whose key: the authenticated identity, never the client's word.
    std::string_view key;    ///< As `idempotency_key` gives it. Empty: the request has none.
    std::string_view operation;  ///< For example "POST /api/orders".
    std::string_view body;       ///< Compared byte for byte on a repeat, as a hash.
};

/// What to answer. `claim_key` and `Idempotency` fill it in, and the request's own work does.
struct IdempotentAnswer {
    enum class What : std::uint8_t {
        kFirst,         ///< The work's own answer.
        kRepeat,        ///< The stored answer of the first request.
        kNoAnswer,      ///< 409: it was done, but no answer is kept. Build one if you can.
        kRunning,       ///< 409 + Retry-After: another request with this key is under way.
        kOtherRequest,  ///< 422: the key was used for another operation or body.
        kRefused        ///< 400: the key is missing or not one.
    };
    What what = What::kFirst;
    int status = 200;
    Headers headers;  ///< Set-Cookie and Authorization are never stored.
    std::string body;
};

/// What `claim_key` found. `is_new`: do the work and complete the claim; else give `answer`.
struct IdempotencyClaim {
    bool is_new = false;
    std::uint32_t attempt = 0;  ///< Above 1: the lease of an earlier attempt ran out, and what it
                                ///< did outside the database is unknown. 0: there is no key.
    IdempotentAnswer answer;
};

/// A table of the application's own that holds the keys of requests done, one column each for scope
/// and key, with a unique constraint on both: for example `idempotency(user_id, request_id)`. It is
/// not changed; claims are entered in it as well, and what it holds already counts as done.
struct AdoptedKeys {
    std::string table;  ///< Empty: none. May be `schema.table`.
    std::string scope_column = "user_id";
    std::string key_column = "request_id";
};

/// How long `claim_key` keeps a key, and where.
struct ClaimOptions {
    std::int64_t retention_s = 86'400;  ///< A key is free again after this.
    std::int64_t lease_ms = 0;          ///< Above 0: the two-phase form, see `claim_key`.
    AdoptedKeys adopted;
};

/// How `Idempotency` treats requests; copied.
struct IdempotencyOptions {
    /// What becomes of a request while another with its key is under way.
    enum class WhileRunning : std::uint8_t {
        kWait,     ///< It waits, up to `wait_ms`, then 409.
        kConflict  ///< 409 at once.
    };
    WhileRunning while_running = WhileRunning::kWait;
    std::int64_t wait_ms = 10'000;
    bool required = false;  ///< True: a request without a key is answered 400.
};

/// The key in the value of an Idempotency-Key header: the text without the quotes that the standard
/// form has; nullopt, no such header: the empty text, no key. A header that is there and has no key
/// in it gives a text that `Idempotency` refuses with 400, as does one that it would refuse anyway.
[[nodiscard]] std::string idempotency_key(std::optional<std::string_view> header_value);

/// What tells a repeat from another request under the same key: 32 hex digits.
[[nodiscard]] std::string request_fingerprint(const IdempotentRequest& request);

/// An `application/problem+json` answer (RFC 9457).
[[nodiscard]] IdempotentAnswer problem_answer(IdempotentAnswer::What what, int status,
                                              std::string_view title, std::string_view detail);

/// Lets the requests of one key through one after the other, inside any HTTP framework. One object
/// for a service. It uses no database itself: the work does, in this order:
///
///     return idempotency.answer(request, [&] {
///         auto connection = pool.take();                  // only while the work runs
///         begin(connection);
///         const auto claim = claim_key(connection, request);
///         if (claim.is_new) {
///             ... business write, emit ...
///             complete_key(connection, request, claim, answer);
///         }                                               // else answer = claim.answer
///         commit(connection);
///         return answer;
///     });
///
/// Business write, claim, stored answer and event are one transaction: a request that fails or is
/// killed leaves no claim behind, and its repeat is done as if it were the first. A failure (an
/// exception, an answer that was not completed) is not remembered.
///
/// Thread safety: any thread. Errors: what the work throws passes through; an `Error` kConflict
/// with advice retry_event (40001, 40P01) runs the work again, up to 20 times within 2 s.
class Idempotency {
  public:
    using Work = std::function<IdempotentAnswer()>;
    static constexpr std::size_t kMaxKeyBytes = 255;

    /// Throws `Error` kConfigInvalid for options out of range.
    explicit Idempotency(IdempotencyOptions options = {});
    ~Idempotency();
    Idempotency(const Idempotency&) = delete;
    Idempotency& operator=(const Idempotency&) = delete;

    /// Answers the request. While another with its key is under way, in this process or elsewhere,
    /// it blocks for up to `wait_ms` without running the work, so without a connection. With
    /// `kConflict`, and when the wait is over, the work is run once to ask whether there is an
    /// answer.
    IdempotentAnswer answer(const IdempotentRequest& request, const Work& work);

    /// The same without waiting (where another is under way here, the work asks the database once),
    /// for servers that do not block a thread: `kRunning` says to try again after `next_pause_ms`.
    /// With `kConflict` it is the answer.
    IdempotentAnswer try_answer(const IdempotentRequest& request, const Work& work);

    /// How long to pause before the next try, after `waited_ms` in all; 0: answer what was given.
    [[nodiscard]] std::int64_t next_pause_ms(std::int64_t waited_ms) const noexcept;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace outbox
