#include "schema/registry_errors.h"

#include <algorithm>
#include <array>

#include "core/redact.h"

namespace outbox::schema {
namespace {

using enum Concern;
using enum ErrorCode;

struct Row {
    std::string_view name;
    Concern concern;
    ErrorCode code;
    std::string_view remedy;
};

constexpr std::string_view kBusy = "it goes on by itself";
constexpr std::string_view kOther =
    "something else than a schema registry answers there: check schema_registry and its path";
constexpr std::string_view kReach = "check schema_registry and the network";

constexpr std::array kTable = {
    Row{"UNKNOWN", kSchema, kSchemaUnknown,
        "register it, or correct schema_id and schema_version of the events; then it goes on"},
    Row{"UNUSABLE", kSchema, kSchemaUnknown,
        "register a schema of draft 4, 6 or 7 as docs/schemas.md says, or take schema_registry out "
        "of the route"},
    Row{"TOO LARGE", kSchema, kSchemaUnknown, "register a smaller schema"},
    Row{"FORBIDDEN", kSchema, kNoRights, "give the user of schema_registry the right to read it"},

    Row{"OF SCHEMA", kSchema, kSchemaUnknown,
        "the registry answers otherwise: see its log for this one, and what stands before it"},

    Row{"REFUSED", kUnclear, kAuthFailed,
        "check user and password, or the token, in schema_registry, and what stands before it"},
    Row{"UNAUTHORIZED", kRegistry, kAuthFailed,
        "check user and password, or the token, in schema_registry"},
    Row{"CREDENTIALS", kRegistry, kAuthFailed, "check password_file in schema_registry"},
    Row{"REDIRECT", kUnclear, kSinkUnavailable,
        "redirects are not followed: write where the registry is as schema_registry"},
    Row{"NO REGISTRY", kUnclear, kSinkUnavailable, kOther},
    Row{"BUSY", kRegistry, kSinkUnavailable, kBusy},
    Row{"BROKEN", kUnclear, kSinkUnavailable, kBusy},
    Row{"STOPPED", kRegistry, kSinkUnavailable, "it goes again after the start"},

    Row{"RESOLVE", kRegistry, kConnectFailed, "check the host in schema_registry"},
    Row{"CONNECT", kRegistry, kConnectFailed, kReach},
    Row{"TLS", kRegistry, kConnectFailed,
        "check ca_file, that the certificate names the host, and that the server has TLS"},
    Row{"SETTING", kRegistry, kConfigInvalid, "check the file"},
    Row{"REQUEST", kRegistry, kConfigInvalid, "check schema_registry"},
    Row{"LOCAL", kRegistry, kSinkUnavailable,
        "this process has no memory or descriptor left: see its limits"},
    Row{"NO CONNECTION", kRegistry, kSinkTimeout,
        "others hold all connections there; it goes on by itself"},
    Row{"TIMEOUT", kRegistry, kSinkTimeout, "the registry or the network hangs"},
    Row{"PROTOCOL", kUnclear, kSinkUnavailable, kOther},
    Row{"ENDED", kUnclear, kSinkUnavailable, kReach},
};

const Row& row_of(std::string_view name) {
    const auto* found = std::find_if(kTable.begin(), kTable.end(),
                                     [&](const Row& row) { return row.name == name; });
    return found != kTable.end() ? *found : kTable.back();
}

}  // namespace

Concern concern_of(const RegistryFault& fault) {
    return row_of(fault.name).concern;
}

// Whatever it is, it can be mended without the event: it waits, and nothing is counted.
ErrorInfo to_error(const RegistryFault& fault, std::string_view what) {
    const Row& row = row_of(fault.name);
    const Advice advice = row.name == "REQUEST" ? Advice::kStop : Advice::kRetryDestination;
    return {row.code, advice, fault.name,
            std::string(what) + ": " + redacted_line(fault.text) + "; " + std::string(row.remedy)};
}

}  // namespace outbox::schema
