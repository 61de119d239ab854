#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <outbox/spi/sink.h>

namespace outbox::test {

/// A record that owns its bytes.
struct Letter {
    std::string id;
    std::string topic;
    std::optional<std::string> key;
    std::optional<std::string> value;
    std::vector<std::pair<std::string, std::string>> headers;

    /// Its views live as long as the letter stays where it is.
    [[nodiscard]] spi::Record record(std::uint64_t token) const;

    mutable std::vector<spi::HeaderView> header_views = {};  // made by `record`
};

/// Delivers letters through a sink by the relay's rules, as plainly as possible: after a failure
/// it waits for all outcomes and starts again from the oldest unfinished letter, after a rest where
/// the destination is down; a suspect goes alone; a key that finds a part of the destination down
/// waits a little; a sink without fail-stop order gets one letter per key at a time. It also checks
/// that each token completes exactly once.
class Courier {
  public:
    explicit Courier(spi::Sink& sink) : sink_(sink) {}

    /// Empty when every letter was acknowledged or declared dead; else what went wrong.
    std::string deliver(const std::vector<Letter>& letters);

    struct Dead {
        std::size_t index;
        ErrorInfo error;
    };
    [[nodiscard]] const std::vector<Dead>& dead() const { return dead_; }
    [[nodiscard]] std::size_t acknowledged() const { return acknowledged_; }
    /// Times that the sink took no more.
    [[nodiscard]] std::size_t times_full() const { return times_full_; }
    [[nodiscard]] std::size_t failures() const { return failures_; }
    [[nodiscard]] std::size_t suspects() const { return suspects_; }
    [[nodiscard]] std::size_t counted_attempts() const { return counted_attempts_; }
    [[nodiscard]] const std::map<std::string, std::size_t>& failures_by_code() const {
        return failures_by_code_;
    }

    [[nodiscard]] const std::map<std::string, std::size_t>& failures_by_part() const {
        return failures_by_part_;
    }
    /// Failures that open the circuit of a route.
    [[nodiscard]] std::size_t destination_failures() const { return destination_failures_; }

    std::function<void(const Courier&)> after_poll = [](const Courier&) {};
    std::size_t max_publish_per_poll = 100'000;  // and ten times as many under way
    std::size_t max_attempts = 5;
    /// Times that a letter may find its part of the destination down, which the relay does not
    /// limit.
    std::size_t max_part_failures = 5;
    std::chrono::seconds deadline{300};

  private:
    void publish(const std::vector<Letter>& letters);
    [[nodiscard]] bool may_go(const Letter& letter) const;
    std::string collect(const std::vector<Letter>& letters);
    std::string finish(std::size_t index, const std::vector<Letter>& letters);
    void take_failure(std::size_t index, const spi::FailedRecord& failed);

    spi::Sink& sink_;
    std::set<std::size_t> waiting_;  // in the order of the letters
    std::set<std::size_t> under_way_;
    std::set<std::string> busy_keys_;
    std::optional<std::size_t> suspect_;
    bool settling_ = false;                         // a letter failed: wait for all outcomes
    bool away_ = false;                             // the destination was: rest before the next
    std::map<std::string, std::size_t> held_keys_;  // wait for a part, for so many polls
    std::map<std::size_t, std::size_t> attempts_;
    std::map<std::size_t, std::size_t> part_failures_;
    std::vector<Dead> dead_;
    std::size_t acknowledged_ = 0;
    std::size_t times_full_ = 0;
    std::size_t failures_ = 0;
    std::optional<ErrorInfo> last_failure_;
    std::size_t suspects_ = 0;
    std::size_t counted_attempts_ = 0;
    std::map<std::string, std::size_t> failures_by_code_;
    std::map<std::string, std::size_t> failures_by_part_;
    std::size_t destination_failures_ = 0;
};

}  // namespace outbox::test
