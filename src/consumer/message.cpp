#include <nlohmann/json.hpp>

#include <outbox/consumer/message.h>
#include <outbox/error.h>

namespace outbox {
namespace {

[[noreturn]] void refuse(std::string_view id) {
    throw Error(ErrorCode::kInvalidEvent, Advice::kDeadLetter,
                "the headers of message " + std::string(id) + " are not a JSON object of strings");
}

}  // namespace

Headers Message::headers() const {
    Headers out;
    if (headers_json.empty()) return out;
    const auto json = nlohmann::ordered_json::parse(headers_json, nullptr, false);
    if (!json.is_object()) refuse(id);
    out.reserve(json.size());
    for (const auto& [name, value] : json.items()) {
        if (!value.is_string()) refuse(id);
        out.emplace_back(name, value.get<std::string>());
    }
    return out;
}

std::optional<std::string> Message::header(std::string_view name) const {
    for (auto& [found, value] : headers()) {
        if (found == name) return std::move(value);
    }
    return std::nullopt;
}

}  // namespace outbox
