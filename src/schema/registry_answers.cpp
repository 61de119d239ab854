#include "schema/registry_answers.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "core/redact.h"
#include "net/http_status.h"
#include "schema/json_document.h"
#include "schema/shown.h"

namespace outbox::schema {
namespace {

using Kind = JsonValue::Kind;

constexpr std::size_t kMostText = 300;
constexpr int kRedirect = 3;

bool is_html(std::string_view body) {
    const std::size_t begin = body.find_first_not_of(" \t\r\n");
    return begin != std::string_view::npos && body[begin] == '<';
}

template <typename Number>
std::optional<Number> number(const JsonValue* value) {
    Number found{};
    if (value == nullptr || !value->is(Kind::kNumber)) return std::nullopt;
    const char* const first = value->text().data();
    const char* const end = first + value->text().size();
    const auto [last, error] = std::from_chars(first, end, found);
    if (error != std::errc() || last != end) return std::nullopt;
    return found;
}

std::optional<std::string_view> text(const JsonValue* value) {
    if (value == nullptr || !value->is(Kind::kString)) return std::nullopt;
    return value->text();
}

// By the numbers of errors that the API has.
std::string name_of_error(int status, std::optional<int> code) {
    constexpr int kNoSubject = 40401;
    constexpr int kNoVersion = 40402;
    constexpr int kNoSchema = 40403;
    constexpr int kSubjectDeleted = 40404;
    constexpr int kVersionDeleted = 40406;
    constexpr int kBadVersion = 42202;
    if (code == kNoSubject || code == kNoVersion || code == kNoSchema || code == kSubjectDeleted ||
        code == kVersionDeleted || code == kBadVersion) {
        return "UNKNOWN";
    }
    if (status == net::http_status::kUnauthorized) return "UNAUTHORIZED";
    if (status == net::http_status::kForbidden) return code ? "FORBIDDEN" : "REFUSED";
    if (status == net::http_status::kTooManyRequests) return "BUSY";
    if (status >= net::http_status::kServersFault) return "BROKEN";
    return "NO REGISTRY";
}

// Why an answer to anything is none of a registry; an empty name: it may be one.
RegistryFault read_fault(int status, std::string_view location, std::string_view body) {
    if (status / 100 == kRedirect) {
        return {"REDIRECT",
                "HTTP status " + std::to_string(status) + ", which leads to " +
                    (location.empty() ? "nowhere" : shown(redact(location), kMostText)),
                status};
    }
    std::string why;
    const auto answer = JsonDocument::read(body, why);
    if (status == net::http_status::kOk && answer) return {};
    std::string said = "HTTP status " + std::to_string(status);
    if (!answer && is_html(body)) said += " with HTML, as of a proxy or a login page";
    if (!answer && !is_html(body)) said += body.empty() ? " and nothing more" : " and no JSON";
    std::optional<int> code;
    if (answer) {
        code = number<int>(answer->root().find("error_code"));
        const auto message = text(answer->root().find("message"));
        // Before it is cut: half of a secret would be known for one no longer.
        if (message) said += ": " + shown(redact(*message), kMostText);
    }
    return {name_of_error(status, code), std::move(said), status};
}

}  // namespace

RegistryFault read_types(int status, std::string_view location, std::string_view body) {
    if (RegistryFault fault = read_fault(status, location, body); !fault.name.empty()) return fault;
    std::string why;
    const auto answer = JsonDocument::read(body, why);
    const auto types = answer->root().items();
    const bool are_types =
        !types.empty() && std::all_of(types.begin(), types.end(),
                                      [](const JsonValue& one) { return one.is(Kind::kString); });
    if (are_types) return {};
    return {"NO REGISTRY", "no list of types in answer to GET /schemas/types", status};
}

std::variant<Registered, RegistryFault> read_registered(int status, std::string_view location,
                                                        std::string_view body) {
    if (RegistryFault fault = read_fault(status, location, body); !fault.name.empty()) {
        return fault;
    }
    std::string why;
    const auto answer = JsonDocument::read(body, why);
    const JsonValue& root = answer->root();
    const auto id = number<std::uint32_t>(root.find("id"));
    const auto schema = text(root.find("schema"));
    if (!id || !schema) {
        return RegistryFault{"NO REGISTRY", "an answer without id and schema", status};
    }
    Registered found{.id = *id, .text = std::string(*schema)};
    if (const auto type = text(root.find("schemaType"))) found.type = shown(*type, kMostText);
    const JsonValue* references = root.find("references");
    if (references == nullptr) return found;
    for (const JsonValue& one : references->items()) {
        const auto name = text(one.find("name"));
        const auto subject = text(one.find("subject"));
        const auto version = number<std::int64_t>(one.find("version"));
        if (!name || !subject || !version) {
            return RegistryFault{"NO REGISTRY", "a reference without name, subject and version",
                                 status};
        }
        found.references.push_back(
            {std::string(*name), std::string(*subject), std::to_string(*version)});
    }
    return found;
}

}  // namespace outbox::schema
