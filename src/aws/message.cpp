#include "aws/message.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "core/ascii.h"
#include "core/base64.h"
#include "core/json_text.h"
#include "core/utf8.h"
#include "net/header_line.h"
#include "net/sha256.h"

namespace outbox::aws {
namespace {

using Attribute = std::pair<std::string_view, std::string_view>;
using Attributes = std::vector<Attribute>;

constexpr std::size_t kMaxNameBytes = 256;
constexpr std::size_t kMaxFifoBytes = 128;
constexpr std::string_view kFifo = ".fifo";
constexpr std::string_view kPlaceholder = "-";  // a body is never empty
// Valid UTF-8 and yet no characters: U+FFFE and U+FFFF begin with these.
constexpr std::string_view kNoCharacter = "\xEF\xBF";

bool begins_with_amazons(std::string_view name) {
    return begins_with_word(name, "aws.") || begins_with_word(name, "amazon.");
}

bool is_attribute_name(std::string_view name) {
    const auto fits = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
    };
    return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' &&
           name.back() != '.' && name.find("..") == std::string_view::npos &&
           std::all_of(name.begin(), name.end(), fits) && !begins_with_amazons(name);
}

bool fit_one_by_one(const Attributes& all) {
    if (all.size() > kMaxAttributes) return false;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const auto& [name, value] = all[i];
        if (!is_attribute_name(name) || value.empty() || !is_text(value)) return false;
        for (std::size_t j = 0; j < i; ++j) {
            if (all[j].first == name) return false;
        }
    }
    return true;
}

// U+FFFE and U+FFFF as JSON writes what it does not show.
std::string without_no_characters(std::string text) {
    std::size_t at = 0;
    while ((at = text.find(kNoCharacter, at)) != std::string::npos) {
        const unsigned char last = static_cast<unsigned char>(text[at + kNoCharacter.size()]);
        if (last == 0xBE) text.replace(at, 3, "\\ufffe");
        if (last == 0xBF) text.replace(at, 3, "\\uffff");
        at += kNoCharacter.size();
    }
    return text;
}

// [["name","value"],...]
std::string as_json(const Attributes& all) {
    std::string out = "[";
    std::pair<std::string, std::string> encoded;
    for (const auto& [name, value] : all) {
        out += out.size() == 1 ? "[" : ",[";
        const bool encode = !is_utf8(value) || name.ends_with('*');
        if (encode && net::encode_header(name, value, encoded)) {
            append_json_string(encoded.first, out);
            out += ',';
            append_json_string(encoded.second, out);
        } else {
            append_json_string(name, out);
            out += ',';
            append_json_string(value, out);
        }
        out += ']';
    }
    return without_no_characters(out + "]");
}

std::optional<std::string> why_not_carried(const spi::Record& record, bool fifo) {
    for (const spi::HeaderView& header : record.headers) {
        if (!is_utf8(header.name)) return "the name of a header is not UTF-8; use another name";
        if (header.name == kKeyAttribute || header.name == kBodyAttribute ||
            header.name == kHeadersAttribute) {
            return "the header '" + std::string(header.name) + "' is the relay's; use another name";
        }
    }
    // All events without one would be taken for repeats of the first.
    if (fifo && record.id.empty()) return "what is FIFO drops repeats by the id, and it has none";
    return std::nullopt;
}

}  // namespace

bool is_fifo(std::string_view topic) {
    return topic.ends_with(kFifo);
}

bool is_text(std::string_view text) {
    const auto refused = [](unsigned char c) {
        return c < ' ' && c != '\t' && c != '\n' && c != '\r';
    };
    if (std::any_of(text.begin(), text.end(), refused) || !is_utf8(text)) return false;
    for (std::size_t at = 0; (at = text.find(kNoCharacter, at)) != std::string_view::npos; ++at) {
        if (static_cast<unsigned char>(text[at + kNoCharacter.size()]) >= 0xBE) return false;
    }
    return true;
}

std::string fifo_id(std::string_view value) {
    const auto visible = [](unsigned char c) { return c > ' ' && c < 0x7F; };
    if (!value.empty() && value.size() <= kMaxFifoBytes &&
        std::all_of(value.begin(), value.end(), visible)) {
        return std::string(value);
    }
    return net::sha256_hex(value);
}

std::optional<std::string> make_message(const spi::Record& record, bool fifo,
                                        std::string_view suffix, Message& out) {
    if (auto why = why_not_carried(record, fifo)) return why;
    Attributes& all = out.attributes;
    all.reserve(record.headers.size() + 2);
    if (record.key.data() != nullptr) all.emplace_back(kKeyAttribute, record.key);
    out.body = record.value;
    if (out.body.data() == nullptr) {
        all.emplace_back(kBodyAttribute, "null");
        out.body = kPlaceholder;
    } else if (out.body.empty()) {
        all.emplace_back(kBodyAttribute, "empty");
        out.body = kPlaceholder;
    } else if (!is_text(out.body)) {
        all.emplace_back(kBodyAttribute, "base64");
        append_base64(out.body, out.encoded);
        out.body = out.encoded;
    }
    for (const spi::HeaderView& header : record.headers) {
        all.emplace_back(header.name, header.value);
    }
    if (!fit_one_by_one(all)) {
        out.headers = as_json(all);
        all.assign({{kHeadersAttribute, out.headers}});
    }
    out.bytes = out.body.size();
    for (const auto& [name, value] : all) {
        out.bytes += name.size() + kAttributeType.size() + value.size();
    }
    if (fifo) {
        const bool has_key = record.key.data() != nullptr;
        out.group = fifo_id(has_key ? record.key : record.id);
        out.deduplication_id = fifo_id(std::string(record.id).append(suffix));
    }
    return std::nullopt;
}

}  // namespace outbox::aws
