#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "tests/support/full_run.h"

namespace outbox::simulation {

/// Throws std::invalid_argument for what is no number.
inline std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
    const char* text = std::getenv(variable);
    if (text == nullptr) return otherwise;
    const std::string_view digits(text);
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size()) {
        throw std::invalid_argument(variable + std::string(" is no number: ") + text);
    }
    return number;
}

/// `kinds`: by their names.
template <typename Kinds>
std::string unknown_kind(const std::string& kind, const Kinds& kinds) {
    std::string text = "there is no kind of history '" + kind + "'; there are adopted, quiet";
    for (const auto& [name, on] : kinds) text.append(", ").append(name);
    return text;
}

/// Which seeds a test runs. OUTBOX_SIMULATION_SEEDS=N: so many, from OUTBOX_SIMULATION_FIRST_SEED
/// on; OUTBOX_SIMULATION_SEED=S: that one; OUTBOX_SIMULATION_GOES_ON=1: also behind one that
/// failed.
struct Seeds {
    Seeds(std::uint64_t few, std::uint64_t many)
        : one(std::getenv("OUTBOX_SIMULATION_SEED") != nullptr),
          goes_on(std::getenv("OUTBOX_SIMULATION_GOES_ON") != nullptr),
          first(number_from("OUTBOX_SIMULATION_SEED",
                            number_from("OUTBOX_SIMULATION_FIRST_SEED", 1))),
          count(one ? 1 : number_from("OUTBOX_SIMULATION_SEEDS", test::full_run() ? many : few)) {}

    bool one;
    bool goes_on;
    std::uint64_t first;
    std::uint64_t count;
};

/// What a history did that broke a promise, and how to see it again. `test`: its full name.
template <typename Verdict>
std::string report(std::uint64_t seed, const Verdict& verdict, const std::string& program,
                   const std::string& test, const char* kind = nullptr) {
    std::string text;
    for (const std::string& line : verdict.trace) text += line + "\n";
    text += "seed " + std::to_string(seed) + ":\n";
    for (const std::string& violation : verdict.violations) text += "  " + violation + "\n";
    const std::string of = kind == nullptr ? "" : std::string(" OUTBOX_SIMULATION_KIND=") + kind;
    return text + "replay with: OUTBOX_SIMULATION_SEED=" + std::to_string(seed) + of + " " +
           program + " --gtest_filter=" + test + "\n";
}

/// Where two histories part.
template <typename Verdict>
std::string parting(const Verdict& one, const Verdict& other) {
    const auto [left, right] =
        std::mismatch(one.trace.begin(), one.trace.end(), other.trace.begin(), other.trace.end());
    std::string text;
    for (auto line = left - std::min<std::ptrdiff_t>(left - one.trace.begin(), 10); line != left;
         ++line) {
        text += "  " + *line + "\n";
    }
    if (left != one.trace.end()) text += "< " + *left + "\n";
    if (right != other.trace.end()) text += "> " + *right + "\n";
    return text;
}

}  // namespace outbox::simulation
