#include "schema/json_schema.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "schema/rules.h"
#include "schema/shown.h"

namespace outbox::schema {
namespace {

using Kind = JsonValue::Kind;
using Outcome = JsonSchema::Outcome;
using Violation = JsonSchema::Violation;

constexpr std::size_t kMaxPathShown = 500;
constexpr std::size_t kBytesPerStep = 16;      // of texts that are gone over
constexpr std::size_t kStepsPerLook = 10'000;  // for `stop`

std::size_t code_points(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    }));
}

std::string text_of(const Decimal& number) {
    std::string text;
    number.append_to(text);
    if (text.size() > kMaxShown) text.replace(kMaxShown, std::string::npos, "...");
    return text;
}

// Where in the payload.
struct Step {
    std::string_view name = {};
    std::size_t index = 0;
    bool is_index = false;
};

class Check {
  public:
    Check(std::size_t max_steps, const std::stop_token& stop)
        : max_steps_(max_steps), stop_(stop) {}

    Outcome run(const Rule& rule, const JsonValue& value, Violation& out) {
        const bool result = holds(rule, value);
        if (stop_.stop_requested()) return Outcome::kStopped;
        if (result) return Outcome::kHolds;
        if (found_) out = *std::move(found_);
        return Outcome::kViolates;
    }

  private:
    // False: it does not, and `found_` says why, unless nobody wants to know.
    bool holds(const Rule& rule, const JsonValue& value) {
        if (stopped_) return false;
        ++steps_;
        if (!may_go_on(rule)) return false;
        if (depth_ >= JsonSchema::kMaxDepth || in_place_ >= JsonSchema::kMaxInPlace) {
            return stop(rule,
                        "it is nested too deeply to be checked by this schema, or the schema "
                        "refers to itself without end");
        }
        ++depth_;
        ++in_place_;
        const bool result = applies(rule, value);
        --depth_;
        --in_place_;
        return result && may_go_on(rule);
    }

    bool may_go_on(const Rule& rule) {
        if (steps_ > max_steps_) {
            return stop(rule,
                        "it takes more than " + std::to_string(max_steps_) + " steps to check");
        }
        if (steps_ < next_look_) return true;
        next_look_ = steps_ + kStepsPerLook;
        return !stop_.stop_requested() || stop(rule, "the relay stops");
    }

    // A text that is gone over.
    std::string_view read(std::string_view text) {
        steps_ += text.size() / kBytesPerStep;
        return text;
    }

    bool applies(const Rule& rule, const JsonValue& value) {
        if (rule.ref != nullptr) return holds(*rule.ref, value);
        if (rule.never) return broken(rule, "", "nothing may be here");
        if (!type_holds(rule, value) || !values_hold(rule, value)) return false;
        bool own = true;
        switch (value.kind) {
            case Kind::kNumber:
                own = number_holds(rule, value);
                break;
            case Kind::kString:
                own = string_holds(rule, value.text());
                break;
            case Kind::kArray:
                own = array_holds(rule, value);
                break;
            case Kind::kObject:
                own = object_holds(rule, value);
                break;
            default:
                break;
        }
        return own && others_hold(rule, value);
    }

    bool type_holds(const Rule& rule, const JsonValue& value) {
        if (rule.types == 0) return true;
        bool fits = (rule.types >> static_cast<unsigned>(value.kind) & 1U) != 0;
        if (fits && rule.integer && value.is(Kind::kNumber)) {
            const std::string_view text = read(value.text());
            fits = rule.strict_integer ? text.find_first_of(".eE") == std::string_view::npos
                                       : Decimal(text).is_integer();
        }
        if (fits) return true;
        return broken(rule, "/type",
                      "is " + std::string(name_of(value.kind)) + ", and has to be of the type " +
                          rule.type_names);
    }

    bool values_hold(const Rule& rule, const JsonValue& value) {
        if (!rule.has_values && !rule.has_constant) return true;
        // What is longer is none of them.
        std::string text;
        append_canonical(value, text, rule.longest_value);
        read(text);
        if (rule.has_values && !rule.values.contains(text)) {
            return broken(rule, "/enum", "is none of the values of enum");
        }
        return !rule.has_constant || rule.constant == text ||
               broken(rule, "/const", "is not the value of const");
    }

    bool number_holds(const Rule& rule, const JsonValue& value) {
        if (!rule.minimum && !rule.maximum && !rule.above && !rule.below && !rule.multiple_of) {
            return true;
        }
        const Decimal number(read(value.text()));
        if (rule.minimum && number < *rule.minimum) {
            return broken(rule, "/minimum", "is less than " + text_of(*rule.minimum));
        }
        if (rule.maximum && number > *rule.maximum) {
            return broken(rule, "/maximum", "is more than " + text_of(*rule.maximum));
        }
        if (rule.above && number <= *rule.above) {
            return broken(rule, "/exclusiveMinimum", "is not more than " + text_of(*rule.above));
        }
        if (rule.below && number >= *rule.below) {
            return broken(rule, "/exclusiveMaximum", "is not less than " + text_of(*rule.below));
        }
        if (rule.multiple_of) steps_ += number.digits();
        return !rule.multiple_of || number.is_multiple_of(*rule.multiple_of) ||
               broken(rule, "/multipleOf", "is not a multiple of " + text_of(*rule.multiple_of));
    }

    bool range_holds(const Rule& rule, const Rule::Range& range, std::size_t count,
                     std::string_view of, std::string_view unit) {
        if (range.least && count < *range.least) {
            return broken(rule, "/min" + std::string(of),
                          "has " + std::to_string(count) + " " + std::string(unit) +
                              ", and needs at least " + std::to_string(*range.least));
        }
        return !range.most || count <= *range.most ||
               broken(rule, "/max" + std::string(of),
                      "has " + std::to_string(count) + " " + std::string(unit) +
                          ", and may have at most " + std::to_string(*range.most));
    }

    bool string_holds(const Rule& rule, std::string_view text) {
        if ((rule.length.least || rule.length.most) &&
            !range_holds(rule, rule.length, code_points(read(text)), "Length", "characters")) {
            return false;
        }
        return rule.pattern == nullptr || matches(rule, *rule.pattern, text, "/pattern") ||
               broken(rule, "/pattern", "does not match the pattern");
    }

    bool matches(const Rule& rule, const Pattern& pattern, std::string_view text,
                 std::string_view keyword) {
        const Pattern::Outcome outcome = pattern.search(text, steps_, max_steps_, stop_);
        if (outcome == Pattern::Outcome::kTooManySteps) {
            stop(rule, "its " + std::string(keyword.substr(1)) + " takes too many steps to search");
        }
        return outcome == Pattern::Outcome::kFound;
    }

    bool holds_at(const Rule* rule, const JsonValue& value, Step step) {
        if (rule == nullptr) return true;
        const std::size_t in_place = std::exchange(in_place_, 0);
        path_.push_back(step);
        const bool result = holds(*rule, value);
        path_.pop_back();
        in_place_ = in_place;
        return result;
    }

    bool array_holds(const Rule& rule, const JsonValue& value) {
        const auto items = value.items();
        if (!range_holds(rule, rule.items_count, items.size(), "Items", "items")) return false;
        if (rule.unique_items && !items_differ(rule, items)) return false;
        const bool all = rule.items != nullptr || rule.more_items != nullptr;
        const std::size_t ruled =
            all ? items.size() : std::min(rule.first_items.size(), items.size());
        for (std::size_t i = 0; i < ruled; ++i) {
            const Rule* of_item = rule.items != nullptr         ? rule.items
                                  : i < rule.first_items.size() ? rule.first_items[i]
                                                                : rule.more_items;
            if (!holds_at(of_item, items[i], {.index = i, .is_index = true})) return false;
        }
        if (rule.contains == nullptr) return true;
        for (std::size_t i = 0; i < items.size(); ++i) {
            const Quiet quiet(*this);
            if (holds_at(rule.contains, items[i], {.index = i, .is_index = true})) return true;
        }
        return broken(rule, "/contains", "has no item such as contains wants one");
    }

    // By hashes, as what is compared would take several times the payload's memory.
    bool items_differ(const Rule& rule, std::span<const JsonValue> items) {
        std::vector<std::pair<std::size_t, std::uint32_t>> seen;
        seen.reserve(items.size());
        std::string text;
        for (std::uint32_t i = 0; i < items.size(); ++i) {
            seen.emplace_back(std::hash<std::string_view>()(canonical(items[i], text)), i);
        }
        std::sort(seen.begin(), seen.end());
        std::size_t twice = items.size();
        std::string other;
        for (std::size_t i = 0, begin = 0; i < seen.size() && steps_ <= max_steps_; ++i) {
            if (seen[i].first != seen[begin].first) begin = i;
            if (begin == i || seen[i].second > twice) continue;
            canonical(items[seen[i].second], text);
            for (std::size_t j = begin; j < i && steps_ <= max_steps_; ++j) {
                if (canonical(items[seen[j].second], other) == text) twice = seen[i].second;
            }
        }
        return twice == items.size() ||
               broken(rule, "/uniqueItems", "has the item " + std::to_string(twice) + " twice");
    }

    const std::string& canonical(const JsonValue& value, std::string& text) {
        text.clear();
        append_canonical(value, text);
        steps_ += 1 + text.size() / kBytesPerStep;
        return text;
    }

    bool object_holds(const Rule& rule, const JsonValue& value) {
        const auto members = value.members();
        if (!range_holds(rule, rule.members_count, members.size(), "Properties", "properties")) {
            return false;
        }
        steps_ += rule.required.size() + rule.needs_members.size() + rule.needs_rules.size();
        for (const std::string_view name : rule.required) {
            if (value.find(name) == nullptr) {
                return broken(rule, "/required", "has no property " + quoted(name));
            }
        }
        const bool ruled = rule.property_names != nullptr || !rule.properties.empty() ||
                           !rule.pattern_properties.empty() ||
                           rule.additional_properties != nullptr;
        for (const JsonMember& member : ruled ? members : std::span<const JsonMember>()) {
            if (!member_holds(rule, member)) return false;
        }
        for (const auto& [name, needed] : rule.needs_members) {
            if (value.find(name) == nullptr) continue;
            steps_ += needed.size();
            for (const std::string_view other : needed) {
                if (value.find(other) != nullptr) continue;
                return broken(rule, "/dependencies",
                              "has " + quoted(name) + " and not " + quoted(other));
            }
        }
        return std::all_of(
            rule.needs_rules.begin(), rule.needs_rules.end(), [&](const auto& dependency) {
                return value.find(dependency.first) == nullptr || holds(*dependency.second, value);
            });
    }

    bool member_holds(const Rule& rule, const JsonMember& member) {
        ++steps_;
        read(member.name);
        if (!may_go_on(rule)) return false;
        const Step step{.name = member.name};
        if (rule.property_names != nullptr) {
            const JsonValue name{.start = member.name.data(),
                                 .count = static_cast<std::uint32_t>(member.name.size()),
                                 .kind = Kind::kString};
            if (!holds_at(rule.property_names, name, step)) return false;
        }
        bool known = false;
        const auto property =
            std::lower_bound(rule.properties.begin(), rule.properties.end(), member.name,
                             [](const auto& one, std::string_view n) { return one.first < n; });
        if (property != rule.properties.end() && property->first == member.name) {
            known = true;
            if (!holds_at(property->second, member.value, step)) return false;
        }
        for (const auto& [pattern, of_value] : rule.pattern_properties) {
            if (!matches(rule, *pattern, member.name, "/patternProperties")) {
                if (stopped_) return false;
                continue;
            }
            known = true;
            if (!holds_at(of_value, member.value, step)) return false;
        }
        return known || holds_at(rule.additional_properties, member.value, step);
    }

    bool others_hold(const Rule& rule, const JsonValue& value) {
        for (const Rule* one : rule.all_of) {
            if (!holds(*one, value)) return false;
        }
        if (!rule.any_of.empty() && !any_holds(rule, value)) return false;
        if (!rule.one_of.empty() && !one_holds(rule, value)) return false;
        if (rule.negated != nullptr && quietly(*rule.negated, value)) {
            return broken(rule, "/not", "is what not rules out");
        }
        if (rule.condition == nullptr) return !stopped_;
        const Rule* then = quietly(*rule.condition, value) ? rule.consequence : rule.alternative;
        return !stopped_ && (then == nullptr || holds(*then, value));
    }

    bool quietly(const Rule& rule, const JsonValue& value) {
        const Quiet quiet(*this);
        return holds(rule, value);
    }

    // Where none holds, what the one says that came farthest is worth telling.
    bool any_holds(const Rule& rule, const JsonValue& value) {
        std::optional<Violation> nearest;
        for (const Rule* one : rule.any_of) {
            if (holds(*one, value)) {
                found_.reset();
                return true;
            }
            if (stopped_) return false;
            keep_nearest(nearest);
        }
        return broken(rule, "/anyOf", "is like none of anyOf", nearest);
    }

    bool one_holds(const Rule& rule, const JsonValue& value) {
        std::optional<Violation> nearest;
        std::size_t count = 0;
        for (const Rule* one : rule.one_of) {
            if (holds(*one, value)) ++count;
            if (stopped_) return false;
            keep_nearest(nearest);
        }
        if (count == 1) return true;
        return count == 0 ? broken(rule, "/oneOf", "is like none of oneOf", nearest)
                          : broken(rule, "/oneOf", "is like more than one of oneOf");
    }

    void keep_nearest(std::optional<Violation>& nearest) {
        if (found_ && (!nearest || found_->path.size() > nearest->path.size())) {
            nearest = std::move(found_);
        }
        found_.reset();
    }

    // While it lives nothing is told.
    class Quiet {
      public:
        explicit Quiet(Check& check) : check_(check) { ++check_.quiet_; }
        ~Quiet() { --check_.quiet_; }
        Quiet(const Quiet&) = delete;
        Quiet& operator=(const Quiet&) = delete;

      private:
        Check& check_;
    };

    bool broken(const Rule& rule, std::string_view keyword, std::string why,
                const std::optional<Violation>& nearest = {}) {
        if (quiet_ > 0 || stopped_) return false;
        std::string path;
        for (const Step& step : path_) {
            if (path.size() > kMaxPathShown) {
                path += "/...";
                break;
            }
            path += '/';
            if (step.is_index) {
                path += std::to_string(step.index);
                continue;
            }
            for (const char c : shown(step.name)) {
                path += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
            }
        }
        // What is deeper within says more.
        if (nearest && nearest->path.size() > path.size()) {
            found_ = nearest;
            const std::string note = " (none of " + std::string(keyword.substr(1)) + " fits)";
            if (!found_->rule.ends_with(" fits)")) found_->rule += note;
            return false;
        }
        found_ = Violation{std::move(path), std::move(why), rule.place + std::string(keyword)};
        return false;
    }

    bool stop(const Rule& rule, const std::string& why) {
        if (stopped_) return false;
        quiet_ = 0;
        broken(rule, "", why);
        stopped_ = true;
        return false;
    }

    const std::size_t max_steps_;
    const std::stop_token& stop_;
    std::vector<Step> path_;
    std::size_t depth_ = 0;
    std::size_t in_place_ = 0;
    std::size_t steps_ = 0;
    std::size_t next_look_ = 0;
    int quiet_ = 0;
    bool stopped_ = false;
    std::optional<Violation> found_;
};

}  // namespace

JsonSchema::~JsonSchema() = default;
JsonSchema::JsonSchema(JsonSchema&&) noexcept = default;
JsonSchema& JsonSchema::operator=(JsonSchema&&) noexcept = default;

std::optional<JsonSchema> JsonSchema::compile(std::string_view text, const References& references,
                                              std::string& why) {
    JsonSchema schema;
    schema.rules_ = compile_rules(text, references, why);
    if (schema.rules_ == nullptr) return std::nullopt;
    return schema;
}

std::size_t JsonSchema::bytes() const {
    return rules_->bytes;
}

Outcome JsonSchema::check(std::string_view payload, const std::stop_token& stop,
                          Violation& out) const {
    std::string why;
    const auto document = JsonDocument::read(payload, why);
    if (!document) {
        out = {"", why, ""};
        return Outcome::kViolates;
    }
    const std::size_t max_steps = kMaxSteps + kStepsPerByte * payload.size();
    return Check(max_steps, stop).run(*rules_->root, document->root(), out);
}

std::optional<Violation> JsonSchema::check(std::string_view payload) const {
    Violation found;
    return check(payload, {}, found) == Outcome::kHolds ? std::nullopt : std::optional(found);
}

}  // namespace outbox::schema
