#include "schema/json_document.h"

#include <algorithm>
#include <charconv>

#include "core/json_scan.h"
#include "core/json_text.h"
#include "core/utf8.h"
#include "schema/decimal.h"

namespace outbox::schema {

using Kind = JsonValue::Kind;

// Of text that is known to be JSON.
class JsonDocument::Reader {
  public:
    Reader(std::string_view text, std::deque<std::string>& decoded)
        : text_(text), decoded_(decoded) {}

    bool value(JsonValue& out, int depth) {
        skip_space();
        switch (text_[at_]) {
            case '{':
                out.kind = Kind::kObject;
                return depth < kMaxDepth && members(out, depth + 1);
            case '[':
                out.kind = Kind::kArray;
                return depth < kMaxDepth && items(out, depth + 1);
            case '"':
                out.kind = Kind::kString;
                out.text = string();
                return true;
            case 'n':
                at_ += 4;
                return true;
            case 't':
                out.kind = Kind::kTrue;
                at_ += 4;
                return true;
            case 'f':
                out.kind = Kind::kFalse;
                at_ += 5;
                return true;
            default:
                out.kind = Kind::kNumber;
                out.text = number();
                return true;
        }
    }

  private:
    void skip_space() { at_ = text_.find_first_not_of(" \t\r\n", at_); }
    bool take(char c) {
        skip_space();
        if (text_[at_] != c) return false;
        ++at_;
        return true;
    }

    bool items(JsonValue& out, int depth) {
        ++at_;
        if (take(']')) return true;
        do {
            if (!value(out.items.emplace_back(), depth)) return false;
        } while (take(','));
        ++at_;
        return true;
    }

    bool members(JsonValue& out, int depth) {
        ++at_;
        if (take('}')) return true;
        do {
            skip_space();
            JsonMember& member = out.members.emplace_back();
            member.name = string();
            take(':');
            if (!value(member.value, depth)) return false;
        } while (take(','));
        ++at_;
        sort(out.members);
        return true;
    }

    static void sort(std::vector<JsonMember>& members) {
        const auto before = [](const JsonMember& a, const JsonMember& b) {
            return a.name < b.name;
        };
        if (!std::is_sorted(members.begin(), members.end(), before)) {
            std::stable_sort(members.begin(), members.end(), before);
        }
        // From behind: of equal names the last stays.
        const auto first =
            std::unique(members.rbegin(), members.rend(),
                        [](const JsonMember& a, const JsonMember& b) { return a.name == b.name; });
        members.erase(members.begin(), first.base());
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
        std::string& out = decoded_.emplace_back(text_.substr(begin, at_ - begin));
        while (text_[at_] != '"') {
            ++at_;
            escape(out);
            const std::size_t next = text_.find_first_of("\"\\", at_);
            out.append(text_, at_, next - at_);
            at_ = next;
        }
        ++at_;
        return out;
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
        constexpr std::uint32_t kHigh = 0xD800;
        constexpr std::uint32_t kLow = 0xDC00;
        constexpr std::uint32_t kEnd = 0xE000;
        std::uint32_t code = hex(at_);
        at_ += 4;
        if (code >= kHigh && code < kLow && text_.substr(at_, 2) == "\\u") {
            const std::uint32_t low = hex(at_ + 2);
            if (low >= kLow && low < kEnd) {
                code = 0x10000 + ((code - kHigh) << 10U) + (low - kLow);
                at_ += 6;
            }
        }
        // Half of a pair is no character, and no text that a pattern can be looked for in.
        constexpr std::uint32_t kReplacement = 0xFFFD;
        if (code >= kHigh && code < kEnd) code = kReplacement;
        append_utf8(code, out);
    }

    [[nodiscard]] std::uint32_t hex(std::size_t at) const {
        std::uint32_t code = 0;
        std::from_chars(text_.data() + at, text_.data() + at + 4, code, 16);
        return code;
    }

    const std::string_view text_;
    std::deque<std::string>& decoded_;
    std::size_t at_ = 0;
};

std::optional<JsonDocument> JsonDocument::read(std::string_view text, std::string& why) {
    if (!is_json(text)) {
        why = "is not JSON";
        return std::nullopt;
    }
    JsonDocument document;
    if (!Reader(text, document.decoded_).value(document.root_, 0)) {
        why = "has containers within one another, more than " + std::to_string(kMaxDepth);
        return std::nullopt;
    }
    return document;
}

const JsonValue* JsonValue::find(std::string_view name) const {
    const auto found =
        std::lower_bound(members.begin(), members.end(), name,
                         [](const JsonMember& one, std::string_view n) { return one.name < n; });
    return found != members.end() && found->name == name ? &found->value : nullptr;
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

void append_canonical(const JsonValue& value, std::string& out) {
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
            Decimal(value.text).append_to(out);
            break;
        case Kind::kString:
            append_json_string(value.text, out);
            break;
        case Kind::kArray:
            out += '[';
            for (const JsonValue& item : value.items) {
                append_canonical(item, out);
                out += ',';
            }
            out += ']';
            break;
        case Kind::kObject:
            out += '{';
            for (const JsonMember& member : value.members) {
                append_json_string(member.name, out);
                out += ':';
                append_canonical(member.value, out);
                out += ',';
            }
            out += '}';
            break;
    }
}

}  // namespace outbox::schema
