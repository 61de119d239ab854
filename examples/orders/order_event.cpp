#include "order_event.h"

#include <charconv>

#include <outbox/error.h>

namespace orders {

OrderEvent::OrderEvent(const outbox::Message& message) : message_(message), key_(message.key) {
    for (const auto& [name, value] : message.headers()) {
        if (name == "type") type_ = value;
        if (name == "aggregate_type") aggregate_type_ = value;
        if (name == "n") std::from_chars(value.data(), value.data() + value.size(), n_);
    }
    payload_ = read_json_fields(message.payload);
}

void OrderEvent::refuse(const std::string& why) const {
    throw outbox::Error(outbox::ErrorCode::kHandlerFailed, outbox::Advice::kDeadLetter,
                        type_ + " " + std::string(id()) + ": " + why);
}

const JsonField& OrderEvent::field(const std::string& name, const char* what) const {
    if (!payload_.problem.empty()) refuse("the payload: " + payload_.problem);
    const auto found = payload_.fields.find(name);
    if (found == payload_.fields.end())
        refuse("the payload has no field \"" + name + "\", which must be " + what);
    return found->second;
}

std::string OrderEvent::text(const std::string& name) const {
    const JsonField& found = field(name, "a text");
    if (found.type != JsonField::Type::kText || found.text.empty())
        refuse("the field \"" + name + "\" must be a text that is not empty");
    return found.text;
}

std::string OrderEvent::text_or(const std::string& name, const std::string& other) const {
    return payload_.fields.contains(name) ? text(name) : other;
}

std::int64_t OrderEvent::integer(const std::string& name) const {
    const JsonField& found = field(name, "a whole number");
    std::int64_t value = 0;
    const auto [end, error] =
        std::from_chars(found.text.data(), found.text.data() + found.text.size(), value);
    if (found.type != JsonField::Type::kInteger || error != std::errc() ||
        end != found.text.data() + found.text.size())
        refuse("the field \"" + name + "\" must be a whole number of at most 64 bits");
    return value;
}

std::string OrderEvent::number(const std::string& name) const {
    const JsonField& found = field(name, "a number");
    if (!found.is_number()) refuse("the field \"" + name + "\" must be a number");
    return found.text;
}

outbox::Event OrderEvent::answer(const std::string& aggregate_type, const std::string& type,
                                 const std::string& reason) const {
    std::string fields;
    for (const auto& [name, value] : payload_.fields) {
        if (name == "reason" || name == "timestamp") continue;
        const bool text = value.type == JsonField::Type::kText;
        if (!text && !value.is_number()) continue;
        fields += (fields.empty() ? "" : ",") + json_string(name) + ":" +
                  (text ? json_string(value.text) : value.text);
    }
    if (!reason.empty()) fields += ",\"reason\":" + json_string(reason);
    outbox::Event event;
    event.aggregate_type = aggregate_type;
    event.aggregate_id = order_id();
    event.event_type = type;
    event.payload = "{" + fields + "}";
    return event;
}

}  // namespace orders
