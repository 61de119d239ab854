#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <outbox/consumer/fence.h>

namespace outbox::consumer {

/// Puts a look together from what a database says of each event: `why` as in `FencedEvent`.
class FenceVerdict {
  public:
    void add(std::string id, std::string why);
    [[nodiscard]] FenceLook look() && { return std::move(look_); }

  private:
    FenceLook look_;
};

/// The ids of the token. Throws as `look_for`, where the question is none.
[[nodiscard]] std::vector<std::string> fenced_ids(std::string_view consumer,
                                                  std::string_view token);

}  // namespace outbox::consumer
