#include "brokers/stdout/line.h"

#include <algorithm>
#include <cstddef>

#include "core/base64.h"
#include "core/json_scan.h"
#include "core/json_text.h"
#include "core/utf8.h"

namespace outbox::stdout_ {

namespace {

void append_text(std::string_view text, std::string& out) {
    if (text.data() == nullptr) {
        out += "null";
        return;
    }
    append_json_string(to_utf8(text), out);
}

void append_payload(std::string_view payload, std::string& out) {
    if (payload.data() != nullptr && is_json(payload)) {
        out += "\"payload\":";
        const std::size_t start = out.size();
        out += payload;
        // Valid JSON has line breaks only between its parts, never inside a string.
        const auto is_break = [](char c) { return c == '\n' || c == '\r'; };
        std::replace_if(out.begin() + static_cast<std::ptrdiff_t>(start), out.end(), is_break, ' ');
    } else if (payload.data() == nullptr || is_utf8(payload)) {
        out += "\"payload\":";
        append_text(payload, out);
    } else {
        out += "\"payload_base64\":\"";
        append_base64(payload, out);
        out += '"';
    }
}

}  // namespace

void append_line(const spi::Record& record, std::string& out) {
    out += "{\"position\":";
    out += std::to_string(record.position);
    out += ",\"id\":";
    append_text(record.id, out);
    out += ",\"topic\":";
    append_text(record.topic, out);
    out += ",\"key\":";
    append_text(record.key, out);
    out += ",\"headers\":{";
    bool first = true;
    for (const spi::HeaderView& header : record.headers) {
        if (!first) out += ',';
        first = false;
        append_text(header.name, out);
        out += ':';
        append_text(header.value, out);
    }
    out += "},";
    append_payload(record.value, out);
    out += "}\n";
}

}  // namespace outbox::stdout_
