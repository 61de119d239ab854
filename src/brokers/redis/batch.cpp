#include "brokers/redis/batch.h"

#include <algorithm>

#include "brokers/redis/connection.h"

namespace outbox::redis {
namespace {

constexpr std::string_view kIdField = "id";
constexpr std::string_view kKeyField = "key";
constexpr std::string_view kValueField = "value";
// Lua passes no more than some 8,000 arguments to a command.
constexpr std::size_t kMaxHeaders = 3'500;

// The field is the event's id, which consumers know it by; format debezium may write another text.
bool is_id(const spi::HeaderView& header) {
    return header.name == kIdField;
}

}  // namespace

std::optional<std::string> why_not_header(std::string_view name) {
    if (name != kKeyField && name != kValueField) return std::nullopt;
    return "the field '" + std::string(name) +
           "' of an entry is the relay's; give the header another name";
}

std::optional<std::string> why_not_carried(const spi::Record& record) {
    if (record.headers.size() > kMaxHeaders) {
        return "it has " + std::to_string(record.headers.size()) +
               " headers, and 3500 can be appended at once";
    }
    for (const spi::HeaderView& header : record.headers) {
        if (auto why = why_not_header(header.name)) return why;
    }
    return std::nullopt;
}

void Batch::reopen(std::string_view stream) {
    reopened_.emplace_back(stream);
}

void Batch::add(const spi::Record& record) {
    const auto skipped = std::count_if(record.headers.begin(), record.headers.end(), is_id);
    const std::size_t fields = 1 + (record.key.data() != nullptr ? 1 : 0) +
                               (record.value.data() != nullptr ? 1 : 0) + record.headers.size() -
                               static_cast<std::size_t>(skipped);
    const auto add_field = [this](std::string_view name, std::string_view value) {
        append_argument(entries_, name);
        append_argument(entries_, value);
    };
    append_argument(entries_, record.topic);
    append_argument(entries_, static_cast<std::int64_t>(2 * fields));
    add_field(kIdField, record.id);
    if (record.key.data() != nullptr) add_field(kKeyField, record.key);
    if (record.value.data() != nullptr) add_field(kValueField, record.value);
    for (const spi::HeaderView& header : record.headers) {
        if (!is_id(header)) add_field(header.name, header.value);
    }
    arguments_ += 2 + 2 * fields;
}

void Batch::seal(const Head& head, std::string& out) {
    constexpr std::size_t kHeadParts = 11;
    append_command(out, kHeadParts + reopened_.size() + arguments_);
    append_argument(out, "EVALSHA");
    append_argument(out, head.script);
    append_argument(out, 2);
    append_argument(out, head.session_key);
    append_argument(out, head.ids_key);
    append_argument(out, head.session);
    append_argument(out, head.number);
    append_argument(out, static_cast<std::int64_t>(head.window));
    append_argument(out, head.max_len);
    append_argument(out, static_cast<std::int64_t>(reopened_.size()));
    append_argument(out, static_cast<std::int64_t>(head.keep_memory.count()));
    for (const std::string& stream : reopened_) append_argument(out, stream);
    out += entries_;
    entries_.clear();
    reopened_.clear();
    arguments_ = 0;
}

}  // namespace outbox::redis
