#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/full_run.h"

namespace outbox::simulation {

inline std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
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
                   const std::string& test) {
    std::string text;
    for (const std::string& line : verdict.trace) text += line + "\n";
    text += "seed " + std::to_string(seed) + ":\n";
    for (const std::string& violation : verdict.violations) text += "  " + violation + "\n";
    return text + "replay with: OUTBOX_SIMULATION_SEED=" + std::to_string(seed) + " " + program +
           " --gtest_filter=" + test + "\n";
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
