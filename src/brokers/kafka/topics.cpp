#include "brokers/kafka/topics.h"

#include "core/routing.h"

namespace outbox::sinks::kafka {

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
    if (!core::check_topic_name(name).ok()) added.state = Topic::State::kInvalid;
    last_ = &added;
    return last_;
}

}  // namespace outbox::sinks::kafka
