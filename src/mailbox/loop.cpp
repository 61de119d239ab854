#include "mailbox/loop.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace outbox::consumer {
namespace {

constexpr std::int64_t kMaxCounted = 100'000;  // waiting messages
constexpr std::size_t kMaxLosers = 10'000;     // then they begin anew

// An event without a key waits alone, so it has a name of its own.
std::string failing_name(const spi::EventView& event) {
    return event.key.empty() ? "p" + std::to_string(event.position) : "k" + std::string(event.key);
}

}  // namespace

MailboxLoop::MailboxLoop(std::unique_ptr<MailboxStore> store, Handler handler,
                         MailboxOptions options, const Env& env)
    : store_(std::move(store)),
      inbox_(store_->inbox()),
      executor_(inbox_, std::move(handler), env.clock, options.claims, {},
                ApplySpans(options.spans, options.consumer, env)),
      options_(std::move(options)),
      janitor_(inbox_.opener(), options_.consumer, options_.inbox_retention_s),
      clock_(env.clock),
      random_(env.seed) {
    retry_ = {options_.retry_base_ms, options_.retry_max_ms, options_.max_attempts};
    letters_.emplace(inbox_, retry_);
    idle_ms_ = options_.poll_busy_ms;
}

void MailboxLoop::run() {
    inbox_.connect().or_throw();
    while (!stop_.requested()) {
        const Result<Pass> result = pass();
        if (fatal_) {
            store_->disconnect();
            throw Error(*fatal_);
        }
        if (result.ok()) {
            now_up(result->active);
            if (result->active) {
                report_stats();
                if (const auto error = janitor_.turn()) say(What::kPruneFailed, *error);
            }
            wait_after(*result);
        } else if (result.error().advice == Advice::kStop) {
            store_->disconnect();
            throw Error(result.error());
        } else {
            now_down(result.error());
            stop_.wait_ms(kReconnect.delay_us(++outages_, random_()) / 1000);
        }
    }
    janitor_.stop();
    next_report_us_ = 0;
    if (active_ == true) {
        report_stats();
        static_cast<void>(inbox_.retire().ok());
    }
    store_->disconnect();
    active_.reset();
}

std::size_t MailboxLoop::drain() {
    std::size_t done = 0;
    while (!stop_.requested()) {
        const Pass result = pass().value_or_throw();
        if (fatal_) throw Error(*std::exchange(fatal_, std::nullopt));
        done += result.done;
        if (!result.progress) break;
    }
    return done;
}

Result<MailboxLoop::Pass> MailboxLoop::pass() {
    Pass pass;
    if (Status status = inbox_.connect(); !status.ok()) return status;
    const Result<Hold> held = store_->hold_mailbox();
    if (!held.ok()) return held.status();
    pass.active = *held != Hold::kNo;
    // Another member may have left a failing message behind below.
    if (*held != Hold::kStill) from_ = 0;
    if (!pass.active) {
        look_again_ = true;
        return pass;
    }
    if (Status status = look_around(pass); !status.ok()) return status;
    const bool due = earliest_due_us() <= clock_.boot_us();
    if (!due && failing_.size() >= options_.max_failing_keys) return pass;
    if (!due && !look_again_ && owed_us_ == 0) {
        const Result<bool> news = store_->may_have_news();
        if (!news.ok()) return news.status();
        if (!*news) return pass;
    }
    look_again_ = true;
    Look look;
    if (Status status = read(look); !status.ok()) return status;
    if (batch_.empty() && owed_us_ > 0) {  // nothing fresh is there
        pass.progress = std::exchange(letters_wait_, false);
        if (pass.progress) next_look_us_ = 0;
        owed_us_ = 0;
        if (Status status = read(look); !status.ok()) return status;
    }
    const std::int64_t from = std::exchange(from_, 0);
    if (Status status = go_through(batch_, pass); !status.ok()) return status;
    look_again_ = !look.complete;
    // In a backlog the next look spares itself the places of what is gone. Never past a message
    // that waits: those behind it would overtake it.
    if (!look.chose && failing_.empty() && !stop_.requested()) {
        from_ = batch_.empty() ? from : store_->next_from();
    }
    return pass;
}

Status MailboxLoop::go_through(const spi::EventBatch& batch, Pass& pass) {
    const std::span<const spi::EventView> events(batch.events());
    for (std::size_t i = 0; i < events.size(); ++i) {
        if (stop_.requested()) break;
        const spi::EventView& event = events[i];
        const std::int64_t began = clock_.boot_us();
        if (singly_ == 0) {
            const std::size_t together = applicable_together(events.subspan(i));
            if (together > 1) {
                if (deal_with_all(events.subspan(i, together), pass)) {
                    charge(false, clock_.boot_us() - began);
                    i += together - 1;
                    continue;
                }
                singly_ = together;
            }
        }
        if (event.position == 0 && owed_us_ > kMostLettersUs) {
            letters_wait_ = true;
            break;
        }
        if (waits(event)) continue;
        const bool failed_before = has_failed(event);
        const bool next_alone = options_.transaction_size == 1 || singly_ > 1;
        const bool has_next = i + 1 < events.size() && next_alone;
        const Outcome outcome = deal_with(event, has_next ? &events[i + 1] : nullptr);
        charge(failed_before, clock_.boot_us() - began);
        switch (outcome) {
            case Outcome::kDone:
                ++pass.done;
                [[fallthrough]];
            case Outcome::kWaits:
                pass.progress = true;
                break;
            case Outcome::kGone:
                break;
            case Outcome::kDown:
                // A handler's advice to stop is not the database's failure.
                return fatal_ ? Status() : down_;
        }
        if (singly_ > 0) --singly_;
        if (fatal_) break;
    }
    return abandon_next();
}

// Once in a while: has the database been migrated, are there dead letters to be tried again?
Status MailboxLoop::look_around(Pass& pass) {
    const std::int64_t now = clock_.boot_us();
    if (now < next_look_us_) return {};
    next_look_us_ = now + kKeepUs;
    if (Status status = inbox_.check_version(); !status.ok()) return status;
    letters_wait_ = owed_us_ > 0;
    if (letters_wait_) return {};
    if (Status status = letters_->put_back_rest(); !status.ok()) return status;
    spi::EventBatch letters;
    if (Status status = inbox_.fetch_retries(kMaxRetriesAtOnce, letters); !status.ok()) {
        return status;
    }
    const std::size_t before = pass.done;
    Status status = go_through(letters, pass);
    if (pass.done > before && letters.size() == kMaxRetriesAtOnce) next_look_us_ = now;
    return status;
}

bool MailboxLoop::waits(const spi::EventView& event) const {
    if (event.position == 0 || failing_.empty()) return false;
    const auto found = failing_.find(failing_name(event));
    if (found == failing_.end()) return false;
    // What lies behind a failing message waits for it, however long ago that one became due.
    return found->second.position != event.position || found->second.due_us > clock_.boot_us();
}

// A letter, or a message of which an attempt has failed.
bool MailboxLoop::has_failed(const spi::EventView& event) const {
    return event.position == 0 || (!failing_.empty() && failing_.contains(failing_name(event)));
}

void MailboxLoop::charge(bool has_failed, std::int64_t took_us) {
    if (has_failed) failing_us_ = took_us;
    if (owed_us_ == 0 && !has_failed) return;
    owed_us_ = has_failed ? owed_us_ + took_us : std::max<std::int64_t>(0, owed_us_ - took_us);
    if (owed_us_ == 0 && std::exchange(letters_wait_, false)) next_look_us_ = 0;
}

std::int64_t MailboxLoop::earliest_due_us() const {
    std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
    for (const auto& [name, failing] : failing_) earliest = std::min(earliest, failing.due_us);
    return earliest;
}

// Messages that nothing holds up, from the first one on.
std::size_t MailboxLoop::applicable_together(std::span<const spi::EventView> events) const {
    const std::size_t most = std::min(events.size(), options_.transaction_size);
    std::size_t count = 0;
    while (count < most && events[count].position != 0 && events[count].defect.empty() &&
           (failing_.empty() || !failing_.contains(failing_name(events[count])))) {
        ++count;
    }
    return count;
}

// False: nothing was done, and they are to be applied one by one.
bool MailboxLoop::deal_with_all(std::span<const spi::EventView> events, Pass& pass) {
    const auto taken = executor_.apply_together(events, [&] { return store_->begin_all(events); });
    if (!taken) return false;
    pass.progress = true;
    for (std::size_t i = 0; i < events.size(); ++i) {
        if ((*taken)[i] == Taken::kGone) continue;
        ++pass.done;
        const Message message = message_of(events[i], 1);
        say(stats_.count((*taken)[i]), {}, &message);
    }
    return true;
}

// `next`: the message that probably comes after this one, so that its transaction may begin
// together with this one's commit.
MailboxLoop::Outcome MailboxLoop::deal_with(const spi::EventView& event,
                                            const spi::EventView* next) {
    if (event.position == 0) return deal_with_letter(event);
    std::uint32_t attempts = 0;
    if (!failing_.empty()) {
        const auto found = failing_.find(failing_name(event));
        if (found != failing_.end() && found->second.id == event.id) {
            attempts = found->second.attempts;
        }
    }
    const Message message = message_of(event, attempts + 1);
    const Attempt attempt = apply(event, message, next);
    if (!attempt.status.ok()) return failed(event, message, attempt);
    if (!failing_.empty()) failing_.erase(failing_name(event));
    if (!lost_.empty()) lost_.erase(std::string(event.id));
    if (attempt.taken == Taken::kGone) return Outcome::kGone;
    say(stats_.count(attempt.taken), {}, &message);
    return Outcome::kDone;
}

MailboxLoop::Outcome MailboxLoop::deal_with_letter(const spi::EventView& letter) {
    Status ready = abandon_next();
    const Result<Taken> taken = ready.ok() ? letters_->take(letter.id) : Result<Taken>(ready);
    if (!taken.ok()) {
        down_ = taken.status();
        return Outcome::kDown;
    }
    if (*taken == Taken::kGone) return Outcome::kGone;
    const Message message = message_of(letter, 1);
    const Attempt attempt = apply(letter, message, nullptr);
    const Means means = letters_->settle(letter.id, attempt, random_());
    if (means == Means::kApplied) {
        if (attempt.taken == Taken::kGone) return Outcome::kGone;
        say(stats_.count(attempt.taken), {}, &message);
        return Outcome::kDone;
    }
    const ErrorInfo& error = attempt.status.error();
    if (means == Means::kDead) {
        bump(stats_.failed);
        bump(stats_.dead);
        say(What::kDeadLetter, error, &message);
        return Outcome::kDone;
    }
    if (means == Means::kStop) fatal_ = error;
    if (fatal_ || attempt.is_outage()) {
        down_ = attempt.status;
        return Outcome::kDown;
    }
    say(What::kRetry, error, &message);
    return Outcome::kGone;
}

Attempt MailboxLoop::apply(const spi::EventView& event, const Message& message,
                           const spi::EventView* next) {
    if (!event.defect.empty()) {
        if (Status status = abandon_next(); !status.ok()) return {std::move(status)};
        return {{ErrorCode::kInvalidEvent, Advice::kDeadLetter, std::string(event.defect)}};
    }
    for (std::uint32_t conflicts = 0;; ++conflicts) {
        Attempt attempt =
            executor_.apply(message, [&] { return begin(event); }, [&] { return commit(next); });
        if (!is_conflict(attempt.status) || conflicts == kMaxConflicts) return attempt;
        bump(stats_.conflicts);
        stop_.wait_ms(conflicts);
    }
}

Result<Taken> MailboxLoop::begin(const spi::EventView& event) {
    if (begun_ && begun_->position == event.position) {
        return std::exchange(begun_, std::nullopt)->taken;
    }
    if (Status status = abandon_next(); !status.ok()) return status;
    return event.position == 0 ? inbox_.begin_retry(event.id) : store_->begin(event);
}

Status MailboxLoop::commit(const spi::EventView* next) {
    if (next == nullptr || next->position == 0 || waits(*next) || stop_.requested() ||
        executor_.is_elsewhere(*next)) {
        return inbox_.commit();
    }
    MailboxStore::Turn turn = store_->commit_and_begin(*next);
    if (turn.begun) begun_ = {next->position, *std::move(turn.begun)};
    return std::move(turn.committed);
}

// Rolls back the transaction that was begun for a message which is not dealt with after all.
Status MailboxLoop::abandon_next() {
    if (!begun_) return {};
    const bool is_open = begun_->taken.ok();
    begun_.reset();
    ErrorInfo none;
    return is_open ? inbox_.roll_back(none) : Status();
}

MailboxLoop::Outcome MailboxLoop::failed(const spi::EventView& event, const Message& message,
                                         const Attempt& attempt) {
    const ErrorInfo& error = attempt.status.error();
    if (attempt.is_outage() && !loses_the_session(event, attempt)) {
        down_ = attempt.status;
        return Outcome::kDown;
    }
    const Means means = Executor::meaning_of(attempt, message.attempt, retry_);
    if (means == Means::kStop) {
        fatal_ = error;
        return Outcome::kDown;
    }
    if (means == Means::kWaits) {
        say(What::kRetry, error, &message);
        return wait_longer(event, message.attempt - 1);
    }
    bump(stats_.failed);
    if (means == Means::kDead) {
        return give_up(event, message, message.attempt, error);
    }
    say(What::kRetry, error, &message);
    return wait_longer(event, message.attempt);
}

// An outage is nobody's fault, but a message that loses its session time and again is.
bool MailboxLoop::loses_the_session(const spi::EventView& event, const Attempt& attempt) {
    if (attempt.taken != Taken::kNew) return false;
    if (lost_.size() >= kMaxLosers) lost_.clear();
    return ++lost_[std::string(event.id)] > kMaxLostSessions;
}

MailboxLoop::Outcome MailboxLoop::give_up(const spi::EventView& event, const Message& message,
                                          std::uint32_t attempts, const ErrorInfo& error) {
    const std::string text = storable(error);
    // The failure may have cost the session. Burying needs no hold on the mailbox: it removes a row
    // that is there or does nothing.
    Taken taken = Taken::kNew;
    Status buried = inbox_.connect();
    if (buried.ok()) {
        const Burial burial{attempts, error_code_name(error.code), text};
        const Result<Taken> result = store_->bury(event, burial);
        buried = result.status();
        if (result.ok()) taken = *result;
    }
    if (!buried.ok()) {
        const Outcome outcome = wait_longer(event, attempts);
        if (buried.error().advice == Advice::kRetryDestination) {
            down_ = buried;
            return Outcome::kDown;
        }
        say(What::kRetry, buried.error(), &message);
        return outcome;
    }
    failing_.erase(failing_name(event));
    lost_.erase(std::string(event.id));
    if (taken == Taken::kGone) return Outcome::kGone;
    if (taken == Taken::kRepeat) {
        say(stats_.count(taken), {}, &message);
        return Outcome::kDone;
    }
    bump(stats_.dead);
    say(What::kDeadLetter, error, &message);
    return Outcome::kDone;
}

MailboxLoop::Outcome MailboxLoop::wait_longer(const spi::EventView& event, std::uint32_t attempts) {
    Failing& failing = failing_[failing_name(event)];
    if (failing.id != event.id) failing = {};
    failing.id = event.id;
    failing.keyed = !event.key.empty();
    failing.position = event.position;
    failing.attempts = attempts;
    failing.due_us = clock_.boot_us() + retry_.delay_us(++failing.tries, random_());
    return Outcome::kWaits;
}

// When they have changed, and once in a while to say that the member is there. What fails of it is
// worth no error, as the next figures replace these; but the session's end is told as anywhere.
void MailboxLoop::report_stats() {
    const std::int64_t now = clock_.boot_us();
    if (now < next_report_us_) return;
    next_report_us_ = now + kReportUs;
    if (!inbox_.connect().ok()) return;
    const auto waiting = store_->waiting(kMaxCounted);
    if (waiting.ok()) lag_ = *waiting;
    if (ended_session(waiting.status())) return;
    const MemberStats seen = stats_.member(lag_);
    if (seen == reported_ && now < next_sign_of_life_us_) return;
    const Status reported = inbox_.report(seen);
    if (ended_session(reported) || !reported.ok()) return;
    reported_ = seen;
    next_sign_of_life_us_ = now + kMemberGoneS / 5 * 1'000'000;
}

bool MailboxLoop::ended_session(const Status& status) {
    const bool ended = !status.ok() && status.error().code == ErrorCode::kConnectionLost;
    if (ended) now_down(status.error());
    return ended;
}

void MailboxLoop::wait_after(const Pass& pass) {
    if (pass.progress) {
        idle_ms_ = options_.poll_busy_ms;
        return;
    }
    if (!pass.active) {
        stop_.wait_ms(options_.poll_idle_ms);
        return;
    }
    const std::int64_t until_due_us =
        std::max<std::int64_t>(0, earliest_due_us() - clock_.boot_us());
    stop_.wait_ms(std::min(idle_ms_, until_due_us / 1000 + 1));
    idle_ms_ = std::min(idle_ms_ * 2, options_.poll_idle_ms);
}

void MailboxLoop::now_down(const ErrorInfo& error) {
    look_again_ = true;
    const std::string text = describe(error);
    if (text == down_text_) return;
    down_text_ = text;
    say(What::kDisconnected, error);
}

void MailboxLoop::now_up(bool active) {
    outages_ = 0;
    if (!down_text_.empty()) {
        down_text_.clear();
        say(What::kConnected);
    }
    if (active_ == active) return;
    active_ = active;
    if (!active) lag_ = 0;
    say(active ? What::kActive : What::kStandby);
}

void MailboxLoop::say(What what, const ErrorInfo& error, const Message* message) const {
    if (options_.on_report) options_.on_report({what, error, message});
}

}  // namespace outbox::consumer
