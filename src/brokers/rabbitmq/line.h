#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "brokers/rabbitmq/client.h"
#include "brokers/rabbitmq/suspicion.h"
#include "net/waiting.h"

namespace outbox::rabbitmq {

using net::Item;  // until its outcome has been collected

/// What is under way on one channel: the n-th message published on it has the tag n. Not
/// thread-safe.
class Line {
  public:
    using Time = std::chrono::steady_clock::time_point;
    enum class State : std::uint8_t {
        kOpen,
        kTold,  ///< Given up on, and perhaps confirmed later.
        kSettled
    };
    struct Sent {
        Item item;
        Suspicion::Kind kind;  ///< As which it was sent.
        Time at;
        std::uint64_t serial = 0;  ///< Rises over all lines.
        State state = State::kOpen;
        bool judged = false;  ///< As `judge_before` says.
        std::unique_ptr<Fault> returned = nullptr;
    };

    [[nodiscard]] bool empty() const { return sent_.empty(); }  ///< Each has its confirm.
    [[nodiscard]] std::size_t open() const { return open_; }    ///< Without an outcome.
    [[nodiscard]] std::size_t unjudged() const { return open_ - judged_; }  ///< Of those.
    [[nodiscard]] std::size_t told() const { return told_; }

    void push(const Item& item, Suspicion::Kind kind, Time now, std::uint64_t serial) {
        sent_.push_back({item, kind, now, serial});
        ++open_;
    }
    /// Nobody waits for its outcome any more.
    void give_up(Sent& sent) {
        sent.state = State::kTold;
        --open_;
        if (sent.judged) --judged_;
        ++told_;
    }
    /// Calls `settled` for each message without an outcome that the word settles.
    template <typename Settled>
    void settle(const Word& word, Settled settled) {
        if (word.tag < first_tag_ || word.tag - first_tag_ >= sent_.size()) return;
        const auto index = static_cast<std::size_t>(word.tag - first_tag_);
        for (std::size_t i = word.multiple ? 0 : index; i <= index; ++i) {
            const State before = std::exchange(sent_[i].state, State::kSettled);
            if (before == State::kTold) --told_;
            if (before != State::kOpen) continue;
            --open_;
            if (sent_[i].judged) --judged_;
            settled(sent_[i]);
        }
        drop_settled();
    }
    /// What was sent before that and has no outcome is taken for judged, for each of which `judged`
    /// is called once: a broker looks at rights in the order of sending, before it knows of queues.
    template <typename Judged>
    void judge_before(Time time, Judged judged) {
        judge_while([&] { return sent_[next_judged_].at < time; }, judged);
    }
    /// Likewise what was sent before the message with this tag, of which the broker has spoken.
    template <typename Judged>
    void judge_before(std::uint64_t tag, Judged judged) {
        judge_while([&] { return first_tag_ + next_judged_ < tag; }, judged);
    }
    void mark_returned(const Word& word);
    /// Calls `visit` for those without an outcome, the oldest first, until it says false.
    template <typename Visit>
    void for_each_open(Visit visit) {
        for (Sent& sent : sent_) {
            if (sent.state == State::kOpen && !visit(sent)) return;
        }
    }
    /// The channel ended: the next message has the tag 1.
    void clear();

  private:
    template <typename Holds, typename Judged>
    void judge_while(Holds holds, Judged& judged) {
        for (; next_judged_ < sent_.size() && holds(); ++next_judged_) {
            Sent& sent = sent_[next_judged_];
            if (sent.state != State::kOpen || sent.judged) continue;
            sent.judged = true;
            ++judged_;
            judged(sent);
        }
    }
    void drop_settled();

    std::deque<Sent> sent_;  // what has no confirm yet; the first has the tag `first_tag_`
    std::uint64_t first_tag_ = 1;
    std::size_t next_judged_ = 0;    // the first that is not yet old enough
    std::size_t judged_ = 0;         // and have no outcome
    std::size_t next_returned_ = 0;  // where the next one that is returned is looked for first
    std::size_t open_ = 0;
    std::size_t told_ = 0;
};

}  // namespace outbox::rabbitmq
