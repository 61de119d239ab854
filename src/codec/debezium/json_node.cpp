#include "codec/debezium/json_node.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <unordered_map>

#include "core/ascii.h"
#include "core/utf16_escape.h"
#include "core/utf8.h"

namespace outbox::codec::debezium {
namespace {

// StreamReadConstraints of Jackson 2.17.
constexpr int kMaxDepth = 1000;
constexpr std::size_t kMaxNumberChars = 1000;
constexpr std::size_t kMaxNameChars = 50'000;

// Where a number is too large or too small for a double, which of both.
double out_of_range(std::string_view digits) {
    const bool negative = digits.front() == '-';
    if (negative) digits.remove_prefix(1);
    const std::size_t e = digits.find_first_of("eE");
    const bool small = e == std::string_view::npos ? digits.starts_with("0.")
                                                   : digits.substr(e + 1).starts_with('-');
    const double value = small ? 0.0 : std::numeric_limits<double>::infinity();
    return negative ? -value : value;
}

class Parser {
  public:
    explicit Parser(std::string_view text) : rest_(text) {}

    bool value(JsonNode& out, int depth) {
        skip_blanks();
        if (rest_.empty()) return false;
        switch (rest_.front()) {
            case '{':
                return depth < kMaxDepth && object(out, depth + 1);
            case '[':
                return depth < kMaxDepth && array(out, depth + 1);
            case '"':
                out.kind = JsonNode::Kind::kString;
                return string(out.text);
            case 't':
                return word("true", JsonNode::Kind::kBoolean, out);
            case 'f':
                return word("false", JsonNode::Kind::kBoolean, out);
            case 'n':
                return word("null", JsonNode::Kind::kNull, out);
            default:
                return number(out);
        }
    }

  private:
    void skip_blanks() {
        const std::size_t at = rest_.find_first_not_of(" \t\r\n");
        rest_.remove_prefix(std::min(at, rest_.size()));
    }

    bool take(char wanted) {
        skip_blanks();
        if (!rest_.starts_with(wanted)) return false;
        rest_.remove_prefix(1);
        return true;
    }

    bool word(std::string_view wanted, JsonNode::Kind kind, JsonNode& out) {
        if (!rest_.starts_with(wanted)) return false;
        rest_.remove_prefix(wanted.size());
        out.kind = kind;
        out.text = wanted;
        return true;
    }

    bool object(JsonNode& out, int depth) {
        out.kind = JsonNode::Kind::kObject;
        rest_.remove_prefix(1);
        if (take('}')) return true;
        do {
            std::string name;
            skip_blanks();
            if (!rest_.starts_with('"') || !string(name) || name.size() > kMaxNameChars) {
                return false;
            }
            if (!take(':')) return false;
            out.names.push_back(std::move(name));
            if (!value(out.items.emplace_back(), depth)) return false;
        } while (take(','));
        keep_last(out);
        return take('}');
    }

    // A name that comes again keeps its place and takes the last value.
    static void keep_last(JsonNode& object) {
        std::unordered_map<std::string_view, std::size_t> places;
        std::vector<std::size_t> kept;
        for (std::size_t i = 0; i < object.names.size(); ++i) {
            const auto [known, is_new] = places.emplace(object.names[i], i);
            if (is_new) {
                kept.push_back(i);
            } else {
                object.items[known->second] = std::move(object.items[i]);
            }
        }
        if (kept.size() == object.names.size()) return;
        JsonNode shorter;
        shorter.kind = JsonNode::Kind::kObject;
        for (const std::size_t i : kept) {
            shorter.names.push_back(object.names[i]);
            shorter.items.push_back(std::move(object.items[i]));
        }
        object = std::move(shorter);
    }

    bool array(JsonNode& out, int depth) {
        out.kind = JsonNode::Kind::kArray;
        rest_.remove_prefix(1);
        if (take(']')) return true;
        do {
            if (!value(out.items.emplace_back(), depth)) return false;
        } while (take(','));
        return take(']');
    }

    bool string(std::string& out) {
        rest_.remove_prefix(1);
        while (true) {
            const std::size_t at = std::min(rest_.find_first_of("\"\\"), rest_.size());
            const std::string_view plain = rest_.substr(0, at);
            const auto control = [](char c) { return static_cast<unsigned char>(c) < ' '; };
            if (std::any_of(plain.begin(), plain.end(), control)) return false;
            out += plain;
            rest_.remove_prefix(at);
            if (rest_.empty()) return false;
            const bool end = rest_.front() == '"';
            rest_.remove_prefix(1);
            if (end) return true;
            if (!escape(out)) return false;
        }
    }

    bool escape(std::string& out) {
        if (rest_.empty()) return false;
        const char c = rest_.front();
        rest_.remove_prefix(1);
        constexpr std::string_view kShort = "\"\\/bfnrt";
        constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
        if (const std::size_t at = kShort.find(c); at != std::string_view::npos) {
            out += kMeant[at];
            return true;
        }
        const auto code = c == 'u' ? take_utf16_escape(rest_) : std::nullopt;
        if (!code) return false;
        append_utf8(*code, out);
        return true;
    }

    std::size_t digits_from(std::size_t at) const {
        std::size_t end = at;
        while (end < rest_.size() && is_digit(rest_[end])) ++end;
        return end - at;
    }

    bool number(JsonNode& out) {
        std::size_t end = rest_.starts_with('-') ? 1 : 0;
        const std::size_t whole = digits_from(end);
        if (whole == 0 || (whole > 1 && rest_[end] == '0')) return false;
        end += whole;
        bool is_whole = true;
        if (end < rest_.size() && rest_[end] == '.') {
            const std::size_t digits = digits_from(end + 1);
            if (digits == 0) return false;
            end += digits + 1;
            is_whole = false;
        }
        if (end < rest_.size() && (rest_[end] == 'e' || rest_[end] == 'E')) {
            ++end;
            if (end < rest_.size() && (rest_[end] == '+' || rest_[end] == '-')) ++end;
            const std::size_t digits = digits_from(end);
            if (digits == 0) return false;
            end += digits;
            is_whole = false;
        }
        if (end > kMaxNumberChars) return false;
        const std::string_view text = rest_.substr(0, end);
        rest_.remove_prefix(end);
        is_whole ? take_whole(text, out) : take_double(text, out);
        return true;
    }

    static void take_whole(std::string_view text, JsonNode& out) {
        std::int64_t value = 0;
        const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
        if (read.ec != std::errc()) {
            out.kind = JsonNode::Kind::kBig;
            out.text = text;
            return;
        }
        const bool fits = value >= std::numeric_limits<std::int32_t>::min() &&
                          value <= std::numeric_limits<std::int32_t>::max();
        out.kind = fits ? JsonNode::Kind::kInt : JsonNode::Kind::kLong;
        out.text = std::to_string(value);  // "-0" is 0
    }

    static void take_double(std::string_view text, JsonNode& out) {
        out.kind = JsonNode::Kind::kDouble;
        const auto read = std::from_chars(text.data(), text.data() + text.size(), out.number);
        if (read.ec != std::errc()) out.number = out_of_range(text);
    }

    std::string_view rest_;
};

}  // namespace

const JsonNode* JsonNode::find(std::string_view name, std::size_t& hint) const {
    for (std::size_t i = 0; i < names.size(); ++i) {
        const std::size_t at = (hint + i) % names.size();
        if (names[at] != name) continue;
        hint = at + 1;
        return &items[at];
    }
    return nullptr;
}

std::optional<JsonNode> read_json(std::string_view text) {
    JsonNode root;
    if (!Parser(text).value(root, 0)) return std::nullopt;
    return root;
}

}  // namespace outbox::codec::debezium
