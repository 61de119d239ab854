#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/judge.h"
#include "tests/simulation/receiving/connection.h"

namespace outbox::simulation {

/// What becomes of a message in its handler.
enum class Fate : std::uint8_t {
    kApplied,
    kFailsTwice,    ///< The handler fails the first two times.
    kFailsAlways,   ///< Until it is mended, as all below.
    kRefused,       ///< The handler says that it will never work.
    kBadStatement,  ///< A statement of the handler fails, and it goes on.
    kEndsSession    ///< The handler ends its session, or begins another transaction.
};

/// Knows what was committed and what handlers were to do with it, and checks the consumer's tables
/// against that as the history goes on: each effect once, the keys in order, given up on only what
/// cannot be applied.
class ReceivingJudge {
  public:
    /// `keeps_order`: what messages come by gives those of a key to one member at a time.
    ReceivingJudge(World& world, Judge& judge, std::uint32_t max_attempts, bool keeps_order)
        : world_(world), judge_(judge), max_attempts_(max_attempts), keeps_order_(keeps_order) {}

    void committed(Position number, const std::string& key, Fate fate);
    /// A handler has the message: what it is to do now. `can_commit`: whether its session lives.
    Fate handed(Position number, int member, const std::function<bool()>& can_commit);
    /// How often handlers had it.
    [[nodiscard]] int times(Position number) { return times_[number]; }
    void repeated() { ++repeats_; }
    /// A member has no database, perhaps as it was about to give up on a message, which is tried
    /// once more then.
    void down(int member);
    void up(int member) { down_.erase(member); }
    void mended(Position number) { mended_.insert(number); }
    /// An operator asked for another try: its place among its key is none any more.
    void asked(Position number) { asked_.insert(number); }

    /// The consumer's tables, as one snapshot shows them.
    struct Tables {
        static constexpr const char* kLetters =
            "SELECT message_id, attempts, error_code, error FROM outbox_inbox_dead_letters";
        static constexpr const char* kEffects = "SELECT seq, event, key FROM effects ORDER BY seq";
        static constexpr const char* kInbox = "SELECT message_id FROM outbox_inbox";
        static constexpr const char* kAccounts = "SELECT key, effects FROM accounts";
        Rows letters;
        Rows effects;
        Rows inbox;     // in the end
        Rows accounts;  // in the end
    };
    void look(const Tables& tables);
    /// Letters that lie there, by the last look.
    [[nodiscard]] const std::set<Position>& letters() const { return letters_; }
    /// By the last look, all is applied that is to be, or given up on.
    [[nodiscard]] bool all_done() const;
    /// Names what is not.
    void finish(const Tables& tables);

    [[nodiscard]] std::size_t effects() const { return applied_.size(); }
    [[nodiscard]] std::size_t dead() const { return ever_dead_.size(); }
    [[nodiscard]] std::size_t repeats() const { return repeats_; }
    [[nodiscard]] std::size_t handovers() const { return handovers_; }

  private:
    struct Event {
        std::string key;
        Fate fate = Fate::kApplied;
    };
    void look_at_effect(Position number, const std::string& key);
    void look_at_letters(const Rows& letters);
    void check_order(Position number, const std::string& key);
    [[nodiscard]] bool may_be_dead(Position number) const;
    [[nodiscard]] static std::string name(Position number) {
        return "event " + std::to_string(number);
    }

    World& world_;
    Judge& judge_;
    const std::uint32_t max_attempts_;
    const bool keeps_order_;
    std::map<Position, Event> events_;
    std::map<std::string, std::vector<Position>> by_key_;
    std::map<Position, int> times_;
    std::set<Position> mended_;
    std::set<Position> asked_;
    std::set<int> down_;  // members
    std::set<Position> may_be_tried_more_;
    std::set<Position> applied_;
    std::set<Position> letters_;
    std::set<Position> ever_dead_;
    std::map<std::string, std::size_t> in_order_;  // done prefix of a key
    std::set<long long> seen_;                     // numbers of effects
    std::size_t handovers_ = 0;
    std::size_t repeats_ = 0;
};

}  // namespace outbox::simulation
