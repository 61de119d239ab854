#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/spi/source.h>

#include "databases/postgres/stream/pgoutput.h"

namespace outbox::postgres {

/// The newest events that were published, for the day when the server says that it never had them.
/// One of another position with the same remainder takes an event's place. Not thread-safe.
class Published {
  public:
    static constexpr std::size_t kMax = 10'000;

    /// A reader returned it.
    void returned(spi::Position position, std::string_view id);
    /// Every route has finished them, and their rows are about to be removed. `log_end`: where the
    /// log ended before that; the first word on it stays.
    void finished(std::span<const spi::Position> positions, pgoutput::Lsn log_end);

    /// Those whose removal lies behind `lsn`, by position. Where the log was cut off at `lsn` they
    /// either are in the table again, or never were there: their removal is lost in any case.
    [[nodiscard]] std::vector<spi::Ghost> removed_behind(pgoutput::Lsn lsn) const;

  private:
    struct Place {
        spi::Position position = 0;
        pgoutput::Lsn log_end = 0;  // 0: not finished
        std::string id;
    };
    Place& place_of(spi::Position position);

    std::vector<Place> places_;
};

}  // namespace outbox::postgres
