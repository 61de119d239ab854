#include "brokers/pulsar/errors.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/utf8.h"

namespace outbox::pulsar {
namespace {

using enum ErrorCode;
constexpr Advice kDown = Advice::kRetryDestination;
constexpr Advice kDead = Advice::kDeadLetter;

// By their numbers (PulsarApi.proto, ServerError).
constexpr std::array<std::string_view, 26> kNames{"UnknownError",
                                                  "MetadataError",
                                                  "PersistenceError",
                                                  "AuthenticationError",
                                                  "AuthorizationError",
                                                  "ConsumerBusy",
                                                  "ServiceNotReady",
                                                  "ProducerBlockedQuotaExceededError",
                                                  "ProducerBlockedQuotaExceededException",
                                                  "ChecksumError",
                                                  "UnsupportedVersionError",
                                                  "TopicNotFound",
                                                  "SubscriptionNotFound",
                                                  "ConsumerNotFound",
                                                  "TooManyRequests",
                                                  "TopicTerminatedError",
                                                  "ProducerBusy",
                                                  "InvalidTopicName",
                                                  "IncompatibleSchema",
                                                  "ConsumerAssignError",
                                                  "TransactionCoordinatorNotFound",
                                                  "InvalidTxnStatus",
                                                  "NotAllowedError",
                                                  "TransactionConflict",
                                                  "TransactionNotFound",
                                                  "ProducerFenced"};

struct Row {
    std::string_view name;
    ErrorCode code;
    Advice advice;
    std::string_view remedy;
};

constexpr std::string_view kReach = "check that the broker runs and that host and port are right";
constexpr std::string_view kLog = "see the broker's log";
constexpr std::string_view kQuota =
    "the backlog of a subscription is over the quota of the topic: let its consumers catch up, or "
    "raise the quota (pulsar-admin namespaces set-backlog-quota)";

constexpr std::array kTable = {
    Row{"MetadataError", kSinkUnavailable, kDown,
        "see the broker's log; a namespace that wants encrypted messages takes none of the relay"},
    Row{"PersistenceError", kSinkUnavailable, kDown, "see the logs of broker and bookies"},
    Row{"AuthenticationError", kAuthFailed, kDown,
        "check the token, or cert_file where the broker wants a certificate"},
    Row{"AuthorizationError", kNoRights, kDown,
        "grant the right: pulsar-admin namespaces grant-permission --actions produce --role ROLE "
        "NAMESPACE"},
    Row{"ServiceNotReady", kSinkUnavailable, kDown, "the topic is on its way to another broker"},
    Row{"ProducerBlockedQuotaExceededError", kSinkUnavailable, kDown, kQuota},
    Row{"ProducerBlockedQuotaExceededException", kSinkUnavailable, kDown, kQuota},
    Row{"ChecksumError", kRecordRefused, Advice::kRetryEvent,
        "the message has changed on its way; look at the network"},
    Row{"UnsupportedVersionError", kUnsupported, kDown, "use Pulsar 2.10 or later"},
    Row{"TopicNotFound", kTopicUnknown, kDown,
        "make the topic (pulsar-admin topics create), and its tenant and namespace, or let the "
        "broker make topics (allowAutoTopicCreation)"},
    Row{"TooManyRequests", kSinkUnavailable, kDown, kLog},
    Row{"TopicTerminatedError", kSinkUnavailable, kDown,
        "the topic was terminated and takes nothing more; use another one"},
    Row{"ProducerBusy", kSinkUnavailable, kDown,
        "another producer has the topic for itself, or it has as many as it may have"},
    Row{"InvalidTopicName", kTopicInvalid, kDead, "use another topic"},
    Row{"IncompatibleSchema", kUnsupported, kDown,
        "the topic has a schema and takes no plain bytes: publish to a topic without one, or let "
        "it "
        "take them (pulsar-admin namespaces set-schema-validation-enforce --disable)"},
    Row{"NotAllowedError", kNoRights, kDown, "see the policies of topic, namespace and broker"},
    Row{"ProducerFenced", kSinkUnavailable, kDown, "another producer has the topic for itself"},
    Row{"TOO LARGE", kPayloadTooLarge, kDead,
        "raise the limit (maxMessageSize of broker and bookies, or the policy max-message-size of "
        "the topic), or make the event smaller"},
    Row{"NO ADDRESS", kUnsupported, kDown,
        "let the brokers advertise an address for this kind of connection, or use the other scheme "
        "(pulsar:// or pulsar+ssl://)"},
    Row{"REDIRECTS", kSinkUnavailable, kDown, kLog},
    Row{"SILENT", kSinkTimeout, kDown, "the broker or the network hangs"},
    Row{"UNANSWERED", kSinkTimeout, kDown,
        "the broker answers, but not for this message: see its log, and limits of publishing"},
    Row{"TOKEN", kAuthFailed, kDown, "check pulsar.token_file"},
    Row{"RESOLVE", kConnectFailed, kDown, "check the broker's host name"},
    Row{"CONNECT", kConnectFailed, kDown, kReach},
    Row{"TLS", kConnectFailed, kDown,
        "check pulsar.ca_file, pulsar.cert_file, that the certificate names the host, and that the "
        "port speaks TLS"},
    Row{"SETTING", kConfigInvalid, kDown, "check the file"},
    Row{"ENDED", kSinkUnavailable, kDown, kReach},
};
constexpr Row kOther{"", kSinkUnavailable, kDown, kLog};

const Row& row_of(std::string_view name) {
    const auto* found = std::find_if(kTable.begin(), kTable.end(),
                                     [&](const Row& row) { return row.name == name; });
    return found == kTable.end() ? kOther : *found;
}

}  // namespace

Fault fault_of_request(std::uint32_t error, std::string_view said) {
    constexpr std::size_t kMostText = 300;
    Fault fault;
    fault.name =
        error < kNames.size() ? std::string(kNames[error]) : "ServerError " + std::to_string(error);
    fault.text = said.empty() ? fault.name : to_printable(said.substr(0, kMostText));
    return fault;
}

// In the answer to a message NotAllowedError says that a policy of the topic finds it too large.
Fault fault_of_send(std::uint32_t error, std::string_view said) {
    Fault fault = fault_of_request(error, said);
    if (fault.name == "NotAllowedError") fault.name = "TOO LARGE";
    return fault;
}

Fault fault_of_socket(net::SocketFault fault) {
    return {std::string(net::word_of(fault.kind)), std::move(fault.text)};
}

bool is_moving(const Fault& fault) {
    return fault.name == "ServiceNotReady";
}

ErrorInfo to_error(const Fault& fault, std::string_view what) {
    const Row& row = row_of(fault.name);
    return {row.code, row.advice, fault.name,
            std::string(what) + ": " + fault.text + "; " + std::string(row.remedy)};
}

}  // namespace outbox::pulsar
