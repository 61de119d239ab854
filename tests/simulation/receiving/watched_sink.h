#pragma once

#include <functional>
#include <memory>

#include <outbox/spi/sink.h>

#include "tests/simulation/judge.h"

namespace outbox::simulation {

/// The destination, which tells the judge what it was given and what it took. `find_out` is told of
/// an event before the judge is, who may not know it yet.
[[nodiscard]] std::unique_ptr<spi::Sink> watched(std::unique_ptr<spi::Sink> sink, Judge& judge,
                                                 std::function<void(Position)> find_out,
                                                 int session, int relay, int route);

}  // namespace outbox::simulation
