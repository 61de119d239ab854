#pragma once

#include <cstdint>

#include <outbox/spi/event_batch.h>

namespace outbox::core {

/// What a route has under way, as a term tells one from another: an event by its position, or a
/// dead letter that is sent again by its `dead_id`, as the position that it died at is nothing to
/// this term: another event may have it, and where positions are made up it is 0. Neither: nothing.
struct EventRef {
    constexpr EventRef() = default;
    constexpr EventRef(spi::Position of_event) : position(of_event) {}
    static constexpr EventRef letter(std::int64_t dead_id) {
        EventRef ref;
        ref.dead_id = dead_id;
        return ref;
    }
    bool operator==(const EventRef&) const = default;
    [[nodiscard]] constexpr bool is_none() const { return position == 0 && dead_id == 0; }

    spi::Position position = 0;
    std::int64_t dead_id = 0;
};

}  // namespace outbox::core
