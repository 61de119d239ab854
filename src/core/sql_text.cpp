#include "core/sql_text.h"

namespace outbox {

namespace {

std::string quoted(std::string_view text, char quote) {
    std::string out;
    out.reserve(text.size() + 2);
    out += quote;
    for (const char c : text) {
        if (c == quote) out += quote;
        out += c;
    }
    out += quote;
    return out;
}

}  // namespace

std::string quote_identifier(std::string_view name) {
    return quoted(name, '"');
}

std::string quote_literal(std::string_view text) {
    return quoted(text, '\'');
}

std::string tenant_or(std::string_view tenant, std::string_view by_default) {
    return "coalesce(nullif(" + std::string(tenant) + ", ''), " + quote_literal(by_default) + ")";
}

}  // namespace outbox
