#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "schema/decimal.h"
#include "schema/json_document.h"
#include "schema/json_schema.h"
#include "schema/pattern.h"

namespace outbox::schema {

/// One subschema, ready to be applied. Null pointers and empty lists: it has no such keyword.
struct Rule {
    using Kind = JsonValue::Kind;
    std::string place = {};  ///< JSON Pointer.

    bool never = false;
    const Rule* ref = nullptr;
    unsigned types = 0;           ///< Bits of Kind; 0: any.
    bool integer = false;         ///< A number has to be one, too.
    bool strict_integer = false;  ///< Written as one (draft 4).
    std::string type_names = {};

    bool has_values = false;
    std::unordered_set<std::string> values = {};  ///< Canonical.
    bool has_constant = false;
    std::string constant = {};
    std::size_t longest_value = 0;  ///< Of those and the constant, in bytes.

    std::optional<Decimal> minimum = {};
    std::optional<Decimal> maximum = {};
    std::optional<Decimal> above = {};  ///< exclusiveMinimum
    std::optional<Decimal> below = {};  ///< exclusiveMaximum
    std::optional<Decimal> multiple_of = {};

    struct Range {
        std::optional<std::uint64_t> least = {};
        std::optional<std::uint64_t> most = {};
    };
    Range length = {};
    Range items_count = {};
    Range members_count = {};
    const Pattern* pattern = nullptr;

    std::vector<std::string_view> required = {};
    std::vector<std::pair<std::string_view, const Rule*>> properties = {};  ///< By name.
    std::vector<std::pair<const Pattern*, const Rule*>> pattern_properties = {};
    const Rule* additional_properties = nullptr;
    const Rule* property_names = nullptr;
    std::vector<std::pair<std::string_view, std::vector<std::string_view>>> needs_members = {};
    std::vector<std::pair<std::string_view, const Rule*>> needs_rules = {};

    const Rule* items = nullptr;
    std::vector<const Rule*> first_items = {};
    const Rule* more_items = nullptr;
    const Rule* contains = nullptr;
    bool unique_items = false;

    std::vector<const Rule*> all_of = {};
    std::vector<const Rule*> any_of = {};
    std::vector<const Rule*> one_of = {};
    const Rule* negated = nullptr;
    const Rule* condition = nullptr;
    const Rule* consequence = nullptr;
    const Rule* alternative = nullptr;
};

/// A whole schema with what its rules point into.
struct Rules {
    std::deque<std::string> texts = {};
    std::deque<JsonDocument> documents = {};
    std::deque<Pattern> patterns = {};
    std::deque<Rule> rules = {};
    const Rule* root = nullptr;
    std::size_t bytes = 0;  ///< Of memory, about.
};

/// Null: `why` says what is wrong.
std::unique_ptr<const Rules> compile_rules(std::string_view text, const References& references,
                                           std::string& why);

}  // namespace outbox::schema
