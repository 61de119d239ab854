#include "aws/faults.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "aws/service.h"
#include "net/http_status.h"

namespace outbox::aws {
namespace {

using enum ErrorCode;
using enum Scope;
constexpr Advice kDown = Advice::kRetryDestination;
constexpr Advice kDead = Advice::kDeadLetter;

constexpr std::string_view kKey = "check the access key, or have it made anew";
constexpr std::string_view kNoKey =
    "set an access key: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
constexpr std::string_view kSecret = "check the secret of the access key, and $OPTIONregion";
constexpr std::string_view kToken = "get new temporary credentials; they are read again";
constexpr std::string_view kRights =
    "the docs of the $NAME sink list the rights; a policy of the $TOPIC may refuse them, too";
constexpr std::string_view kSlower =
    "$NAME limits requests: ask for a higher quota, or for high throughput of the FIFO $TOPIC; it "
    "goes on by itself";
constexpr std::string_view kClock = "set this machine's clock (NTP)";
constexpr std::string_view kBusy = "the service has a fault of its own; it goes on by itself";
constexpr std::string_view kReach = "check host, port and network";
constexpr std::string_view kAnother =
    "something else than $NAME answers there: check host and port";
constexpr std::string_view kReason = "$NAME does not take this message; its reason is above";

// "Common errors" of the services' references, and what happens on the way.
constexpr std::array kTable = {
    FaultRow{"AccessDenied", kNoRights, kDown, kTopic, kRights},
    FaultRow{"AccessDeniedException", kNoRights, kDown, kTopic, kRights},
    FaultRow{"NotAuthorized", kNoRights, kDown, kTopic, kRights},
    FaultRow{"RequestThrottled", kSinkUnavailable, kDown, kTopic, kSlower},
    FaultRow{"Throttling", kSinkUnavailable, kDown, kTopic, kSlower},
    FaultRow{"ThrottlingException", kSinkUnavailable, kDown, kTopic, kSlower},
    FaultRow{"RequestLimitExceeded", kSinkUnavailable, kDown, kTopic, kSlower},
    FaultRow{"InternalError", kSinkUnavailable, kDown, kTopic, kBusy},
    FaultRow{"InternalFailure", kSinkUnavailable, kDown, kTopic, kBusy},
    FaultRow{"UNNAMED", kSinkUnavailable, kDown, kTopic,
             "the answer does not say what became of it"},
    FaultRow{"MissingParameter", kRecordRefused, kDead, kRecord, kReason},
    FaultRow{"InvalidParameterValue", kRecordRefused, kDead, kRecord, kReason},

    FaultRow{"CLOCK", kAuthFailed, kDown, kService, kClock},
    FaultRow{"RequestExpired", kAuthFailed, kDown, kService, kClock},
    FaultRow{"RequestTimeTooSkewed", kAuthFailed, kDown, kService, kClock},
    FaultRow{"SignatureDoesNotMatch", kAuthFailed, kDown, kService, kSecret},
    FaultRow{"InvalidSignatureException", kAuthFailed, kDown, kService, kSecret},
    FaultRow{"IncompleteSignature", kAuthFailed, kDown, kService, kKey},
    FaultRow{"InvalidClientTokenId", kAuthFailed, kDown, kService, kKey},
    FaultRow{"UnrecognizedClientException", kAuthFailed, kDown, kService, kKey},
    FaultRow{"InvalidAccessKeyId", kAuthFailed, kDown, kService, kKey},
    FaultRow{"MissingAuthenticationToken", kAuthFailed, kDown, kService, kNoKey},
    FaultRow{"MissingAuthenticationTokenException", kAuthFailed, kDown, kService, kNoKey},
    FaultRow{"ExpiredToken", kAuthFailed, kDown, kService, kToken},
    FaultRow{"ExpiredTokenException", kAuthFailed, kDown, kService, kToken},
    FaultRow{"OptInRequired", kAuthFailed, kDown, kService, "the account does not use $NAME there"},
    FaultRow{"ServiceUnavailable", kSinkUnavailable, kDown, kService, kBusy},
    FaultRow{"NO SERVICE", kSinkUnavailable, kDown, kService, kAnother},
    FaultRow{"RESOLVE", kConnectFailed, kDown, kService,
             "check the host's name and the region in it"},
    FaultRow{"CONNECT", kConnectFailed, kDown, kService, kReach},
    FaultRow{"TLS", kConnectFailed, kDown, kService,
             "check $OPTIONca_file, that the certificate names the host, and that the server has "
             "TLS"},
    FaultRow{"SETTING", kConfigInvalid, kDown, kService, "check the file"},
    FaultRow{"LOCAL", kSinkUnavailable, kDown, kService,
             "this process has no memory or descriptor left: see its limits"},
    FaultRow{"NO CONNECTION", kSinkTimeout, kDown, kService,
             "others hold all connections there; it goes on by itself"},
    FaultRow{"TIMEOUT", kSinkTimeout, kDown, kService, "the service or the network hangs"},
    FaultRow{"TOO LARGE", kSinkUnavailable, kDown, kService, kAnother},
    FaultRow{"PROTOCOL", kSinkUnavailable, kDown, kService,
             "something else than $NAME answers there, or it wants TLS: check host and port"},
    FaultRow{"ENDED", kSinkUnavailable, kDown, kService, kReach},
};
constexpr FaultRow kOtherOurs{"", kRecordRefused, Advice::kRetryEvent, kRecord,
                              "see $NAME's reference"};
// It may be said of all that comes, and none of that is at fault.
constexpr FaultRow kOtherOfAll{"", kSinkUnavailable, kDown, kTopic,
                               "see $NAME's reference; it is tried again"};
constexpr FaultRow kOther{"", kSinkUnavailable, kDown, kTopic, kBusy};

const FaultRow& row_of(const Service& service, const Fault& fault) {
    for (const std::span<const FaultRow> table :
         {service.faults, std::span<const FaultRow>(kTable)}) {
        const auto found = std::find_if(table.begin(), table.end(), [&](const FaultRow& row) {
            return row.name == fault.name;
        });
        if (found != table.end()) return *found;
    }
    if (!fault.ours) return kOther;
    return fault.whole ? kOtherOfAll : kOtherOurs;
}

std::string named(std::string_view remedy, const Service& service) {
    const std::array<std::pair<std::string_view, std::string_view>, 3> names{
        {{"$NAME", service.product.name},
         {"$OPTION", service.product.prefix},
         {"$TOPIC", service.topic}}};
    std::string text(remedy);
    for (const auto& [mark, name] : names) {
        for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos;) {
            text.replace(at, mark.size(), name);
        }
    }
    return text;
}

}  // namespace

std::string fault_name_of(int http_status) {
    if (http_status == net::http_status::kTooManyRequests) return "Throttling";
    if (http_status == net::http_status::kContentTooLarge) return "TOO LONG";
    return is_servers(http_status) ? "ServiceUnavailable" : "NO SERVICE";
}

bool is_servers(int http_status) {
    return http_status >= net::http_status::kServersFault;
}

bool is_about_time(const Fault& fault) {
    if (fault.name == "RequestExpired" || fault.name == "RequestTimeTooSkewed") return true;
    // "Signature expired: 20261126T000000Z is now earlier than ...": else it is the key.
    return (fault.name == "SignatureDoesNotMatch" || fault.name == "InvalidSignatureException") &&
           (fault.text.starts_with("Signature expired") ||
            fault.text.starts_with("Signature not yet current"));
}

Scope scope_of(const Service& service, const Fault& fault) {
    return row_of(service, fault).scope;
}

ErrorInfo to_error(const Service& service, const Fault& fault, std::string_view what) {
    const FaultRow& row = row_of(service, fault);
    return {row.code, row.advice, fault.name,
            std::string(what) + ": " + fault.text + "; " + named(row.remedy, service)};
}

}  // namespace outbox::aws
