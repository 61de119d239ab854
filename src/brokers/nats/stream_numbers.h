#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/spi/sink.h>

namespace outbox::nats {

/// What a stream says of a message that it has taken.
struct Accepted {
    std::string_view stream;
    std::uint64_t number = 0;  ///< In the stream.
    bool duplicate = false;    ///< It had it: the number is the first one's.
};

/// Of the answer to a published message; none: it is no such answer. Without parsing: names of
/// streams have no escapes.
[[nodiscard]] std::optional<Accepted> read_accepted(std::string_view json);

/// Sees from the numbers that streams give whether one has forgotten what it had acknowledged: a
/// message that was sent after another was acknowledged gets a higher one, in whatever order the
/// answers come. Not thread-safe.
class StreamNumbers {
  public:
    /// A sink begins, with numbers of its own.
    void begin();
    /// Of the message with the sink's own number `sent`; `last_sent` is that of the last one.
    void accepted(const Accepted& accepted, std::uint64_t sent, std::uint64_t last_sent,
                  std::string_view where);
    void report(spi::SinkReport& out);

  private:
    struct Known {
        std::uint64_t number = 0;  // acknowledged ...
        std::uint64_t after = 0;   // ... before any was sent behind this one
    };
    std::map<std::string, Known, std::less<>> streams_;
    std::vector<spi::SinkReport::Note> notes_;
};

}  // namespace outbox::nats
