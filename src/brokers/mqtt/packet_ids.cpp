#include "brokers/mqtt/packet_ids.h"

#include <utility>

namespace outbox::mqtt {
namespace {

constexpr std::size_t kMostIds = 65'535;  // 0 is none

}  // namespace

PacketIds::PacketIds() : numbers_(kMostIds + 1) {}

std::uint16_t PacketIds::next(std::uint64_t number) {
    do {
        last_ = static_cast<std::uint16_t>(last_ % kMostIds + 1);
    } while (numbers_[last_] != 0);
    numbers_[last_] = number;
    return last_;
}

std::optional<std::uint64_t> PacketIds::answered(std::uint16_t id) {
    const std::uint64_t number = std::exchange(numbers_[id], 0);
    return number == 0 ? std::nullopt : std::optional(number);
}

}  // namespace outbox::mqtt
