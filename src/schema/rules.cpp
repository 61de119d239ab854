#include "schema/rules.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <memory>
#include <unordered_map>

#include "core/url.h"
#include "core/utf8.h"
#include "schema/shown.h"
#include "schema/uri.h"

namespace outbox::schema {
namespace {

using Kind = JsonValue::Kind;

enum class Draft : std::uint8_t { k4, k6, k7 };

constexpr std::size_t kMaxRules = 20'000;
constexpr std::size_t kMaxPatternBytes = std::size_t{8} << 20;  // compiled, of a whole schema
constexpr std::size_t kMaxUri = 4'096;
constexpr std::size_t kMaxPointer = 500;  // which is for messages alone

// Thrown within this file alone; `compile_rules` makes a message of it.
struct Refusal {
    std::string why;
};

[[noreturn]] void refuse(const std::string& place, const std::string& why) {
    throw Refusal{"at " + (place.empty() ? "its root" : to_printable(place)) + ": " + why};
}

// A pointer to what is within, cut where it becomes too long to be shown.
std::string within(const std::string& pointer, std::string_view text) {
    std::string out = pointer;
    if (out.size() > kMaxPointer) return out;
    out += '/';
    text = text.substr(0, kMaxPointer);
    for (const char c : text) {
        if (c == '~') {
            out += "~0";
        } else if (c == '/') {
            out += "~1";
        } else {
            out += c;
        }
    }
    return out;
}

// Keywords whose values are a schema, a list, or an object of them.
constexpr std::array<std::string_view, 9> kOne{"additionalItems",
                                               "additionalProperties",
                                               "contains",
                                               "else",
                                               "if",
                                               "items",
                                               "not",
                                               "propertyNames",
                                               "then"};
constexpr std::array<std::string_view, 4> kList{"allOf", "anyOf", "oneOf", "items"};
constexpr std::array<std::string_view, 5> kNamed{"definitions", "dependencies", "patternProperties",
                                                 "properties", "$defs"};

// Keywords of later drafts: who writes them believes that they are looked at.
constexpr std::array<std::string_view, 10> kOfLater{
    "$dynamicRef", "$recursiveRef", "dependentRequired",     "dependentSchemas", "maxContains",
    "minContains", "prefixItems",   "unevaluatedProperties", "unevaluatedItems", "$vocabulary"};
constexpr std::array<std::string_view, 3> kOf7{"if", "then", "else"};
constexpr std::array<std::string_view, 3> kOf6{"const", "contains", "propertyNames"};

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

class Compiler {
  public:
    explicit Compiler(Rules& out) : out_(out) {}

    // The first is the schema itself; what it says of its draft holds for those that say nothing.
    void add(std::string_view uri, std::string_view text) {
        const std::string& kept = out_.texts.emplace_back(text);
        std::string why;
        auto document = JsonDocument::read(kept, why);
        if (!document) refuse("", "the document " + quoted(uri) + " " + why);
        const JsonValue& root = out_.documents.emplace_back(std::move(*document)).root();
        const Draft draft = draft_of(root);
        if (roots_.empty()) main_draft_ = draft;
        roots_.emplace(std::string(uri), &root);
        index(root, {std::make_shared<const std::string>(uri), draft, ""});
    }

    const Rule* compile(std::string_view uri) {
        const JsonValue& root = *roots_.find(uri)->second;
        const Rule* rule = rule_of(root, places_.at(&root));
        while (!waiting_.empty()) {
            const auto [from, target, base] = waiting_.back();
            waiting_.pop_back();
            from->ref = resolve(*from, target, base);
        }
        return rule;
    }

  private:
    struct Place {
        std::shared_ptr<const std::string> base;  // URI without a fragment
        Draft draft = Draft::k7;
        std::string pointer;
    };
    struct Reference {
        Rule* from;
        std::string target;
        Place base;
    };

    Draft draft_of(const JsonValue& root) const {
        const JsonValue* named = root.find("$schema");
        if (named == nullptr) return main_draft_;
        std::string_view text = named->text();
        if (text.ends_with('#')) text.remove_suffix(1);
        for (const std::string_view scheme : {"http://", "https://"}) {
            if (text.starts_with(scheme)) text.remove_prefix(scheme.size());
        }
        if (text == "json-schema.org/draft-04/schema") return Draft::k4;
        if (text == "json-schema.org/draft-06/schema") return Draft::k6;
        if (text == "json-schema.org/draft-07/schema" || text == "json-schema.org/schema") {
            return Draft::k7;
        }
        refuse("/$schema", quoted(named->text()) + " is none of the drafts 4, 6 and 7");
    }

    static std::string_view id_of(const JsonValue& schema, Draft draft) {
        const JsonValue* ref = schema.find("$ref");
        if (ref != nullptr && ref->is(Kind::kString)) return {};  // it stands alone
        const JsonValue* id = schema.find(draft == Draft::k4 ? "id" : "$id");
        return id != nullptr && id->is(Kind::kString) ? id->text() : std::string_view();
    }

    // What a schema within another one calls itself.
    Place enter(const JsonValue& schema, Place place) {
        const std::string_view id = id_of(schema, place.draft);
        if (id.empty()) return place;
        const std::string uri = resolve_uri(*place.base, id);
        if (uri.size() > kMaxUri) refuse(place.pointer, "its id is too long");
        const std::size_t hash = uri.find('#');
        named_.emplace(uri.ends_with('#') ? uri.substr(0, hash) : uri, &schema);
        if (!id.starts_with('#'))
            place.base = std::make_shared<const std::string>(uri.substr(0, hash));
        return place;
    }

    // Where schemas stand, that they are found by their names.
    void index(const JsonValue& schema, const Place& outer) {
        if (places_.size() >= kMaxRules) refuse(outer.pointer, "it has too many subschemas");
        if (!schema.is(Kind::kObject)) {
            places_.emplace(&schema, outer);
            return;
        }
        const Place place = enter(schema, outer);
        places_.emplace(&schema, place);
        for (const auto& [name, value] : schema.members()) {
            const Place below{place.base, place.draft, within(place.pointer, name)};
            if (is_one_of(name, kOne) && (value.is(Kind::kObject) || value.is_bool())) {
                index(value, below);
            } else if (is_one_of(name, kList) && value.is(Kind::kArray)) {
                for (std::size_t i = 0; i < value.items().size(); ++i) {
                    index(value.items()[i],
                          {below.base, below.draft, within(below.pointer, std::to_string(i))});
                }
            } else if (is_one_of(name, kNamed) && value.is(Kind::kObject)) {
                for (const auto& [key, one] : value.members()) {
                    index(one, {below.base, below.draft, within(below.pointer, key)});
                }
            }
        }
    }

    const Rule* resolve(const Rule& from, const std::string& target, const Place& base) {
        const std::string uri = resolve_uri(*base.base, target);
        const std::size_t hash = std::min(uri.find('#'), uri.size());
        const std::string document = uri.substr(0, hash);
        const std::string fragment =
            hash < uri.size() ? percent_decode(std::string_view(uri).substr(hash + 1)) : "";
        const JsonValue* schema = nullptr;
        if (!fragment.empty() && !fragment.starts_with('/')) {
            schema = find(uri.substr(0, hash) + "#" + fragment);
        } else {
            schema = find(document);
            if (schema == nullptr) schema = find(target.substr(0, target.find('#')));
        }
        if (schema == nullptr) {
            refuse(from.place, "$ref " + quoted(target) + " leads to nothing that is here");
        }
        const auto known = places_.find(schema);
        Place place = known != places_.end() ? known->second : base;
        if (fragment.starts_with('/')) schema = walk(from, *schema, fragment, place);
        return rule_of(*schema, place);
    }

    const JsonValue* find(std::string_view uri) const {
        const auto named = named_.find(uri);
        if (named != named_.end()) return named->second;
        const auto root = roots_.find(uri);
        return root == roots_.end() ? nullptr : root->second;
    }

    const JsonValue* walk(const Rule& from, const JsonValue& root, std::string_view pointer,
                          Place& place) {
        const JsonValue* at = &root;
        while (!pointer.empty()) {
            pointer.remove_prefix(1);
            const std::size_t end = std::min(pointer.find('/'), pointer.size());
            std::string token;
            for (std::size_t i = 0; i < end; ++i) {
                const bool escaped = pointer[i] == '~' && i + 1 < end;
                token += escaped ? (pointer[++i] == '1' ? '/' : '~') : pointer[i];
            }
            pointer.remove_prefix(end);
            const JsonValue* next = at->find(token);
            std::size_t index = 0;
            const auto [last, error] =
                std::from_chars(token.data(), token.data() + token.size(), index);
            if (at->is(Kind::kArray) && error == std::errc() &&
                last == token.data() + token.size() && index < at->items().size()) {
                next = &at->items()[index];
            }
            if (next == nullptr) {
                refuse(from.place,
                       "its $ref leads to " + quoted(token) + ", and there is no such thing");
            }
            at = next;
            const std::string below = within(place.pointer, token);
            const auto known = places_.find(at);
            if (known != places_.end()) {
                place = known->second;
            } else {
                place = enter(*at, {place.base, place.draft, below});
            }
        }
        return at;
    }

    const Rule* rule_of(const JsonValue& schema, const Place& place) {
        const auto [found, is_new] = done_.emplace(&schema, nullptr);
        if (!is_new) return found->second;
        if (out_.rules.size() >= kMaxRules) refuse(place.pointer, "it has too many subschemas");
        Rule& rule = out_.rules.emplace_back();
        found->second = &rule;
        rule.place = place.pointer;
        if (schema.is_bool() && place.draft != Draft::k4) {
            rule.never = schema.is(Kind::kFalse);
            return &rule;
        }
        if (!schema.is(Kind::kObject)) {
            refuse(place.pointer,
                   "a schema is an object, and this is " + std::string(name_of(schema.kind)));
        }
        const JsonValue* ref = schema.find("$ref");
        if (ref != nullptr && ref->is(Kind::kString)) {
            waiting_.push_back({&rule, std::string(ref->text()), place});
            return &rule;
        }
        refuse_later_keywords(schema, place);
        take_values(schema, place, rule);
        take_numbers(schema, place, rule);
        take_sizes(schema, place, rule);
        take_members(schema, place, rule);
        take_items(schema, place, rule);
        take_others(schema, place, rule);
        return &rule;
    }

    static void refuse_later_keywords(const JsonValue& schema, const Place& place) {
        for (const auto& [name, value] : schema.members()) {
            if (is_one_of(name, kOfLater) || (place.draft < Draft::k7 && is_one_of(name, kOf7)) ||
                (place.draft < Draft::k6 && is_one_of(name, kOf6))) {
                refuse(place.pointer, quoted(name) +
                                          " is a keyword of a later draft of JSON Schema than "
                                          "this schema's, and would not be looked at");
            }
        }
    }

    [[noreturn]] static void wrong(const Place& place, std::string_view keyword,
                                   const std::string& wanted) {
        refuse(place.pointer, std::string(keyword) + " has to be " + wanted);
    }

    const Rule* below(const JsonValue& schema, const Place& place, std::string_view token) {
        Place here{place.base, place.draft, within(place.pointer, token)};
        const auto known = places_.find(&schema);
        if (known != places_.end()) return rule_of(schema, known->second);
        return rule_of(schema, enter(schema, std::move(here)));
    }
    static Place under(const Place& place, std::string_view keyword) {
        return {place.base, place.draft, within(place.pointer, keyword)};
    }

    const Rule* one(const JsonValue& schema, const Place& place, std::string_view keyword) {
        const JsonValue* value = schema.find(keyword);
        return value == nullptr ? nullptr : below(*value, place, keyword);
    }

    void list(const JsonValue& schema, const Place& place, std::string_view keyword,
              std::vector<const Rule*>& to) {
        const JsonValue* value = schema.find(keyword);
        if (value == nullptr) return;
        if (!value->is(Kind::kArray) || value->items().empty()) {
            wrong(place, keyword, "an array with schemas in it");
        }
        for (std::size_t i = 0; i < value->items().size(); ++i) {
            to.push_back(below(value->items()[i], under(place, keyword), std::to_string(i)));
        }
    }

    void take_values(const JsonValue& schema, const Place& place, Rule& rule) {
        if (const JsonValue* type = schema.find("type")) {
            const auto add = [&](const JsonValue& name) {
                constexpr std::array<std::pair<std::string_view, unsigned>, 7> kTypes{
                    {{"null", 1U << static_cast<unsigned>(Kind::kNull)},
                     {"boolean", 1U << static_cast<unsigned>(Kind::kFalse) |
                                     1U << static_cast<unsigned>(Kind::kTrue)},
                     {"number", 1U << static_cast<unsigned>(Kind::kNumber)},
                     {"integer", 0U},
                     {"string", 1U << static_cast<unsigned>(Kind::kString)},
                     {"array", 1U << static_cast<unsigned>(Kind::kArray)},
                     {"object", 1U << static_cast<unsigned>(Kind::kObject)}}};
                const auto* const found =
                    std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](const auto& known) { return known.first == name.text(); });
                if (!name.is(Kind::kString) || found == kTypes.end()) {
                    wrong(place, "type", "names of types, or one");
                }
                const std::string_view known = rule.type_names;
                const bool again = known.find(name.text()) != std::string_view::npos;
                if (again) return;
                rule.types |= found->second;
                rule.integer = rule.integer || name.text() == "integer";
                if (!rule.type_names.empty()) rule.type_names += " or ";
                rule.type_names += name.text();
            };
            if (type->is(Kind::kArray)) {
                if (type->items().empty()) wrong(place, "type", "names of types, or one");
                for (const JsonValue& name : type->items()) add(name);
            } else {
                add(*type);
            }
            constexpr unsigned kNumber = 1U << static_cast<unsigned>(Kind::kNumber);
            if ((rule.types & kNumber) != 0) rule.integer = false;
            if (rule.integer) rule.types |= kNumber;
            rule.strict_integer = place.draft == Draft::k4;
        }
        if (const JsonValue* values = schema.find("enum")) {
            if (!values->is(Kind::kArray)) wrong(place, "enum", "an array");
            rule.has_values = true;
            for (const JsonValue& value : values->items()) {
                std::string text;
                append_canonical(value, text);
                rule.longest_value = std::max(rule.longest_value, text.size());
                rule.values.insert(std::move(text));
            }
        }
        if (const JsonValue* value = schema.find("const")) {
            rule.has_constant = true;
            append_canonical(*value, rule.constant);
            rule.longest_value = std::max(rule.longest_value, rule.constant.size());
        }
    }

    static std::optional<Decimal> number(const JsonValue& schema, const Place& place,
                                         std::string_view keyword) {
        const JsonValue* value = schema.find(keyword);
        if (value == nullptr) return std::nullopt;
        if (!value->is(Kind::kNumber)) wrong(place, keyword, "a number");
        return Decimal(value->text());
    }

    static void take_numbers(const JsonValue& schema, const Place& place, Rule& rule) {
        rule.minimum = number(schema, place, "minimum");
        rule.maximum = number(schema, place, "maximum");
        if (place.draft == Draft::k4) {
            const auto take = [&](std::string_view keyword, std::optional<Decimal>& from,
                                  std::optional<Decimal>& to) {
                const JsonValue* value = schema.find(keyword);
                if (value == nullptr) return;
                if (!value->is_bool()) wrong(place, keyword, "true or false in draft 4");
                if (value->is(Kind::kTrue)) std::swap(from, to);
            };
            take("exclusiveMinimum", rule.minimum, rule.above);
            take("exclusiveMaximum", rule.maximum, rule.below);
        } else {
            rule.above = number(schema, place, "exclusiveMinimum");
            rule.below = number(schema, place, "exclusiveMaximum");
        }
        rule.multiple_of = number(schema, place, "multipleOf");
        if (rule.multiple_of && (!rule.multiple_of->is_positive() ||
                                 rule.multiple_of->digits() > Decimal::kMaxDivisorDigits)) {
            wrong(place, "multipleOf",
                  "more than 0, with at most " + std::to_string(Decimal::kMaxDivisorDigits) +
                      " digits");
        }
    }

    static std::optional<std::uint64_t> count(const JsonValue& schema, const Place& place,
                                              std::string_view keyword) {
        const JsonValue* value = schema.find(keyword);
        if (value == nullptr) return std::nullopt;
        if (value->is(Kind::kNumber)) {
            const Decimal number(value->text());
            std::string text;
            number.append_to(text);
            // "2.0" and "2e1", too; what is larger than any payload is as good as any.
            const std::size_t e = text.find('e');
            std::uint64_t zeros = 0;
            if (e != std::string::npos) {
                std::from_chars(text.data() + e + 1, text.data() + text.size(), zeros);
            }
            if (number.is_integer() && !text.starts_with('-')) {
                constexpr std::uint64_t kMany = 1'000'000'000'000;
                std::uint64_t found = 0;
                const auto end = text.data() + std::min(e, text.size());
                if (std::from_chars(text.data(), end, found).ec != std::errc()) found = kMany;
                for (; zeros > 0 && found < kMany; --zeros) found *= 10;
                return std::min(found, kMany);
            }
        }
        wrong(place, keyword, "a whole number from 0");
    }

    void take_sizes(const JsonValue& schema, const Place& place, Rule& rule) {
        rule.length = {count(schema, place, "minLength"), count(schema, place, "maxLength")};
        rule.items_count = {count(schema, place, "minItems"), count(schema, place, "maxItems")};
        rule.members_count = {count(schema, place, "minProperties"),
                              count(schema, place, "maxProperties")};
        if (const JsonValue* value = schema.find("pattern")) {
            if (!value->is(Kind::kString)) wrong(place, "pattern", "a string");
            rule.pattern = pattern(value->text(), place, "pattern");
        }
        if (const JsonValue* value = schema.find("uniqueItems")) {
            if (!value->is_bool()) wrong(place, "uniqueItems", "true or false");
            rule.unique_items = value->is(Kind::kTrue);
        }
    }

    const Pattern* pattern(std::string_view text, const Place& place, std::string_view keyword) {
        std::string why;
        auto compiled = Pattern::compile(text, why);
        if (!compiled) {
            refuse(place.pointer,
                   "the pattern " + quoted(text) + " of " + std::string(keyword) + " " + why);
        }
        pattern_bytes_ += compiled->bytes();
        if (pattern_bytes_ > kMaxPatternBytes) {
            refuse(place.pointer, "its patterns take more than " +
                                      std::to_string(kMaxPatternBytes) + " bytes of memory");
        }
        return &out_.patterns.emplace_back(std::move(*compiled));
    }

    static std::vector<std::string_view> names(const JsonValue& value, const Place& place,
                                               std::string_view keyword) {
        std::vector<std::string_view> found;
        if (!value.is(Kind::kArray)) wrong(place, keyword, "an array of names");
        for (const JsonValue& name : value.items()) {
            if (!name.is(Kind::kString)) wrong(place, keyword, "an array of names");
            found.push_back(name.text());
        }
        return found;
    }

    const JsonValue* object(const JsonValue& schema, const Place& place, std::string_view keyword) {
        const JsonValue* value = schema.find(keyword);
        if (value != nullptr && !value->is(Kind::kObject)) wrong(place, keyword, "an object");
        return value;
    }

    void take_members(const JsonValue& schema, const Place& place, Rule& rule) {
        if (const JsonValue* value = schema.find("required")) {
            rule.required = names(*value, place, "required");
        }
        if (const JsonValue* all = object(schema, place, "properties")) {
            for (const auto& [name, value] : all->members()) {
                rule.properties.emplace_back(name, below(value, under(place, "properties"), name));
            }
        }
        if (const JsonValue* all = object(schema, place, "patternProperties")) {
            for (const auto& [name, value] : all->members()) {
                rule.pattern_properties.emplace_back(
                    pattern(name, place, "patternProperties"),
                    below(value, under(place, "patternProperties"), name));
            }
        }
        rule.additional_properties = one_or_bool(schema, place, "additionalProperties");
        rule.property_names = one(schema, place, "propertyNames");
        if (const JsonValue* all = object(schema, place, "dependencies")) {
            for (const auto& [name, value] : all->members()) {
                if (value.is(Kind::kArray)) {
                    rule.needs_members.emplace_back(name, names(value, place, "dependencies"));
                } else {
                    rule.needs_rules.emplace_back(name,
                                                  below(value, under(place, "dependencies"), name));
                }
            }
        }
        // Reached by references, and checked whether they are or not.
        for (const std::string_view keyword : {"definitions", "$defs"}) {
            if (const JsonValue* all = object(schema, place, keyword)) {
                for (const auto& [name, value] : all->members()) {
                    below(value, under(place, keyword), name);
                }
            }
        }
    }

    // Booleans are schemas here in draft 4, too.
    const Rule* one_or_bool(const JsonValue& schema, const Place& place, std::string_view keyword) {
        const JsonValue* value = schema.find(keyword);
        if (value == nullptr || !value->is_bool()) return one(schema, place, keyword);
        Rule& rule = out_.rules.emplace_back();
        rule.place = within(place.pointer, keyword);
        rule.never = value->is(Kind::kFalse);
        return &rule;
    }

    void take_items(const JsonValue& schema, const Place& place, Rule& rule) {
        const JsonValue* items = schema.find("items");
        if (items != nullptr && items->is(Kind::kArray)) {
            if (!items->items().empty()) list(schema, place, "items", rule.first_items);
            rule.more_items = one_or_bool(schema, place, "additionalItems");
        } else {
            rule.items = one(schema, place, "items");
            one_or_bool(schema, place, "additionalItems");  // looked at, and without effect
        }
        rule.contains = one(schema, place, "contains");
    }

    void take_others(const JsonValue& schema, const Place& place, Rule& rule) {
        list(schema, place, "allOf", rule.all_of);
        list(schema, place, "anyOf", rule.any_of);
        list(schema, place, "oneOf", rule.one_of);
        rule.negated = one(schema, place, "not");
        rule.condition = one(schema, place, "if");
        const Rule* consequence = one(schema, place, "then");
        const Rule* alternative = one(schema, place, "else");
        if (rule.condition == nullptr) return;
        rule.consequence = consequence;
        rule.alternative = alternative;
    }

    Rules& out_;
    std::size_t pattern_bytes_ = 0;
    Draft main_draft_ = Draft::k7;
    std::map<std::string, const JsonValue*, std::less<>> roots_;
    std::map<std::string, const JsonValue*, std::less<>> named_;
    std::unordered_map<const JsonValue*, Place> places_;
    std::unordered_map<const JsonValue*, Rule*> done_;
    std::vector<Reference> waiting_;
};

template <typename List>
std::size_t room(const List& list) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): of a list of pointers, the pointers.
    return list.capacity() * sizeof(typename List::value_type);
}

std::size_t bytes_of(const Rule& rule) {
    std::size_t bytes = sizeof(Rule) + room(rule.place) + room(rule.type_names) +
                        room(rule.constant) + room(rule.required) + room(rule.properties) +
                        room(rule.pattern_properties) + room(rule.needs_members) +
                        room(rule.needs_rules) + room(rule.first_items) + room(rule.all_of) +
                        room(rule.any_of) + room(rule.one_of);
    constexpr std::size_t kNode = 4 * sizeof(void*);  // of the set, and its place there
    for (const std::string& value : rule.values) bytes += sizeof(std::string) + room(value) + kNode;
    for (const auto& [name, needed] : rule.needs_members) bytes += room(needed);
    for (const auto* number :
         {&rule.minimum, &rule.maximum, &rule.above, &rule.below, &rule.multiple_of}) {
        if (*number) bytes += (*number)->digits();
    }
    return bytes;
}

std::size_t bytes_of(const Rules& rules) {
    std::size_t bytes = sizeof(Rules);
    for (const std::string& text : rules.texts) bytes += room(text);
    for (const JsonDocument& document : rules.documents) bytes += document.bytes();
    for (const Pattern& pattern : rules.patterns) bytes += pattern.bytes();
    for (const Rule& rule : rules.rules) bytes += bytes_of(rule);
    return bytes;
}

}  // namespace

std::unique_ptr<const Rules> compile_rules(std::string_view text, const References& references,
                                           std::string& why) {
    auto rules = std::make_unique<Rules>();
    try {
        Compiler compiler(*rules);
        compiler.add("", text);
        for (const auto& [name, document] : references) compiler.add(name, document);
        rules->root = compiler.compile("");
        rules->bytes = bytes_of(*rules);
    } catch (const Refusal& refusal) {
        why = refusal.why;
        return nullptr;
    }
    return rules;
}

}  // namespace outbox::schema
