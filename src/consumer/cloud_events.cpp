#include "consumer/cloud_events.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "consumer/debezium.h"
#include "consumer/message_time.h"
#include "consumer/queue/headers_json.h"
#include "core/ascii.h"
#include "core/base64.h"
#include "core/cloud_event.h"
#include "core/json_scan.h"
#include "core/url.h"
#include "core/utf8.h"

namespace outbox::consumer {
namespace {

namespace ce = cloud_event;

constexpr std::string_view kHttpPrefix = "ce-";  // whose values are percent-encoded
constexpr std::array<std::string_view, 4> kRequired = {"specversion", "id", "source", "type"};

// What format raw calls an attribute; others keep their names.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kRawNames{{
    {"time", "occurred_at"},
    {"aggregatetype", "aggregate_type"},
    {"tenantid", "tenant_id"},
    {"schemaid", "schema_id"},
    {"schemaversion", "schema_version"},
    {"datacontenttype", "content-type"},
}};

using Attributes = std::map<std::string, std::string, std::less<>>;

bool contains_text(std::string_view text, std::string_view part) {
    const auto same = [](char a, char b) { return lower(a) == lower(b); };
    return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

std::string_view header(const HeaderList& headers, std::string_view name) {
    const auto found = std::find_if(headers.rbegin(), headers.rend(),
                                    [&](const auto& header) { return header.first == name; });
    return found == headers.rend() ? std::string_view() : std::string_view(found->second);
}

bool has_header(const HeaderList& headers, std::string_view name) {
    return header(headers, name).data() != nullptr;
}

std::string_view content_type(const HeaderList& headers) {
    const auto found = std::find_if(headers.rbegin(), headers.rend(), [](const auto& header) {
        return lower(header.first) == "content-type";
    });
    return found == headers.rend() ? std::string_view() : std::string_view(found->second);
}

// Whether the value is an event in the JSON format, which is the one that Outbox reads.
bool is_structured(std::string_view media_type) {
    const std::string type = lower(media_type.substr(0, media_type.find(';')));
    return type.substr(0, type.find_last_not_of(" \t") + 1) == "application/cloudevents+json";
}

// HTTP binding, section 3.1.3.2; none: it is not UTF-8.
std::optional<std::string> from_http(std::string_view text) {
    std::string unquoted;
    if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
        text = text.substr(1, text.size() - 2);
        for (std::size_t i = 0; i < text.size(); ++i) {
            if (text[i] == '\\' && i + 1 < text.size()) ++i;
            unquoted += text[i];
        }
        text = unquoted;
    }
    std::string decoded = percent_decode(text);
    if (!is_utf8(decoded)) return std::nullopt;
    return decoded;
}

std::optional<std::string> unescaped(std::string_view json_string) {
    const auto parsed = nlohmann::json::parse(json_string, nullptr, false);
    if (!parsed.is_string()) return std::nullopt;
    return parsed.get<std::string>();
}

// Why these are not the attributes of a CloudEvent; empty: they are.
std::string fault_of(const Attributes& attributes) {
    for (const std::string_view name : kRequired) {
        const auto found = attributes.find(name);
        if (found == attributes.end() || found->second.empty()) {
            return "has no attribute " + std::string(name);
        }
    }
    const std::string& version = attributes.find("specversion")->second;
    if (!version.starts_with("1.")) {
        return "is of version " + to_printable(version.substr(0, 20)) +
               " of CloudEvents, not of 1.0";
    }
    return {};
}

// The attributes that headers of this prefix are.
std::optional<Attributes> attributes_of(const HeaderList& headers, std::string_view prefix) {
    Attributes out;
    const std::string begin = lower(prefix);
    for (const auto& [name, value] : headers) {
        const std::string text = lower(name);
        if (!text.starts_with(begin)) continue;
        const std::string attribute = text.substr(prefix.size());
        if (!ce::is_attribute_name(attribute)) continue;
        if (prefix != kHttpPrefix) {
            out[attribute] = value;
        } else if (auto decoded = from_http(value)) {
            out[attribute] = *std::move(decoded);
        } else {
            return std::nullopt;
        }
    }
    return out;
}

bool is_attribute_header(std::string_view name) {
    const std::string text = lower(name);
    return std::any_of(ce::kPrefixes.begin(), ce::kPrefixes.end(),
                       [&](std::string_view prefix) { return text.starts_with(lower(prefix)); });
}

// Attributes under the names of format raw, then the headers that are none. An attribute goes
// before a header of its name.
Translated translate(Attributes attributes, const HeaderList& headers) {
    Translated out;
    out.id = std::move(attributes["id"]);
    attributes.erase("id");
    std::map<std::string, std::string, std::less<>> named;
    for (const auto& [name, value] : headers) {
        if (is_attribute_header(name) || name == "id") continue;
        const bool is_type = lower(name) == "content-type";
        if (is_type && ce::is_event_type(value)) continue;
        named[is_type ? "content-type" : name] = value;
    }
    for (auto& [name, value] : attributes) {
        const auto* const raw = std::find_if(kRawNames.begin(), kRawNames.end(),
                                             [&](const auto& pair) { return pair.first == name; });
        if (name == "time") value = in_utc_text(value);
        named[raw == kRawNames.end() ? name : std::string(raw->second)] = std::move(value);
    }
    HeadersJson json;
    for (const auto& [name, value] : named) json.add(name, value);
    out.headers = std::move(json).text();
    return out;
}

// A member of the JSON format, as text; none: it is unset, or of no type that an attribute has.
std::optional<std::string> attribute_text(std::string_view json) {
    if (json.front() == '"') return unescaped(json);
    if (json.front() == '{' || json.front() == '[' || json == "null") return std::nullopt;
    return std::string(json);
}

// What is in the value in structured mode.
struct Envelope {
    Attributes attributes;
    std::optional<std::string> data;         // JSON text
    std::optional<std::string> data_base64;  // JSON text
    std::string fault;
};

Envelope open_envelope(std::string_view value) {
    Envelope out;
    std::map<std::string, bool, std::less<>> seen;
    const bool whole =
        for_each_json_member(value, [&](std::string_view name, std::string_view json) {
            const auto plain = unescaped(name);
            if (!plain || !seen.emplace(*plain, true).second) {
                out.fault = "has a member twice, or one whose name is no text";
            } else if (*plain == "data") {
                out.data = std::string(json);
            } else if (*plain == "data_base64") {
                if (json != "null") out.data_base64 = std::string(json);
            } else if (!ce::is_attribute_name(*plain)) {
                // As in binary mode: what is none is not there. A `claim-check` is a header's
                // alone.
            } else if (auto text = attribute_text(json)) {
                out.attributes[*plain] = *std::move(text);
            } else if (json != "null") {
                out.fault = "has an attribute that is no text, number or boolean";
            }
        });
    if (!whole) out.fault = "is no JSON object";
    return out;
}

// The payload as it was stored; `fault` where there cannot be one.
std::optional<std::string> data_of(const Envelope& envelope, std::string& fault) {
    if (envelope.data && envelope.data_base64) {
        fault = "has both data and data_base64";
        return std::nullopt;
    }
    if (envelope.data_base64) {
        const auto text = unescaped(*envelope.data_base64);
        auto bytes = text ? base64_decode(*text) : std::nullopt;
        if (!bytes) fault = "has a data_base64 that is not Base64";
        return bytes;
    }
    if (!envelope.data) return std::nullopt;
    const auto type = envelope.attributes.find("datacontenttype");
    if (type == envelope.attributes.end() || ce::is_json_type(type->second)) return envelope.data;
    auto text = unescaped(*envelope.data);
    if (!text) fault = "has data that is no text, of a media type that is not JSON";
    return text;
}

MessageReading read_structured(const HeaderList& headers, std::string_view payload) {
    MessageReading out;
    Envelope envelope = open_envelope(payload);
    out.fault = std::move(envelope.fault);
    if (out.fault.empty()) out.fault = fault_of(envelope.attributes);
    std::optional<std::string> data;
    if (out.fault.empty()) data = data_of(envelope, out.fault);
    if (!out.fault.empty()) return out;
    out.event = translate(std::move(envelope.attributes), headers);
    out.event->in_value = true;
    out.event->payload = std::move(data);
    return out;
}

MessageReading read_binary(const HeaderList& headers) {
    MessageReading out;
    for (const std::string_view prefix : ce::kPrefixes) {
        auto attributes = attributes_of(headers, prefix);
        if (!attributes) {
            out.fault = "has an attribute that is not UTF-8";
            continue;
        }
        if (!fault_of(*attributes).empty()) continue;
        return {translate(*std::move(attributes), headers), {}};
    }
    return out;
}

}  // namespace

MessageReading read_message(MessageFormat format, std::string_view known_id,
                            const HeaderList& headers, std::string_view payload) {
    const bool automatic = format == MessageFormat::kAuto;
    const bool sure = format == MessageFormat::kDebezium;
    if (automatic || sure) {
        if (auto event = read_debezium(sure, known_id, headers, payload)) return {event, {}};
    }
    if (!automatic && format != MessageFormat::kCloudEvents) return {};
    if (automatic && has_header(headers, "id")) return {};
    MessageReading out = is_structured(content_type(headers)) ? read_structured(headers, payload)
                                                              : read_binary(headers);
    if (automatic && !known_id.empty()) {
        // The id that everybody else knows it by is not for a header to change.
        if (!out.event || out.event->id != known_id) return {};
    } else if (!automatic && !out.event && out.fault.empty()) {
        out.fault =
            "has no attributes of a CloudEvent, and the consumer reads nothing else; write "
            "them, or set its format to kAuto";
    }
    return out;
}

MessageReading read_message(MessageFormat format, std::string_view known_id,
                            std::string_view headers, std::string_view payload) {
    const bool looks = headers.find("specversion") != std::string_view::npos ||
                       headers.find(R"("{\"schema\":)") != std::string_view::npos ||
                       contains_text(headers, ce::kEventType);
    if (format == MessageFormat::kRaw || (format == MessageFormat::kAuto && !looks)) return {};
    const auto parsed = nlohmann::ordered_json::parse(headers, nullptr, false);
    HeaderList list;
    if (parsed.is_object()) {
        for (const auto& [name, value] : parsed.items()) {
            if (value.is_string()) list.emplace_back(name, value.get<std::string>());
        }
    }
    return read_message(format, known_id, list, payload);
}

}  // namespace outbox::consumer
