#include "brokers/kafka/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <librdkafka/rdkafka.h>
#include <memory>
#include <set>

#include "core/url.h"

namespace outbox::kafka {

namespace {

constexpr std::string_view kPrefix = "kafka.";
constexpr std::size_t kBatchBytes = 1'000'000;
constexpr int kReconnectMs = 50;
constexpr int kReconnectMaxMs = 1'000;
// With one request under way records gather while it is, so that waiting for more gains nothing.
constexpr const char* kLingerMs = "0";

struct RefusedOption {
    std::string_view name;
    std::string_view promise;
};
constexpr std::string_view kNoLoss =
    "a record counts as published only when all in-sync replicas have it";
constexpr std::string_view kOrder = "events of one key arrive in order";
constexpr std::string_view kNoGap =
    "after a failed record nothing behind it on its key is accepted";
constexpr std::string_view kNoExpiry = "nothing is given up because of its age";
constexpr std::string_view kPartitions =
    "a key goes to the partition that every other Kafka client would choose";
constexpr std::string_view kMemory = "memory is bounded by the relay's own limits";
constexpr std::string_view kUrl = "the brokers are named by the URL alone";
constexpr std::string_view kOutcomes = "every record's outcome is known";

// Options that would break a promise, under each name that librdkafka knows them by.
constexpr std::array kRefused = {
    RefusedOption{"acks", kNoLoss},
    RefusedOption{"request.required.acks", kNoLoss},
    RefusedOption{"enable.idempotence", kOrder},
    RefusedOption{"max.in.flight", kOrder},
    RefusedOption{"max.in.flight.requests.per.connection", kOrder},
    RefusedOption{"queuing.strategy", kOrder},
    RefusedOption{"enable.gapless.guarantee", kNoGap},
    RefusedOption{"retries", kNoGap},
    RefusedOption{"message.send.max.retries", kNoGap},
    RefusedOption{"message.timeout.ms", kNoExpiry},
    RefusedOption{"delivery.timeout.ms", kNoExpiry},
    RefusedOption{"partitioner", kPartitions},
    RefusedOption{"queue.buffering.max.messages", kMemory},
    RefusedOption{"queue.buffering.max.kbytes", kMemory},
    RefusedOption{"message.max.bytes", kOutcomes},
    RefusedOption{"delivery.report.only.error", kOutcomes},
    RefusedOption{"transactional.id", kOutcomes},
    RefusedOption{"bootstrap.servers", kUrl},
    RefusedOption{"metadata.broker.list", kUrl},
};

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

bool known_to_librdkafka(std::string_view name) {
    while (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    const std::unique_ptr<rd_kafka_conf_t, decltype(&rd_kafka_conf_destroy)> options(
        rd_kafka_conf_new(), rd_kafka_conf_destroy);
    char error[512] = "";
    // Without a value: its default.
    return rd_kafka_conf_set(options.get(), std::string(name).c_str(), nullptr, error,
                             sizeof error) != RD_KAFKA_CONF_UNKNOWN;
}

/// `seen`: what the same place gave before.
Status add_option(std::string_view name, const std::string& value, std::set<std::string>& seen,
                  KafkaConfig& config) {
    // Under [route.kafka], too, as our errors write it.
    while (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    for (const RefusedOption& refused : kRefused) {
        if (refused.name != name) continue;
        return ErrorInfo{ErrorCode::kGuaranteeRefused,
                         Advice::kStop,
                         {},
                         "kafka." + std::string(name) + " cannot be set: Outbox promises that " +
                             std::string(refused.promise) + "; remove the option"};
    }
    // Two names of one option would be set in the order of their names, not the user's.
    if (name == "queue.buffering.max.ms") name = "linger.ms";
    if (name == "compression.codec") name = "compression.type";
    if (!seen.emplace(name).second) {
        return invalid("kafka." + std::string(name) + " is given twice; leave one of them out");
    }
    config.options[std::string(name)] = value;
    return {};
}

Status check_servers(std::string_view servers) {
    if (servers.empty()) return invalid("the Kafka URL names no broker; use kafka://host:9092");
    if (servers.find('@') != std::string_view::npos) {
        return invalid(
            "a Kafka URL holds no user or password; set kafka.security.protocol, "
            "kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password");
    }
    return {};
}

}  // namespace

Result<KafkaConfig> make_config(std::string_view url,
                                const std::map<std::string, std::string>& options) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    if (!parsed->user.empty() || !parsed->password.empty()) return check_servers("@").error();
    if (const Status status = check_servers(parsed->authority); !status.ok()) {
        return status.error();
    }
    if (!parsed->path.empty() && parsed->path != "/") {
        return invalid("the Kafka URL has a path ('" + parsed->path +
                       "'), but topics come from the route; use kafka://host:9092");
    }
    KafkaConfig config;
    config.bootstrap_servers = parsed->authority;
    std::string_view secret;
    std::set<std::string> of_query;
    for (const auto& [name, value] : parsed->query) {
        // It may be the rest of the secret, and must not be printed.
        if (!secret.empty() && !known_to_librdkafka(name)) {
            return invalid("an option behind " + std::string(secret) +
                           " in the Kafka URL is none of librdkafka's; write an & in a value as "
                           "%26");
        }
        if (is_secret(name)) secret = name;
        if (const Status added = add_option(name, value, of_query, config); !added.ok()) {
            return added.error();
        }
    }
    std::set<std::string> of_table;
    for (const auto& [name, value] : options) {
        if (const Status added = add_option(name, value, of_table, config); !added.ok()) {
            return added.error();
        }
    }
    return config;
}

std::map<std::string, std::string> librdkafka_settings(const KafkaConfig& config,
                                                       std::size_t batch_bytes, bool one_by_one) {
    std::map<std::string, std::string> settings = {
        {"client.id", "outbox"},
        {"socket.keepalive.enable", "true"},
        {"socket.connection.setup.timeout.ms",
         std::to_string(std::chrono::milliseconds(config.connect_timeout).count())},
        {"reconnect.backoff.ms", std::to_string(kReconnectMs)},
        {"reconnect.backoff.max.ms", std::to_string(kReconnectMaxMs)},
        {"linger.ms", kLingerMs},
        {"log.connection.close", "false"},
        {"statistics.interval.ms", "0"},
    };
    for (const auto& [name, value] : config.options) settings[name] = value;
    settings["bootstrap.servers"] = config.bootstrap_servers;
    settings["enable.idempotence"] = "true";
    settings["acks"] = "all";
    // A broker that knows nothing of a producer yet takes any sequence number as its first. Were
    // two requests under way to a new partition, the first could fail (not the leader yet), the
    // second be taken, and the repeat of the first be answered as a duplicate: lost, and
    // acknowledged.
    settings["max.in.flight"] = "1";
    settings["enable.gapless.guarantee"] = "true";
    settings["message.timeout.ms"] = "0";
    settings["partitioner"] = "murmur2_random";
    settings["socket.nagle.disable"] = "true";
    settings["batch.size"] = std::to_string(batch_bytes);
    if (one_by_one) settings["batch.num.messages"] = "1";
    // The sink holds the limits itself and asks each topic for its own; these only must not be
    // lower than them.
    settings["message.max.bytes"] = "1000000000";
    settings["queue.buffering.max.messages"] = std::to_string(config.max_records);
    settings["queue.buffering.max.kbytes"] = "2147483647";
    return settings;
}

std::size_t wanted_batch_bytes(const KafkaConfig& config) {
    const auto found = config.options.find("batch.size");
    if (found == config.options.end()) return kBatchBytes;
    std::size_t bytes = 0;
    const char* end = found->second.data() + found->second.size();
    // librdkafka names what is wrong with a value that is no number.
    return std::from_chars(found->second.data(), end, bytes).ec == std::errc() ? bytes : 0;
}

bool compresses(const KafkaConfig& config) {
    const auto found = config.options.find("compression.type");
    return found != config.options.end() && found->second != "none";
}

std::span<const std::string_view> secret_options() {
    static constexpr std::array<std::string_view, 4> kParts{"key.pem", "sasl.jaas",
                                                            "oauthbearer.config", "assertion"};
    return kParts;
}

bool is_secret(std::string_view option) {
    add_secret_options(secret_options());
    return is_secret_option(option);
}

}  // namespace outbox::kafka
