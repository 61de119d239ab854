#include "schema/registry_errors.h"

#include <algorithm>
#include <array>

#include "core/redact.h"

namespace outbox::schema {
namespace {

using enum ErrorCode;

struct Row {
    std::string_view name;
    bool of_schema;
    ErrorCode code;
    std::string_view remedy;
};

constexpr std::string_view kBusy = "it goes on by itself";
constexpr std::string_view kOther =
    "something else than a schema registry answers there: check schema_registry and its path";
constexpr std::string_view kReach = "check schema_registry and the network";

constexpr std::array kTable = {
    Row{"UNKNOWN", true, kSchemaUnknown,
        "register it, or correct schema_id and schema_version of the events; then it goes on"},
    Row{"UNUSABLE", true, kSchemaUnknown,
        "register a schema of draft 4, 6 or 7 as docs/schemas.md says, or take schema_registry out "
        "of the route"},
    Row{"TOO LARGE", true, kSchemaUnknown, "register a smaller schema"},
    Row{"FORBIDDEN", true, kNoRights, "give the user of schema_registry the right to read it"},

    Row{"UNAUTHORIZED", false, kAuthFailed,
        "check user and password, or the token, in schema_registry"},
    Row{"CREDENTIALS", false, kAuthFailed, "check password_file in schema_registry"},
    Row{"REDIRECT", false, kSinkUnavailable,
        "redirects are not followed: write where the registry is as schema_registry"},
    Row{"NO REGISTRY", false, kSinkUnavailable, kOther},
    Row{"BUSY", false, kSinkUnavailable, kBusy},
    Row{"BROKEN", false, kSinkUnavailable, kBusy},
    Row{"STOPPED", false, kSinkUnavailable, "it goes again after the start"},

    Row{"RESOLVE", false, kConnectFailed, "check the host in schema_registry"},
    Row{"CONNECT", false, kConnectFailed, kReach},
    Row{"TLS", false, kConnectFailed,
        "check ca_file, that the certificate names the host, and that the server has TLS"},
    Row{"SETTING", false, kConfigInvalid, "check the file"},
    Row{"REQUEST", false, kConfigInvalid, "check schema_registry"},
    Row{"LOCAL", false, kSinkUnavailable,
        "this process has no memory or descriptor left: see its limits"},
    Row{"NO CONNECTION", false, kSinkTimeout,
        "others hold all connections there; it goes on by itself"},
    Row{"TIMEOUT", false, kSinkTimeout, "the registry or the network hangs"},
    Row{"PROTOCOL", false, kSinkUnavailable, kOther},
    Row{"ENDED", false, kSinkUnavailable, kReach},
};

const Row& row_of(std::string_view name) {
    const auto* found = std::find_if(kTable.begin(), kTable.end(),
                                     [&](const Row& row) { return row.name == name; });
    return found != kTable.end() ? *found : kTable.back();
}

}  // namespace

bool is_of_schema(const RegistryFault& fault) {
    return row_of(fault.name).of_schema;
}

// Whatever it is, it can be mended without the event: it waits, and nothing is counted.
ErrorInfo to_error(const RegistryFault& fault, std::string_view what) {
    const Row& row = row_of(fault.name);
    const Advice advice = row.code == kConfigInvalid ? Advice::kStop : Advice::kRetryDestination;
    return {row.code, advice, fault.name,
            std::string(what) + ": " + redacted_line(fault.text) + "; " + std::string(row.remedy)};
}

}  // namespace outbox::schema
