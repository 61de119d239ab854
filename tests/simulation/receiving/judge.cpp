#include "tests/simulation/receiving/judge.h"

namespace outbox::simulation {

void ReceivingJudge::committed(Position number, const std::string& key, Fate fate) {
    events_[number] = {key, fate};
    if (!key.empty()) by_key_[key].push_back(number);
}

Fate ReceivingJudge::handed(Position number, int member, const std::function<bool()>& can_commit) {
    ++handovers_;
    const auto found = events_.find(number);
    if (found == events_.end()) {
        judge_.violation("member " + std::to_string(member) + " was handed " + name(number) +
                         ", which was never committed");
        return Fate::kRefused;
    }
    if (applied_.contains(number) && can_commit()) {
        judge_.violation("member " + std::to_string(member) + " was handed " + name(number) +
                         ", which was applied");
    }
    ++times_[number];
    if (down_.contains(member)) down(member);
    return mended_.contains(number) ? Fate::kApplied : found->second.fate;
}

void ReceivingJudge::down(int member) {
    down_.insert(member);
    for (const auto& [number, times] : times_) {
        if (times >= static_cast<int>(max_attempts_) && !applied_.contains(number)) {
            may_be_tried_more_.insert(number);
        }
    }
}

bool ReceivingJudge::may_be_dead(Position number) const {
    const Fate fate = events_.at(number).fate;
    return fate != Fate::kApplied && fate != Fate::kFailsTwice;
}

void ReceivingJudge::look(const Tables& tables) {
    look_at_letters(tables.letters);
    // Workers beside each other commit in another order than they number.
    for (const auto& row : tables.effects) {
        if (!seen_.insert(std::stoll(row[0])).second) continue;
        look_at_effect(std::stoll(row[1]), row[2]);
    }
    for (const Position number : letters_) {
        if (applied_.contains(number)) {
            judge_.violation(name(number) + " was applied and lies with the dead letters");
        }
    }
}

void ReceivingJudge::look_at_effect(Position number, const std::string& key) {
    const auto found = events_.find(number);
    if (found == events_.end()) {
        judge_.violation("an effect of " + name(number) + ", which was never committed");
        return;
    }
    if (found->second.key != key) judge_.violation(name(number) + " has another key");
    if (!applied_.insert(number).second) {
        judge_.violation(name(number) + " was applied twice");
        return;
    }
    if (may_be_dead(number) && !mended_.contains(number)) {
        judge_.violation(name(number) + " was applied though its handler refused it");
    }
    if (keeps_order_ && !key.empty() && !asked_.contains(number)) check_order(number, key);
}

// Whatever of its key was committed before is applied or given up on.
void ReceivingJudge::check_order(Position number, const std::string& key) {
    const std::vector<Position>& numbers = by_key_[key];
    for (std::size_t& i = in_order_[key]; i < numbers.size(); ++i) {
        if (numbers[i] == number) return;
        if (applied_.contains(numbers[i]) || ever_dead_.contains(numbers[i])) continue;
        judge_.violation("out of order: " + name(number) + " was applied before " +
                         name(numbers[i]) + " of its key " + key);
        return;
    }
}

void ReceivingJudge::look_at_letters(const Rows& letters) {
    letters_.clear();
    for (const auto& row : letters) {
        const Position number = number_of(row[0]);
        const auto found = events_.find(number);
        if (found == events_.end()) {
            judge_.violation("a dead letter of " + name(number) + ", which was never committed");
            continue;
        }
        letters_.insert(number);
        if (!ever_dead_.insert(number).second) continue;
        if (world_.tracing()) {
            world_.trace(name(number) + " was given up on after " + row[1] +
                         " attempts: " + row[2] + " " + row[3]);
        }
        if (!may_be_dead(number)) {
            judge_.violation(name(number) + " was given up on without fault: " + row[3]);
            continue;
        }
        if (found->second.fate == Fate::kRefused || asked_.contains(number)) continue;
        const auto attempts = static_cast<std::uint32_t>(std::stoul(row[1]));
        if (attempts < max_attempts_ ||
            (attempts > max_attempts_ && !may_be_tried_more_.contains(number))) {
            judge_.violation(name(number) + " was given up on after " + row[1] + " attempts");
        }
    }
}

bool ReceivingJudge::all_done() const {
    for (const auto& [number, event] : events_) {
        if (!applied_.contains(number) && !letters_.contains(number)) return false;
    }
    return true;
}

void ReceivingJudge::finish(const Tables& tables) {
    for (const auto& [number, event] : events_) {
        if (!applied_.contains(number) && !letters_.contains(number)) {
            judge_.violation("lost: " + name(number) + " has no effect and is no dead letter");
        }
    }
    std::set<Position> entered;
    for (const auto& row : tables.inbox) entered.insert(number_of(row[0]));
    std::map<std::string, long long> by_key;
    for (const auto& row : tables.effects) {
        const Position number = std::stoll(row[1]);
        if (!entered.contains(number)) {
            judge_.violation("applied and not in the inbox: " + name(number));
        }
        ++by_key[row[2]];
    }
    for (const auto& row : tables.accounts) by_key[row[0]] -= std::stoll(row[1]);
    for (const auto& [key, more] : by_key) {
        if (more != 0) judge_.violation("more or less on the account of " + key);
    }
}

}  // namespace outbox::simulation
