#include "brokers/kafka/errors.h"

#include <algorithm>
#include <array>

namespace outbox::kafka {

namespace {

struct Row {
    std::string_view name;
    ErrorCode code;
    Advice advice;
    Scope scope;
    std::string_view remedy;
};

constexpr std::string_view kTooLarge =
    "raise the topic's max.message.bytes, or publish a reference to the data (claim check)";
constexpr std::string_view kCreateTopic = "create the topic, or allow the broker to";
constexpr std::string_view kReach =
    "check that the broker runs, that host and port are right, and that kafka.security.protocol "
    "is that of the port";
constexpr std::string_view kCredentials =
    "check kafka.security.protocol, kafka.sasl.mechanism, kafka.sasl.username and "
    "kafka.sasl.password";
constexpr std::string_view kReplicas =
    "too few replicas are in sync (min.insync.replicas); check the brokers";
constexpr std::string_view kRebuilt = "the producer was rebuilt; the record goes again";

using enum ErrorCode;
constexpr Advice kDown = Advice::kRetryDestination;
constexpr Advice kAgain = Advice::kRetryEvent;
constexpr Advice kDead = Advice::kDeadLetter;

constexpr std::array kTable = {
    Row{"MSG_SIZE_TOO_LARGE", kPayloadTooLarge, kDead, Scope::kRecord, kTooLarge},
    Row{"RECORD_LIST_TOO_LARGE", kPayloadTooLarge, kDead, Scope::kRecord, kTooLarge},
    Row{"INVALID_RECORD", kRecordRefused, kDead, Scope::kRecord,
        "the broker refuses this record; a compacted topic needs a key"},
    Row{"INVALID_TIMESTAMP", kRecordRefused, kDead, Scope::kRecord,
        "check the topic's message.timestamp settings and the clocks"},
    Row{"INVALID_MSG_SIZE", kRecordRefused, kDead, Scope::kRecord, kTooLarge},
    Row{"TOPIC_EXCEPTION", kTopicInvalid, kDead, Scope::kRecord,
        "use a valid topic name that is not one of the broker's own"},
    Row{"UNKNOWN_TOPIC_OR_PART", kTopicUnknown, kAgain, Scope::kTopic, kCreateTopic},
    Row{"_UNKNOWN_TOPIC", kTopicUnknown, kAgain, Scope::kTopic, kCreateTopic},
    Row{"_UNKNOWN_PARTITION", kTopicUnknown, kAgain, Scope::kTopic, kCreateTopic},
    Row{"TOPIC_AUTHORIZATION_FAILED", kNoRights, kDown, Scope::kTopic,
        "grant the relay's user WRITE and DESCRIBE on the topic"},
    Row{"CLUSTER_AUTHORIZATION_FAILED", kNoRights, kDown, Scope::kDestination,
        "grant the relay's user IDEMPOTENT_WRITE on the cluster"},
    Row{"SASL_AUTHENTICATION_FAILED", kAuthFailed, kDown, Scope::kDestination, kCredentials},
    Row{"ILLEGAL_SASL_STATE", kAuthFailed, kDown, Scope::kDestination, kCredentials},
    Row{"UNSUPPORTED_SASL_MECHANISM", kAuthFailed, kDown, Scope::kDestination, kCredentials},
    Row{"_AUTHENTICATION", kAuthFailed, kDown, Scope::kDestination, kCredentials},
    Row{"_SSL", kConnectFailed, kDown, Scope::kDestination,
        "check kafka.security.protocol and the kafka.ssl.* certificates"},
    Row{"_RESOLVE", kConnectFailed, kDown, Scope::kDestination, "check the broker's host name"},
    Row{"_TRANSPORT", kSinkUnavailable, kDown, Scope::kDestination, kReach},
    Row{"_ALL_BROKERS_DOWN", kSinkUnavailable, kDown, Scope::kDestination, kReach},
    Row{"BROKER_NOT_AVAILABLE", kSinkUnavailable, kDown, Scope::kDestination, kReach},
    Row{"_TIMED_OUT", kSinkUnavailable, kDown, Scope::kDestination, kReach},
    Row{"_TIMED_OUT_QUEUE", kSinkUnavailable, kDown, Scope::kDestination, kReach},
    Row{"LEADER_NOT_AVAILABLE", kSinkUnavailable, kDown, Scope::kPartition,
        "the partition has no leader; check the brokers"},
    Row{"NOT_LEADER_FOR_PARTITION", kSinkUnavailable, kDown, Scope::kPartition,
        "the partition changes its leader; it goes again"},
    Row{"NOT_ENOUGH_REPLICAS", kSinkUnavailable, kDown, Scope::kPartition, kReplicas},
    Row{"NOT_ENOUGH_REPLICAS_AFTER_APPEND", kSinkUnavailable, kDown, Scope::kPartition, kReplicas},
    Row{"KAFKA_STORAGE_ERROR", kSinkUnavailable, kDown, Scope::kPartition,
        "check the broker's disks"},
    Row{"REQUEST_TIMED_OUT", kSinkTimeout, kDown, Scope::kPartition, kReach},
    Row{"_MSG_TIMED_OUT", kSinkTimeout, kDown, Scope::kPartition, kReach},
    Row{"OUT_OF_ORDER_SEQUENCE_NUMBER", kSinkRebuilt, kDown, Scope::kDestination, kRebuilt},
    Row{"DUPLICATE_SEQUENCE_NUMBER", kSinkRebuilt, kDown, Scope::kDestination, kRebuilt},
    Row{"UNKNOWN_PRODUCER_ID", kSinkRebuilt, kDown, Scope::kDestination, kRebuilt},
    Row{"INVALID_PRODUCER_EPOCH", kSinkRebuilt, kDown, Scope::kDestination, kRebuilt},
    Row{"INVALID_PRODUCER_ID_MAPPING", kSinkRebuilt, kDown, Scope::kDestination, kRebuilt},
    Row{"_INCONSISTENT", kSinkRebuilt, kDown, Scope::kDestination, kRebuilt},
    Row{"_GAPLESS_GUARANTEE", kSinkRebuilt, kDown, Scope::kDestination, kRebuilt},
    Row{"_FATAL", kSinkRebuilt, kDown, Scope::kDestination, kRebuilt},
    Row{"_PURGE_QUEUE", kSinkRebuilt, kDown, Scope::kDestination, kRebuilt},
    Row{"_PURGE_INFLIGHT", kSinkRebuilt, kDown, Scope::kDestination, kRebuilt},
    Row{"_DESTROY", kSinkRebuilt, kDown, Scope::kDestination, kRebuilt},
    Row{"_STATE", kSinkRebuilt, kDown, Scope::kDestination, kRebuilt},
};
constexpr Row kOther{"", kRecordRefused, kAgain, Scope::kRecord,
                     "see Kafka's documentation of this error"};

const Row& row_of(std::string_view name) {
    const auto* found = std::find_if(kTable.begin(), kTable.end(),
                                     [&](const Row& row) { return row.name == name; });
    return found == kTable.end() ? kOther : *found;
}

}  // namespace

ErrorInfo to_error(const Fault& fault, std::string_view what) {
    const Row& row = row_of(fault.name);
    return {row.code, row.advice, fault.name,
            std::string(what) + ": " + fault.text + "; " +
                (fault.remedy.empty() ? std::string(row.remedy) : fault.remedy)};
}

Scope scope_of(const Fault& fault) {
    return row_of(fault.name).scope;
}

bool is_unknown_topic(const Fault& fault) {
    return row_of(fault.name).code == ErrorCode::kTopicUnknown;
}

}  // namespace outbox::kafka
