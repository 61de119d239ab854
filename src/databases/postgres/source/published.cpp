#include "databases/postgres/source/published.h"

#include <algorithm>

namespace outbox::postgres {

Published::Place& Published::place_of(spi::Position position) {
    if (places_.empty()) places_.resize(kMax);
    Place& place = places_[static_cast<std::size_t>(position) % kMax];
    if (place.position != position) {
        place.position = position;
        place.log_end = 0;
        place.id.clear();
    }
    return place;
}

void Published::returned(spi::Position position, std::string_view id) {
    Place& place = place_of(position);
    if (place.id != id) {
        place.id = id;
        place.log_end = 0;
    }
}

void Published::finished(std::span<const spi::Position> positions, pgoutput::Lsn log_end) {
    for (const spi::Position position : positions) {
        Place& place = place_of(position);
        if (place.log_end == 0) place.log_end = log_end;
    }
}

std::vector<spi::Ghost> Published::removed_behind(pgoutput::Lsn lsn) const {
    std::vector<spi::Ghost> out;
    for (const Place& place : places_) {
        if (place.log_end > lsn) out.push_back({place.position, place.id});
    }
    std::sort(out.begin(), out.end(),
              [](const auto& a, const auto& b) { return a.position < b.position; });
    return out;
}

}  // namespace outbox::postgres
