#pragma once

#include <chrono>
#include <span>
#include <vector>

#include <outbox/result.h>

namespace outbox::postgres {

/// Does `attempt` with all of `items`, and where that says false with one half and then the other,
/// until those that it fails for are alone, which `alone` is given one by one. Goes on for half a
/// second, and until a part is done or one item alone, however slow `attempt` is, so that repeated
/// calls come to an end: what is left was neither done nor refused. Errors: those of `attempt`.
template <typename Item, typename Attempt, typename Alone>
Status in_halves(std::span<const Item> items, Attempt attempt, Alone alone) {
    constexpr int kMaxAttempts = 1'000;
    constexpr std::chrono::milliseconds kWithin{500};
    using Clock = std::chrono::steady_clock;
    std::vector<std::span<const Item>> parts;  // the next one is the last
    if (!items.empty()) parts.push_back(items);
    const auto until = Clock::now() + kWithin;
    bool came_on = false;
    for (int made = 0; !parts.empty() && made < kMaxAttempts; ++made) {
        if (came_on && Clock::now() >= until) break;
        const std::span<const Item> part = parts.back();
        parts.pop_back();
        const Result<bool> passed = attempt(part);
        if (!passed.ok()) return passed.status();
        if (*passed || part.size() == 1) {
            if (!*passed) alone(part.front());
            came_on = true;
            continue;
        }
        parts.push_back(part.subspan(part.size() / 2));
        parts.push_back(part.first(part.size() / 2));
    }
    return {};
}

}  // namespace outbox::postgres
