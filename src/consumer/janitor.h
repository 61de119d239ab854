#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <outbox/error.h>

namespace outbox::consumer {

constexpr std::int64_t kLeastRetentionS = 7'200;

/// Prunes a consumer's tables, on a connection of its own that lasts for one turn.
class Janitor {
  public:
    Janitor(std::string url, int connect_timeout_s, std::int64_t retention_s);

    /// Prunes when it is time to. An error that has not been told yet.
    std::optional<ErrorInfo> turn();

  private:
    std::string url_;
    int connect_timeout_s_;
    std::int64_t retention_s_;
    std::int64_t next_us_ = 0;
    std::string told_;
};

}  // namespace outbox::consumer
