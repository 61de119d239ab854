#pragma once

#include <memory>
#include <string>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "brokers/pulsar/config.h"
#include "brokers/pulsar/lane.h"
#include "net/confirmed_sink.h"

namespace outbox::pulsar {

inline const spi::SinkCapabilities kCapabilities{"pulsar", spi::Guarantee::kAtLeastOnce,
                                                 /*fail_stop_order=*/false};

/// Publishes to topics of Pulsar and takes the brokers' receipts. README.md says how. `poll` blocks
/// up to the connect timeout of each host where there is no connection. Not thread-safe.
class PulsarSink final : public net::ConfirmedSink {
  public:
    explicit PulsarSink(const PulsarConfig& config);

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override;
    Status check() override;
    Result<std::string> destination() override;
    void report(spi::SinkReport& out) override;

  private:
    PulsarSink(const PulsarConfig& config, const std::shared_ptr<Searches>& searches);

    const PulsarConfig config_;
    const std::shared_ptr<Searches> searches_;
};

}  // namespace outbox::pulsar
