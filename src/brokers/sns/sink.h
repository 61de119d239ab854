#pragma once

#include "aws/batch_sink.h"
#include "brokers/sns/config.h"

namespace outbox::sns {

inline const spi::SinkCapabilities kCapabilities{"sns", spi::Guarantee::kAtLeastOnce,
                                                 /*fail_stop_order=*/false};

/// Sends batches to topics of SNS. Not thread-safe.
class SnsSink final : public aws::BatchSink {
  public:
    using aws::BatchSink::BatchSink;
    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        return kCapabilities;
    }
};

}  // namespace outbox::sns
