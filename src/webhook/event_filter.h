#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

namespace outbox::webhook {

/// Which events an endpoint wants, by their types: "order.*, invoice.paid". `*` stands for any
/// characters, dots included, also for none; all else for itself. An event without a type is wanted
/// by `*` alone.
class EventFilter {
  public:
    /// Every event.
    EventFilter() = default;
    /// Patterns with commas or blanks between them, 100 at most, each of up to 255 bytes; empty:
    /// every event. Errors: kConfigInvalid.
    static Result<EventFilter> make(std::string_view text);

    [[nodiscard]] bool wants(std::string_view event_type) const;
    /// As `make` takes it: "order.*,invoice.paid".
    [[nodiscard]] std::string text() const;

  private:
    std::vector<std::string> patterns_{"*"};
};

}  // namespace outbox::webhook
