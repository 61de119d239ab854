#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/simulation/sqlite/history.h"

namespace outbox::simulation {

/// A history as outbox-sim's command line names it.
struct Case {
    std::uint64_t seed = 1;           ///< Makes the settings.
    std::vector<std::string> less{};  ///< What is taken away from them, in this order.
    std::uint64_t chance = 0;         ///< 0: the chance of the seed itself, else another.
    std::string kind{};  ///< Of history, as `SqliteSettings::only` has it; empty: of the seed.
    /// What is planted in it; empty: nothing.
    std::function<void(SqliteSettings&)> plant{};
    [[nodiscard]] std::string text() const;  ///< As `--seed 7 --less kills,keys --chance 2`.
};

/// The names that `Case::less` knows. What can be halved may be there several times.
[[nodiscard]] std::vector<std::string_view> reductions();

/// The settings of a case. Throws std::invalid_argument for a name that nobody knows.
[[nodiscard]] SqliteSettings settings_of(const Case& history);

/// A case with less in it of which the judge says the same: of each reduction some chances are
/// tried, until none is left that keeps the violation. The same case for one that has none.
[[nodiscard]] Case shrink(const Case& failing);

}  // namespace outbox::simulation
