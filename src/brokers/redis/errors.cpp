#include "brokers/redis/errors.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "core/utf8.h"

namespace outbox::redis {
namespace {

using enum ErrorCode;
constexpr Advice kDown = Advice::kRetryDestination;

struct Row {
    std::string_view name;
    ErrorCode code;
    Advice advice;
    std::string_view remedy;
};

constexpr std::string_view kReach = "check that Redis runs and that host and port are right";
constexpr std::string_view kCluster =
    "Redis Cluster is not supported: a batch goes to one server; use one that is no cluster";

constexpr std::array kTable = {
    Row{"NOAUTH", kAuthFailed, kDown, "the server wants a password: redis://user:password@host"},
    Row{"WRONGPASS", kAuthFailed, kDown, "check user and password"},
    Row{"NOPERM", kNoRights, kDown, "the docs of the Redis sink list the rights (ACL SETUSER)"},
    Row{"OOM", kSinkUnavailable, kDown,
        "raise maxmemory, or cut the streams (redis.max_len, XTRIM)"},
    Row{"READONLY", kSinkUnavailable, kDown,
        "this is a replica; name the primary, or all of them: redis://host1,host2"},
    Row{"MASTERDOWN", kSinkUnavailable, kDown, "this is a replica without its primary"},
    Row{"LOADING", kSinkUnavailable, kDown, "it has just started and loads its data"},
    Row{"BUSY", kSinkUnavailable, kDown, "somebody's script runs for too long (SCRIPT KILL)"},
    Row{"MISCONF", kSinkUnavailable, kDown,
        "it cannot save to its disk and takes no writes; see its log"},
    Row{"NOREPLICAS", kSinkUnavailable, kDown, "too few replicas (min-replicas-to-write)"},
    Row{"NOSCRIPT", kSinkRebuilt, kDown, "what was under way goes again"},
    Row{"FENCED", kSinkUnavailable, kDown,
        "another relay publishes under the same name: one that has just taken over, or one of "
        "another outbox, which needs a redis.producer of its own"},
    Row{"NOGROUP", kTopicUnknown, kDown, "make it: XGROUP CREATE stream group 0 MKSTREAM"},
    Row{"UNBLOCKED", kTopicUnknown, kDown, "the stream was removed, or is another type now"},
    Row{"WRONGTYPE", kTopicUnknown, kDown, "a key of this name is no stream: remove or rename it"},
    Row{"MOVED", kUnsupported, kDown, kCluster},
    Row{"ASK", kUnsupported, kDown, kCluster},
    Row{"CROSSSLOT", kUnsupported, kDown, kCluster},
    Row{"CLUSTERDOWN", kUnsupported, kDown, kCluster},
    Row{"SENTINEL", kUnsupported, kDown,
        "this is a Sentinel, which is not asked for the primary: name the servers themselves, all "
        "of them: redis://host1,host2"},
    Row{"DATABASE", kConfigInvalid, kDown, "check the number at the end of the URL"},
    Row{"TOO LARGE", kPayloadTooLarge, Advice::kDeadLetter,
        "raise proto-max-bulk-len, or make the event smaller"},
    Row{"SILENT", kSinkTimeout, kDown, "the server or the network hangs"},
    Row{"RESOLVE", kConnectFailed, kDown, "check the server's host name"},
    Row{"CONNECT", kConnectFailed, kDown, kReach},
    Row{"TLS", kConnectFailed, kDown,
        "check redis.ca_file, that the certificate names the host, and that the port speaks TLS"},
    Row{"SETTING", kConfigInvalid, kDown, "check the file"},
};
constexpr Row kOther{"", kSinkUnavailable, kDown, "see the server's log"};
constexpr Row kLost{"ENDED", kSinkUnavailable, kDown, kReach};

bool is_word(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return std::isupper(static_cast<unsigned char>(c)) != 0;
    });
}

const Row& row_of(const Fault& fault) {
    if (fault.name == kLost.name) return kLost;
    const auto* found = std::find_if(kTable.begin(), kTable.end(),
                                     [&](const Row& row) { return row.name == fault.name; });
    return found == kTable.end() ? kOther : *found;
}

}  // namespace

Fault fault_of_reply(std::string_view reply) {
    // Before Redis 7 the error of a command stands inside that of its script.
    if (const std::size_t inner = reply.rfind(" -"); inner != std::string_view::npos) {
        const std::string_view behind = reply.substr(inner + 2);
        if (is_word(behind.substr(0, behind.find(' ')))) reply = behind;
    }
    Fault fault{std::string(reply.substr(0, reply.find(' '))), to_printable(reply)};
    if (reply.find("invalid bulk length") != std::string_view::npos) fault.name = "TOO LARGE";
    if (reply.find("DB index is out of range") != std::string_view::npos) fault.name = "DATABASE";
    if (reply.find("requires the key to exist") != std::string_view::npos ||
        reply.find("no such key") != std::string_view::npos) {
        fault.name = "NOGROUP";
    }
    // Who waits is told so where the server becomes a replica, too.
    if (reply.find("instance state changed") != std::string_view::npos) fault.name = "READONLY";
    // A script's commands are refused with a sentence (Redis 6 and 7).
    if (reply.find("The user executing the script can't") != std::string_view::npos ||
        reply.find("can't run this command or subcommand") != std::string_view::npos ||
        reply.find("can't access at least one of the keys") != std::string_view::npos) {
        fault.name = "NOPERM";
    }
    if (reply.find("in a cluster node") != std::string_view::npos ||
        reply.find("hash to the same slot") != std::string_view::npos) {
        fault.name = "CROSSSLOT";
    }
    return fault;
}

Fault fault_of_socket(net::SocketFault fault) {
    return {std::string(net::word_of(fault.kind)), std::move(fault.text)};
}

ErrorInfo to_error(const Fault& fault, std::string_view what) {
    const Row& row = row_of(fault);
    return {row.code, row.advice, fault.name,
            std::string(what) + ": " + fault.text + "; " + std::string(row.remedy)};
}

bool is_replicas(const Fault& fault) {
    return fault.name == "READONLY" || fault.name == "MASTERDOWN";
}

}  // namespace outbox::redis
