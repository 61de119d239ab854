#include "codec/debezium/options.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "codec/debezium/java_text.h"
#include "core/ascii.h"

namespace outbox::codec::debezium {
namespace {

ErrorInfo wrong(std::string_view name, std::string_view value, std::string_view right) {
    return {ErrorCode::kConfigInvalid,
            Advice::kStop,
            {},
            "debezium: " + std::string(name) + " = '" + std::string(value) +
                "': " + std::string(right)};
}

template <typename T>
struct Choice {
    std::string_view word;
    T value;
};

using Take = std::function<Status(Options&, std::string_view name, const std::string& value)>;

Take text(std::string Options::* member) {
    return [member](Options& out, std::string_view name, const std::string& value) -> Status {
        out.*member = java_trim(value);
        if (!(out.*member).empty()) return {};
        return wrong(name, value, "it is empty; leave the option out for Debezium's default");
    };
}

Take flag(bool Options::* member) {
    return [member](Options& out, std::string_view name, const std::string& value) -> Status {
        const std::string word = lower(java_trim(value));
        out.*member = word == "true";
        if (word == "true" || word == "false") return {};
        return wrong(name, value, "write true or false");
    };
}

template <typename T>
Take choice(T Options::* member, std::vector<Choice<T>> choices) {
    return [member, choices = std::move(choices)](Options& out, std::string_view name,
                                                  const std::string& value) -> Status {
        std::string known;
        for (const Choice<T>& one : choices) {
            if (one.word == lower(java_trim(value))) {
                out.*member = one.value;
                return {};
            }
            known += (known.empty() ? "" : ", ") + std::string(one.word);
        }
        return wrong(name, value, "there are " + known);
    };
}

std::string why_no_converter(std::string_view word, const char* known) {
    const std::string out = "there are " + std::string(known);
    if (word == "cloudevents") {
        return out +
               "; format = \"cloudevents-structured\" writes CloudEvents that are Outbox's "
               "own, which consumers would notice";
    }
    return out +
           "; records in Avro or Protobuf need a schema registry, which this format does not "
           "speak to";
}

Take converter(ConverterOptions Options::* member) {
    return [member](Options& out, std::string_view name, const std::string& value) -> Status {
        const std::string word = lower(java_trim(value));
        ConverterOptions& format = out.*member;
        if (word == "json" || word == "jsonbytearray") {
            format.converter = Converter::kJson;
        } else if (word == "simplestring") {
            format.converter = Converter::kString;
        } else if (word == "binary") {
            format.converter = Converter::kBinary;
        } else {
            return wrong(name, value, why_no_converter(word, "json, simplestring, binary"));
        }
        return {};
    };
}

Take header_converter(ConverterOptions Options::* member) {
    return [member](Options& out, std::string_view name, const std::string& value) -> Status {
        const std::string word = lower(java_trim(value));
        ConverterOptions& format = out.*member;
        if (word == "json" || word == "jsonbytearray") {
            format.converter = Converter::kJson;
        } else if (word == "simplestring") {
            format.converter = Converter::kSimpleHeader;
        } else if (word == "string") {
            format.converter = Converter::kString;
        } else {
            return wrong(name, value, why_no_converter(word, "json, simplestring, string"));
        }
        return {};
    };
}

Take schemas(ConverterOptions Options::* member) {
    return [member](Options& out, std::string_view name, const std::string& value) -> Status {
        const std::string word = lower(java_trim(value));
        (out.*member).schemas = word == "true";
        if (word == "true" || word == "false") return {};
        return wrong(name, value, "write true or false");
    };
}

Take decimal_format(ConverterOptions Options::* member) {
    return [member](Options& out, std::string_view name, const std::string& value) -> Status {
        const std::string word = lower(java_trim(value));
        (out.*member).decimal_as_text = word == "numeric";
        if (word == "numeric" || word == "base64") return {};
        return wrong(name, value, "there are base64, numeric");
    };
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    while (true) {
        const std::size_t at = text.find(separator);
        parts.emplace_back(java_trim(text.substr(0, at)));
        if (at == std::string_view::npos) return parts;
        text.remove_prefix(at + 1);
    }
}

Status take_additional(Options& out, std::string_view name, const std::string& value) {
    constexpr std::string_view kForm =
        "write COLUMN:PLACEMENT or COLUMN:PLACEMENT:ALIAS with commas between; placements are "
        "header, envelope and partition";
    out.additional.clear();
    for (const std::string& item : split(value, ',')) {
        std::vector<std::string> parts = split(item, ':');
        // As String.split of Java has it.
        while (!parts.empty() && parts.back().empty()) parts.pop_back();
        if (parts.size() < 2 || parts.size() > 3 || parts[0].empty()) {
            return wrong(name, item, kForm);
        }
        AdditionalField field{parts[0], Placement::kHeader, parts.back()};
        if (parts.size() == 2) field.alias = parts[0];
        const std::string placement = lower(java_trim(parts[1]));
        if (placement == "envelope") {
            field.placement = Placement::kEnvelope;
        } else if (placement == "partition") {
            field.placement = Placement::kPartition;
        } else if (placement != "header") {
            return wrong(name, item, kForm);
        }
        out.additional.push_back(std::move(field));
    }
    return {};
}

// The relay reads rows and sees no change of one, so that there is nothing to warn of.
Status take_behavior(Options& /*out*/, std::string_view name, const std::string& value) {
    const std::string word = lower(java_trim(value));
    if (word == "warn" || word == "error") return {};
    return wrong(name, value,
                 "there are warn and error, which change nothing here: the relay reads rows and "
                 "sees no update of one. For fatal let the table refuse updates by a trigger");
}

struct Spec {
    OptionText text;
    Take take;
};

const std::vector<Spec>& specs() {
    static const std::vector<Spec> all{
        {{"table.field.event.id", "column of the event's id (`id`)"}, text(&Options::id)},
        {{"table.field.event.key", "column of the record's key (`aggregateid`)"},
         text(&Options::key)},
        {{"table.field.event.type", "accepted: Debezium writes it only where it is placed"},
         [](Options&, std::string_view, const std::string&) { return Status(); }},
        {{"table.field.event.payload", "column of the payload (`payload`)"},
         text(&Options::payload)},
        {{"table.field.event.timestamp", "column of the record's timestamp; with `connect` only"},
         text(&Options::timestamp)},
        {{"table.field.event.schema.version", "column of the envelope's version"},
         text(&Options::schema_version)},
        {{"table.fields.additional.placement",
          "`COLUMN:PLACEMENT[:ALIAS]`, with commas between; placements: header, envelope, "
          "partition (with `connect` only)"},
         take_additional},
        {{"table.fields.additional.error.on.missing",
          "whether a column that the table does not have is an error (`true`)"},
         flag(&Options::error_on_missing)},
        {{"table.op.invalid.behavior", "`warn` or `error`; changes nothing"}, take_behavior},
        {{"table.expand.json.payload", "whether a JSON payload becomes a structure (`false`)"},
         flag(&Options::expand)},
        {{"table.json.payload.null.behavior", "`ignore` or `optional_bytes`, of its nulls"},
         choice<bool>(&Options::keep_nulls, {{"ignore", false}, {"optional_bytes", true}})},
        {{"route.by.field", "column that the topic is made of (`aggregatetype`)"},
         text(&Options::route_by)},
        {{"route.topic.regex", "what of that is captured (`(?<routedByValue>.*)`)"},
         text(&Options::topic_regex)},
        {{"route.topic.replacement", "the topic (`outbox.event.${routedByValue}`)"},
         text(&Options::topic_replacement)},
        {{"route.tombstone.on.empty.payload",
          "whether an empty payload becomes a null value (`false`)"},
         flag(&Options::tombstones)},
        {{"key", "converter of the key: `json`, `simplestring` or `binary`"},
         converter(&Options::key_format)},
        {{"value", "converter of the value: `json`, `simplestring` or `binary`"},
         converter(&Options::value_format)},
        {{"header",
          "converter of the headers: `json`, or of Kafka Connect `simplestring` (its own, "
          "SimpleHeaderConverter) or `string` (StringConverter)"},
         header_converter(&Options::header_format)},
        {{"key.schemas.enable", "whether JSON has its schema beside it (`true`)"},
         schemas(&Options::key_format)},
        {{"value.schemas.enable", "likewise"}, schemas(&Options::value_format)},
        {{"header.schemas.enable", "likewise"}, schemas(&Options::header_format)},
        {{"key.decimal.format", "`base64` or `numeric`"}, decimal_format(&Options::key_format)},
        {{"value.decimal.format", "likewise"}, decimal_format(&Options::value_format)},
        {{"header.decimal.format", "likewise"}, decimal_format(&Options::header_format)},
        {{"topic.prefix", "the connector's, a part of the envelope's name"},
         text(&Options::topic_prefix)},
        {{"decimal.handling.mode", "`precise`, `double` or `string`"},
         choice<DecimalMode>(&Options::decimals, {{"precise", DecimalMode::kPrecise},
                                                  {"double", DecimalMode::kDouble},
                                                  {"string", DecimalMode::kString}})},
        {{"time.precision.mode", "`adaptive`, `adaptive_time_microseconds` or `connect`"},
         choice<TimeMode>(&Options::times,
                          {{"adaptive", TimeMode::kAdaptive},
                           {"adaptive_time_microseconds", TimeMode::kAdaptiveMicroseconds},
                           {"connect", TimeMode::kConnect}})},
        {{"binary.handling.mode", "`bytes`, `base64`, `base64-url-safe` or `hex`"},
         choice<BinaryMode>(&Options::binaries, {{"bytes", BinaryMode::kBytes},
                                                 {"base64", BinaryMode::kBase64},
                                                 {"base64-url-safe", BinaryMode::kBase64Url},
                                                 {"hex", BinaryMode::kHex}})},
        {{"connect", "whether partition and timestamp are set, as under Kafka Connect (`false`)"},
         flag(&Options::connect)},
    };
    return all;
}

}  // namespace

bool Options::has_envelope() const {
    return std::any_of(additional.begin(), additional.end(), [](const AdditionalField& field) {
        return field.placement == Placement::kEnvelope;
    });
}

const std::vector<OptionText>& option_texts() {
    static const std::vector<OptionText> all = [] {
        std::vector<OptionText> texts;
        for (const Spec& spec : specs()) texts.push_back(spec.text);
        return texts;
    }();
    return all;
}

Result<Options> parse_options(const std::map<std::string, std::string>& texts) {
    Options out;
    for (const auto& [name, value] : texts) {
        const auto spec = std::find_if(specs().begin(), specs().end(),
                                       [&](const Spec& one) { return one.text.name == name; });
        if (spec == specs().end()) {
            return ErrorInfo{
                ErrorCode::kConfigInvalid,
                Advice::kStop,
                {},
                "debezium: there is no option " + name + "; docs/reference/options.md lists them"};
        }
        if (Status taken = spec->take(out, name, value); !taken.ok()) {
            return std::move(taken).error();
        }
    }
    return out;
}

std::vector<std::string> columns_of(const Options& options) {
    std::vector<std::string> columns;
    const auto add = [&](const std::string& column) {
        if (column.empty()) return;
        if (std::find(columns.begin(), columns.end(), column) != columns.end()) return;
        columns.push_back(column);
    };
    for (const std::string& column :
         {options.id, options.key, options.payload, options.route_by, options.schema_version}) {
        add(column);
    }
    if (options.connect) add(options.timestamp);
    for (const AdditionalField& field : options.additional) {
        // Without Kafka Connect nobody looks at the partition.
        if (field.placement != Placement::kPartition || options.connect) add(field.column);
    }
    return columns;
}

}  // namespace outbox::codec::debezium
