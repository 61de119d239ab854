#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "codec/encoder.h"

namespace outbox::codec {

/// Which payloads are kept outside of their records.
struct ClaimSettings {
    std::string store;      ///< Its URL without secrets; empty: none are.
    std::size_t above = 0;  ///< Those with more bytes.
    std::string source;     ///< Whose events they are: the table.
};

/// Any format, with the payloads above a size replaced by a note that says where they are. The
/// record has the same facts in headers (`claim/claim.h`), which an event cannot set itself, and
/// under `object` and `payload` what is to be written before it is published.
class ClaimEncoder final : public Encoder {
  public:
    ClaimEncoder(std::unique_ptr<Encoder> inner, ClaimSettings settings)
        : inner_(std::move(inner)), settings_(std::move(settings)) {}

    Result<spi::Record> encode(const spi::EventView& event, std::string_view topic,
                               spi::EventBatch& arena) override;
    [[nodiscard]] bool makes_topics() const override { return inner_->makes_topics(); }

  private:
    const std::unique_ptr<Encoder> inner_;
    const ClaimSettings settings_;
};

/// `make` with that around it. Where nothing is kept outside it still takes those headers off: one
/// that a service hands on from a message would have its receivers read that message's payload. So
/// it does with `claim::kReplayHeader`, which would have them take an event for a replayed one.
[[nodiscard]] MakeEncoder with_claims(MakeEncoder make, ClaimSettings settings);

}  // namespace outbox::codec
