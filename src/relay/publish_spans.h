#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>

#include "tracing/span_queue.h"

namespace outbox::relay {

/// Tells of each attempt to publish an event whose writer has it traced: a span `outbox.publish`
/// below the writer's, from when the record was handed over to when its outcome was known. Any
/// thread's.
class PublishSpans {
  public:
    /// `queue`: null, and nobody is told.
    PublishSpans(tracing::SpanQueue* queue, std::string_view route, std::string_view system)
        : queue_(queue), route_(route), system_(system) {}

    [[nodiscard]] bool on() const { return queue_ != nullptr; }

    struct Attempt {
        const spi::EventView& event;
        std::string_view topic;     ///< Empty: not known.
        std::uint32_t number = 1;   ///< Of those that counted.
        std::int64_t start_us = 0;  ///< Unix epoch.
        std::int64_t end_us = 0;
    };
    /// `random`: any 64 bits.
    void tell(const Attempt& attempt, std::uint64_t random, const ErrorInfo* error = nullptr) const;

  private:
    tracing::SpanQueue* queue_;
    std::string route_;
    std::string system_;
};

}  // namespace outbox::relay
