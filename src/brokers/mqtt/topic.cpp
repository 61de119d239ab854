#include "brokers/mqtt/topic.h"

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
    return percent_encode(value, "/+#$%");
}

Status check_topic(std::string_view topic) {
    if (topic.starts_with('$')) return refused(topic, "what begins with $ is the broker's own");
    if (topic.find_first_of("+#") != std::string_view::npos) {
        return refused(topic, "+ and # are wildcards, which nothing can be published to");
    }
    if (!is_utf8(topic)) return refused(to_utf8(topic), "it is not UTF-8");
    return {};
}

}  // namespace outbox::mqtt
