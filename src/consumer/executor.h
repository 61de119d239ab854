#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "consumer/apply_spans.h"
#include "consumer/applying.h"
#include "consumer/claims.h"
#include "consumer/env.h"
#include "consumer/inbox_store.h"
#include "core/retry_policy.h"

namespace outbox::consumer {

/// One attempt to apply a message.
struct Attempt {
    enum class Ended : std::uint8_t {
        kBegin,    ///< Its transaction could not begin, or could not take it.
        kHandler,  ///< The handler failed, and all was rolled back.
        kSession,  ///< The transaction could not be ended, by a commit or a rollback.
        kCommit    ///< It is committed.
    };

    Status status;
    Taken taken = Taken::kGone;
    Ended ended = Ended::kBegin;
    bool is_blamed = false;  ///< That it could not be ended may be what the message does.

    /// False: the database, or what the handler needs, is down, which is not the message's fault.
    [[nodiscard]] bool counts() const {
        return is_blamed || status.error().advice != Advice::kRetryDestination;
    }
    /// The database fails, and not the handler.
    [[nodiscard]] bool is_outage() const {
        return !status.ok() && ended != Ended::kHandler &&
               status.error().advice == Advice::kRetryDestination;
    }
};

/// What an attempt means for its message.
enum class Means : std::uint8_t {
    kApplied,  ///< Or a repeat: dealt with.
    kStop,     ///< A person has to act.
    kWaits,    ///< Again later; nothing is counted.
    kFailed,   ///< Again later, and it counts.
    kDead      ///< It counts, and no other follows.
};

/// The one way in which messages are applied, wherever they come from: a transaction that enters
/// them in the inbox, the handler for those that are new, the commit. One thread's.
class Executor {
  public:
    /// Applies messages that are new, in their order, in the open transaction.
    using Handler = std::function<void(std::span<const Message>)>;

    /// `stop` ends the wait for a payload that is kept elsewhere. `clock` outlives this.
    Executor(InboxStore& inbox, Handler handler, const core::Clock& clock,
             const ClaimStore& claims = {}, std::stop_token stop = {}, ApplySpans spans = {})
        : inbox_(inbox),
          handler_(std::move(handler)),
          clock_(clock),
          claims_(claims, clock),
          stop_(std::move(stop)),
          spans_(std::move(spans)) {}

    /// `begin()` -> Result<Taken> opens the transaction and takes the message; `commit()` ends it.
    /// A payload that is kept elsewhere is fetched before: no transaction waits for it. Where it
    /// cannot be had a repeat is dealt with all the same.
    template <typename Begin, typename Commit>
    Attempt apply(const Message& came, const Begin& begin, const Commit& commit) {
        const std::int64_t began_us = spans_.now_us();
        Attempt attempt = try_to_apply(came, begin, commit);
        if (began_us != 0) tell(came, began_us, attempt);
        return attempt;
    }

    /// One transaction for all; `begin()` -> Result<std::vector<Taken>>. None: nothing was done,
    /// and they are to be applied one by one. No savepoint for each: it would cost more than the
    /// batch saves.
    template <typename Begin>
    std::optional<std::vector<Taken>> apply_together(std::span<const spi::EventView> events,
                                                     const Begin& begin) {
        for (const spi::EventView& event : events) {
            if (is_elsewhere(event)) return std::nullopt;
        }
        const std::int64_t began_us = spans_.now_us();
        Result<std::vector<Taken>> taken = begin();
        if (!taken.ok()) return std::nullopt;
        fresh_.clear();
        for (std::size_t i = 0; i < events.size(); ++i) {
            if ((*taken)[i] == Taken::kNew) fresh_.push_back(message_of(events[i], 1));
        }
        // A rollback that fails means a lost session, which the next attempt notices.
        Attempt attempt;
        if (!fresh_.empty() && handler_fails(fresh_, attempt)) return std::nullopt;
        if (!inbox_.commit().ok()) return std::nullopt;
        for (std::size_t i = 0; began_us != 0 && i < events.size(); ++i) {
            attempt.taken = (*taken)[i];
            tell(message_of(events[i], 1), began_us, attempt);
        }
        return *std::move(taken);
    }

    /// Whether its payload is to be fetched, for which no transaction should be open.
    [[nodiscard]] bool is_elsewhere(const spi::EventView& event) const;

    /// A dead letter that is tried once more.
    Attempt retry(const spi::EventView& letter) {
        return apply(
            message_of(letter, 1), [&] { return inbox_.begin_retry(letter.id); },
            [&] { return inbox_.commit(); });
    }

    /// `attempts` that counted, this one included if it does.
    [[nodiscard]] static Means meaning_of(const Attempt& attempt, std::uint32_t attempts,
                                          const core::RetryPolicy& retry);

  private:
    template <typename Begin, typename Commit>
    Attempt try_to_apply(const Message& came, const Begin& begin, const Commit& commit) {
        Attempt attempt;
        std::string payload;
        Message message = came;
        const Status there = fetch_payload(message, payload);
        const Result<Taken> begun = begin();
        if (!begun.ok()) {
            attempt.status = begun.status();
            return attempt;
        }
        attempt.taken = *begun;
        if (attempt.taken == Taken::kNew) {
            if (!there.ok()) {
                roll_back(there.error(), attempt);  // it was what the handler needs
                return attempt;
            }
            if (handler_fails({&message, 1}, attempt)) return attempt;
        }
        attempt.status = commit();
        if (attempt.status.ok()) {
            attempt.ended = Attempt::Ended::kCommit;
        } else {
            not_ended(attempt);
        }
        return attempt;
    }

    void tell(const Message& message, std::int64_t began_us, const Attempt& attempt);
    bool handler_fails(std::span<const Message> messages, Attempt& attempt);
    void roll_back(ErrorInfo cause, Attempt& attempt);
    void not_ended(Attempt& attempt);
    Status fetch_payload(Message& message, std::string& payload);

    InboxStore& inbox_;
    Handler handler_;
    const core::Clock& clock_;  // the handler's calls have it, too
    Claims claims_;
    const std::stop_token stop_;
    ApplySpans spans_;
    std::vector<Message> fresh_;
};

}  // namespace outbox::consumer
