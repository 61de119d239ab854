#include "schema/json_document.h"

#include <algorithm>
#include <deque>
#include <limits>

#include "core/json_scan.h"
#include "core/json_text.h"
#include "core/utf16_escape.h"
#include "core/utf8.h"
#include "schema/decimal.h"

namespace outbox::schema {

using Kind = JsonValue::Kind;

// How much there is of each, in text that is known to be JSON: everything is put where it stays.
class JsonDocument::Counter {
  public:
    std::deque<std::uint32_t> sizes;  // of containers, in the order of their beginnings
    std::size_t values = 1;
    std::size_t members = 0;
    std::size_t escaped = 0;  // bytes of strings with escapes

    bool run(std::string_view text, std::string& why) {
        std::vector<Open> open;
        for (std::size_t at = 0; at < text.size(); ++at) {
            switch (text[at]) {
                case '"':
                    at = string(text, at + 1);
                    break;
                case '{':
                case '[': {
                    if (open.size() >= kMaxDepth) {
                        why = "has containers within one another, more than " +
                              std::to_string(kMaxDepth);
                        return false;
                    }
                    open.push_back({&sizes.emplace_back(0), text[at] == '{'});
                    const char next = text[text.find_first_not_of(" \t\r\n", at + 1)];
                    if (next != ']' && next != '}') add(open.back());
                    break;
                }
                case '}':
                case ']':
                    open.pop_back();
                    break;
                case ',':
                    add(open.back());
                    break;
                default:
                    break;
            }
            if (values + 2 * members > kMaxValues) {
                why = "has more than " + std::to_string(kMaxValues) + " values and names";
                return false;
            }
        }
        return true;
    }

  private:
    struct Open {
        std::uint32_t* size;
        bool is_object;
    };

    void add(const Open& to) {
        ++*to.size;
        ++(to.is_object ? members : values);
    }

    // To its end.
    std::size_t string(std::string_view text, std::size_t begin) {
        std::size_t at = text.find_first_of("\"\\", begin);
        if (text[at] == '"') return at;
        while (text[at] != '"') at = text.find_first_of("\"\\", at + 2);
        escaped += at - begin;
        return at;
    }
};

// Of text that is known to be JSON, and was counted.
class JsonDocument::Reader {
  public:
    Reader(std::string_view text, const Counter& counted, JsonDocument& to)
        : text_(text), size_(counted.sizes.begin()), to_(to) {
        to_.values_.reserve(counted.values);
        to_.members_.reserve(counted.members);
        to_.decoded_.reserve(counted.escaped);
        to_.root_ = &to_.values_.emplace_back();
        value(to_.values_.front());
    }

  private:
    void value(JsonValue& out) {
        skip_space();
        switch (text_[at_]) {
            case '{':
                members(out);
                break;
            case '[':
                items(out);
                break;
            case '"':
                set(out, Kind::kString, string());
                break;
            case 'n':
                at_ += 4;
                break;
            case 't':
                out.kind = Kind::kTrue;
                at_ += 4;
                break;
            case 'f':
                out.kind = Kind::kFalse;
                at_ += 5;
                break;
            default:
                set(out, Kind::kNumber, number());
        }
    }

    static void set(JsonValue& out, Kind kind, std::string_view text) {
        out.kind = kind;
        out.start = text.data();
        out.count = static_cast<std::uint32_t>(text.size());
    }

    void skip_space() { at_ = text_.find_first_not_of(" \t\r\n", at_); }
    void skip(char c) {
        skip_space();
        if (text_[at_] == c) ++at_;
    }

    // A place for all that is in a container.
    template <typename T>
    std::span<T> room(std::vector<T>& in) {
        const std::size_t size = *size_++;
        in.resize(in.size() + size);
        return {in.data() + (in.size() - size), size};
    }

    void items(JsonValue& out) {
        const std::span<JsonValue> all = room(to_.values_);
        out.kind = Kind::kArray;
        out.start = all.data();
        out.count = static_cast<std::uint32_t>(all.size());
        ++at_;
        for (JsonValue& item : all) {
            value(item);
            skip(',');
        }
        skip(']');
    }

    void members(JsonValue& out) {
        const std::span<JsonMember> all = room(to_.members_);
        ++at_;
        constexpr std::uint32_t kOrders = (1U << 24U) - 1;
        static_assert(JsonDocument::kMaxValues <= kOrders);
        std::uint32_t order = 0;
        for (JsonMember& member : all) {
            skip_space();
            member.name = string();
            skip(':');
            value(member.value);
            member.value.order = order++ & kOrders;
            skip(',');
        }
        skip('}');
        const std::span<JsonMember> kept = sorted(all);
        out.kind = Kind::kObject;
        out.start = kept.data();
        out.count = static_cast<std::uint32_t>(kept.size());
    }

    static std::span<JsonMember> sorted(std::span<JsonMember> all) {
        std::sort(all.begin(), all.end(), [](const JsonMember& a, const JsonMember& b) {
            const auto order = a.name <=> b.name;
            return order != 0 ? order < 0 : a.value.order < b.value.order;
        });
        // From behind: of equal names the last stays.
        const auto first =
            std::unique(all.rbegin(), all.rend(),
                        [](const JsonMember& a, const JsonMember& b) { return a.name == b.name; });
        return {first.base(), all.end()};
    }

    std::string_view number() {
        const std::size_t end =
            std::min(text_.find_first_not_of("+-.0123456789eE", at_), text_.size());
        const std::string_view found = text_.substr(at_, end - at_);
        at_ = end;
        return found;
    }

    std::string_view string() {
        const std::size_t begin = ++at_;
        at_ = text_.find_first_of("\"\\", at_);
        if (text_[at_] == '"') {
            ++at_;
            return text_.substr(begin, at_ - 1 - begin);
        }
        std::string out(text_.substr(begin, at_ - begin));
        while (text_[at_] != '"') {
            ++at_;
            escape(out);
            const std::size_t next = text_.find_first_of("\"\\", at_);
            out.append(text_, at_, next - at_);
            at_ = next;
        }
        ++at_;
        // Never longer than as it was written.
        std::vector<char>& decoded = to_.decoded_;
        decoded.insert(decoded.end(), out.begin(), out.end());
        return {decoded.data() + (decoded.size() - out.size()), out.size()};
    }

    void escape(std::string& out) {
        constexpr std::string_view kSigns = "bfnrt";
        constexpr std::string_view kMeant = "\b\f\n\r\t";
        const char c = text_[at_++];
        if (c != 'u') {
            const std::size_t known = kSigns.find(c);
            out += known == std::string_view::npos ? c : kMeant[known];
            return;
        }
        // Half of a pair is no character, and no text that a pattern can be looked for in.
        constexpr std::uint32_t kReplacement = 0xFFFD;
        std::string_view rest = text_.substr(at_);
        const std::uint32_t code = take_utf16_escape(rest).value_or(kReplacement);
        at_ = text_.size() - rest.size();
        append_utf8(is_surrogate(code) ? kReplacement : code, out);
    }

    const std::string_view text_;
    std::deque<std::uint32_t>::const_iterator size_;
    JsonDocument& to_;
    std::size_t at_ = 0;
};

std::optional<JsonDocument> JsonDocument::read(std::string_view text, std::string& why) {
    if (text.size() > std::numeric_limits<std::uint32_t>::max()) {
        why = "has more than 4 GiB";
        return std::nullopt;
    }
    if (!is_json(text)) {
        why = "is not JSON";
        return std::nullopt;
    }
    Counter counted;
    if (!counted.run(text, why)) return std::nullopt;
    std::optional<JsonDocument> document(std::in_place);
    Reader(text, counted, *document);
    return document;
}

std::size_t JsonDocument::bytes() const {
    return values_.capacity() * sizeof(JsonValue) + members_.capacity() * sizeof(JsonMember) +
           decoded_.capacity();
}

const JsonValue* JsonValue::find(std::string_view name) const {
    const std::span<const JsonMember> all = members();
    const auto found =
        std::lower_bound(all.begin(), all.end(), name,
                         [](const JsonMember& one, std::string_view n) { return one.name < n; });
    return found != all.end() && found->name == name ? &found->value : nullptr;
}

std::string_view name_of(Kind kind) {
    switch (kind) {
        case Kind::kNull:
            return "null";
        case Kind::kFalse:
        case Kind::kTrue:
            return "a boolean";
        case Kind::kNumber:
            return "a number";
        case Kind::kString:
            return "a string";
        case Kind::kArray:
            return "an array";
        case Kind::kObject:
            break;
    }
    return "an object";
}

void append_canonical(const JsonValue& value, std::string& out, std::size_t most) {
    switch (value.kind) {
        case Kind::kNull:
            out += "null";
            break;
        case Kind::kFalse:
            out += "false";
            break;
        case Kind::kTrue:
            out += "true";
            break;
        case Kind::kNumber:
            Decimal(value.text()).append_to(out);
            break;
        case Kind::kString:
            append_json_string(value.text(), out);
            break;
        case Kind::kArray:
            out += '[';
            for (const JsonValue& item : value.items()) {
                if (out.size() > most) return;
                append_canonical(item, out, most);
                out += ',';
            }
            out += ']';
            break;
        case Kind::kObject:
            out += '{';
            for (const JsonMember& member : value.members()) {
                if (out.size() > most) return;
                append_json_string(member.name, out);
                out += ':';
                append_canonical(member.value, out, most);
                out += ',';
            }
            out += '}';
            break;
    }
}

}  // namespace outbox::schema
