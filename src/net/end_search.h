#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/error.h>
#include <outbox/spi/sink.h>

#include "net/passed_keys.h"

namespace outbox::net {

/// Finds the messages for which a server ends the connection without saying so, which look like an
/// outage. README.md says how. For sinks whose records of a key come one by one (`fail_stop_order`
/// is false), as what waits is sent in another order. Pure; not thread-safe.
class EndSearch {
  public:
    using Time = std::chrono::steady_clock::time_point;
    using Records = std::vector<const spi::Record*>;
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
    /// It goes with nothing beside it.
    [[nodiscard]] bool is_suspect(std::string_view id) const { return suspects_.contains(id); }
    /// Whether a suspect may go: something has passed since it ended a connection as the first, or
    /// has had the time to.
    [[nodiscard]] bool may_go(std::string_view id, Time now) const;
    /// Something is looked for, and nothing of its key has passed lately. The others go before it.
    [[nodiscard]] bool is_stranger(const spi::Record& record) const;
    /// Whether it is the turn of this stranger; `others_wait`: some that are known.
    [[nodiscard]] bool may_stranger_go(const spi::Record& record, bool others_wait, Time now) const;
    /// Of the strangers that wait the newest goes next: the oldest may all be at fault.
    [[nodiscard]] bool newest_first(Time now) const {
        return found_ % 2 == 1 && now < newest_until_;
    }
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
    /// What has not been sent.
    struct Waits {
        bool others = false;            ///< Than suspects.
        std::string_view suspect = {};  ///< The id of one that may go.
    };
    /// Who goes next on a connection.
    [[nodiscard]] Turn turn(const Waits& waits, Line line, Time now);

    /// There is a connection, to the host that has this place among those of the sink.
    void began(std::size_t host, Time now);
    void sent(const spi::Record& record);
    /// The server has answered a message; `took`: and has it.
    void answered(const spi::Record& record, bool took);
    /// Nobody waits for its answer any more.
    void given_up(const spi::Record& record);
    /// The connection ended with these under way, the oldest first; with none: it ended for
    /// something else than a message.
    Next ended(const Records& under_way, Time now);
    /// It ended with nothing under way.
    void ended_idle(Time now);
    /// The server cannot be reached, or takes nothing: others wait for that, and for no suspect.
    void away();
    /// Whether something has passed since the last end.
    [[nodiscard]] bool has_passed() const { return ends_ == 0; }

  private:
    using Wait = std::chrono::milliseconds;
    struct Suspect {
        Time ended_at;
        bool was_first = false;          // of that connection
        std::uint64_t passed = 0;        // others, until then
        std::size_t host = 0;            // of that connection
        std::uint64_t passed_there = 0;  // others on it
        std::uint32_t evidence = 0;  // such ends behind which others passed, and it ended one again
        Wait alone{};                // for so long nothing goes beside it
    };
    // How long a connection stood, or was silent, that ended with no suspect as its first.
    struct Life {
        std::chrono::steady_clock::duration time;
        std::vector<std::size_t> under_way;  // hashes of ids
    };
    Next ended_with_suspect(const Records& under_way, Time now);
    Next ended_with_others(const Records& under_way, Time now);
    Next judge(const spi::Record& record, bool was_first, Time now);
    void suspect(const spi::Record& record, Time now);
    [[nodiscard]] bool may_go_beside_strangers(std::uint64_t token) const;
    void keep_life(std::chrono::steady_clock::duration time, const Records& under_way);
    [[nodiscard]] bool is_its_age(std::string_view id, Time now) const;
    void look_for_answers(bool idle, Time now);
    void make_good(Time now);

    std::size_t window_ = SIZE_MAX;
    std::map<std::string, Suspect, std::less<>> suspects_;
    PassedKeys passed_keys_;
    std::set<std::uint64_t> strangers_;  // under way: tokens
    std::size_t strangers_window_ = 1;   // so many may be
    std::set<std::uint64_t> doubted_;    // such, which were under way with others at an end
    std::size_t doubted_window_ = 1;     // so many of these may be, and nothing but these
    Time next_stranger_;                 // when one may go
    Time newest_until_;                  // the newest of them goes first
    std::optional<std::uint64_t> slow_;  // for one of them others waited in vain
    std::uint64_t answers_ = 0;
    std::uint64_t seen_answers_ = 0;
    Time answered_at_;  // or nothing was under way
    std::uint64_t passed_ = 0;
    std::map<std::size_t, std::uint64_t> passed_at_;  // by host
    std::size_t host_ = 0;
    std::uint32_t ends_ = 0;   // since something passed
    std::uint32_t found_ = 0;  // ends of which one message was suspected
    std::deque<Life> lives_;
    Time began_at_;           // the connection
    Time busy_at_;            // it was last
    bool was_busy_ = false;   // since the last look
    Time next_suspect_;       // when one may go
    bool is_out_ = false;     // a suspect is under way, the first of its connection
    bool is_beside_ = false;  // others were sent behind it
    bool owes_ = false;       // to the others, as they were held up
    Time waits_since_;        // they have waited since, or the last has passed
    std::uint64_t seen_ = 0;  // of `passed_`
    Wait alone_{};            // one is under way, and for so long nothing else; 0: none is
    bool quiet_ = false;      // one waits until nothing is under way
    Wait most_quiet_;         // for so long
    Time since_;              // when either began
};

/// What is said of such an end, `error`, that is an outage.
[[nodiscard]] ErrorInfo outage(const ErrorInfo& error, const EndSearch::Records& under_way);
/// What is said of such a message; `error` is how the connection ended.
[[nodiscard]] ErrorInfo own_fault(const ErrorInfo& error, std::string_view id);

}  // namespace outbox::net
