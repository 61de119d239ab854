#include "core/backend_options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <set>

#include "core/suggest.h"

namespace outbox {
namespace {

constexpr std::int64_t kNoMost = std::numeric_limits<std::int64_t>::max();

ErrorInfo option_error(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

bool read_integer(std::string_view text, std::int64_t& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc() && end == text.data() + text.size();
}

const BackendOption* find_option_of(std::span<const BackendOption> options, std::string_view name) {
    const auto found = std::ranges::find(options, name, &BackendOption::name);
    return found == options.end() ? nullptr : &*found;
}

// "a, b and c"
std::string names_of(std::span<const BackendOption> options) {
    std::string out;
    for (std::size_t i = 0; i < options.size(); ++i) {
        if (i > 0) out += i + 1 == options.size() ? " and " : ", ";
        out += options[i].name;
    }
    return out;
}

ErrorInfo unknown_option(const OptionScope& scope, std::string_view name) {
    const std::string begin = std::string(scope.who) + " has no option '" + std::string(name) + "'";
    if (scope.options.empty()) return option_error(begin + "; there are none");
    std::vector<std::string_view> known;
    for (const BackendOption& option : scope.options) known.push_back(option.name);
    return option_error(begin + "; there " + (known.size() == 1 ? "is " : "are ") +
                        names_of(scope.options) + did_you_mean(name, known));
}

// What is wrong with the value; "": nothing.
std::string complaint(const BackendOption& option, std::string_view value) {
    if (option.type == OptionType::kFlag) {
        return value == "true" || value == "false" ? "" : "it is true or false";
    }
    if (option.type != OptionType::kInteger) return "";
    std::int64_t number = 0;
    if (read_integer(value, number) && number >= option.min && number <= option.max) return "";
    std::string text = "it is a number from " + std::to_string(option.min);
    if (option.max != kNoMost) text += " to " + std::to_string(option.max);
    return option.unit.empty() ? text : text + " (" + std::string(option.unit) + ")";
}

}  // namespace

std::string values_of(const BackendOption& option) {
    switch (option.type) {
        case OptionType::kFlag:
            return "true or false";
        case OptionType::kInteger: {
            std::string text = std::to_string(option.min);
            text += option.max == kNoMost ? std::string(" or more")
                                          : " to " + std::to_string(option.max);
            return option.unit.empty() ? text : text + " " + std::string(option.unit);
        }
        case OptionType::kPath:
            return "file";
        default:
            return "text";
    }
}

const BackendOption& BackendValues::declared(std::string_view name, OptionType type) const {
    const BackendOption* option = find_option_of(options_, name);
    if (option == nullptr || option->type != type) std::abort();
    return *option;
}

std::string BackendValues::value(const BackendOption& option) const {
    const auto found = values_.find(option.name);
    return found == values_.end() ? std::string(option.fallback) : found->second.back();
}

bool BackendValues::given(std::string_view name) const {
    if (find_option_of(options_, name) == nullptr) std::abort();
    return values_.find(name) != values_.end();
}

bool BackendValues::flag(std::string_view name) const {
    return value(declared(name, OptionType::kFlag)) == "true";
}

std::int64_t BackendValues::integer(std::string_view name) const {
    std::int64_t number = 0;
    if (!read_integer(value(declared(name, OptionType::kInteger)), number)) std::abort();
    return number;
}

std::size_t BackendValues::size(std::string_view name) const {
    const std::int64_t number = integer(name);
    if (number < 0) std::abort();
    return static_cast<std::size_t>(number);
}

std::string BackendValues::text(std::string_view name) const {
    const BackendOption* option = find_option_of(options_, name);
    if (option == nullptr) std::abort();
    return value(*option);
}

std::vector<std::string> BackendValues::list(std::string_view name) const {
    const BackendOption* option = find_option_of(options_, name);
    if (option == nullptr || !option->repeatable) std::abort();
    const auto found = values_.find(name);
    return found == values_.end() ? std::vector<std::string>() : found->second;
}

class BackendOptionReader {
  public:
    explicit BackendOptionReader(const OptionScope& scope)
        : scope_(scope), values_(scope.options) {}

    /// `seen`: what the same place gave before. One of two values would be passed over without a
    /// word, where a name stands with its prefix and without.
    Status add(std::string_view name, const std::string& value, std::set<std::string>& seen) {
        while (!scope_.prefix.empty() && name.starts_with(scope_.prefix)) {
            name.remove_prefix(scope_.prefix.size());
        }
        const BackendOption* option = find_option_of(scope_.options, name);
        if (option == nullptr) return unknown_option(scope_, name);
        if (const std::string wrong = complaint(*option, value); !wrong.empty()) {
            return option_error(std::string(scope_.prefix) + std::string(name) + " is '" + value +
                                "'; " + wrong);
        }
        if (!seen.emplace(name).second && !option->repeatable) {
            return option_error(std::string(scope_.who) + " is given '" + std::string(name) +
                                "' twice; leave one of them out");
        }
        std::vector<std::string>& values = values_.values_[std::string(name)];
        if (!option->repeatable) values.clear();
        values.push_back(value);
        return {};
    }

    Status end() const {
        for (const BackendOption& option : scope_.options) {
            if (!option.required || !values_.value(option).empty()) continue;
            return option_error(std::string(scope_.who) + " needs the option " +
                                std::string(option.name) + ": " + std::string(option.help));
        }
        return {};
    }

    BackendValues values() && { return std::move(values_); }

  private:
    const OptionScope& scope_;
    BackendValues values_;
};

Result<BackendValues> read_backend_options(
    const OptionScope& scope, const std::vector<std::pair<std::string, std::string>>& query,
    const std::map<std::string, std::string>& table) {
    BackendOptionReader reader(scope);
    std::set<std::string> of_query;
    for (const auto& [name, value] : query) {
        if (Status added = reader.add(name, value, of_query); !added.ok()) return added.error();
    }
    std::set<std::string> of_table;
    for (const auto& [name, value] : table) {
        if (Status added = reader.add(name, value, of_table); !added.ok()) return added.error();
    }
    if (Status ended = reader.end(); !ended.ok()) return ended.error();
    return std::move(reader).values();
}

}  // namespace outbox
