#include "brokers/mqtt/topic.h"

#include <algorithm>

#include "brokers/mqtt/protocol.h"
#include "core/url.h"
#include "core/utf8.h"

namespace outbox::mqtt {
namespace {

Status refused(std::string_view topic, std::string_view why) {
    return {ErrorCode::kTopicInvalid, Advice::kDeadLetter,
            "topic '" + std::string(topic) + "' is none of MQTT: " + std::string(why)};
}

}  // namespace

std::string encode_level(std::string_view value) {
    std::string level;
    while (!value.empty()) {
        const std::size_t plain = plain_prefix(value);
        level += percent_encode(value.substr(0, plain), "/+#$%");
        if (plain < value.size()) append_percent(value[plain], level);
        value.remove_prefix(std::min(plain + 1, value.size()));
    }
    return level;
}

Status check_topic(std::string_view topic) {
    if (topic.starts_with('$')) return refused(topic, "what begins with $ is the broker's own");
    if (topic.find_first_of("+#") != std::string_view::npos) {
        return refused(topic, "+ and # are wildcards, which nothing can be published to");
    }
    if (plain_prefix(topic) < topic.size()) {
        return refused(to_printable(topic), "it has a control character or is not UTF-8");
    }
    if (topic.size() > kMaxStringBytes) {
        return refused(to_printable(topic.substr(0, 100)), "it has over 65535 bytes");
    }
    return {};
}

}  // namespace outbox::mqtt
