#include "brokers/nats/errors.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/utf8.h"

namespace outbox::nats {
namespace {

using enum ErrorCode;
constexpr Advice kDown = Advice::kRetryDestination;

struct Row {
    std::string_view name;
    ErrorCode code;
    Advice advice;
    std::string_view remedy;
};

constexpr std::string_view kReach = "check that NATS runs and that host and port are right";
constexpr std::string_view kResources =
    "raise the limits of JetStream or of the account, or let the stream keep less";
constexpr std::string_view kNoJetStream =
    "JetStream is off there: set jetstream in the server's configuration and for the account";

// JetStream's numbers: server/errors.json of nats-server.
constexpr std::array kTable = {
    Row{"NO RESPONDERS", kTopicUnknown, kDown,
        "no stream has this subject: nats stream add, with the subject in --subjects"},
    Row{"10002", kSinkUnavailable, kDown, kResources},
    Row{"10008", kSinkUnavailable, kDown, "the cluster has no leader at the moment"},
    Row{"10009", kSinkUnavailable, kDown, "the cluster has no leader at the moment"},
    Row{"10014", kTopicUnknown, kDown, "make the consumer: nats consumer add, with --pull"},
    Row{"10023", kSinkUnavailable, kDown, kResources},
    Row{"10028", kSinkUnavailable, kDown, kResources},
    Row{"10035", kUnsupported, kDown, kNoJetStream},
    Row{"10039", kUnsupported, kDown, kNoJetStream},
    Row{"10047", kSinkUnavailable, kDown, kResources},
    Row{"10054", kPayloadTooLarge, Advice::kDeadLetter,
        "raise max_msg_size of the stream, or make the event smaller"},
    Row{"10059", kTopicUnknown, kDown, "make the stream: nats stream add"},
    Row{"10060", kTopicUnknown, kDown,
        "another stream has the subject than nats.stream says; change one of them"},
    Row{"10076", kUnsupported, kDown, kNoJetStream},
    Row{"10077", kSinkUnavailable, kDown,
        "the stream is full: raise its limits, or let it discard what is old"},
    Row{"10097", kPayloadTooLarge, Advice::kDeadLetter, "make the event's headers smaller"},
    Row{"10109", kSinkUnavailable, kDown, "the stream is sealed and takes nothing more"},
    Row{"10118", kSinkUnavailable, kDown, "too few of the stream's servers are there"},
    Row{"PERMISSIONS", kNoRights, kDown, "the docs of the NATS sink list the rights"},
    Row{"AUTHORIZATION", kAuthFailed, kDown, "check user, password, token or creds_file"},
    Row{"EXPIRED", kAuthFailed, kDown, "get new credentials"},
    Row{"CREDS", kAuthFailed, kDown,
        "check nats.password_file, or nats.creds_file, which is what `nsc generate creds` writes "
        "or "
        "the seed of an NKey"},
    Row{"TOO LARGE", kPayloadTooLarge, Advice::kDeadLetter,
        "raise max_payload of the server, or make the event smaller"},
    Row{"OLD", kUnsupported, kDown, "use NATS 2.9 or later"},
    Row{"NO TLS", kConnectFailed, kDown, "use nats:// or switch TLS on there"},
    Row{"TLS WANTED", kConnectFailed, kDown, "use tls:// in place of nats://"},
    Row{"SILENT", kSinkTimeout, kDown, "the server or the network hangs"},
    Row{"UNANSWERED", kSinkTimeout, kDown,
        "the server answers, but not for this message: no stream may have no_ack"},
    Row{"NO ACK", kUnsupported, kDown, "set no_ack of the stream to false"},
    Row{"ACK POLICY", kUnsupported, kDown, "make it anew with --ack explicit"},
    Row{"PUSH", kUnsupported, kDown, "make it anew with --pull"},
    Row{"GONE", kTopicUnknown, kDown, "it was removed, or has lost its leader"},
    Row{"ANEW", kTopicUnknown, kDown, "what was taken of the former one is told to nobody"},
    Row{"RESOLVE", kConnectFailed, kDown, "check the server's host name"},
    Row{"CONNECT", kConnectFailed, kDown, kReach},
    Row{"TLS", kConnectFailed, kDown,
        "check nats.ca_file, that the certificate names the host, and that the server has TLS"},
    Row{"SETTING", kConfigInvalid, kDown, "check the file"},
    Row{"ENDED", kSinkUnavailable, kDown, kReach},
};
constexpr Row kOther{"", kSinkUnavailable, kDown, "see the server's log"};

const Row& row_of(const Fault& fault) {
    const auto* found = std::find_if(kTable.begin(), kTable.end(),
                                     [&](const Row& row) { return row.name == fault.name; });
    return found == kTable.end() ? kOther : *found;
}

}  // namespace

Fault fault_of_error(std::string_view text) {
    const auto says = [text](std::string_view words) {
        return text.find(words) != std::string_view::npos;
    };
    std::string name = "ERR";
    if (says("Permissions Violation")) name = "PERMISSIONS";
    if (says("Authorization") || says("Authentication Timeout")) name = "AUTHORIZATION";
    if (says("Authentication Expired")) name = "EXPIRED";
    if (says("Maximum Payload")) name = "TOO LARGE";
    return {std::move(name), to_printable(text)};
}

Fault fault_of_socket(net::SocketFault fault) {
    return {std::string(net::word_of(fault.kind)), std::move(fault.text)};
}

std::string_view refused_subject(const Fault& fault) {
    if (fault.name != "PERMISSIONS") return {};
    const std::string_view text = fault.text;
    const std::size_t open = text.find('"');
    if (open == std::string_view::npos) return {};
    const std::size_t close = text.find('"', open + 1);
    if (close == std::string_view::npos) return {};
    return text.substr(open + 1, close - open - 1);
}

ErrorInfo to_error(const Fault& fault, std::string_view what) {
    const Row& row = row_of(fault);
    return {row.code, row.advice, fault.name,
            std::string(what) + ": " + fault.text + "; " + std::string(row.remedy)};
}

}  // namespace outbox::nats
