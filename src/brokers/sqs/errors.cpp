#include "brokers/sqs/errors.h"

#include <array>

namespace outbox::sqs {
namespace {

using aws::FaultRow;
using enum ErrorCode;
using enum aws::Scope;
constexpr Advice kDown = Advice::kRetryDestination;
constexpr Advice kDead = Advice::kDeadLetter;

constexpr std::string_view kSlower =
    "SQS limits requests: ask for a higher quota, or for high throughput of the FIFO queue; it "
    "goes on by itself";
constexpr std::string_view kKms = "check the key of KMS that the queue is encrypted with";
constexpr std::string_view kSmaller =
    "make the event smaller (put the payload elsewhere and send where it is), or raise "
    "MaximumMessageSize of the queue, up to 1 MiB";

// "SendMessageBatch" of the service's reference.
constexpr std::array kTable = {
    FaultRow{"QueueDoesNotExist", kTopicUnknown, kDown, kTopic,
             "make the queue (aws sqs create-queue), or set sqs.account where it is another's"},
    FaultRow{"QueueDeletedRecently", kTopicUnknown, kDown, kTopic,
             "it may be made again after a minute"},
    FaultRow{"InvalidAddress", kTopicUnknown, kDown, kTopic,
             "the topic is the URL of no queue; name the queue alone"},
    FaultRow{"InvalidSecurity", kNoRights, kDown, kTopic, "the queue wants TLS: use sqs://"},
    FaultRow{"OverLimit", kSinkUnavailable, kDown, kTopic, kSlower},
    FaultRow{"KmsThrottled", kSinkUnavailable, kDown, kTopic, kSlower},
    FaultRow{"KmsAccessDenied", kNoRights, kDown, kTopic, kKms},
    FaultRow{"KmsDisabled", kSinkUnavailable, kDown, kTopic, kKms},
    FaultRow{"KmsInvalidKeyUsage", kSinkUnavailable, kDown, kTopic, kKms},
    FaultRow{"KmsInvalidState", kSinkUnavailable, kDown, kTopic, kKms},
    FaultRow{"KmsNotFound", kSinkUnavailable, kDown, kTopic, kKms},
    FaultRow{"KmsOptInRequired", kSinkUnavailable, kDown, kTopic, kKms},
    FaultRow{"UnsupportedOperation", kUnsupported, kDown, kTopic,
             "the queue does not take messages like this: is it a FIFO queue, as its name says?"},

    FaultRow{"InvalidMessageContents", kRecordRefused, kDead, kRecord,
             "the message has characters that SQS does not take"},
    FaultRow{"InvalidAttributeValue", kRecordRefused, kDead, kRecord,
             "look at the event's headers"},
    FaultRow{"BatchRequestTooLong", kPayloadTooLarge, kDead, kRecord, kSmaller},
    FaultRow{"MessageTooLong", kPayloadTooLarge, kDead, kRecord, kSmaller},
    FaultRow{"RequestEntityTooLargeException", kPayloadTooLarge, kDead, kRecord, kSmaller},
    FaultRow{"TOO LONG", kPayloadTooLarge, kDead, kRecord, kSmaller},
};

}  // namespace

std::span<const aws::FaultRow> faults() {
    return kTable;
}

}  // namespace outbox::sqs
