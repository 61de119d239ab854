#include "net/passed_keys.h"

#include <functional>

namespace outbox::net {
namespace {

struct Place {
    std::size_t index;
    std::uint32_t tag;
};

Place place_of(std::string_view key, std::size_t places) {
    const std::uint64_t hash = std::hash<std::string_view>{}(key);
    return {static_cast<std::size_t>(hash % places), static_cast<std::uint32_t>(hash >> 32U) | 1U};
}

}  // namespace

void PassedKeys::add(std::string_view key) {
    const Place place = place_of(key, tags_.size());
    tags_[place.index] = place.tag;
}

void PassedKeys::remove(std::string_view key) {
    const Place place = place_of(key, tags_.size());
    if (tags_[place.index] == place.tag) tags_[place.index] = 0;
}

bool PassedKeys::has(std::string_view key) const {
    const Place place = place_of(key, tags_.size());
    return tags_[place.index] == place.tag;
}

}  // namespace outbox::net
