#include "brokers/mqtt/errors.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/utf8.h"

namespace outbox::mqtt {
namespace {

using enum ErrorCode;
constexpr Advice kDown = Advice::kRetryDestination;
constexpr Advice kDead = Advice::kDeadLetter;

struct Row {
    std::string_view name;
    std::string_view meaning;  // of a reason code (MQTT 5.0, 2.4)
    ErrorCode code;
    Advice advice;
    std::string_view remedy;
};

constexpr std::string_view kReach = "check that the broker runs and that host and port are right";

constexpr std::array kTable = {
    Row{"0x10", "no matching subscribers", kTopicUnknown, kDown,
        "nobody subscribes to the topic: subscribe, or set mqtt.require_subscriber to false for "
        "events that need not arrive"},
    Row{"0x82", "protocol error", kUnsupported, kDown, "the broker has to speak MQTT 5"},
    Row{"0x84", "unsupported protocol version", kUnsupported, kDown,
        "the broker has to speak MQTT 5"},
    Row{"0x86", "bad user name or password", kAuthFailed, kDown, "check user and password"},
    Row{"0x87", "not authorized", kNoRights, kDown,
        "the user needs the right to publish to the topic"},
    Row{"REFUSED", "", kAuthFailed, kDown,
        "check user and password, and that the user may connect"},
    Row{"0x88", "server unavailable", kSinkUnavailable, kDown, "see the broker's log"},
    Row{"0x89", "server busy", kSinkUnavailable, kDown, "see the broker's log"},
    Row{"0x8B", "server shutting down", kSinkUnavailable, kDown, kReach},
    Row{"0x8C", "bad authentication method", kAuthFailed, kDown, "check user and password"},
    Row{"0x8E", "session taken over", kSinkUnavailable, kDown, "see the broker's log"},
    Row{"0x90", "topic name invalid", kTopicInvalid, kDead, "use another topic"},
    Row{"0x95", "packet too large", kPayloadTooLarge, kDead,
        "raise the broker's limit (mosquitto: message_size_limit), or make the event smaller"},
    Row{"0x97", "quota exceeded", kSinkUnavailable, kDown, "raise the broker's limits"},
    Row{"0x99", "payload format invalid", kRecordRefused, kDead, "see the broker's log"},
    Row{"0x9A", "retain not supported", kUnsupported, kDown, "set mqtt.retain to false"},
    Row{"0x9B", "QoS not supported", kUnsupported, kDown,
        "the broker has to take messages of QoS 1"},
    Row{"TOO LARGE", "", kPayloadTooLarge, kDead,
        "raise the broker's limit (mosquitto: max_packet_size), or make the event smaller"},
    Row{"SILENT", "", kSinkTimeout, kDown, "the broker or the network hangs"},
    Row{"RESOLVE", "", kConnectFailed, kDown, "check the broker's host name"},
    Row{"CONNECT", "", kConnectFailed, kDown, kReach},
    Row{"TLS", "", kConnectFailed, kDown,
        "check mqtt.ca_file, that the certificate names the host, and that the port speaks TLS"},
    Row{"SETTING", "", kConfigInvalid, kDown, "check the file"},
    Row{"ENDED", "", kSinkUnavailable, kDown, kReach},
};
constexpr Row kOther{"", "", kSinkUnavailable, kDown, "see the broker's log"};

const Row& row_of(std::string_view name) {
    const auto* found = std::find_if(kTable.begin(), kTable.end(),
                                     [&](const Row& row) { return row.name == name; });
    return found == kTable.end() ? kOther : *found;
}

}  // namespace

Fault fault_of_code(std::uint8_t code, std::string_view said) {
    Fault fault{"0x00", {}};
    fault.name[2] = "0123456789ABCDEF"[code >> 4U];
    fault.name[3] = "0123456789ABCDEF"[code & 0xFU];
    fault.text = row_of(fault.name).meaning;
    if (fault.text.empty()) fault.text = "reason code " + fault.name;
    if (!said.empty()) fault.text += " (" + to_printable(said.substr(0, 200)) + ")";
    return fault;
}

Fault fault_of_socket(net::SocketFault fault) {
    return {std::string(net::word_of(fault.kind)), std::move(fault.text)};
}

ErrorInfo to_error(const Fault& fault, std::string_view what) {
    const Row& row = row_of(fault.name);
    return {row.code, row.advice, fault.name,
            std::string(what) + ": " + fault.text + "; " + std::string(row.remedy)};
}

}  // namespace outbox::mqtt
