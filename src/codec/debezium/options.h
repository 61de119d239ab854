#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

namespace outbox::codec::debezium {

/// What makes bytes of a Connect value.
enum class Converter : std::uint8_t {
    kJson,          ///< org.apache.kafka.connect.json.JsonConverter
    kString,        ///< org.apache.kafka.connect.storage.StringConverter
    kSimpleHeader,  ///< org.apache.kafka.connect.storage.SimpleHeaderConverter
    kBinary,        ///< io.debezium.converters.BinaryDataConverter
};

/// A converter with its settings, under Connect's names.
struct ConverterOptions {
    Converter converter = Converter::kJson;
    bool schemas = true;           ///< schemas.enable
    bool decimal_as_text = false;  ///< decimal.format = NUMERIC
};

enum class Placement : std::uint8_t { kHeader, kEnvelope, kPartition };

/// One entry of table.fields.additional.placement.
struct AdditionalField {
    std::string column;
    Placement placement = Placement::kHeader;
    std::string alias;
};

enum class DecimalMode : std::uint8_t { kPrecise, kDouble, kString };
enum class TimeMode : std::uint8_t { kAdaptive, kAdaptiveMicroseconds, kConnect };
enum class BinaryMode : std::uint8_t { kBytes, kBase64, kBase64Url, kHex };

/// `[route.debezium]`: the options of Debezium's outbox event router, connector and converters
/// that say how a record looks, under Debezium's names.
struct Options {
    std::string id = "id";
    std::string key = "aggregateid";
    std::string payload = "payload";
    std::string timestamp;       ///< Empty: none.
    std::string schema_version;  ///< Likewise.
    std::string route_by = "aggregatetype";
    std::string topic_regex = "(?<routedByValue>.*)";
    std::string topic_replacement = "outbox.event.${routedByValue}";
    std::vector<AdditionalField> additional;
    bool error_on_missing = true;
    bool tombstones = false;
    bool expand = false;
    bool keep_nulls = false;  ///< table.json.payload.null.behavior = optional_bytes
    ConverterOptions key_format;
    ConverterOptions value_format;
    ConverterOptions header_format;
    std::string topic_prefix;  ///< topic.prefix: a part of the envelope's name.
    DecimalMode decimals = DecimalMode::kPrecise;
    TimeMode times = TimeMode::kAdaptive;
    BinaryMode binaries = BinaryMode::kBytes;
    /// Kafka Connect hands partition and timestamp on to Kafka, Debezium Server 3.0 does not.
    bool connect = false;

    [[nodiscard]] bool has_envelope() const;
};

struct OptionText {
    std::string_view name;
    std::string_view help;
};
/// Every option, for the reference.
[[nodiscard]] const std::vector<OptionText>& option_texts();

/// Takes options as [route.debezium] has them, without a prefix. Errors: kConfigInvalid naming the
/// option, with what would be right.
Result<Options> parse_options(const std::map<std::string, std::string>& texts);

/// The columns whose values a record needs.
[[nodiscard]] std::vector<std::string> columns_of(const Options& options);

}  // namespace outbox::codec::debezium
