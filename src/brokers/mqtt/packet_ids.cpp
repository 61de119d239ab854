#include "brokers/mqtt/packet_ids.h"

namespace outbox::mqtt {
namespace {

constexpr int kMostIds = 65'535;  // 0 is none

}  // namespace

std::uint16_t PacketIds::next(std::uint64_t number) {
    do {
        last_ = static_cast<std::uint16_t>(last_ % kMostIds + 1);
    } while (!numbers_.emplace(last_, number).second);
    return last_;
}

std::optional<std::uint64_t> PacketIds::answered(std::uint16_t id) {
    const auto found = numbers_.find(id);
    if (found == numbers_.end()) return std::nullopt;
    const std::uint64_t number = found->second;
    numbers_.erase(found);
    return number;
}

}  // namespace outbox::mqtt
