#include "core/routing.h"

#include <algorithm>
#include <cstdint>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/ascii.h"

namespace outbox::core {

namespace {

constexpr unsigned char kDelete = 0x7f;
constexpr std::size_t kMaxKeptBytes = std::size_t{256} << 10;  // of the topics that were made
constexpr std::size_t kMaxKeptKeyBytes = 512;                  // longer fields are rare: made anew

bool lists(const std::vector<std::string>& list, std::string_view value) {
    return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

Status invalid_topic(std::string message) {
    return {ErrorCode::kTopicInvalid, Advice::kDeadLetter, std::move(message)};
}

Status invalid_template(std::string_view text, const std::string& what) {
    return {ErrorCode::kConfigInvalid, Advice::kStop,
            "topic template '" + std::string(text) + "': " + what};
}

}  // namespace

bool Predicate::lists_match(const spi::EventView& event) const {
    return lists(aggregate_types, event.aggregate_type) && lists(event_types, event.event_type) &&
           lists(topics, event.topic) && lists(tenants, event.tenant_id);
}

// They come with an empty one. So the fingerprint changes just where the meaning does.
void Predicate::set_default_tenant(std::string_view tenant) {
    if (tenants.empty()) return;
    std::erase(tenants, "");
    if (lists(tenants, tenant)) tenants.emplace_back();
}

std::string Predicate::fingerprint() const {
    std::string all;
    for (const auto* list : {&aggregate_types, &event_types, &topics, &tenants}) {
        std::vector<std::string> sorted = *list;
        std::sort(sorted.begin(), sorted.end());
        all += std::to_string(sorted.size()) + ':';
        for (const std::string& one : sorted) all += std::to_string(one.size()) + ':' + one;
    }
    const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
    std::string text;
    for (const std::uint64_t half : {hash.high64, hash.low64}) {
        for (int bits = 60; bits >= 0; bits -= 4) text += "0123456789abcdef"[half >> bits & 0xFU];
    }
    return text;
}

Status check_topic_name(std::string_view topic) {
    if (topic.empty()) return invalid_topic("the topic is empty; set a topic or a topic template");
    if (topic.size() > kMaxTopicBytes) {
        return invalid_topic("the topic has " + std::to_string(topic.size()) +
                             " bytes; the limit is " + std::to_string(kMaxTopicBytes));
    }
    const auto bad = std::find_if(topic.begin(), topic.end(),
                                  [](unsigned char c) { return c <= ' ' || c == kDelete; });
    if (bad != topic.end()) {
        return invalid_topic("the topic has white space or a control character at offset " +
                             std::to_string(bad - topic.begin()));
    }
    return {};
}

Result<TopicRule> TopicRule::make(std::string_view topic_template, std::vector<std::string> allowed,
                                  std::string fallback, TopicSyntax syntax, TopicToken token,
                                  bool any_text) {
    TopicRule rule;
    rule.any_text_ = any_text;
    rule.syntax_ = syntax;
    rule.token_ = token;
    rule.allowed_ = std::move(allowed);
    rule.fallback_ = std::move(fallback);
    rule.cacheable_ = true;
    std::string_view rest = topic_template;
    while (!rest.empty()) {
        const std::size_t open = rest.find('{');
        const std::string_view text = rest.substr(0, open);
        if (text.find('}') != std::string_view::npos) {
            return invalid_template(topic_template, "'}' without '{'");
        }
        if (!text.empty()) rule.parts_.push_back({Field::kText, false, std::string(text)});
        if (open == std::string_view::npos) break;
        const std::size_t close = rest.find('}', open);
        if (close == std::string_view::npos) {
            return invalid_template(topic_template, "'{' without '}'");
        }
        std::string_view name = rest.substr(open + 1, close - open - 1);
        Part part;
        if (const std::size_t bar = name.find('|'); bar != std::string_view::npos) {
            if (name.substr(bar + 1) != "lower") {
                return invalid_template(
                    topic_template,
                    "unknown filter '" + std::string(name.substr(bar + 1)) + "'; there is 'lower'");
            }
            part.lower = true;
            name = name.substr(0, bar);
        }
        if (name == "aggregate_type") {
            part.field = Field::kAggregateType;
        } else if (name == "event_type") {
            part.field = Field::kEventType;
        } else if (name == "tenant_id") {
            part.field = Field::kTenant;
        } else if (name == "routing_key") {
            part.field = Field::kRoutingKey;
        } else if (name == "key") {
            part.field = Field::kKey;
        } else {
            return invalid_template(topic_template,
                                    "unknown field '" + std::string(name) +
                                        "'; there are aggregate_type, event_type, tenant_id, "
                                        "routing_key and key");
        }
        rule.cacheable_ = rule.cacheable_ &&
                          (part.field == Field::kAggregateType || part.field == Field::kEventType);
        rule.by_aggregate_type_ |= part.field == Field::kAggregateType;
        rule.by_event_type_ |= part.field == Field::kEventType;
        rule.parts_.push_back(std::move(part));
        rest.remove_prefix(close + 1);
    }
    const std::string example = rule.make_example();
    if (example.empty()) return rule;
    if (Status valid = rule.check_name(example); !valid.ok()) {
        return invalid_template(
            topic_template, "it makes topics such as '" + example + "': " + valid.error().message);
    }
    return rule;
}

// With values that no destination refuses.
std::string TopicRule::make_example() const {
    std::string made;
    for (const Part& part : parts_) {
        made += part.field == Field::kText ? part.text : make_token(part, "x");
    }
    return made;
}

Status TopicRule::check_name(std::string_view topic) const {
    if (any_text_) return {};
    Status valid = check_topic_name(topic);
    return valid.ok() && syntax_ != nullptr ? syntax_(topic) : valid;
}

Status TopicRule::check(std::string_view topic) const {
    if (Status valid = check_name(topic); !valid.ok()) return valid;
    if (allowed_.empty()) return {};
    const bool listed =
        std::any_of(allowed_.begin(), allowed_.end(), [&](const std::string& entry) {
            if (!entry.empty() && entry.back() == '*') {
                return topic.starts_with(std::string_view(entry).substr(0, entry.size() - 1));
            }
            return topic == entry;
        });
    if (listed) return {};
    return invalid_topic("topic '" + std::string(topic) +
                         "' is not in the route's list of allowed topics");
}

// What the topic is made of, into `scratch_`; false: too long to be kept.
bool TopicRule::name_fields(const spi::EventView& event) {
    const std::string_view aggregate = by_aggregate_type_ ? event.aggregate_type : "";
    const std::string_view type = by_event_type_ ? event.event_type : "";
    if (aggregate.size() + type.size() > kMaxKeptKeyBytes) return false;
    scratch_.assign(aggregate);
    scratch_ += '\0';
    scratch_ += type;
    return true;
}

// Empty where a field is missing.
std::string TopicRule::make_topic(const spi::EventView& event) const {
    std::string made;
    for (const Part& part : parts_) {
        std::string_view value;
        switch (part.field) {
            case Field::kText:
                made += part.text;
                continue;
            case Field::kAggregateType:
                value = event.aggregate_type;
                break;
            case Field::kEventType:
                value = event.event_type;
                break;
            case Field::kTenant:
                value = event.tenant_id;
                break;
            case Field::kRoutingKey:
                value = event.routing_key;
                break;
            case Field::kKey:
                value = event.order_key();
                break;
        }
        if (value.empty()) return {};
        made += make_token(part, value);
    }
    return made;
}

std::string TopicRule::make_token(const Part& part, std::string_view value) const {
    std::string token = part.lower ? lower(value) : std::string(value);
    return token_ == nullptr ? token : token_(token);
}

Result<std::string_view> TopicRule::topic(const spi::EventView& event, spi::EventBatch& batch) {
    const bool own = !event.topic.empty();
    const bool keeps = !own && cacheable_ && name_fields(event);
    if (keeps) {
        if (const auto it = made_.find(scratch_); it != made_.end()) {
            return std::string_view(it->second);
        }
    }
    if (own) {
        if (Status valid = check(event.topic); !valid.ok()) return valid;
        return event.topic;
    }
    std::string made = make_topic(event);
    if (made.empty()) made = fallback_;
    if (Status valid = check(made); !valid.ok()) return valid;
    if (keeps && kept_bytes_ + scratch_.size() + made.size() <= kMaxKeptBytes) {
        kept_bytes_ += scratch_.size() + made.size();
        return std::string_view(made_.emplace(scratch_, std::move(made)).first->second);
    }
    return batch.copy(made);
}

}  // namespace outbox::core
