#include "brokers/pulsar/topic.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <optional>

#include "core/url.h"
#include "core/utf8.h"

namespace outbox::pulsar {
namespace {

constexpr std::string_view kPersistent = "persistent://";
constexpr std::string_view kOthers = "non-persistent://";
constexpr std::string_view kSystem = "__";             // what the brokers' own topics begin with
constexpr std::string_view kPartition = "partition-";  // behind a - ends the names of partitions

Status refused(std::string_view topic, std::string_view why) {
    return {ErrorCode::kTopicInvalid, Advice::kDeadLetter,
            "topic '" + to_printable(topic) + "' is none of Pulsar: " + std::string(why)};
}

// Where the number begins in a name that ends as those of partitions do, in digits of any script.
std::optional<std::size_t> number_of_partition(std::string_view name) {
    const std::size_t at = name.rfind(kPartition);
    if (at == std::string_view::npos || (at > 0 && name[at - 1] != '-')) return std::nullopt;
    const std::size_t begin = at + kPartition.size();
    const bool is_number =
        std::all_of(name.begin() + static_cast<std::ptrdiff_t>(begin), name.end(),
                    [](unsigned char c) { return std::isdigit(c) != 0 || c >= 0x80U; });
    if (begin == name.size() || !is_number) return std::nullopt;
    return begin;
}

// The next code point of `text`, which is taken from its front.
std::uint32_t next_code_point(std::string_view& text) {
    const auto first = static_cast<unsigned char>(text.front());
    const std::size_t bytes = first < 0xC0U ? 1 : first < 0xE0U ? 2 : first < 0xF0U ? 3 : 4;
    std::uint32_t code = bytes == 1 ? first : first & (0x7FU >> bytes);
    for (std::size_t i = 1; i < bytes && i < text.size(); ++i) {
        code = code << 6U | (static_cast<unsigned char>(text[i]) & 0x3FU);
    }
    text.remove_prefix(std::min(bytes, text.size()));
    return code;
}

}  // namespace

std::string encode_part(std::string_view value) {
    std::string part = percent_encode(value, "/%");
    const auto number = number_of_partition(part);
    if (number) part.replace(*number - 1, 1, "%2D");
    return part;
}

bool is_name(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '-' || c == '=' || c == ':' || c == '.' || c == '_';
    });
}

Status check_topic(std::string_view topic) {
    if (!is_utf8(topic)) return refused(topic, "it is not UTF-8");
    if (topic.starts_with(kOthers)) {
        return refused(topic,
                       "what is not persistent is lost where nobody reads it; use persistent://");
    }
    std::string_view name = topic;
    const bool whole = name.starts_with(kPersistent);
    if (whole) name.remove_prefix(kPersistent.size());
    const auto slashes = std::count(name.begin(), name.end(), '/');
    if (slashes != 2 && (whole || slashes != 0)) {
        return refused(topic,
                       "it is a name without /, or tenant/namespace/name, with persistent:// or "
                       "without");
    }
    if (slashes == 2) {
        const std::size_t first = name.find('/');
        const std::size_t second = name.find('/', first + 1);
        if (!is_name(name.substr(0, first)) ||
            !is_name(name.substr(first + 1, second - first - 1))) {
            return refused(topic, "tenants and namespaces have letters, digits and -=:._");
        }
        name.remove_prefix(second + 1);
    }
    if (name.empty()) return refused(topic, "the name is empty");
    if (const auto number = number_of_partition(name); number && *number > kPartition.size()) {
        return refused(topic, "it names a partition; the event's key says which one it goes to");
    }
    if (name.starts_with(kSystem)) return refused(topic, "what begins with __ is the brokers' own");
    return {};
}

std::string full_name(std::string_view topic, std::string_view home) {
    if (topic.starts_with(kPersistent)) return std::string(topic);
    std::string name(kPersistent);
    if (topic.find('/') == std::string_view::npos) name.append(home).append("/");
    return name.append(topic);
}

std::string name_of_partition(const std::string& topic, std::size_t partition) {
    return topic + "-partition-" + std::to_string(partition);
}

std::uint32_t java_hash(std::string_view text) {
    constexpr std::uint32_t kSupplementary = 0x10000;
    std::uint32_t hash = 0;
    const auto add = [&hash](std::uint32_t unit) { hash = 31 * hash + unit; };
    while (!text.empty()) {
        const std::uint32_t code = next_code_point(text);
        if (code < kSupplementary) {
            add(code);
        } else {  // two units of UTF-16
            add(0xD800U + ((code - kSupplementary) >> 10U));
            add(0xDC00U + ((code - kSupplementary) & 0x3FFU));
        }
    }
    return hash;
}

std::size_t partition_of(std::string_view key, std::size_t partitions) {
    return (java_hash(key) & 0x7FFFFFFFU) % partitions;
}

}  // namespace outbox::pulsar
