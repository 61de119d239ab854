#include "codec/formats.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "codec/cloud_events.h"
#include "codec/debezium/encoder.h"
#include "codec/raw.h"

namespace outbox::codec {
namespace {

Result<MakeEncoder> make_raw(const FormatSettings& /*settings*/) {
    return MakeEncoder([] { return std::make_unique<RawEncoder>(); });
}

// A payload that is kept elsewhere is the column's, so a value that is more than that would come
// to consumers in two shapes.
Status fit_claims(const debezium::Options& options) {
    const auto refused = [](const std::string& what, const std::string& remedy) {
        return Status(ErrorCode::kConfigInvalid, Advice::kStop,
                      "claim_check keeps the payload as it is stored, and debezium: " + what +
                          "; consumers would see large payloads in another shape than small ones. "
                          "Leave out claim_check, or " +
                          remedy);
    };
    if (options.has_envelope()) {
        return refused("table.fields.additional.placement puts columns beside it in an envelope",
                       "place those columns in headers");
    }
    const debezium::ConverterOptions& value = options.value_format;
    if (value.converter == debezium::Converter::kJson && !value.schemas && !options.expand) {
        return refused("value = json without schemas puts it in quotes",
                       "write value = \"simplestring\"");
    }
    return {};
}

// Else each event would be refused, one after another.
Status fit_headers(const debezium::Options& options, const FormatSettings& settings) {
    if (settings.why_not_header == nullptr) return {};
    for (const debezium::AdditionalField& field : options.additional) {
        if (field.placement != debezium::Placement::kHeader) continue;
        const auto why = settings.why_not_header(field.alias);
        if (!why) continue;
        return Status(ErrorCode::kConfigInvalid, Advice::kStop,
                      "table.fields.additional.placement = \"" + field.column +
                          ":header:" + field.alias + "\" under [route.debezium]: " + *why +
                          ", by a third part (COLUMN:header:ALIAS)");
    }
    return {};
}

// Wrong options are told when it is made; the columns once their table is known.
Result<MakeEncoder> make_debezium(const FormatSettings& settings) {
    constexpr std::string_view kPrefix = "debezium.";
    std::map<std::string, std::string> texts;
    for (const auto& [name, value] : settings.options) texts[name.substr(kPrefix.size())] = value;
    const auto options = debezium::parse_options(texts);
    if (!options.ok()) return options.status();
    const auto topics =
        debezium::TopicRouter::make(options->topic_regex, options->topic_replacement);
    if (!topics.ok()) return topics.status();
    if (Status fitting = settings.claims ? fit_claims(*options) : Status(); !fitting.ok()) {
        return fitting;
    }
    if (Status fitting = fit_headers(*options, settings); !fitting.ok()) return fitting;
    if (settings.shape == nullptr) return MakeEncoder();
    const auto first = debezium::DebeziumEncoder::make(*options, *settings.shape);
    if (!first.ok()) return first.status();
    return MakeEncoder([options = *options, shape = *settings.shape]() -> std::unique_ptr<Encoder> {
        return std::move(debezium::DebeziumEncoder::make(options, shape)).value();
    });
}

template <ContentMode kMode>
Result<MakeEncoder> make_cloud_events(const FormatSettings& settings) {
    auto config = make_cloud_events_config(settings, kMode);
    if (!config.ok()) return config.status();
    return MakeEncoder(
        [config = std::move(*config)] { return std::make_unique<CloudEventsEncoder>(config); });
}

constexpr std::string_view kCloudEvents = "cloudevents";

constexpr std::array kFormats{
    Format{.name = "raw",
           .help = "the payload as it is stored, all else in headers",
           .make = make_raw},
    Format{.name = kCloudEvents,
           .help = "CloudEvents 1.0 in binary mode: the payload as it is stored, attributes in "
                   "headers",
           .table = kCloudEvents,
           .options = "for `format` cloudevents and cloudevents-structured: `source` "
                      "(default `/outbox/` and the table), `type` (of events without), "
                      "`datacontenttype` (default: what the payload is), `dataschema_base` (what "
                      "`dataschema` begins with, default `outbox:`), such as "
                      "`source = \"/shop\"`; [Formats](../formats.md) says more",
           .example_option = "source = \"/shop\"",
           .make = make_cloud_events<ContentMode::kBinary>},
    Format{.name = "cloudevents-structured",
           .help = "CloudEvents 1.0 in structured mode: one JSON object with all of it",
           .table = kCloudEvents,
           .make = make_cloud_events<ContentMode::kStructured>},
    Format{.name = "debezium",
           .help = "what Debezium's outbox event router writes",
           .table = "debezium",
           .options = "options of Debezium's outbox event router, connector and converters under "
                      "their names, as `outbox import debezium FILE` prints them "
                      "(docs/debezium.md), for example "
                      "`\"route.topic.replacement\" = \"outbox.event.$${routedByValue}\"`",
           .example_option = "\"table.expand.json.payload\" = true",
           .make = make_debezium},
};

}  // namespace

std::span<const Format> formats() {
    return kFormats;
}

const Format* find_format(std::string_view name) {
    const auto* const found = std::find_if(kFormats.begin(), kFormats.end(),
                                           [&](const Format& f) { return f.name == name; });
    return found == kFormats.end() ? nullptr : found;
}

}  // namespace outbox::codec
