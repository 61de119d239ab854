#pragma once

#include <memory>
#include <string>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "brokers/nats/config.h"
#include "brokers/nats/stream_numbers.h"
#include "net/confirmed_sink.h"

namespace outbox::nats {

inline const spi::SinkCapabilities kCapabilities{"nats",
                                                 spi::Guarantee::kAtLeastOnce,
                                                 /*fail_stop_order=*/false,
                                                 /*durable=*/true,
                                                 /*across_topics=*/true,
                                                 {"ce-", "Content-Type", /*type_as_attribute=*/true,
                                                  /*percent_encoded=*/true}};

/// Publishes to streams of JetStream and takes their acknowledgements. README.md says how. `poll`
/// blocks up to the connect timeout of each host where there is no connection. Not thread-safe.
class NatsSink final : public net::ConfirmedSink {
  public:
    explicit NatsSink(const NatsConfig& config);

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override;
    Status check() override;
    Result<std::string> destination() override;
    void report(spi::SinkReport& out) override;

  private:
    NatsSink(const NatsConfig& config, std::shared_ptr<StreamNumbers> numbers);

    const NatsConfig config_;
    const std::shared_ptr<StreamNumbers> numbers_;  // the connection's, too
};

}  // namespace outbox::nats
