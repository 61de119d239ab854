#include "brokers/kafka/topics.h"

#include "core/routing.h"

namespace outbox::kafka {

Topic* Topics::find(std::string_view name) {
    if (last_ != nullptr && last_->name == name) return last_;
    const auto found = topics_.find(name);
    if (found == topics_.end()) return nullptr;
    last_ = &found->second;
    return last_;
}

Topic* Topics::find_or_add(std::string_view name, const std::function<void(Topic&)>& forget) {
    if (Topic* known = find(name)) return known;
    if (topics_.size() >= kMaxTopics) {
        last_ = nullptr;
        for (auto it = topics_.begin(); it != topics_.end();) {
            if (it->second.under_way > 0) {
                ++it;
                continue;
            }
            forget(it->second);
            it = topics_.erase(it);
        }
        if (topics_.size() >= kMaxTopics) return nullptr;
    }
    Topic& added = topics_[std::string(name)];
    added.name = name;
    if (!check_topic_name(name).ok()) added.state = Topic::State::kInvalid;
    last_ = &added;
    return last_;
}

Status check_topic_name(std::string_view topic) {
    if (Status valid = core::check_topic_name(topic); !valid.ok()) return valid;
    std::string what;
    if (topic == "." || topic == "..") {
        what = "is no name for a topic";
    } else if (topic.starts_with("__")) {
        what = "starts with '__', which is kept for the broker";
    } else if (const auto bad = topic.find_first_not_of(
                   "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
               bad != std::string_view::npos) {
        what = "has a character outside [a-zA-Z0-9._-] at offset " + std::to_string(bad);
    } else {
        return {};
    }
    return {ErrorCode::kTopicInvalid, Advice::kDeadLetter,
            "Kafka: topic '" + std::string(topic) + "' " + what};
}

}  // namespace outbox::kafka
