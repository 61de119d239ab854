#include "brokers/kafka/receive/options.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <outbox/error.h>

#include "consumer/janitor.h"

namespace outbox::consumer::kafka {
namespace {

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

void require(bool condition, const char* message) {
    if (!condition) throw Error(invalid(message));
}

}  // namespace

KafkaConsumerOptions checked(KafkaConsumerOptions options) {
    if (options.consumer.empty()) options.consumer = options.group;
    constexpr std::size_t kMaxNameBytes = 255;
    require(!options.brokers.empty(), "KafkaConsumerOptions::brokers needs host:port");
    require(!options.group.empty() && options.group.size() <= kMaxNameBytes,
            "KafkaConsumerOptions::group needs a name of 1 to 255 bytes");
    require(options.consumer.size() <= kMaxNameBytes,
            "KafkaConsumerOptions::consumer needs a name of 1 to 255 bytes");
    require(!options.topics.empty(), "KafkaConsumerOptions::topics needs a topic");
    require(options.workers > 0 && options.workers <= 64,
            "KafkaConsumerOptions::workers must be 1 to 64");
    require(options.transaction_size > 0 && options.transaction_size <= 10'000,
            "KafkaConsumerOptions::transaction_size must be 1 to 10000");
    require(options.max_in_flight > 0 && options.max_in_flight_bytes > 0,
            "KafkaConsumerOptions: max_in_flight and max_in_flight_bytes must be above 0");
    require(options.max_attempts > 0, "KafkaConsumerOptions::max_attempts must be at least 1");
    require(options.retry_base_ms > 0 && options.retry_max_ms >= options.retry_base_ms,
            "KafkaConsumerOptions: retry_base_ms must be above 0 and not above retry_max_ms");
    require(
        options.commit_interval_ms > 0 && options.shutdown_grace_ms >= 0,
        "KafkaConsumerOptions: commit_interval_ms must be above 0, shutdown_grace_ms not below");
    require(options.connect_timeout_s > 0,
            "KafkaConsumerOptions::connect_timeout_s must be above 0");
    require(options.inbox_retention_s == 0 || options.inbox_retention_s >= kLeastRetentionS,
            "KafkaConsumerOptions::inbox_retention_s must be 0 (never) or at least 7200");
    if (options.mode == KafkaConsumerOptions::Mode::kOffset && !options.exactly_once_wire) {
        throw Error(
            ErrorCode::kGuaranteeRefused, Advice::kStop,
            "Mode::kOffset drops what the broker delivers again, but a relay's repeats have "
            "other offsets and would be applied twice: use Mode::kInboxAndOffset, or set "
            "exactly_once_wire where nothing writes an event twice");
    }
    return options;
}

WorkerOptions worker_options(const KafkaConsumerOptions& options) {
    using Mode = KafkaConsumerOptions::Mode;
    return {.consumer = options.consumer,
            .workers = options.workers,
            .transaction_size = options.transaction_size,
            .max_in_flight = options.max_in_flight,
            .max_in_flight_bytes = options.max_in_flight_bytes,
            .retry = {options.retry_base_ms, options.retry_max_ms, options.max_attempts},
            .inbox_retention_s = options.inbox_retention_s,
            .by_id = options.mode != Mode::kOffset,
            .by_offset = options.mode != Mode::kInbox,
            .on_report = options.on_report,
            .claims = options.claims,
            .spans = options.spans};
}

Start first_start(const KafkaConsumerOptions& options) {
    for (const char* name : {"auto.offset.reset", "kafka.auto.offset.reset"}) {
        const auto found = options.kafka.find(name);
        if (found == options.kafka.end()) continue;
        const std::string& policy = found->second;
        if (policy == "earliest" || policy == "smallest" || policy == "beginning") return {};
        if (policy == "latest" || policy == "largest" || policy == "end") return {.offset = kEnd};
        throw Error(invalid("kafka.auto.offset.reset must be earliest or latest, not '" + policy +
                            "': it says where a group begins that has read nothing yet"));
    }
    return {};
}

std::map<std::string, std::string> settings_of(const KafkaConsumerOptions& options) {
    constexpr std::string_view kPrefix = "kafka.";
    constexpr std::array kOurs{
        "bootstrap.servers",    "metadata.broker.list",          "group.id",
        "enable.auto.commit",   "enable.auto.offset.store",      "auto.commit.enable",
        "enable.partition.eof", "partition.assignment.strategy", "isolation.level"};
    std::map<std::string, std::string> settings{
        // Beside what is in flight; the broker's own limit of a partition's fetch stands. Counted
        // without what librdkafka keeps for each record, about 500 bytes.
        {"queued.max.messages.kbytes", "8192"},
        {"fetch.max.bytes", "4194304"},
    };
    for (const auto& [given, value] : options.kafka) {
        // As our errors write it, too.
        const std::string name = given.substr(given.starts_with(kPrefix) ? kPrefix.size() : 0);
        if (std::find(kOurs.begin(), kOurs.end(), name) != kOurs.end()) {
            throw Error(ErrorCode::kGuaranteeRefused, Advice::kStop,
                        "kafka." + name +
                            " cannot be set: exactly once rests on offsets that follow the "
                            "database's commits in one group; remove it");
        }
        settings[name] = value;
    }
    settings["bootstrap.servers"] = options.brokers;
    settings["group.id"] = options.group;
    settings["enable.auto.commit"] = "false";
    settings["enable.auto.offset.store"] = "false";
    // What is to become of a place that the log does not have is not the library's to decide.
    settings["auto.offset.reset"] = "error";
    settings["enable.partition.eof"] = "true";
    settings["partition.assignment.strategy"] = "cooperative-sticky";
    settings["isolation.level"] = "read_committed";
    return settings;
}

}  // namespace outbox::consumer::kafka
