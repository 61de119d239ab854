#include "brokers/mqtt/message.h"

#include <algorithm>
#include <memory>

#include "brokers/mqtt/protocol.h"
#include "core/utf8.h"
#include "net/header_line.h"

namespace outbox::mqtt {
namespace {

bool has_control(std::string_view text) {
    return std::any_of(text.begin(), text.end(),
                       [](unsigned char c) { return c < ' ' || c == 0x7F; });
}

}  // namespace

std::optional<std::string> Properties::set(const spi::Record& record) {
    list_.clear();
    encoded_.clear();
    if (record.key.data() != nullptr) {
        if (auto why = add(kKeyProperty, record.key)) return why;
    }
    if (record.value.data() == nullptr) list_.emplace_back(kNullProperty, "true");
    for (const spi::HeaderView& header : record.headers) {
        if (header.name == kKeyProperty || header.name == kNullProperty) {
            return "the header '" + std::string(header.name) + "' is the relay's; use another name";
        }
        if (header.name.empty()) return "it has a header without a name";
        if (!is_utf8(header.name) || has_control(header.name)) {
            return "the name of the header '" + to_printable(header.name.substr(0, 100)) +
                   "' has a control character or is not UTF-8; use another name";
        }
        if (auto why = add(header.name, header.value)) return why;
    }
    return std::nullopt;
}

std::optional<std::string> Properties::add(std::string_view name, std::string_view value) {
    std::pair<std::string, std::string> as;
    if (net::encode_header(name, value, as)) {
        encoded_.push_back(std::make_unique<std::pair<std::string, std::string>>(std::move(as)));
        list_.emplace_back(encoded_.back()->first, encoded_.back()->second);
    } else {
        list_.emplace_back(name, value);
    }
    const auto& [written, text] = list_.back();
    if (written.size() <= kMaxStringBytes && text.size() <= kMaxStringBytes) return std::nullopt;
    return "'" + to_printable(name.substr(0, 40)) + "' has " +
           std::to_string(std::max(written.size(), text.size())) + " bytes, and MQTT takes 65535";
}

}  // namespace outbox::mqtt
