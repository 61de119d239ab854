#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_set>

#include <outbox/spi/sink.h>

#include "net/passed_keys.h"

namespace outbox::rabbitmq {

/// Which messages may end their channel, and so must not go beside others. RabbitMQ closes a
/// channel for a routing key that the user may not write to and for a message that is too large;
/// what was under way on it goes again. Pure; not thread-safe.
class Suspicion {
  public:
    using Time = std::chrono::steady_clock::time_point;
    enum class Kind : std::uint8_t {
        kProven,    ///< Nothing is known against it.
        kUnproven,  ///< Routing keys were refused lately, and nothing of this one has passed since.
        kRefused    ///< One like it was refused, and none has passed since.
    };
    static constexpr std::size_t kMostRefused = 10'000;  ///< Routing keys; older ones are unproven.
    static constexpr std::size_t kMostKnown = 65'536;    ///< Routing keys, about; the later ones.
    /// After a refusal, routing keys have to prove themselves for so long.
    static constexpr std::chrono::seconds kCareful{60};

    [[nodiscard]] Kind kind_of(const spi::Record& record, Time now) const;
    /// Whether it goes before others of its kind: its routing key has passed at some time, and was
    /// not refused since.
    [[nodiscard]] bool is_known(const spi::Record& record) const;
    /// The broker has judged the message, and not closed its channel.
    void passed(const spi::Record& record);
    /// The broker closed a channel for this routing key. `surprised`: it went beside others as
    /// `kProven`, so whatever else was taken for proven may be refused by now, too.
    void refused_key(std::string_view routing_key, bool surprised, Time now);
    /// The broker closed a channel, as it takes no message of so many bytes.
    void refused_size(std::size_t bytes) { refused_bytes_ = std::min(refused_bytes_, bytes); }

  private:
    Time careful_until_{};
    net::PassedKeys passed_;             // since the last surprise
    net::PassedKeys known_{kMostKnown};  // ever
    std::unordered_set<std::string> refused_;
    std::deque<std::string> order_;  // of `refused_`, the oldest first; may have some that passed
    std::size_t refused_bytes_ = SIZE_MAX;
};

}  // namespace outbox::rabbitmq
