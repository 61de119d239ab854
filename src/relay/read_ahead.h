#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include <outbox/spi/source.h>

#include "relay/known_rows.h"

namespace outbox::relay {

/// What one statement returned beyond what was asked for, kept for the next reads: each statement
/// passes over all rows that its route has finished while another has not. The events are of one
/// snapshot and come in its order, so that none is overtaken by one that was written after it
/// committed. Not thread-safe.
class ReadAhead {
  public:
    static constexpr spi::ReadLimits kLimits{5'000, std::size_t{4} << 20};

    /// To be filled by a statement.
    spi::EventBatch& begin() {
        batch_.clear();
        next_ = 0;
        return batch_;
    }
    /// It is filled. What was dropped before comes again under its position.
    void filled() {
        since_ = std::chrono::steady_clock::now();
        std::sort(batch_.events().begin(), batch_.events().end(),
                  [](const auto& a, const auto& b) { return a.position < b.position; });
    }
    [[nodiscard]] bool empty() const { return next_ == batch_.size(); }
    /// Appends the next ones, as many as the limits of a read allow, and at least one.
    void hand_out(const spi::ReadLimits& limits, spi::EventBatch& out) {
        while (!empty()) {
            out.add_copy(batch_.events()[next_++]);
            if (out.size() >= limits.max_events || out.bytes() >= limits.max_bytes) return;
        }
    }
    /// What was not handed out is to be read again.
    void drop(KnownRows& rows) {
        for (; !empty(); ++next_) {
            rows.at(*rows.raw_id(batch_.events()[next_].position)).known = false;
        }
    }
    /// Likewise, where its owner may have finished some of it meanwhile. True: there was some.
    bool drop_old(KnownRows& rows) {
        constexpr std::chrono::seconds kAge{1};
        if (empty() || std::chrono::steady_clock::now() - since_ <= kAge) return false;
        drop(rows);
        return true;
    }

  private:
    spi::EventBatch batch_;
    std::size_t next_ = 0;
    std::chrono::steady_clock::time_point since_;
};

}  // namespace outbox::relay
