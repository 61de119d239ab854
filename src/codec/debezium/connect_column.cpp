#include "codec/debezium/connect_column.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "codec/debezium/column_default.h"
#include "codec/debezium/java_text.h"
#include "codec/debezium/value_forms.h"
#include "core/base64.h"

namespace outbox::codec::debezium {
namespace {

constexpr int kMicrosecondDigits = 6;

bool one_of(std::string_view type, std::initializer_list<std::string_view> types) {
    return std::find(types.begin(), types.end(), type) != types.end();
}

std::string quoted(std::string_view text) {
    std::string out;
    append_jackson_string(text, out);
    return out;
}

template <typename T>
bool read_number(std::string_view text, T& out) {
    if (std::numeric_limits<T>::has_quiet_NaN && text == "NaN") {
        out = std::numeric_limits<T>::quiet_NaN();
        return true;
    }
    const auto read = std::from_chars(text.data(), text.data() + text.size(), out);
    return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

// Jackson puts quotes around what is no JSON number.
template <typename T>
bool append_floating(std::string_view text, bool quotes, std::string& out) {
    T value = 0;
    if (!read_number(text, value)) return false;
    const bool quote = quotes && !(value - value == 0);
    if (quote) out += '"';
    append_java(value, out);
    if (quote) out += '"';
    return true;
}

// BigDecimal.toString.
std::string decimal_text(const DecimalText& number) {
    constexpr int kFirstPlain = -6;
    const int adjusted = static_cast<int>(number.digits.size()) - 1 - number.scale;
    if (adjusted >= kFirstPlain) return plain_text(number);
    std::string out = number.negative ? "-" : "";
    out += number.digits[0];
    if (number.digits.size() > 1) out.append(".").append(number.digits.substr(1));
    return out + "E" + std::to_string(adjusted);
}

std::size_t characters(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    }));
}

std::string encoded(std::string_view bytes, BinaryMode mode) {
    std::string out;
    if (mode == BinaryMode::kHex) {
        constexpr const char* kDigits = "0123456789abcdef";
        for (const char c : bytes) {
            const auto byte = static_cast<unsigned char>(c);
            out.append(1, kDigits[byte >> 4U]).append(1, kDigits[byte & 15U]);
        }
        return out;
    }
    append_base64(bytes, out);
    if (mode == BinaryMode::kBase64Url) {
        std::replace(out.begin(), out.end(), '+', '-');
        std::replace(out.begin(), out.end(), '/', '_');
    }
    return out;
}

}  // namespace

Result<ConnectColumn> ConnectColumn::make(const spi::ColumnShape& column, const Options& options) {
    ConnectColumn out;
    out.name_ = column.name;
    out.column_type_ = column.type;
    out.optional_ = column.nullable;
    out.length_ = column.length;
    if (!out.settle(column, options)) {
        return ErrorInfo{ErrorCode::kConfigInvalid,
                         Advice::kStop,
                         {},
                         "debezium: column '" + column.name + "' has type " + column.type +
                             ", which this format does not write; leave it out of "
                             "table.fields.additional.placement, or place a text column beside it"};
    }
    out.settle_default(column);
    return out;
}

void ConnectColumn::be(Meaning meaning, std::string_view type, std::string_view name, int version) {
    meaning_ = meaning;
    type_ = type;
    if (name.empty()) return;
    schema_ = ",\"name\":" + quoted(name) + ",\"version\":" + std::to_string(version);
}

bool ConnectColumn::settle(const spi::ColumnShape& column, const Options& options) {
    const std::string& type = column.type;
    if (type == "bool") {
        be(Meaning::kBoolean, "boolean");
    } else if (type == "int2") {
        be(Meaning::kWhole, "int16");
    } else if (type == "int4") {
        be(Meaning::kWhole, "int32");
    } else if (one_of(type, {"int8", "oid"})) {
        be(Meaning::kWhole, "int64");
    } else if (type == "float4") {
        be(Meaning::kFloat, "float");
    } else if (type == "float8") {
        be(Meaning::kDouble, "double");
    } else if (type == "numeric") {
        settle_decimal(column, options.decimals);
    } else if (type == "uuid") {
        be(Meaning::kText, "string", "io.debezium.data.Uuid");
    } else if (one_of(type, {"json", "jsonb"})) {
        be(Meaning::kText, "string", "io.debezium.data.Json");
    } else if (type == "xml") {
        be(Meaning::kText, "string", "io.debezium.data.Xml");
    } else if (type == "bytea") {
        binaries_ = options.binaries;
        const bool bytes = binaries_ == BinaryMode::kBytes;
        be(bytes ? Meaning::kBytes : Meaning::kBytesAsText, bytes ? "bytes" : "string");
    } else if (one_of(type, {"date", "time", "timestamp", "timestamptz"})) {
        settle_time(column, options.times);
    } else if (!column.labels.empty()) {
        be(Meaning::kText, "string", "io.debezium.data.Enum");
        schema_ += ",\"parameters\":{\"allowed\":" + quoted(column.labels) + "}";
    } else if (one_of(type, {"text", "varchar", "bpchar", "citext", "inet", "cidr", "macaddr",
                             "macaddr8", "int4range", "int8range", "numrange", "tsrange",
                             "tstzrange", "daterange"})) {
        be(Meaning::kText, "string");
    } else {
        return false;
    }
    return true;
}

void ConnectColumn::settle_decimal(const spi::ColumnShape& column, DecimalMode mode) {
    if (mode == DecimalMode::kDouble) return be(Meaning::kDecimalAsDouble, "double");
    if (mode == DecimalMode::kString) return be(Meaning::kDecimalAsText, "string");
    if (column.length < 0) {
        be(Meaning::kVariableDecimal, "struct", "io.debezium.data.VariableScaleDecimal");
        schema_ += ",\"doc\":\"Variable scaled decimal\"";
        inner_ = R"(,"fields":[{"type":"int32","optional":false,"field":"scale"},)"
                 R"({"type":"bytes","optional":false,"field":"value"}])";
        return;
    }
    scale_ = column.scale;
    be(Meaning::kDecimal, "bytes", "org.apache.kafka.connect.data.Decimal");
    schema_ += R"(,"parameters":{"scale":")" + std::to_string(scale_) +
               R"(","connect.decimal.precision":")" + std::to_string(column.length) + "\"}";
}

void ConnectColumn::settle_time(const spi::ColumnShape& column, TimeMode mode) {
    const bool connect = mode == TimeMode::kConnect;
    java_time_ = connect && column.type != "timestamptz";
    constexpr int kMillisecondDigits = 3;
    const bool coarse = column.length >= 0 && column.length <= kMillisecondDigits;
    if (column.type == "timestamptz") {
        be(Meaning::kZonedTimestamp, "string", "io.debezium.time.ZonedTimestamp");
    } else if (column.type == "date") {
        be(Meaning::kDate, "int32",
           connect ? "org.apache.kafka.connect.data.Date" : "io.debezium.time.Date");
    } else if (column.type == "time") {
        if (connect) {
            be(Meaning::kTimeMs, "int32", "org.apache.kafka.connect.data.Time");
        } else if (mode == TimeMode::kAdaptive && coarse) {
            be(Meaning::kTimeMs, "int32", "io.debezium.time.Time");
        } else {
            be(Meaning::kTimeUs, "int64", "io.debezium.time.MicroTime");
        }
    } else if (connect) {
        be(Meaning::kTimestampMs, "int64", "org.apache.kafka.connect.data.Timestamp");
    } else if (coarse) {
        be(Meaning::kTimestampMs, "int64", "io.debezium.time.Timestamp");
    } else {
        be(Meaning::kTimestampUs, "int64", "io.debezium.time.MicroTimestamp");
    }
}

void ConnectColumn::settle_default(const spi::ColumnShape& column) {
    if (meaning_ == Meaning::kVariableDecimal) return;  // no struct is a default (KAFKA-12694)
    auto text = default_of(column);
    if (!text) return;
    std::string value;
    if (!append_json({.text = *text}, false, value)) return;
    schema_ += ",\"default\":" + value;
    default_ = std::move(text);
}

bool ConnectColumn::is_timestamp() const {
    return meaning_ == Meaning::kTimestampMs || meaning_ == Meaning::kTimestampUs;
}

bool ConnectColumn::prints_itself() const {
    return meaning_ == Meaning::kWhole ||
           (meaning_ == Meaning::kText && column_type_ != "bpchar" && column_type_ != "inet");
}

void ConnectColumn::append_schema(std::string_view field, std::string& out) const {
    out.append(R"({"type":")").append(type_).append("\"").append(inner_);
    out.append(R"(,"optional":)").append(optional_ ? "true" : "false").append(schema_);
    if (field.data() != nullptr) {
        out += R"(,"field":)";
        append_jackson_string(field, out);
    }
    out += '}';
}

// What the type's output function prints.
std::string_view ConnectColumn::plain(const ColumnValue& value, std::string& buffer) const {
    if (!value.cast) return value.text;
    if (column_type_ == "bpchar" && length_ > 0) {
        const std::size_t known = characters(value.text);
        const auto wanted = static_cast<std::size_t>(length_);
        if (known >= wanted) return value.text;
        buffer.assign(value.text).append(wanted - known, ' ');
        return buffer;
    }
    if (column_type_ == "inet") {
        const std::string_view mask =
            value.text.find(':') == std::string_view::npos ? "/32" : "/128";
        if (value.text.ends_with(mask))
            return value.text.substr(0, value.text.size() - mask.size());
    }
    return value.text;
}

bool ConnectColumn::append_bytes(const ColumnValue& value, std::string& out) const {
    if (meaning_ == Meaning::kDecimal) {
        auto number = read_decimal(value.text);
        if (number) number = with_scale(std::move(*number), scale_);
        if (!number) return false;
        out += unscaled_bytes(*number);
        return true;
    }
    if (value.raw) {
        out += value.text;
        return true;
    }
    const auto bytes = read_bytea(value.text);
    if (bytes) out += *bytes;
    return bytes.has_value();
}

// Days, milliseconds or microseconds.
std::optional<std::int64_t> ConnectColumn::count_of(std::string_view text) const {
    const bool clock = meaning_ == Meaning::kTimeMs || meaning_ == Meaning::kTimeUs;
    const auto time = clock ? read_time(text) : read_timestamp(text);
    if (!time) return std::nullopt;
    if (meaning_ == Meaning::kDate) return time->days;
    const bool coarse = meaning_ == Meaning::kTimeMs || meaning_ == Meaning::kTimestampMs;
    return coarse ? time->total_ms() : time->total_us();
}

// Of a java.util.Date, since 1970. None, too: it is before Christ.
std::optional<std::int64_t> ConnectColumn::java_ms(std::string_view text) const {
    constexpr std::int64_t kDayMs = 86'400'000;
    if (text.ends_with(" BC")) return std::nullopt;
    const auto count = count_of(text);
    return count && meaning_ == Meaning::kDate ? *count * kDayMs : count;
}

// As a Java text, for what both converters write alike but for the quotes of JSON.
bool ConnectColumn::append_text(const ColumnValue& value, std::string& out) const {
    std::string buffer;
    switch (meaning_) {
        case Meaning::kBytesAsText: {
            std::string bytes;
            if (!value.raw) {
                const auto read = read_bytea(value.text);
                if (!read) return false;
                bytes = *read;
            }
            out += encoded(value.raw ? value.text : bytes, binaries_);
            return true;
        }
        case Meaning::kDecimalAsText: {
            const auto number = read_decimal(value.text);
            out += number ? plain_text(*number) : std::string(value.text);
            return true;
        }
        case Meaning::kZonedTimestamp: {
            if (value.text == "infinity" || value.text == "-infinity") {
                out += value.text;
                return true;
            }
            const auto time = read_timestamp(value.text);
            if (!time) return false;
            out += zoned_text(*time, length_ < 0 ? kMicrosecondDigits : length_);
            return true;
        }
        default:
            out += plain(value, buffer);
            return true;
    }
}

bool ConnectColumn::append_json(const ColumnValue& given, bool decimal_as_text,
                                std::string& out) const {
    ColumnValue value = given;
    if (value.text.data() == nullptr) {
        if (!default_) {
            out += "null";
            return true;
        }
        value = {.text = *default_};
    }
    switch (meaning_) {
        case Meaning::kBoolean:
            out += value.text.starts_with('t') ? "true" : "false";
            return true;
        case Meaning::kWhole: {
            // Its column may have had another type since.
            std::int64_t whole = 0;
            if (!read_number<std::int64_t>(value.text, whole)) return false;
            out += value.text;
            return true;
        }
        case Meaning::kFloat:
            return append_floating<float>(value.text, true, out);
        case Meaning::kDouble:
        case Meaning::kDecimalAsDouble:
            return append_floating<double>(value.text, true, out);
        case Meaning::kDate:
        case Meaning::kTimeMs:
        case Meaning::kTimeUs:
        case Meaning::kTimestampMs:
        case Meaning::kTimestampUs: {
            const auto count = count_of(value.text);
            if (count) out += std::to_string(*count);
            return count.has_value();
        }
        case Meaning::kDecimal:
            if (decimal_as_text) {
                auto number = read_decimal(value.text);
                if (number) number = with_scale(std::move(*number), scale_);
                if (!number) return false;
                out += decimal_text(*number);
                return true;
            }
            [[fallthrough]];
        case Meaning::kBytes: {
            std::string bytes;
            if (!append_bytes(value, bytes)) return false;
            out += '"';
            append_base64(bytes, out);
            out += '"';
            return true;
        }
        case Meaning::kVariableDecimal: {
            auto number = read_decimal(value.text);
            if (!number) return false;
            const DecimalText short_form = without_zeros(std::move(*number));
            out.append("{\"scale\":").append(std::to_string(short_form.scale));
            out += ",\"value\":\"";
            append_base64(unscaled_bytes(short_form), out);
            out += "\"}";
            return true;
        }
        case Meaning::kText:
        case Meaning::kBytesAsText:
        case Meaning::kDecimalAsText:
        case Meaning::kZonedTimestamp:
            break;
    }
    std::string text;
    if (!append_text(value, text)) return false;
    append_jackson_string(text, out);
    return true;
}

bool ConnectColumn::append_java(const ColumnValue& value, std::string& out) const {
    if (java_time_) {
        const auto ms = java_ms(value.text);
        if (ms) out += java_date_text(*ms);
        return ms.has_value();
    }
    switch (meaning_) {
        case Meaning::kBytes: {
            std::string bytes;
            if (!append_bytes(value, bytes)) return false;
            const std::string size = std::to_string(bytes.size());
            out.append("java.nio.HeapByteBuffer[pos=0 lim=").append(size);
            out.append(" cap=").append(size).append("]");
            return true;
        }
        case Meaning::kDecimal: {
            auto number = read_decimal(value.text);
            if (number) number = with_scale(std::move(*number), scale_);
            if (!number) return false;
            out += decimal_text(*number);
            return true;
        }
        case Meaning::kFloat:
            return append_floating<float>(value.text, false, out);
        case Meaning::kDouble:
        case Meaning::kDecimalAsDouble:
            return append_floating<double>(value.text, false, out);
        case Meaning::kVariableDecimal:  // names an object by its address
            return false;
        case Meaning::kText:
        case Meaning::kBytesAsText:
        case Meaning::kDecimalAsText:
        case Meaning::kZonedTimestamp:
            return append_text(value, out);
        default:
            return append_json(value, false, out);
    }
}

bool ConnectColumn::append_header(const ColumnValue& value, std::string& out) const {
    if (java_time_) {
        const auto ms = java_ms(value.text);
        if (ms) out += header_date_text(*ms);
        return ms.has_value();
    }
    if (meaning_ == Meaning::kBytes) {
        std::string bytes;
        if (!append_bytes(value, bytes)) return false;
        append_base64(bytes, out);
        return true;
    }
    return meaning_ == Meaning::kVariableDecimal ? append_json(value, false, out)
                                                 : append_java(value, out);
}

}  // namespace outbox::codec::debezium
