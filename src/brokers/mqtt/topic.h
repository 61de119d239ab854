#pragma once

#include <string>
#include <string_view>

#include <outbox/result.h>

namespace outbox::mqtt {

/// A value as one level of a topic: what would split the topic or mean something in it (/ + # $ %),
/// and what no topic can have (`plain_prefix`), becomes %XX. Reversible, and the same for the same
/// value.
[[nodiscard]] std::string encode_level(std::string_view value);

/// What MQTT asks of a topic that is published to: UTF-8 without control characters, up to 65,535
/// bytes, no wildcards. One that begins with $ is the broker's own. Errors:
/// kTopicInvalid/dead_letter.
Status check_topic(std::string_view topic);

}  // namespace outbox::mqtt
