#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include <outbox/limits.h>
#include <outbox/result.h>

namespace outbox::kafka {

struct KafkaConfig {
    std::string bootstrap_servers;                  ///< "host:port,host:port"
    std::map<std::string, std::string> options;     ///< librdkafka's, checked by `make_config`
    std::size_t max_records = 10'000;               ///< Under way at once.
    std::size_t max_bytes = std::size_t{32} << 20;  ///< Keys, values and headers under way.
    std::chrono::seconds connect_timeout{kConnectTimeoutS};
    /// A record that has been the oldest for so long without an outcome: the broker hangs or its
    /// partition cannot take it.
    std::chrono::milliseconds stuck_after{15'000};
    /// As `stuck_after`, when every broker is known to be unreachable.
    std::chrono::milliseconds down_after{1'000};
};

/// From `kafka://host:port,host:port` and options named `kafka.<name>` (or just the name) as
/// librdkafka calls them; options may also stand in the URL's query.
/// Errors: kConfigInvalid/stop; kGuaranteeRefused/stop, naming the promise, for an option that
/// would break one.
Result<KafkaConfig> make_config(std::string_view url,
                                const std::map<std::string, std::string>& options);

/// Everything librdkafka is told: what the promises need, our choices, the user's options.
/// `batch_bytes` must not exceed any topic's `max.message.bytes`. `one_by_one`: a batch is one
/// record, so that a refusal names the guilty one.
std::map<std::string, std::string> librdkafka_settings(const KafkaConfig& config,
                                                       std::size_t batch_bytes,
                                                       bool one_by_one = false);

/// The user's `batch.size`, else ours.
std::size_t wanted_batch_bytes(const KafkaConfig& config);

/// Batches are compressed, so that a record's size does not tell whether it fits.
bool compresses(const KafkaConfig& config);

/// Parts of names of options whose values are secrets, besides those that are known everywhere.
std::span<const std::string_view> secret_options();

/// The option's value may be a secret and must not be printed.
bool is_secret(std::string_view option);

}  // namespace outbox::kafka
