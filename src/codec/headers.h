#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>
#include <outbox/spi/sink.h>

namespace outbox::codec {

/// What every format's record has of its event: topic, key, payload as it is stored, and the fields
/// for destinations with a place of their own. Without headers.
[[nodiscard]] spi::Record record_of(const spi::EventView& event, std::string_view topic);

/// Room for `count` headers that lives as long as the arena. What is in it is not
/// said.
[[nodiscard]] spi::HeaderView* header_room(std::size_t count, spi::EventBatch& arena);

/// A copy that lives as long as the arena; names and values are not copied.
[[nodiscard]] std::span<const spi::HeaderView> keep(std::span<const spi::HeaderView> headers,
                                                    spi::EventBatch& arena);

/// kInvalidEvent/dead_letter: "`what` of event ID at position N `why`; `remedy`".
[[nodiscard]] ErrorInfo invalid(const spi::EventView& event, std::string_view what,
                                std::string_view why, std::string_view remedy);

/// One member of an event's headers or metadata; what is no text is JSON as it is stored. Valid
/// during the call.
struct Member {
    std::string_view name;
    std::string_view value;
    bool of_metadata = false;
};
using TakeMember = std::function<Status(const Member&)>;

/// Calls `take` for the members of the metadata, then for those of the headers, until it returns an
/// error, which is then returned. A name comes at most once from each; what is null is not there.
/// Errors: kInvalidEvent/dead_letter when one of them is not a JSON object.
Status for_each_member(const spi::EventView& event, const TakeMember& take);

}  // namespace outbox::codec
