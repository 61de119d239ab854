#include "codec/debezium/column_default.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "codec/debezium/java_text.h"
#include "core/ascii.h"

namespace outbox::codec::debezium {
namespace {

struct Placeholder {
    std::string_view type;
    std::string_view text;  // of a value that an expression computes
};

constexpr std::array kPlaceholders{
    Placeholder{"bit", "00"},
    Placeholder{"varbit", "0"},
    Placeholder{"bool", "false"},
    Placeholder{"bpchar", ""},
    Placeholder{"varchar", ""},
    Placeholder{"text", ""},
    Placeholder{"numeric", "0.0"},
    Placeholder{"float4", "0.0"},
    Placeholder{"float8", "0.0"},
    Placeholder{"int2", "0"},
    Placeholder{"int4", "0"},
    Placeholder{"int8", "0"},
    Placeholder{"json", "{}"},
    Placeholder{"jsonb", "{}"},
    Placeholder{"xml", ""},
    Placeholder{"uuid", "00000000-0000-0000-0000-000000000000"},
    Placeholder{"date", "1970-01-01"},
    Placeholder{"time", "00:00:00"},
    Placeholder{"timestamp", "1970-01-01 00:00:00"},
    Placeholder{"timestamptz", "1970-01-01 00:00:00+00"},
};

bool is_name_char(char c) {
    return is_letter_or_digit(c) || c == '_' || c == '.';
}

// name(...) at the beginning, perhaps behind a parenthesis.
bool calls_function(std::string_view expression) {
    if (expression.starts_with('(')) expression.remove_prefix(1);
    const auto* const end = std::find_if_not(expression.begin(), expression.end(), is_name_char);
    const auto name = static_cast<std::size_t>(end - expression.begin());
    return name > 0 && name < expression.size() && expression[name] == '(' &&
           expression.find(')', name) != std::string_view::npos;
}

bool is_current_time(std::string_view expression) {
    constexpr std::array<std::string_view, 5> kWords{"current_timestamp", "current_time",
                                                     "current_date", "localtime", "localtimestamp"};
    return std::find(kWords.begin(), kWords.end(), lower(expression)) != kWords.end();
}

// The first text in quotes, or all of an expression without quotes.
std::optional<std::string> literal(std::string_view expression) {
    const std::size_t open = expression.find('\'');
    if (open == std::string_view::npos) {
        if (expression.starts_with("NULL::")) return std::nullopt;
        return std::string(expression);
    }
    const std::size_t close = expression.find('\'', open + 1);
    if (close == std::string_view::npos) return std::nullopt;
    return std::string(expression.substr(open + 1, close - open - 1));
}

// 'LABEL'::type, and nothing else; with its schema before the type where that is not on the search
// path, which is empty for what the relay reads.
std::optional<std::string> label(const spi::ColumnShape& column) {
    std::string_view text = column.default_value;
    const std::size_t cast = text.rfind("'::");
    if (cast == std::string_view::npos) return std::nullopt;
    const std::string_view type = text.substr(cast + 3);
    if (type != column.type && !type.ends_with("." + column.type)) return std::nullopt;
    text = text.substr(0, cast + 1);
    if (text.size() < 2 || text.front() != '\'') return std::nullopt;
    return std::string(text.substr(1, text.size() - 2));
}

}  // namespace

std::optional<std::string> default_of(const spi::ColumnShape& column) {
    if (column.default_value.empty()) return std::nullopt;
    if (!column.labels.empty()) return label(column);
    const auto* const known =
        std::find_if(kPlaceholders.begin(), kPlaceholders.end(),
                     [&](const Placeholder& one) { return one.type == column.type; });
    if (known == kPlaceholders.end()) return std::nullopt;
    const std::string_view expression = java_trim(column.default_value);
    if (calls_function(expression) || is_current_time(expression)) return std::string(known->text);
    return literal(expression);
}

}  // namespace outbox::codec::debezium
