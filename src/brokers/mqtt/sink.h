#pragma once

#include <string>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "brokers/mqtt/config.h"
#include "net/confirmed_sink.h"

namespace outbox::mqtt {

inline const spi::SinkCapabilities kCapabilities{"mqtt",
                                                 spi::Guarantee::kAtLeastOnce,
                                                 /*fail_stop_order=*/false,
                                                 /*durable=*/true,
                                                 /*across_topics=*/true,
                                                 {/*prefix=*/"", /*content_type=*/{}}};

/// Publishes to topics of an MQTT 5 broker with QoS 1. README.md says how. `poll` blocks up to the
/// connect timeout of each host where there is no connection. Not thread-safe.
class MqttSink final : public net::ConfirmedSink {
  public:
    explicit MqttSink(const MqttConfig& config);

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override;
    Status check() override;
    Result<std::string> destination() override;

  private:
    const MqttConfig config_;
};

}  // namespace outbox::mqtt
