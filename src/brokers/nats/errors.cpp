#include "brokers/nats/errors.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

#include "core/utf8.h"

namespace outbox::nats {
namespace {

using enum ErrorCode;
constexpr std::uint32_t kLastCodePoint = 0x10FFFF;
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

// What stands in quotes, as Go's %q writes it; empty: nothing does, or it is broken off.
std::string quoted_by_go(std::string_view text) {
    constexpr std::string_view kEscapes = "abfnrtv\\\"";
    constexpr std::string_view kMeant = "\a\b\f\n\r\t\v\\\"";
    const std::size_t open = text.find('"');
    if (open == std::string_view::npos) return {};
    std::string out;
    for (std::size_t i = open + 1; i < text.size(); ++i) {
        if (text[i] == '"') return out;
        if (text[i] != '\\') {
            out += text[i];
            continue;
        }
        if (++i == text.size()) return {};
        if (const auto at = kEscapes.find(text[i]); at != std::string_view::npos) {
            out += kMeant[at];
            continue;
        }
        const std::size_t digits = text[i] == 'x' ? 2 : text[i] == 'u' ? 4 : text[i] == 'U' ? 8 : 0;
        if (digits == 0 || text.size() - i <= digits) return {};
        std::uint32_t code = 0;
        const char* first = text.data() + i + 1;
        const auto read = std::from_chars(first, first + digits, code, 16);
        if (read.ec != std::errc() || read.ptr != first + digits || code > kLastCodePoint)
            return {};
        if (digits == 2) {
            out += static_cast<char>(code);  // a byte
        } else {
            append_utf8(code, out);
        }
        i += digits;
    }
    return {};
}

}  // namespace

// A subject may hold any of these words, so that what stands in quotes is not looked at.
Fault fault_of_error(std::string_view text) {
    const std::string_view said = text.substr(0, text.find('"'));
    const auto says = [said](std::string_view words) {
        return said.find(words) != std::string_view::npos;
    };
    if (says("Permissions Violation")) {
        return {"PERMISSIONS", to_printable(text), quoted_by_go(text)};
    }
    std::string name = "ERR";
    if (says("Authorization") || says("Authentication Timeout")) name = "AUTHORIZATION";
    if (says("Authentication Expired")) name = "EXPIRED";
    if (says("Maximum Payload")) name = "TOO LARGE";
    return {std::move(name), to_printable(text)};
}

Fault fault_of_socket(net::SocketFault fault) {
    return {std::string(net::word_of(fault.kind)), std::move(fault.text)};
}

ErrorInfo to_error(const Fault& fault, std::string_view what) {
    const Row& row = row_of(fault);
    return {row.code, row.advice, fault.name,
            std::string(what) + ": " + fault.text + "; " + std::string(row.remedy)};
}

}  // namespace outbox::nats
