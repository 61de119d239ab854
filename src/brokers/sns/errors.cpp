#include "brokers/sns/errors.h"

#include <array>

namespace outbox::sns {
namespace {

using aws::FaultRow;
using enum ErrorCode;
using enum aws::Scope;
constexpr Advice kDown = Advice::kRetryDestination;
constexpr Advice kDead = Advice::kDeadLetter;

constexpr std::string_view kSlower =
    "SNS limits requests: ask for a higher quota, or for high throughput of the FIFO topic; it "
    "goes on by itself";
constexpr std::string_view kKms = "check the key of KMS that the topic is encrypted with";
constexpr std::string_view kSmaller =
    "make the event smaller (put the payload elsewhere and send where it is), or raise "
    "MaximumMessageSize of the topic, up to 1 MiB";
constexpr std::string_view kReason = "SNS does not take this message; its reason is above";

// "PublishBatch" of the service's reference.
constexpr std::array kTable = {
    FaultRow{"NotFound", kTopicUnknown, kDown, kTopic,
             "make the topic (aws sns create-topic), or set sns.account where it is another's"},
    FaultRow{"NO ARN", kTopicUnknown, kDown, kTopic,
             "the topic is the ARN of none there: check the region and the account in it"},
    FaultRow{"AuthorizationError", kNoRights, kDown, kTopic,
             "the docs of the SNS sink list the rights; a policy of the topic may refuse them, "
             "too"},
    FaultRow{"InvalidSecurity", kNoRights, kDown, kTopic, "the topic wants TLS: use sns://"},
    FaultRow{"Throttled", kSinkUnavailable, kDown, kTopic, kSlower},
    FaultRow{"KMSThrottling", kSinkUnavailable, kDown, kTopic, kSlower},
    FaultRow{"KMSAccessDenied", kNoRights, kDown, kTopic, kKms},
    FaultRow{"KMSDisabled", kSinkUnavailable, kDown, kTopic, kKms},
    FaultRow{"KMSInvalidState", kSinkUnavailable, kDown, kTopic, kKms},
    FaultRow{"KMSNotFound", kSinkUnavailable, kDown, kTopic, kKms},
    FaultRow{"KMSOptInRequired", kSinkUnavailable, kDown, kTopic, kKms},

    FaultRow{"InvalidParameter", kRecordRefused, kDead, kRecord, kReason},
    FaultRow{"ParameterValueInvalid", kRecordRefused, kDead, kRecord, kReason},
    FaultRow{"ValidationException", kRecordRefused, kDead, kRecord, kReason},
    FaultRow{"BatchRequestTooLong", kPayloadTooLarge, kDead, kRecord, kSmaller},
    FaultRow{"TOO LONG", kPayloadTooLarge, kDead, kRecord, kSmaller},
};

}  // namespace

std::span<const aws::FaultRow> faults() {
    return kTable;
}

}  // namespace outbox::sns
