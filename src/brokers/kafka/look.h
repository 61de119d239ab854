#pragma once

#include <span>
#include <string>
#include <vector>

#include <outbox/result.h>

#include "backend/broker.h"
#include "brokers/kafka/config.h"

namespace outbox::kafka {

/// Topics of these names as they are now. Makes none, whatever the broker does on demand. Blocks up
/// to the connect timeout, and as long for each topic. Errors: those of `KafkaSink::check`.
Result<std::vector<TopicReport>> look_at_topics(const KafkaConfig& config,
                                                std::span<const std::string> names);

}  // namespace outbox::kafka
