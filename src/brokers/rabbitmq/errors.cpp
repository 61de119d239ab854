#include "brokers/rabbitmq/errors.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace outbox::rabbitmq {
namespace {

using enum ErrorCode;
using enum Doing;
constexpr Advice kDown = Advice::kRetryDestination;

struct Row {
    std::string_view name;
    Doing doing;
    ErrorCode code;
    Advice advice;
    std::string_view remedy;
};

constexpr std::string_view kReach = "check that RabbitMQ runs and that host and port are right";
constexpr std::string_view kRepeats = "what was under way goes again";

// Reply codes: AMQP 0-9-1, section 1.3, as RabbitMQ uses them.
constexpr std::array kTable = {
    Row{"403", kLogin, kAuthFailed, kDown,
        "check user and password; the user guest may log in from this machine only"},
    Row{"530", kLogin, kNoRights, kDown,
        "check the vhost, the last part of the URL, and the user's permissions on it"},
    Row{"403", kPublish, kNoRights, kDown,
        "give the user the permission to write to the exchange (rabbitmqctl set_permissions)"},
    Row{"404", kPublish, kTopicUnknown, kDown,
        "declare the exchange, or set rabbitmq.declare = true"},
    Row{"406", kPublish, kRecordRefused, kDown,
        "the broker does not take it as it is; see its log"},
    Row{"311", kPublish, kPayloadTooLarge, kDown, "see the broker's log"},
    Row{"312", kPublish, kTopicUnknown, Advice::kRetryEvent,
        "no queue is bound for this routing key; bind one"},
    Row{"313", kPublish, kTopicUnknown, Advice::kRetryEvent, "no consumer takes it"},
    Row{"320", kPublish, kSinkUnavailable, kDown,
        "an operator closed the connection, or the node stops"},
    Row{"402", kPublish, kSinkUnavailable, kDown, kReach},
    Row{"501", kPublish, kSinkRebuilt, kDown, kRepeats},
    Row{"504", kPublish, kSinkRebuilt, kDown, kRepeats},
    Row{"505", kPublish, kSinkRebuilt, kDown, kRepeats},
    Row{"506", kPublish, kSinkUnavailable, kDown, "the broker is short of something; see its log"},
    Row{"541", kPublish, kSinkUnavailable, kDown, "see the broker's log"},
    Row{"NACK", kPublish, kSinkUnavailable, kDown,
        "a queue is full (x-overflow reject-publish), or has too few replicas; look at its queues"},
    Row{"BLOCKED", kPublish, kSinkUnavailable, kDown,
        "the broker takes nothing until its memory or disk alarm ends"},
    Row{"SILENT", kPublish, kSinkTimeout, kDown,
        "a queue may have too few replicas, or the broker hangs; look at both"},
    Row{"HEARTBEAT", kPublish, kSinkTimeout, kDown, "the broker or the network hangs"},
    Row{"403", kConsume, kNoRights, kDown,
        "give the user the permission to read the queue (rabbitmqctl set_permissions)"},
    Row{"404", kConsume, kTopicUnknown, kDown, "declare the queue"},
    Row{"405", kConsume, kSinkUnavailable, kDown, "the queue is another connection's alone"},
    Row{"406", kConsume, kSinkUnavailable, kDown,
        "the broker waits for no message longer than its consumer_timeout; what was taken comes "
        "again"},
    Row{"CANCEL", kConsume, kSinkUnavailable, kDown, "the queue was deleted, or moves"},
    Row{"STREAM", kConsume, kConfigInvalid, Advice::kStop,
        "nobody keeps the place of a consumer of a stream: bind a quorum queue to its exchange"},
    Row{"TIMEOUT", kLogin, kConnectFailed, kDown, kReach},
    Row{"CONNECT", kLogin, kConnectFailed, kDown, kReach},
    Row{"RESOLVE", kLogin, kConnectFailed, kDown, "check the broker's host name"},
    Row{"TLS", kLogin, kConnectFailed, kDown,
        "check rabbitmq.ca_file, that the certificate names the host, and that the port speaks "
        "TLS"},
    Row{"SETTING", kLogin, kConfigInvalid, kDown, "check the file"},
};
constexpr Row kFewChannels{"530", kPublish, kNoRights, kDown,
                           "raise the user's limit, max-channels (rabbitmqctl set_user_limits), or "
                           "clear it; a broker that "
                           "counts channels that it has closed does so until it restarts"};
constexpr Row kLost{"", kPublish, kSinkUnavailable, kDown, kReach};

const Row& row_of(const Fault& fault) {
    if (refuses_channel(fault)) return kFewChannels;
    const auto* found = std::find_if(kTable.begin(), kTable.end(), [&](const Row& row) {
        return row.name == fault.name && row.doing == fault.doing;
    });
    return found == kTable.end() ? kLost : *found;
}

}  // namespace

ErrorInfo to_error(const Fault& fault, std::string_view what) {
    const Row& row = row_of(fault);
    return {row.code, row.advice, fault.name,
            std::string(what) + ": " + fault.text + "; " + std::string(row.remedy)};
}

bool may_be_a_message(const Fault& fault) {
    constexpr std::array<std::string_view, 7> kOthers = {"320", "402",     "403",   "404",
                                                         "530", "BLOCKED", "SILENT"};
    return std::find(kOthers.begin(), kOthers.end(), fault.name) == kOthers.end() &&
           row_of(fault).code != kSinkTimeout;
}

bool refuses_channel(const Fault& fault) {
    return fault.name == "530" && fault.text.find("number of channels") != std::string::npos;
}

bool refuses_routing_key(const Fault& fault, std::string_view routing_key) {
    constexpr std::string_view kBefore = "access to topic '";
    constexpr std::string_view kBehind = "' in exchange '";
    constexpr std::string_view kCut = "...";
    if (fault.name != "403") return false;
    std::string_view told = fault.text;
    const std::size_t start = told.find(kBefore);
    if (start == std::string_view::npos) return false;
    told.remove_prefix(start + kBefore.size());
    if (!told.ends_with(kCut)) return told.substr(0, told.rfind(kBehind)) == routing_key;
    // A reply has 255 bytes.
    told.remove_suffix(kCut.size());
    const std::string whole = std::string(routing_key) + std::string(kBehind);
    return whole.starts_with(told) || told.starts_with(whole);
}

std::uint64_t refused_size(const Fault& fault) {
    constexpr std::string_view kBefore = "message size ";
    if (fault.name != "406") return 0;
    const std::size_t start = fault.text.find(kBefore);
    if (start == std::string::npos || fault.text.find("larger than") == std::string::npos) return 0;
    const char* digits = fault.text.data() + start + kBefore.size();
    std::uint64_t size = 0;
    std::from_chars(digits, fault.text.data() + fault.text.size(), size);
    return size;
}

}  // namespace outbox::rabbitmq
