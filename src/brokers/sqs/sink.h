#pragma once

#include "aws/batch_sink.h"
#include "brokers/sqs/config.h"

namespace outbox::sqs {

inline const spi::SinkCapabilities kCapabilities{"sqs", spi::Guarantee::kAtLeastOnce,
                                                 /*fail_stop_order=*/false};

/// Sends batches to queues of SQS. Not thread-safe.
class SqsSink final : public aws::BatchSink {
  public:
    using aws::BatchSink::BatchSink;
    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        return kCapabilities;
    }
};

}  // namespace outbox::sqs
