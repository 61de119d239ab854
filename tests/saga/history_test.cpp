// Thousands of histories of one saga, its participants and the network between them, each from one
// seed: messages are lost with a crashed transaction and come again, come twice, late and in any
// order; participants refuse and answer twice; timers fire at any time; an operator meddles. In the
// end the saga is completed with every step of its way done, or compensated with none.

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>

#include <outbox/error.h>

#include "saga/coordinator.h"
#include "tests/saga/memory_store.h"
#include "tests/saga/steps.h"

namespace outbox::test {
namespace {

constexpr int kHistories = 5'000;
constexpr int kMeddlings = 60;

struct Letter {
    std::string id;
    Event event;

    std::string header(std::string_view name) const {
        for (const auto& [known, value] : event.headers) {
            if (known == name) return value;
        }
        return {};
    }
};

class History {
  public:
    explicit History(unsigned seed)
        : random_(seed), sagas_("replies", {SagaDefinition("s", 1, make_steps())}) {
        apply(leader_, {}, [&](saga::Store& store, const Message&) {
            saga::start(store, sagas_, "s", "{}", "id");
        });
        for (int i = 0; i < kMeddlings && !letters_.empty(); ++i) meddle();
        finish();
    }

    void check() const {
        const saga::Instance& saga = leader_.sagas.at("id");
        ASSERT_TRUE(saga::is_finished(saga.state)) << saga.trouble;
        const bool completed = saga.state == SagaState::kCompleted;
        for (const auto& [step, effects] : participant_.effects) {
            const bool stays = completed || sagas_.find("s", 1)->find(step)->nothing_to_undo;
            EXPECT_EQ(effects, stays && done_.contains(step) ? 1 : 0) << step;
        }
        for (const saga::StepRecord& record : saga.steps) {
            EXPECT_EQ(record.state == saga::StepState::kDone, completed) << record.name;
            if (completed) {
                EXPECT_EQ(participant_.effects.at(record.name), 1) << record.name;
            }
        }
    }
    bool completed() const { return leader_.sagas.at("id").state == SagaState::kCompleted; }

  private:
    int below(int end) { return std::uniform_int_distribution<int>(0, end - 1)(random_); }
    bool chance(int percent) { return below(100) < percent; }

    // Up to the point of no return steps can be undone or change nothing; behind it none refuses.
    std::vector<SagaStep> make_steps() {
        const int count = 1 + below(5);
        const int pivot = below(count + 1);
        std::vector<SagaStep> steps;
        for (int i = 0; i < count; ++i) {
            const std::string name(1, static_cast<char>('a' + i));
            SagaStep made = step(name);
            if (i == pivot || (i < pivot && chance(20)) || (i > pivot && chance(50))) {
                made = final_step(name);
                made.nothing_to_undo = i < pivot;
                if (i <= pivot) made.refused = {name + "Refused"};
            }
            if (i > pivot) made.refused.clear();
            made.retries = static_cast<std::uint32_t>(below(3));
            if (chance(10)) made.timeout_ms = made.retries = 0;
            if (chance(20)) {
                made.done.push_back({.event_type = name + "Enough", .next = std::string(kSagaEnd)});
            }
            steps.push_back(made);
        }
        return steps;
    }

    // One transaction: inbox, what `work` does, outbox. It may crash before its commit.
    template <typename Work>
    void apply(MemoryDatabase& database, const Letter& letter, const Work& work,
               bool crash = false) {
        MemoryDatabase copy = database;
        if (!letter.id.empty() && !copy.inbox.insert(letter.id).second) return;
        nlohmann::json headers{{"type", letter.event.event_type}};
        for (const auto& [name, value] : letter.event.headers) headers[name] = value;
        const std::string headers_json = headers.dump();
        MemoryStore store(copy);
        work(store, message(letter.id, headers_json));
        if (crash) return;
        for (Event& event : std::exchange(copy.outbox, {})) {
            letters_.push_back({"m" + std::to_string(++ids_), std::move(event)});
        }
        database = std::move(copy);
    }

    void deliver(const Letter& letter, bool crash) {
        if (letter.event.topic == "replies") {
            apply(
                leader_, letter,
                [&](saga::Store& store, const Message& message) {
                    saga::advance(store, sagas_, message);
                },
                crash);
            return;
        }
        MemoryDatabase& database = participant_;
        const std::string step = letter.header("saga_step");
        const std::string type = outcome_of(step);
        std::map<std::string, int> effects = database.effects;
        bool does = false;
        apply(
            database, letter,
            [&](saga::Store& store, const Message& command) {
                switch (saga::begin_step(store, command)) {
                    case SagaCall::kDo:
                        does = !type.ends_with("Refused");
                        if (does) {
                            ++effects[step];
                            answer(store, command, type);
                        } else {
                            saga::refuse_step(store, command, event_of(type), {});
                        }
                        return;
                    case SagaCall::kUndo:
                        --effects[step];
                        return answer(store, command, step + "Undone");
                    case SagaCall::kNothingToUndo:
                        return answer(store, command, step + "Undone");
                    case SagaCall::kRepeat:
                        return;
                }
            },
            crash);
        if (crash) return;
        database.effects = std::move(effects);
        if (does) done_.insert(step);
    }

    static Event event_of(const std::string& type) {
        Event event;
        event.event_type = type;
        return event;
    }

    void answer(saga::Store& store, const Message& command, const std::string& type) {
        saga::answer_step(store, command, event_of(type), {});
        if (chance(15)) saga::answer_step(store, command, event_of(type), {});
    }

    // What the participant makes of a step, always the same.
    std::string outcome_of(const std::string& step) {
        const auto [found, fresh] = outcomes_.try_emplace(step);
        if (!fresh) return found->second;
        const SagaStep& declared = *sagas_.find("s", 1)->find(step);
        std::vector<std::string> types = declared.refused;
        for (int i = 0; i < 3; ++i) {
            for (const SagaAnswer& done : declared.done) types.push_back(done.event_type);
        }
        return found->second =
                   types[static_cast<std::size_t>(below(static_cast<int>(types.size())))];
    }

    void meddle() {
        const auto at = static_cast<std::size_t>(below(static_cast<int>(letters_.size())));
        const Letter letter = letters_[at];
        if (chance(5)) return ask(chance(50) ? saga::kAbortType : saga::kResumeType);
        const bool crash = chance(20);
        // A crashed transaction's message comes again; others may as well.
        if (!crash && !chance(15)) letters_.erase(letters_.begin() + static_cast<long>(at));
        deliver(letter, crash);
    }

    void ask(std::string_view type) {
        Letter letter{"m" + std::to_string(++ids_), {}};
        letter.event.topic = "replies";
        letter.event.event_type = type;
        letter.event.headers = {{"saga_id", "id"}};
        letters_.push_back(letter);
    }

    // Everything arrives; an operator resumes what is stuck.
    void finish() {
        for (int rounds = 0; rounds < 1'000; ++rounds) {
            if (letters_.empty()) {
                if (leader_.sagas.at("id").state != SagaState::kStuck) return;
                ask(saga::kResumeType);
            }
            // Answers before timers: an operator resumes when the participants answer again.
            auto next = letters_.begin();
            while (next != letters_.end() && next->event.available_at) ++next;
            if (next == letters_.end()) next = letters_.begin();
            const Letter letter = *next;
            letters_.erase(next);
            deliver(letter, false);
        }
    }

    std::mt19937 random_;
    Sagas sagas_;
    MemoryDatabase leader_;
    MemoryDatabase participant_;
    std::vector<Letter> letters_;
    std::map<std::string, std::string> outcomes_;
    std::set<std::string> done_;
    int ids_ = 0;
};

TEST(SagaHistory, EndsCompletedOrFullyCompensatedWhateverHappens) {
    int completed = 0;
    for (unsigned seed = 1; seed <= kHistories; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const History history(seed);
        history.check();
        if (testing::Test::HasFailure()) return;
        if (history.completed()) ++completed;
    }
    // Both ends are well visited.
    EXPECT_GT(completed, kHistories / 10);
    EXPECT_LT(completed, kHistories * 9 / 10);
}

}  // namespace
}  // namespace outbox::test
