#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <outbox/consumer/mailbox.h>
#include <outbox/result.h>
#include <outbox/spi/event_batch.h>

#include "consumer/applying.h"
#include "consumer/env.h"
#include "consumer/executor.h"
#include "consumer/janitor.h"
#include "consumer/letters.h"
#include "consumer/stop_signal.h"
#include "core/retry_policy.h"
#include "mailbox/store.h"

namespace outbox::consumer {

constexpr std::int64_t kMostLettersUs = 100'000;  // tried again at a time

/// The loop behind `MailboxConsumer`: what is present and due -> transaction -> handler -> commit.
class MailboxLoop {
  public:
    using Handler = Executor::Handler;

    /// `options` have been through `checked`.
    MailboxLoop(std::unique_ptr<MailboxStore> store, Handler handler, MailboxOptions options,
                const Env& env);

    void run();
    std::size_t drain();
    void stop() noexcept { stop_.request(); }
    [[nodiscard]] ConsumerStats stats() const noexcept { return stats_.read(); }
    [[nodiscard]] std::int64_t lag() const noexcept { return lag_.load(); }

  private:
    using What = ConsumerReport::What;

    /// The first message of a key, or one without key, that failed and waits.
    struct Failing {
        bool keyed = false;
        std::int64_t position = 0;
        std::string id;              // positions begin anew where a mailbox is emptied
        std::uint32_t attempts = 0;  // those that count
        std::uint32_t tries = 0;     // all, for the length of the wait
        std::int64_t due_us = 0;
    };
    enum class Outcome : std::uint8_t {
        kDone,   // applied, a repeat, or given up on
        kWaits,  // failed; its key waits
        kGone,   // the row was not there any more
        kDown    // the database fails, or a handler said stop: `down_` or `fatal_` says why
    };
    struct Pass {
        std::size_t done = 0;
        bool progress = false;  // something was done or began to wait
        bool active = false;    // this member holds the mailbox
    };

    /// What `read` has seen.
    struct Look {
        bool complete = false;  // nothing more is present
        bool chose = false;     // it left messages out: some wait
    };

    Result<Pass> pass();
    Status go_through(const spi::EventBatch& batch, Pass& pass);
    Status look_around(Pass& pass);
    Status read(Look& look);
    void read_as(MessageFormat format, spi::EventView& event);
    void forget_missing(const std::vector<std::int64_t>& asked, bool all_read);

    bool deal_with_all(std::span<const spi::EventView> events, Pass& pass);
    [[nodiscard]] std::size_t applicable_together(std::span<const spi::EventView> events) const;
    Outcome deal_with_letter(const spi::EventView& letter);
    Outcome deal_with(const spi::EventView& event, const spi::EventView* next);
    Attempt apply(const spi::EventView& event, const Message& message, const spi::EventView* next);
    Result<Taken> begin(const spi::EventView& event);
    Status commit(const spi::EventView* next);
    Status abandon_next();
    Outcome failed(const spi::EventView& event, const Message& message, const Attempt& attempt);
    bool loses_the_session(const spi::EventView& event, const Attempt& attempt);
    Outcome give_up(const spi::EventView& event, const Message& message, std::uint32_t attempts,
                    const ErrorInfo& error);
    Outcome wait_longer(const spi::EventView& event, std::uint32_t attempts);

    [[nodiscard]] bool waits(const spi::EventView& event) const;
    [[nodiscard]] bool has_failed(const spi::EventView& event) const;
    void charge(bool has_failed, std::int64_t took_us);
    [[nodiscard]] std::size_t due_at_once() const;
    [[nodiscard]] std::int64_t due_until_us(std::int64_t now_us, std::size_t most) const;
    [[nodiscard]] std::int64_t earliest_due_us() const;

    void report_stats();
    bool ended_session(const Status& status);
    void wait_after(const Pass& pass);
    void now_down(const ErrorInfo& error);
    void now_up(bool active);
    void say(What what, const ErrorInfo& error = {}, const Message* message = nullptr) const;

    std::unique_ptr<MailboxStore> store_;
    InboxStore& inbox_;
    Executor executor_;
    MailboxOptions options_;
    Janitor janitor_;
    core::RetryPolicy retry_;
    std::optional<Letters> letters_;
    StopSignal stop_;
    const core::Clock& clock_;
    std::mt19937_64 random_;

    spi::EventBatch batch_;
    std::int64_t from_ = 0;  // all that stands below is dealt with
    std::int64_t next_whole_look_us_ = 0;
    std::unordered_map<std::string, Failing> failing_;
    // Time that failing messages and retried letters had more than fresh messages: it is theirs
    // before another failing one is tried, however long each takes to fail.
    std::int64_t owed_us_ = 0;
    bool letters_wait_ = false;    // for that
    std::int64_t failing_us_ = 0;  // how long the last one took
    std::int64_t next_look_us_ = 0;
    std::int64_t next_report_us_ = 0;
    std::int64_t next_sign_of_life_us_ = 0;
    MemberStats reported_;
    std::atomic<std::int64_t> lag_{0};
    std::int64_t idle_ms_ = 0;
    // Messages that go alone, as a transaction of several failed. Also in a later pass: one of them
    // may have ended the session.
    std::size_t singly_ = 0;
    bool look_again_ = true;  // more may be present than was read
    std::optional<bool> active_;
    std::uint32_t outages_ = 0;  // failed passes in a row
    std::string down_text_;
    // Sessions that ended under messages. By message: two may end them by turns.
    std::unordered_map<std::string, std::uint32_t> lost_;
    Status down_;
    std::optional<ErrorInfo> fatal_;

    LiveStats stats_;

    /// The transaction of the message after the one that was committed, where it is open already.
    struct Begun {
        std::int64_t position;
        Result<Taken> taken;
    };
    std::optional<Begun> begun_;
};

/// The options with their defaults filled in. Throws `Error` kConfigInvalid/stop.
MailboxOptions checked(MailboxOptions options);

/// What `libpq_mailbox_consumer` and the like return.
MailboxConsumer make_mailbox_consumer(std::unique_ptr<MailboxStore> store,
                                      MailboxLoop::Handler handler, MailboxOptions options,
                                      const Env& env);

}  // namespace outbox::consumer
