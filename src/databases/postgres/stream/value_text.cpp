#include "databases/postgres/stream/value_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <endian.h>
#include <limits>

#include "core/json_text.h"
#include "databases/postgres/source/decode.h"

namespace outbox::postgres {
namespace {

struct BuiltIn {
    std::uint32_t oid;  // of pg_type.dat, the same in every version
    std::string_view name;
    WireType type;
};

constexpr std::array kBuiltIn{
    BuiltIn{25, "text", WireType::kText},
    BuiltIn{1043, "varchar", WireType::kText},
    BuiltIn{1042, "bpchar", WireType::kBlankPadded},
    BuiltIn{19, "name", WireType::kText},
    BuiltIn{2950, "uuid", WireType::kUuid},
    BuiltIn{21, "int2", WireType::kInt2},
    BuiltIn{23, "int4", WireType::kInt4},
    BuiltIn{20, "int8", WireType::kInt8},
    BuiltIn{16, "bool", WireType::kBool},
    BuiltIn{1700, "numeric", WireType::kNumeric},
    BuiltIn{114, "json", WireType::kJson},
    BuiltIn{3802, "jsonb", WireType::kJsonb},
    BuiltIn{17, "bytea", WireType::kBytea},
    BuiltIn{1082, "date", WireType::kDate},
    BuiltIn{1114, "timestamp", WireType::kTimestamp},
    BuiltIn{1184, "timestamptz", WireType::kTimestamptz},
};

constexpr std::int64_t kDayUs = 86'400'000'000;
constexpr char kJsonbVersion = 1;

std::uint16_t word(std::string_view bytes, std::size_t index) {
    std::uint16_t wire = 0;
    std::memcpy(&wire, bytes.data() + 2 * index, sizeof wire);
    return be16toh(wire);
}

void append_integer(std::int64_t value, std::string& out) {
    std::array<char, 20> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
    out.append(text.data(), end);
}

// As numeric_send writes it and numeric_out prints it: digits to the base of 10,000, the first
// with the weight 10,000^weight, `scale` decimal digits behind the point.
bool append_numeric(std::string_view bytes, std::string& out) {
    constexpr std::size_t kHeadWords = 4;
    constexpr int kMaxScale = 16'383;
    constexpr std::uint16_t kBase = 10'000;
    if (bytes.size() < 2 * kHeadWords || bytes.size() % 2 != 0) return false;
    const int count = word(bytes, 0);
    const int weight = static_cast<std::int16_t>(word(bytes, 1));
    const std::uint16_t sign = word(bytes, 2);
    const int scale = word(bytes, 3);
    if (bytes.size() != 2 * (kHeadWords + static_cast<std::size_t>(count))) return false;
    switch (sign) {
        case 0x0000:
            break;
        case 0x4000:
            out += '-';
            break;
        case 0xC000:
            out += "NaN";
            return true;
        case 0xD000:
            out += "Infinity";
            return true;
        case 0xF000:
            out += "-Infinity";
            return true;
        default:
            return false;
    }
    if (scale > kMaxScale) return false;
    const auto group = [&](int index) -> std::uint16_t {  // 0 beyond both ends
        return index < 0 || index >= count
                   ? std::uint16_t{0}
                   : word(bytes, kHeadWords + static_cast<std::size_t>(index));
    };
    for (int index = 0; index < count; ++index) {
        if (group(index) >= kBase) return false;
    }
    const auto append_group = [&](std::uint16_t value) {
        for (const int power : {1000, 100, 10, 1}) {
            out += static_cast<char>('0' + value / power % 10);
        }
    };
    if (weight < 0) {
        out += '0';
    } else {
        append_integer(group(0), out);
        for (int index = 1; index <= weight; ++index) append_group(group(index));
    }
    if (scale == 0) return true;
    out += '.';
    const std::size_t end = out.size() + static_cast<std::size_t>(scale);
    for (int index = weight + 1; out.size() < end; ++index) append_group(group(index));
    out.resize(end);
    return true;
}

}  // namespace

WireType built_in_type(std::uint32_t oid) {
    const auto* it = std::find_if(kBuiltIn.begin(), kBuiltIn.end(),
                                  [&](const BuiltIn& type) { return type.oid == oid; });
    return it == kBuiltIn.end() ? WireType::kUnknown : it->type;
}

WireType built_in_type(std::string_view name) {
    const auto* it = std::find_if(kBuiltIn.begin(), kBuiltIn.end(),
                                  [&](const BuiltIn& type) { return type.name == name; });
    return it == kBuiltIn.end() ? WireType::kUnknown : it->type;
}

bool has_text(WireType type) {
    switch (type) {
        case WireType::kText:
        case WireType::kBlankPadded:
        case WireType::kUuid:
        case WireType::kInt2:
        case WireType::kInt4:
        case WireType::kInt8:
        case WireType::kBool:
        case WireType::kNumeric:
        case WireType::kJson:
        case WireType::kJsonb:
            return true;
        default:
            return false;
    }
}

bool has_json(WireType type) {
    return has_text(type) && type != WireType::kJson;
}

bool integer_of_value(WireType type, std::string_view bytes, std::int64_t& value) {
    const auto read = [&]<typename T>(T) {
        if (bytes.size() != sizeof(T)) return false;
        std::uint64_t wide = 0;
        for (const char byte : bytes) wide = wide << 8U | static_cast<unsigned char>(byte);
        value = static_cast<T>(wide);
        return true;
    };
    switch (type) {
        case WireType::kInt2:
            return read(std::int16_t{});
        case WireType::kInt4:
            return read(std::int32_t{});
        case WireType::kInt8:
            return read(std::int64_t{});
        default:
            return false;
    }
}

bool text_of_value(WireType type, std::string_view bytes, std::string& buffer,
                   std::string_view& text) {
    switch (type) {
        case WireType::kText:
        case WireType::kJson:
            text = bytes;
            return true;
        case WireType::kJsonb:
            if (bytes.empty() || bytes[0] != kJsonbVersion) return false;
            text = bytes.substr(1);
            return true;
        case WireType::kBlankPadded:
            text = bytes.substr(0, bytes.find_last_not_of(' ') + 1);
            return true;
        case WireType::kUuid:
            if (bytes.size() != kUuidBytes) return false;
            buffer.resize(kUuidText);
            write_uuid(bytes, buffer.data());
            break;
        case WireType::kBool:
            if (bytes.size() != 1) return false;
            buffer = bytes[0] != 0 ? "true" : "false";
            break;
        case WireType::kInt2:
        case WireType::kInt4:
        case WireType::kInt8: {
            std::int64_t value = 0;
            if (!integer_of_value(type, bytes, value)) return false;
            buffer.clear();
            append_integer(value, buffer);
            break;
        }
        case WireType::kNumeric:
            buffer.clear();
            if (!append_numeric(bytes, buffer)) return false;
            break;
        default:
            return false;
    }
    text = buffer;
    return true;
}

bool timestamptz_of_value(WireType type, std::string_view bytes, std::string& buffer,
                          std::string_view& timestamptz) {
    if (type == WireType::kTimestamp || type == WireType::kTimestamptz) {
        timestamptz = bytes;
        return bytes.size() == sizeof(std::int64_t);
    }
    std::int64_t days = 0;
    if (type != WireType::kDate || !integer_of_value(WireType::kInt4, bytes, days)) return false;
    std::int64_t us = 0;
    if (days == std::numeric_limits<std::int32_t>::max()) {
        us = std::numeric_limits<std::int64_t>::max();
    } else if (days == std::numeric_limits<std::int32_t>::min()) {
        us = std::numeric_limits<std::int64_t>::min();
    } else if (__builtin_mul_overflow(days, kDayUs, &us)) {
        return false;
    }
    const std::uint64_t wire = htobe64(static_cast<std::uint64_t>(us));
    buffer.assign(reinterpret_cast<const char*>(&wire), sizeof wire);
    timestamptz = buffer;
    return true;
}

bool append_json(WireType type, std::string_view bytes, std::string& out) {
    if (!has_json(type)) return false;
    if (type == WireType::kBlankPadded) {  // here the blanks stay
        append_json_string(bytes, out);
        return true;
    }
    std::string buffer;
    std::string_view text;
    if (!text_of_value(type, bytes, buffer, text)) return false;
    const bool plain = type != WireType::kText && type != WireType::kUuid &&
                       (type != WireType::kNumeric || (text.back() >= '0' && text.back() <= '9'));
    if (plain) {
        out += text;
    } else {
        append_json_string(text, out);
    }
    return true;
}

// Strings are the only tokens that can hold a brace, comma or colon, and PostgreSQL writes ": " and
// ", " between the others. A null that follows a key goes, with the key and one of its commas.
void strip_json_nulls(std::string_view jsonb, std::string& out) {
    constexpr std::string_view kNull = "null";
    out.clear();
    std::size_t key_at = std::string::npos;  // in `out`, with the comma before it
    std::size_t at = 0;
    while (at < jsonb.size()) {
        const std::string_view rest = jsonb.substr(at);
        if (rest[0] == '"') {
            std::size_t end = 1;
            while (end < rest.size() && rest[end] != '"') end += rest[end] == '\\' ? 2 : 1;
            end = std::min(end + 1, rest.size());
            if (rest.substr(end, 1) == ":") {
                key_at = out.ends_with(", ") ? out.size() - 2 : out.size();
                end = std::min(end + 2, rest.size());
            } else {
                key_at = std::string::npos;
            }
            out += rest.substr(0, end);
            at += end;
        } else if (key_at != std::string::npos && rest.starts_with(kNull)) {
            out.resize(key_at);
            key_at = std::string::npos;
            at += kNull.size();
        } else if (rest.starts_with(", ")) {
            // No comma behind a brace: the field before it went.
            if (!out.ends_with('{')) out += ", ";
            at += 2;
        } else {
            key_at = std::string::npos;
            out += rest[0];
            ++at;
        }
    }
}

}  // namespace outbox::postgres
