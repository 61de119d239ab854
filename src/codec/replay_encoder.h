#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "codec/encoder.h"

namespace outbox::codec {

/// The run whose records these are.
struct ReplayMark {
    std::string run;              ///< A UUID.
    bool as_new = false;          ///< Its events are new ones,
    std::int64_t started_us = 0;  ///< of this time.
};

/// Any format, with the header that marks a replay (`claim::kReplayHeader`). As new events they
/// have the UUIDv5 of run and id in place of the id, so that a run that goes on gives each event
/// the id it had, and the time of the run.
class ReplayEncoder final : public Encoder {
  public:
    ReplayEncoder(std::unique_ptr<Encoder> inner, ReplayMark mark)
        : inner_(std::move(inner)), mark_(std::move(mark)) {}

    Result<spi::Record> encode(const spi::EventView& event, std::string_view topic,
                               spi::EventBatch& arena) override;
    [[nodiscard]] bool makes_topics() const override { return inner_->makes_topics(); }

  private:
    const std::unique_ptr<Encoder> inner_;
    const ReplayMark mark_;
};

/// `make` with that around it.
[[nodiscard]] MakeEncoder as_replay(MakeEncoder make, ReplayMark mark);

}  // namespace outbox::codec
