#pragma once

#include <cstdint>
#include <random>
#include <string>

#include <outbox/consumer/message.h>
#include <outbox/consumer/spans.h>
#include <outbox/result.h>

#include "consumer/env.h"

namespace outbox::consumer {

/// Tells of each attempt to apply a message whose writer has it traced: a span `outbox.apply` below
/// the writer's. One thread's.
class ApplySpans {
  public:
    /// Tells nobody.
    ApplySpans() = default;
    ApplySpans(SpanExport spans, std::string consumer, const Env& env);

    /// When an attempt begins, for `tell`; 0 where nobody is told.
    [[nodiscard]] std::int64_t now_us() const { return clock_ == nullptr ? 0 : clock_->wall_us(); }

    enum class Outcome : std::uint8_t { kApplied, kRepeat, kFailed };
    void tell(const Message& message, std::int64_t began_us, Outcome outcome,
              const ErrorInfo* error = nullptr);

  private:
    SpanExport spans_;
    std::string consumer_;
    const core::Clock* clock_ = nullptr;
    std::mt19937_64 random_;
};

}  // namespace outbox::consumer
