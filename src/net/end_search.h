#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <outbox/error.h>

namespace outbox::net {

/// Finds the messages for which a server ends the connection without saying so, which look like an
/// outage. What was under way goes again, few at a time, until one is alone: that one is a suspect,
/// and from then on goes as the first of a fresh connection only, so that nothing which a
/// connection has carried (messages, bytes, time) explains an end. It is at fault once it has ended
/// such connections again and again while others passed between. Where nothing passes it is an
/// outage, which is nobody's fault. For sinks whose records of a key come one by one
/// (`fail_stop_order` is false), as what waits is sent in another order. Pure; not thread-safe.
class EndSearch {
  public:
    using Time = std::chrono::steady_clock::time_point;
    enum class Next : std::uint8_t {
        kAgain,     ///< All that was under way goes again.
        kOwnFault,  ///< It is the fault of the one that was under way.
        kOutage
    };

    EndSearch();

    /// Whether any message is looked for, or suspected.
    [[nodiscard]] bool is_on() const { return window_ != SIZE_MAX || !suspects_.empty(); }
    /// Messages that may be under way at once.
    [[nodiscard]] std::size_t window() const { return window_; }
    /// Of what waits, the newest goes next: the oldest may all be at fault.
    [[nodiscard]] bool newest_first() const { return lone_ends_ % 2 == 1; }
    /// It goes with nothing beside it.
    [[nodiscard]] bool is_suspect(std::string_view id) const { return suspects_.contains(id); }
    /// Whether a suspect may go: something has passed since it ended a connection as the first, or
    /// has had the time to.
    [[nodiscard]] bool may_go(std::string_view id, Time now) const;
    /// What is under way on the connection.
    enum class Line : std::uint8_t {
        kBusy,
        kIdle,  ///< Nothing.
        kFresh  ///< Nothing, and nothing was ever sent on it.
    };
    enum class Turn : std::uint8_t {
        kOthers,
        kNobody,   ///< Others wait for what is under way, but no longer than they go on between.
        kFresh,    ///< Close this connection, which is idle, and ask again on a new one at once.
        kSuspect,  ///< It has to be sent then.
    };
    /// Who goes next on a connection; `waits` is the id of a suspect that may go, else empty.
    [[nodiscard]] Turn turn(std::string_view waits, Line line, Time now);

    /// The server has answered a message; `took`: and has it.
    void answered(std::string_view id, bool took);
    /// The connection ended with so many messages under way, of which `id` is the oldest.
    Next ended(std::size_t under_way, std::string_view id, Time now);
    /// The server cannot be reached, or takes nothing: others wait for that, and for no suspect.
    void away();
    /// Whether something has passed since the last end.
    [[nodiscard]] bool has_passed() const { return ends_ == 0; }

  private:
    using Wait = std::chrono::milliseconds;
    struct Suspect {
        Time ended_at;
        bool was_first = false;      // of that connection
        std::uint64_t passed = 0;    // others, until then
        std::uint32_t evidence = 0;  // such ends behind which others passed, and it ended one again
        Wait alone;                  // for so long nothing goes beside it
    };
    Next judge(std::string_view id, bool was_first, Time now);
    void make_good(Time now);

    std::size_t window_ = SIZE_MAX;
    std::map<std::string, Suspect, std::less<>> suspects_;
    std::uint64_t passed_ = 0;
    std::uint32_t ends_ = 0;  // since something passed
    std::uint32_t lone_ends_ = 0;
    Time next_suspect_;       // when one may go
    bool is_out_ = false;     // a suspect is under way, the first of its connection
    bool owes_ = false;       // to the others, as a suspect has held them up
    Time waits_since_;        // they have waited since, or the last has passed
    std::uint64_t seen_ = 0;  // of `passed_`
    Wait alone_{};            // one is under way, and for so long nothing else; 0: none is
    bool quiet_ = false;      // one waits until nothing is under way
    Wait most_quiet_;         // for so long
    Time since_;              // when either began
};

/// What is said of such an end, `error`, that is an outage.
[[nodiscard]] ErrorInfo outage(const ErrorInfo& error, std::size_t under_way, std::string_view id);
/// What is said of such a message; `error` is how the connection ended.
[[nodiscard]] ErrorInfo own_fault(const ErrorInfo& error, std::string_view id);

}  // namespace outbox::net
