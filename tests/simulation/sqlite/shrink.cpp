#include "tests/simulation/sqlite/shrink.h"

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
    bool (*apply)(SqliteSettings&);  // false: there is no less of it
};

constexpr Reduction kReductions[] = {
    {"writing", [](SqliteSettings& s) { return halve(s.settings.writing_us, kLeastWriting); }},
    {"writers", [](SqliteSettings& s) { return halve(s.settings.writers, 1); }},
    {"relays", [](SqliteSettings& s) { return halve(s.settings.relays, 1); }},
    {"routes", [](SqliteSettings& s) { return halve(s.settings.routes, 1); }},
    {"keys", [](SqliteSettings& s) { return halve(s.settings.keys, 1); }},
    {"kills", [](SqliteSettings& s) { return take(s.settings.kills); }},
    {"pauses", [](SqliteSettings& s) { return take(s.settings.pauses); }},
    {"outages", [](SqliteSettings& s) { return take(s.settings.outages); }},
    {"parts", [](SqliteSettings& s) { return take(s.settings.parts); }},
    {"database-outages", [](SqliteSettings& s) { return take(s.settings.database_outages); }},
    {"clock-jumps", [](SqliteSettings& s) { return take(s.settings.clock_jumps); }},
    {"set-backs", [](SqliteSettings& s) { return take(s.set_backs); }},
    {"power", [](SqliteSettings& s) { return take(s.power); }},
    {"anew", [](SqliteSettings& s) { return take(s.anew); }},
    {"adopted", [](SqliteSettings& s) { return zero(s.shape); }},
    {"route-changes", [](SqliteSettings& s) { return take(s.route_changes); }},
    {"service-kills", [](SqliteSettings& s) { return take(s.service_kills); }},
    {"holds", [](SqliteSettings& s) { return take(s.holds); }},
    {"full", [](SqliteSettings& s) { return take(s.full); }},
    {"refusals", [](SqliteSettings& s) { return take(s.refusals); }},
    {"tenants", [](SqliteSettings& s) { return take(s.tenants); }},
    {"letters", [](SqliteSettings& s) { return take(s.letters); }},
    {"delays", [](SqliteSettings& s) { return take(s.delays); }},
    {"suspects", [](SqliteSettings& s) { return take(s.settings.suspects); }},
    {"rebuilds",
     [](SqliteSettings& s) {
         s.settings.suspects = false;
         return take(s.settings.rebuilds);
     }},
    {"block-key", [](SqliteSettings& s) { return take(s.settings.block_key); }},
    {"timeouts", [](SqliteSettings& s) { return take(s.settings.timeouts); }},
    {"trouble", [](SqliteSettings& s) { return zero(s.settings.trouble); }},
    {"failing-calls", [](SqliteSettings& s) { return zero(s.settings.call_fails); }},
    {"unknown-outcomes", [](SqliteSettings& s) { return zero(s.settings.outcome_unknown); }},
    {"lost-records", [](SqliteSettings& s) { return zero(s.settings.record_lost); }},
};

const Reduction& named(std::string_view name) {
    const auto* const found = std::ranges::find(
        kReductions, name, [](const Reduction& reduction) { return reduction.name; });
    if (found == std::end(kReductions)) {
        std::string text = "there is no less of '" + std::string(name) + "'; there is";
        for (const std::string_view other : reductions()) text.append(" ").append(other);
        throw std::invalid_argument(text);
    }
    return *found;
}

// The violation without the numbers of its event, route and relay.
std::string kind_of(const SqliteVerdict& verdict) {
    std::string kind = verdict.violations.empty() ? "" : verdict.violations.front();
    std::erase_if(kind, [](unsigned char c) { return std::isdigit(c) != 0; });
    return kind;
}

std::string kind_of(const Case& history) {
    return kind_of(SqliteHistory(settings_of(history)).run());
}

std::optional<Case> smaller(const Case& from, std::string_view name, const std::string& kind) {
    Case next = from;
    SqliteSettings settings = settings_of(next);
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
    if (!kind.empty()) text += " --kind " + kind;
    for (std::size_t i = 0; i < less.size(); ++i) text += (i == 0 ? " --less " : ",") + less[i];
    if (chance != 0) text += " --chance " + std::to_string(chance);
    return text;
}

std::vector<std::string_view> reductions() {
    std::vector<std::string_view> names;
    std::ranges::transform(kReductions, std::back_inserter(names), &Reduction::name);
    return names;
}

SqliteSettings settings_of(const Case& history) {
    SqliteSettings settings = SqliteSettings::from_seed(history.seed);
    if (!history.kind.empty()) settings.only(history.kind);
    if (history.plant) history.plant(settings);
    for (const std::string& name : history.less) named(name).apply(settings);
    settings.settings.seed += history.chance << 40;
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
