#include "claim/s3_errors.h"

#include <algorithm>
#include <array>

#include "net/http_status.h"

namespace outbox::claim {
namespace {

using enum ErrorCode;
constexpr Advice kDown = Advice::kRetryDestination;
constexpr Advice kDead = Advice::kDeadLetter;

struct Row {
    std::string_view name;
    ErrorCode code;
    Advice advice;
    std::string_view remedy;
};

constexpr std::string_view kKey = "check the access key, or have it made anew";
constexpr std::string_view kToken = "get new temporary credentials; they are read again";
constexpr std::string_view kBusy = "it goes on by itself";
constexpr std::string_view kClock = "set this machine's clock (NTP)";
constexpr std::string_view kOther = "something else than S3 answers there: check the endpoint";
constexpr std::string_view kReach = "check endpoint and network";
constexpr std::string_view kRegion = "set region in the store's URL to that of the bucket";

// "Error responses" of the service's API reference.
constexpr std::array kTable = {
    Row{"NoSuchKey", kObjectGone, kDead,
        "it was removed before the message was handled: keep payloads longer than topics and dead "
        "letters keep messages"},
    Row{"EntityTooLarge", kPayloadTooLarge, kDead, "the store takes no object as large"},
    Row{"MaxMessageLengthExceeded", kPayloadTooLarge, kDead, "the store takes no object as large"},
    Row{"InvalidObjectState", kObjectGone, kDead,
        "it is in an archive: restore it, then retry the dead letter"},

    Row{"NoSuchBucket", kSinkUnavailable, kDown, "make the bucket, or correct its name"},
    Row{"AccessDenied", kNoRights, kDown,
        "relays need s3:PutObject (and s3:GetObject for --check), consumers s3:GetObject, and "
        "s3:ListBucket so that a missing object is told from a forbidden one"},
    Row{"AllAccessDisabled", kNoRights, kDown, "the account or the bucket is disabled"},
    Row{"AccountProblem", kNoRights, kDown, "the account or the bucket is disabled"},
    Row{"InvalidAccessKeyId", kAuthFailed, kDown, kKey},
    Row{"SignatureDoesNotMatch", kAuthFailed, kDown, "check the secret of the access key"},
    Row{"InvalidSecurity", kAuthFailed, kDown, kKey},
    Row{"ExpiredToken", kAuthFailed, kDown, kToken},
    Row{"TokenRefreshRequired", kAuthFailed, kDown, kToken},
    Row{"InvalidToken", kAuthFailed, kDown, kToken},
    Row{"AuthorizationHeaderMalformed", kAuthFailed, kDown, kRegion},
    Row{"AuthorizationQueryParametersError", kAuthFailed, kDown, kRegion},
    Row{"PermanentRedirect", kSinkUnavailable, kDown, kRegion},
    Row{"TemporaryRedirect", kSinkUnavailable, kDown, kRegion},
    Row{"RequestTimeTooSkewed", kAuthFailed, kDown, kClock},
    Row{"RequestTimeout", kSinkUnavailable, kDown, kBusy},
    Row{"SlowDown", kSinkUnavailable, kDown, kBusy},
    Row{"OperationAborted", kSinkUnavailable, kDown, kBusy},
    Row{"InternalError", kSinkUnavailable, kDown, kBusy},
    Row{"ServiceUnavailable", kSinkUnavailable, kDown, kBusy},
    Row{"NotImplemented", kUnsupported, kDown, kOther},
    Row{"NO S3", kSinkUnavailable, kDown, kOther},
    Row{"PROXY LIMIT", kSinkUnavailable, kDown,
        "something before S3 takes no body as large: raise its limit (nginx: "
        "client_max_body_size)"},
    Row{"STOPPED", kSinkUnavailable, kDown, "it goes again after the start"},

    Row{"RESOLVE", kConnectFailed, kDown, "check the endpoint's host, or region and bucket"},
    Row{"CONNECT", kConnectFailed, kDown, kReach},
    Row{"TLS", kConnectFailed, kDown,
        "check ca_file, that the certificate names the host, and that the server has TLS"},
    Row{"SETTING", kConfigInvalid, kDown, "check the file"},
    Row{"REQUEST", kConfigInvalid, Advice::kStop, "check the store's URL"},
    Row{"LOCAL", kSinkUnavailable, kDown,
        "this process has no memory or descriptor left: see its limits"},
    Row{"NO CONNECTION", kSinkTimeout, kDown,
        "others hold all connections there; it goes on by itself"},
    Row{"TIMEOUT", kSinkTimeout, kDown, "the service or the network hangs"},
    Row{"PROTOCOL", kSinkUnavailable, kDown, kOther},
    Row{"ENDED", kSinkUnavailable, kDown, kReach},
};
// Of one object or of all, as far as anybody knows: a key of the bucket that is disabled has a word
// of its own, too, and all payloads would be given up.
constexpr Row kOther4xx{"", kSinkUnavailable, kDown, "see the reference of S3"};
constexpr Row kOfService{"", kSinkUnavailable, kDown, kBusy};

const Row& row_of(const S3Fault& fault) {
    const auto* found = std::find_if(kTable.begin(), kTable.end(),
                                     [&](const Row& row) { return row.name == fault.name; });
    if (found != kTable.end()) return *found;
    return fault.status >= net::http_status::kServersFault ? kOfService : kOther4xx;
}

}  // namespace

S3Fault fault_of_http(const net::HttpFault& fault) {
    return {std::string(net::word_of(fault.kind)), fault.text, 0};
}

ErrorInfo to_error(const S3Fault& fault, std::string_view what) {
    const Row& row = row_of(fault);
    return {row.code, row.advice, fault.name,
            std::string(what) + ": " + fault.text + "; " + std::string(row.remedy)};
}

}  // namespace outbox::claim
