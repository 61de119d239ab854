#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <outbox/result.h>

#include "databases/postgres/connection.h"

namespace outbox::postgres {

/// How much of its log the server keeps for the slots of this process: all since the oldest
/// transaction of the cluster began, or since it waits for one to make a slot. For one thread.
class KeptLog {
  public:
    /// `connection` outlives it and has its waits limited.
    KeptLog(Connection& connection, std::string slot_prefix, std::int64_t max_bytes)
        : connection_(connection), slot_prefix_(std::move(slot_prefix)), max_bytes_(max_bytes) {}

    /// One round trip where the last one is a second old. An error: more than `max_bytes` are kept,
    /// and the slots are to be given up; or the server cannot say.
    Status look();
    /// Of the slot that keeps most.
    [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  private:
    Connection& connection_;
    const std::string slot_prefix_;
    const std::int64_t max_bytes_;
    std::chrono::steady_clock::time_point looked_{};
    std::int64_t bytes_ = 0;
};

}  // namespace outbox::postgres
