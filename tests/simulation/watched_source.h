#pragma once

#include <memory>

#include <outbox/spi/source.h>

#include "tests/simulation/judge.h"
#include "tests/simulation/settings.h"
#include "tests/simulation/world.h"

namespace outbox::simulation {

/// The production source with the judge looking on: passes every call through, and tells what a
/// relay was told, meant and was entitled to.
[[nodiscard]] std::unique_ptr<spi::Source> watched(std::unique_ptr<spi::Source> source,
                                                   World& world, Judge& judge,
                                                   const Settings& settings, int relay);

}  // namespace outbox::simulation
