#include "brokers/sqs/queue_name.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace outbox::sqs {
namespace {

constexpr std::string_view kFifo = ".fifo";
constexpr std::size_t kMaxBytes = 80;  // with ".fifo"

bool fits(unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_';
}

}  // namespace

bool is_queue_url(std::string_view topic) {
    return topic.starts_with("https://") || topic.starts_with("http://");
}

Status check_queue(std::string_view topic) {
    const auto refused = [topic](std::string_view why) {
        return Status(ErrorCode::kTopicInvalid, Advice::kDeadLetter,
                      "topic '" + std::string(topic) + "' is no queue of SQS: " + std::string(why));
    };
    std::string_view name = topic;
    if (is_queue_url(topic)) name.remove_prefix(topic.rfind('/') + 1);
    if (name.size() > kMaxBytes) return refused("a name has at most 80 characters");
    if (name.ends_with(kFifo)) name.remove_suffix(kFifo.size());
    if (name.empty() || !std::all_of(name.begin(), name.end(), fits)) {
        return refused(
            "a name has letters, digits, - and _, and may end with .fifo; a template or the "
            "event's own topic has to make such a one");
    }
    return {};
}

}  // namespace outbox::sqs
