// Headers of records and of answers: what was written as a line of NATS or HTTP, or as JSON, comes
// back; what others wrote is read without surprise. The first byte says which.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "brokers/nats/protocol.h"
#include "codec/headers.h"
#include "consumer/idempotency_answers.h"
#include "consumer/message_time.h"
#include "core/json_scan.h"
#include "core/utf8.h"
#include "net/header_line.h"
#include "tests/fuzz/bytes.h"
#include "tracing/trace_context.h"

namespace outbox {
namespace {

using test::check;
using test::next_field;

void write_lines(std::string_view bytes) {
    std::vector<std::pair<std::string_view, std::string_view>> written;
    std::string lines = "NATS/1.0\r\n";
    while (!bytes.empty()) {
        const std::string_view name = next_field(bytes);
        const std::string_view value = next_field(bytes);
        if (net::why_not_header_name(name)) continue;
        net::append_header_line(name, value, lines);
        written.emplace_back(name, value);
        std::pair<std::string, std::string> as(name, value);
        static_cast<void>(net::encode_header(name, value, as));
        check(net::decode_header(as.first, as.second) ==
              std::pair(std::string(name), std::string(value)));
    }
    lines += "\r\n";
    nats::HeaderLines read(lines);
    for (const auto& [name, value] : written) {
        std::string_view raw_name;
        std::string_view raw_value;
        check(read.next(raw_name, raw_value));
        check(net::decode_header(raw_name, raw_value) ==
              std::pair(std::string(name), std::string(value)));
    }
}

void read_lines(std::string_view bytes) {
    nats::HeaderLines read(bytes);
    std::string_view name;
    std::string_view value;
    while (read.next(name, value)) static_cast<void>(net::decode_header(name, value));
}

void check_trace(std::string_view headers) {
    if (const auto context = tracing::find_trace_context(headers)) {
        check(context->trace_id.size() == 32 && context->span_id.size() == 16);
        check(is_json(headers));
    }
}

// Of a row: the members of metadata and headers, each name once from each.
void read_members(std::string_view bytes) {
    spi::EventView event;
    event.metadata = next_field(bytes);
    if (event.metadata.empty()) event.metadata = {};
    event.headers = bytes;
    const Status read =
        codec::for_each_member(event, [](const codec::Member&) { return Status(); });
    for (const std::string_view text : {event.metadata, event.headers}) {
        check(!read.ok() || text.data() == nullptr || is_json(text));
    }
    check_trace(bytes);
    check_trace(event.metadata);
}

void read_trace(std::string_view text) {
    const auto context = tracing::read_traceparent(text);
    if (!context) return;
    check(text.substr(3).starts_with(context->trace_id));
    check(text.substr(36).starts_with(context->span_id));
    check_trace("{\"traceparent\":\"" + std::string(text) + "\"}");
}

// Of an answer that is kept with an Idempotency-Key.
void keep_headers(std::string_view bytes) {
    Headers headers;
    bool whole = true;
    while (!bytes.empty()) {
        const std::string_view name = next_field(bytes);
        const std::string_view value = next_field(bytes);
        whole = whole && is_utf8(name) && is_utf8(value);
        headers.emplace_back(name, value);
    }
    const std::string json = consumer::storable_headers(headers);
    check(is_json(json));
    const auto kept = consumer::repeat_of(200, json, "").headers;
    for (const auto& [name, value] : kept) {
        check(name != "Set-Cookie" && name != "authorization");
    }
    check(kept.size() <= headers.size());
    for (const auto& header : headers) {
        const bool secret = header.first.size() == 10 || header.first.size() == 13;
        check(!whole || secret || std::find(kept.begin(), kept.end(), header) != kept.end());
    }
}

void read_kept(std::string_view json) {
    static_cast<void>(consumer::repeat_of(200, json, json));
}

void read_times(std::string_view text) {
    const std::string utc = consumer::in_utc_text(text);
    check(utc == text || consumer::utc_text_us(utc).has_value());
    check(utc == text || !consumer::utc_text_us(text).has_value());
    check(consumer::in_utc_text(utc) == utc);
    static_cast<void>(consumer::uuidv7_time_us(text));
}

}  // namespace
}  // namespace outbox

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const outbox::test::Exactly copy({reinterpret_cast<const char*>(data) + 1, size - 1});
    constexpr std::array kReaders{outbox::write_lines, outbox::read_lines,   outbox::read_members,
                                  outbox::read_trace,  outbox::keep_headers, outbox::read_kept,
                                  outbox::read_times};
    // From 'A' on, so that a corpus can be read.
    kReaders[(data[0] - 'A' + kReaders.size() * 64) % kReaders.size()](copy);
    return 0;
}
