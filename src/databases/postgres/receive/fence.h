#pragma once

namespace outbox::consumer {

/// Of a consumer and a token: id and why of each event, in the token's order.
inline constexpr const char* kLookForEvents =
    "SELECT e.event ->> 'id', e.event ->> 'why' FROM outbox_wait($1, $2) w, "
    "json_array_elements(w.events) WITH ORDINALITY e(event, n) ORDER BY e.n";

}  // namespace outbox::consumer
