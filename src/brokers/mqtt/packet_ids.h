#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace outbox::mqtt {

/// The packet ids of one connection: one after another, but for those whose messages have no answer
/// yet. Not thread-safe.
class PacketIds {
  public:
    PacketIds();

    /// For the message with this number, which is not 0. Fewer than 65,535 may have no answer.
    std::uint16_t next(std::uint64_t number);
    /// The number of the message that is answered by this id; nothing: no such message waits.
    std::optional<std::uint64_t> answered(std::uint16_t id);

  private:
    std::vector<std::uint64_t> numbers_;  // by id; 0: it is free
    std::uint16_t last_ = 0;
};

}  // namespace outbox::mqtt
