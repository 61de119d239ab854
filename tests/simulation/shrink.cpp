#include "tests/simulation/shrink.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>
#include <stdexcept>

namespace outbox::simulation {
namespace {

// Less in it is other chance, too: the violation may need another one to come about.
constexpr std::uint64_t kChances = 8;
constexpr std::int64_t kLeastWriting = 200 * kMs;

bool take(bool& setting) {
    return std::exchange(setting, false);
}

template <typename T>
bool zero(T& setting) {
    return std::exchange(setting, T{}) != T{};
}

template <typename T>
bool halve(T& setting, T least) {
    if (setting <= least) return false;
    setting = std::max<T>(least, setting / 2);
    return true;
}

struct Reduction {
    std::string_view name;
    bool (*apply)(Settings&);  // false: there is no less of it
};

constexpr Reduction kReductions[] = {
    {"writing", [](Settings& s) { return halve(s.writing_us, kLeastWriting); }},
    {"writers", [](Settings& s) { return halve(s.writers, 1); }},
    {"relays", [](Settings& s) { return halve(s.relays, 1); }},
    {"routes", [](Settings& s) { return halve(s.routes, 1); }},
    {"keys", [](Settings& s) { return halve(s.keys, 1); }},
    {"kills", [](Settings& s) { return take(s.kills); }},
    {"pauses", [](Settings& s) { return take(s.pauses); }},
    {"outages", [](Settings& s) { return take(s.outages); }},
    {"database-outages", [](Settings& s) { return take(s.database_outages); }},
    {"clock-jumps", [](Settings& s) { return take(s.clock_jumps); }},
    {"promotions", [](Settings& s) { return take(s.promotions); }},
    {"cuts", [](Settings& s) { return take(s.cuts); }},
    {"hidden-commits", [](Settings& s) { return take(s.hidden_commits); }},
    {"stream",
     [](Settings& s) {
         s.hidden_commits = false;
         return take(s.stream);
     }},
    {"suspects", [](Settings& s) { return take(s.suspects); }},
    {"rebuilds",
     [](Settings& s) {
         s.suspects = false;
         return take(s.rebuilds);
     }},
    {"block-key", [](Settings& s) { return take(s.block_key); }},
    {"timeouts", [](Settings& s) { return take(s.timeouts); }},
    {"trouble", [](Settings& s) { return zero(s.trouble); }},
    {"failing-calls", [](Settings& s) { return zero(s.call_fails); }},
    {"unknown-outcomes", [](Settings& s) { return zero(s.outcome_unknown); }},
    {"lost-records", [](Settings& s) { return zero(s.record_lost); }},
};

const Reduction& named(std::string_view name) {
    const auto* const found = std::ranges::find(
        kReductions, name, [](const Reduction& reduction) { return reduction.name; });
    if (found == std::end(kReductions)) {
        throw std::invalid_argument("there is no less of '" + std::string(name) + "'");
    }
    return *found;
}

// The violation without the numbers of its event, route and relay.
std::string kind_of(const Verdict& verdict) {
    std::string kind = verdict.violations.empty() ? "" : verdict.violations.front();
    std::erase_if(kind, [](unsigned char c) { return std::isdigit(c) != 0; });
    return kind;
}

std::string kind_of(const Case& history) {
    return kind_of(History(settings_of(history)).run());
}

std::optional<Case> smaller(const Case& from, std::string_view name, const std::string& kind) {
    Case next = from;
    Settings settings = settings_of(next);
    if (!named(name).apply(settings)) return std::nullopt;
    next.less.emplace_back(name);
    for (std::uint64_t i = 0; i <= kChances; ++i) {
        next.chance = from.chance + i;
        if (kind_of(next) == kind) return next;
    }
    return std::nullopt;
}

}  // namespace

std::string Case::text() const {
    std::string text = "--seed " + std::to_string(seed);
    for (std::size_t i = 0; i < less.size(); ++i) text += (i == 0 ? " --less " : ",") + less[i];
    if (chance != 0) text += " --chance " + std::to_string(chance);
    return text;
}

std::vector<std::string_view> reductions() {
    std::vector<std::string_view> names;
    std::ranges::transform(kReductions, std::back_inserter(names), &Reduction::name);
    return names;
}

Settings settings_of(const Case& history) {
    Settings settings = Settings::from_seed(history.seed, history.fault);
    for (const std::string& name : history.less) named(name).apply(settings);
    settings.seed += history.chance << 40;
    return settings;
}

Case shrink(const Case& failing) {
    const std::string kind = kind_of(failing);
    if (kind.empty()) return failing;
    Case smallest = failing;
    for (bool again = true; again;) {
        again = false;
        for (const Reduction& reduction : kReductions) {
            while (const auto next = smaller(smallest, reduction.name, kind)) {
                smallest = *next;
                again = true;
            }
        }
    }
    return smallest;
}

}  // namespace outbox::simulation
