#include "brokers/mqtt/message.h"

#include <algorithm>
#include <memory>

#include "brokers/mqtt/protocol.h"
#include "core/utf8.h"
#include "net/header_line.h"

namespace outbox::mqtt {
namespace {

// Brokers may end the connection for any other string (MQTT 5.0, 1.5.4), and mosquitto does. U+FEFF
// is allowed there, and yet paho ends at it: a session that keeps its messages would never get
// past.
bool is_plain_text(std::string_view text) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    return plain_prefix(text) == text.size() && text.find(kByteOrderMark) == std::string_view::npos;
}

}  // namespace

std::optional<std::string> why_not_header(std::string_view name) {
    if (name == kKeyProperty || name == kNullProperty) {
        return "the header '" + std::string(name) + "' is the relay's; use another name";
    }
    if (name.empty()) return "it has a header without a name";
    if (!is_plain_text(name)) {
        return "the name of the header '" + to_printable(name.substr(0, 100)) +
               "' has a control character or U+FEFF or is not UTF-8; use another name";
    }
    return std::nullopt;
}

std::optional<std::string> Properties::set(const spi::Record& record) {
    list_.clear();
    encoded_.clear();
    if (!is_plain_text(record.content_type) || record.content_type.size() > kMaxStringBytes) {
        return "its content type '" + to_printable(record.content_type.substr(0, 100)) +
               "' has a control character or U+FEFF or over 65535 bytes, or is not UTF-8";
    }
    if (record.key.data() != nullptr) {
        if (auto why = add(kKeyProperty, record.key)) return why;
    }
    if (record.value.data() == nullptr) list_.emplace_back(kNullProperty, "true");
    for (const spi::HeaderView& header : record.headers) {
        if (auto why = why_not_header(header.name)) return why;
        if (auto why = add(header.name, header.value)) return why;
    }
    return std::nullopt;
}

std::optional<std::string> Properties::add(std::string_view name, std::string_view value) {
    std::pair<std::string, std::string> as;
    const bool plain = is_plain_text(value);
    if (!plain) net::extend_header(name, value, as);
    if (!plain || net::encode_header(name, value, as)) {
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
