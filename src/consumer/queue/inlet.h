#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <outbox/result.h>

#include "consumer/workers/delivery.h"

namespace outbox::consumer {

/// A message as a queue hands it over.
struct Arrival {
    std::uint64_t number = 0;  ///< The inlet's own, for `acknowledge`; new on each connection.
    std::string where;         ///< What it is called in messages: "message 5 of queue orders".
    std::string id;            ///< Empty: it has none.
    /// What it is called where neither `id` nor its content has one.
    std::string other_id = {};
    std::string topic;
    std::optional<std::string> key;
    std::optional<std::string> payload;  ///< None: a tombstone.
    std::string headers = "{}";          ///< A JSON object of strings.
    std::uint32_t deliveries = 1;        ///< This one included; 1 where the broker does not count.

    [[nodiscard]] std::size_t bytes() const;
};

/// A connection to a broker's queue. What was taken and not acknowledged when it ends goes to
/// another member, or comes again. Used by one thread.
///
/// Advice of errors: retry_destination (the broker is away, or takes us not now), stop (a person
/// has to act). After an error of `fetch`, `acknowledge` or `waiting` the connection is of no more
/// use.
class Inlet {
  public:
    Inlet() = default;
    Inlet(const Inlet&) = delete;
    Inlet& operator=(const Inlet&) = delete;
    virtual ~Inlet() = default;

    /// Makes a connection. Blocks up to the connect timeout for each host.
    virtual Status connect() = 0;
    /// Ends it.
    virtual void disconnect() = 0;

    /// Appends messages until there are `room.records` more, or `room.bytes` are reached (none if
    /// either is 0, but the connection is kept alive). Without one it waits up to `most`, or until
    /// `wake_fd` can be read.
    virtual Status fetch(Amount room, std::chrono::milliseconds most, int wake_fd,
                         std::vector<Arrival>& out) = 0;
    /// They are done, and are never to come again. They may all the same, if the word is lost.
    virtual Status acknowledge(std::span<const std::uint64_t> numbers) = 0;
    /// The same for all members of a queue, and no other's.
    [[nodiscard]] virtual std::string queue() const = 0;
    /// Messages in the queue that are in nobody's hands; nothing: the broker does not know.
    virtual Result<std::optional<std::int64_t>> waiting() = 0;
    /// Messages in this one's hands that `fetch` did not append yet.
    [[nodiscard]] virtual std::size_t taken() const { return 0; }
};

}  // namespace outbox::consumer
