#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <outbox/consumer/message.h>

#include "brokers/kafka/receive/partition.h"

namespace outbox::consumer::kafka {

/// What tells a record from every other: its id, or where it has none that a database can keep
/// "topic/partition/offset@milliseconds", which holds also where the topic is made anew.
[[nodiscard]] std::string name_of(const Record& record);

/// A record on its way through a worker.
struct Task {
    Task(Record taken, std::shared_ptr<Partition> from, bool by_offset);

    [[nodiscard]] spi::EventView event() const;
    [[nodiscard]] Message message() const;
    /// Why the record cannot be told from a repeat of another.
    [[nodiscard]] std::optional<ErrorInfo> id_fault() const;

    Record record;
    std::shared_ptr<Partition> partition;  // shared with the map of assigned partitions
    std::string name;
    std::uint64_t number;  // in the partition
    std::string lane;      // records of one lane are applied in their order
    std::string headers;
    std::size_t bytes;
    std::uint32_t attempts = 0;  // those that counted
    std::uint32_t tries = 0;     // all, for the length of the wait
    std::uint32_t lost = 0;      // sessions that ended under it
};

}  // namespace outbox::consumer::kafka
