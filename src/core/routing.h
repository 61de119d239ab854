#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>

namespace outbox::core {

/// Which events a route takes: each non-empty list must hold the event's field.
struct Predicate {
    std::vector<std::string> aggregate_types;
    std::vector<std::string> event_types;
    std::vector<std::string> topics;
    std::vector<std::string> tenants;

    [[nodiscard]] bool matches(const spi::EventView& event) const {
        return takes_all() || lists_match(event);
    }
    [[nodiscard]] bool takes_all() const {
        return aggregate_types.empty() && event_types.empty() && topics.empty() && tenants.empty();
    }
    /// From now on events without a tenant belong to this one.
    void set_default_tenant(std::string_view tenant);
    /// Names what it takes, for ever: equal for equal predicates, and else not.
    [[nodiscard]] std::string fingerprint() const;

  private:
    [[nodiscard]] bool lists_match(const spi::EventView& event) const;
};

/// What a destination asks of its topics' names beyond `check_topic_name`; null: nothing. Errors:
/// kTopicInvalid/dead_letter.
using TopicSyntax = Status (*)(std::string_view topic);

/// How a destination writes a field's value inside a topic that a template makes; null: as it is.
using TopicToken = std::string (*)(std::string_view value);

/// Where an event of a route goes: its own topic, else the template, else the fallback.
/// Not thread-safe (keeps the last topics that it made).
class TopicRule {
  public:
    /// `topic_template` holds text and `{field}` or `{field|lower}`, where field is one of
    /// aggregate_type, event_type, tenant_id, routing_key, key. `allowed` are exact names or
    /// prefixes ending in '*'; empty: every valid name. `fallback` is used when a field of the
    /// template is missing in the event. `any_text`: a topic names no place there, so that it need
    /// not be a name, and `allowed` alone counts. Errors: kConfigInvalid/stop for a malformed
    /// template, and for one whose own text no topic there can have.
    static Result<TopicRule> make(std::string_view topic_template, std::vector<std::string> allowed,
                                  std::string fallback, TopicSyntax syntax = nullptr,
                                  TopicToken token = nullptr, bool any_text = false);

    /// The topic of an event; the view lives as long as `batch` or this object.
    /// Errors: kTopicInvalid/dead_letter with the cause.
    Result<std::string_view> topic(const spi::EventView& event, spi::EventBatch& batch);

    /// Whether records may go to the topic. Errors: kTopicInvalid/dead_letter with the cause.
    [[nodiscard]] Status check(std::string_view topic) const;

    [[nodiscard]] std::size_t kept_bytes() const { return kept_bytes_; }  ///< Of the last topics.

  private:
    enum class Field : std::uint8_t {
        kText,
        kAggregateType,
        kEventType,
        kTenant,
        kRoutingKey,
        kKey
    };
    struct Part {
        Field field = Field::kText;
        bool lower = false;
        std::string text;
    };

    [[nodiscard]] bool name_fields(const spi::EventView& event);
    [[nodiscard]] Status check_name(std::string_view topic) const;
    [[nodiscard]] std::string make_example() const;
    [[nodiscard]] std::string make_topic(const spi::EventView& event) const;
    [[nodiscard]] std::string make_token(const Part& part, std::string_view value) const;

    std::vector<Part> parts_;
    std::vector<std::string> allowed_;
    std::string fallback_;
    TopicSyntax syntax_ = nullptr;
    TopicToken token_ = nullptr;
    bool any_text_ = false;
    bool cacheable_ = false;  // made of aggregate and event type only
    bool by_aggregate_type_ = false;
    bool by_event_type_ = false;
    std::string scratch_;
    std::unordered_map<std::string, std::string> made_;
    std::size_t kept_bytes_ = 0;  // of `made_`
};

/// The longest topic of an event, whatever a broker would take; the tables check it, too.
inline constexpr std::size_t kMaxTopicBytes = 249;

/// Topic names have 1 to 249 bytes, without white space and control characters; a destination may
/// ask for more. The message says what is wrong.
Status check_topic_name(std::string_view topic);

}  // namespace outbox::core
