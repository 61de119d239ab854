#include <array>
#include <chrono>
#include <cstdio>

#include <outbox/producer/emit.h>

#include "producer/event_fields.h"

namespace outbox {
namespace {

using producer::EventField;
using producer::FieldKind;

std::string timestamp_text(std::int64_t microseconds) {
    using namespace std::chrono;
    const sys_time<std::chrono::microseconds> time{std::chrono::microseconds(microseconds)};
    const auto day = floor<days>(time);
    const year_month_day date(day);
    const hh_mm_ss clock(time - day);
    std::array<char, 48> text{};
    std::snprintf(text.data(), text.size(), "%04d-%02u-%02u %02d:%02d:%02d.%06d+00",
                  static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                  static_cast<unsigned>(date.day()), static_cast<int>(clock.hours().count()),
                  static_cast<int>(clock.minutes().count()),
                  static_cast<int>(clock.seconds().count()),
                  static_cast<int>(clock.subseconds().count()));
    return text.data();
}

// bytea's text form: any driver can send it, whatever the payload's bytes.
std::string hex_text(const std::string& bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    std::string text = "\\x";
    text.reserve(2 + 2 * bytes.size());
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        text += kDigits[byte >> 4U];
        text += kDigits[byte & 0xfU];
    }
    return text;
}

std::string field_text(const Event& event, const EmitOptions& options, EventField& field) {
    switch (field.kind) {
        case FieldKind::kText:
            break;
        case FieldKind::kPayload:
            return options.binary_payload ? hex_text(*event.payload) : *event.payload;
        case FieldKind::kTime:
            return timestamp_text(field.microseconds);
    }
    return std::move(field.text);
}

}  // namespace

InsertCommand insert_command(const Event& event, const EmitOptions& options) {
    producer::EventFields row = producer::event_fields(event, options);
    InsertCommand command;
    std::string parameters;
    for (EventField& field : row.fields) {
        command.values.emplace_back(field_text(event, options, field));
        parameters += (parameters.empty() ? "$" : ", $") + std::to_string(command.values.size());
    }
    const std::string& key = producer::lane_key(event);
    if (options.lock_key && !key.empty()) {
        // The lock is taken before the row gets its position: a row of a materialised CTE is
        // there before the list above it is worked out.
        command.values.emplace_back(key);
        command.sql = "WITH held AS MATERIALIZED (SELECT outbox_lock_keys($" +
                      std::to_string(command.values.size()) + ")) " + insert_clause(row) +
                      "SELECT " + parameters + " FROM held";
    } else {
        command.sql = insert_clause(row) + "VALUES (" + parameters + ")";
    }
    command.id = std::move(row.id);
    return command;
}

}  // namespace outbox
