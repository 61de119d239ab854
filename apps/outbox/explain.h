#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include <outbox/result.h>

#include "backend/database.h"
#include "core/consumer_operations.h"
#include "core/event_trace.h"
#include "core/operations.h"
#include "runtime/toml_file.h"

namespace outbox::app {

/// Whether dead letters of a route block their keys; nothing: not known.
using BlocksKey = std::function<std::optional<bool>(const std::string& route)>;
/// As a configuration file says it.
[[nodiscard]] BlocksKey blocks_key_of(const runtime::FileContent& file);

/// A consumer's database.
struct ConsumersPlace {
    std::string url;
    std::function<Result<ReceivedMessages>(const std::string& id)> find;
};

/// Where explanations come from.
struct Places {
    std::unique_ptr<EventTracer> tracer;
    std::unique_ptr<Operations> operations;
    std::vector<ConsumersPlace> consumers = {};
    std::vector<SourceConfig> webhooks = {};  ///< Databases that may hold deliveries of some.
    BlocksKey blocks_key;
};

/// Connects; without a consumer's database, with the webhooks of the source's.
Result<Places> open_places(const SourceConfig& config, BlocksKey blocks_key);

/// As `outbox explain --json` prints it; what a consumer's database did not answer is a remark.
/// Errors: kConfigInvalid where no event has such an id.
Result<nlohmann::ordered_json> explanation_of_id(Places& places, const std::string& id);
/// `tenant`: empty for all.
Result<nlohmann::ordered_json> explanation_of_key(Places& places, const std::string& key,
                                                  const std::string& tenant, std::size_t limit);

}  // namespace outbox::app
