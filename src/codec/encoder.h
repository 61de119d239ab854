#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>
#include <outbox/spi/sink.h>

namespace outbox::codec {

/// How the events of a route become records: a route's format. One thread uses an encoder at a
/// time; it may keep scratch memory between events.
class Encoder {
  public:
    Encoder() = default;
    Encoder(const Encoder&) = delete;
    Encoder& operator=(const Encoder&) = delete;
    virtual ~Encoder() = default;

    /// The record of an event, without its token. Its views point into the event, into `arena`,
    /// which should be the batch that holds the event, and into the encoder: they must outlive it.
    /// Errors: kInvalidEvent/dead_letter with what of the event the format cannot carry.
    virtual Result<spi::Record> encode(const spi::EventView& event, std::string_view topic,
                                       spi::EventBatch& arena) = 0;

    /// The topic is the format's, too: `encode` needs none, and what it makes is checked as others
    /// are.
    [[nodiscard]] virtual bool makes_topics() const { return false; }
};

/// Makes the encoder of a route, for each owner anew.
using MakeEncoder = std::function<std::unique_ptr<Encoder>()>;

}  // namespace outbox::codec
