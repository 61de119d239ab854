#define PCRE2_CODE_UNIT_WIDTH 8

#include "codec/debezium/topic_router.h"

#include <array>
#include <pcre2.h>

#include "core/ascii.h"

namespace outbox::codec::debezium {
namespace {

constexpr std::uint32_t kMatchLimit = 1'000'000;  // steps
constexpr std::uint32_t kHeapKib = 8 * 1024;
constexpr std::size_t kMaxMadeBytes = std::size_t{256} << 10;

ErrorInfo wrong(std::string_view option, std::string_view text, const std::string& why) {
    return {ErrorCode::kConfigInvalid,
            Advice::kStop,
            {},
            "debezium: " + std::string(option) + " = '" + std::string(text) + "': " + why};
}

bool is_hex(std::string_view text) {
    return text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

// Java's \uhhhh as PCRE2 writes it. Classes within classes and their intersections are Java's
// alone, and PCRE2 would take their signs for themselves.
Result<std::string> translated(const std::string& regex) {
    std::string out;
    bool in_class = false;
    for (std::size_t i = 0; i < regex.size(); ++i) {
        const char c = regex[i];
        if (c == '\\' && i + 1 < regex.size()) {
            const std::string_view digits = std::string_view(regex).substr(i + 2).substr(0, 4);
            if (regex[i + 1] == 'u' && digits.size() == 4 && is_hex(digits)) {
                out.append("\\x{").append(digits).append("}");
                i += 5;
                continue;
            }
            if (regex[i + 1] == 'Q') {  // all as it is, up to \E
                const std::size_t end = std::min(regex.find("\\E", i), regex.size());
                out.append(regex, i, end - i);
                i = end - 1;
                continue;
            }
            out.append(regex, i, 2);
            ++i;
            continue;
        }
        if (in_class && (c == '[' || regex.compare(i, 2, "&&") == 0)) {
            return wrong("route.topic.regex", regex,
                         "a class within a class, or && between them, is Java's alone; write one "
                         "class, or a lookahead such as (?=[a-z])[^aeiou]");
        }
        if (c == '[' && !in_class) {
            in_class = true;
            out += c;
            if (i + 1 < regex.size() && regex[i + 1] == '^') out += regex[++i];
            continue;
        }
        if (c == ']') in_class = false;
        out += c;
    }
    return out;
}

}  // namespace

void TopicRouter::Free::operator()(pcre2_real_code_8* code) const {
    pcre2_code_free(code);
}

void TopicRouter::Free::operator()(pcre2_real_match_data_8* data) const {
    pcre2_match_data_free(data);
}

void TopicRouter::Free::operator()(pcre2_real_match_context_8* context) const {
    pcre2_match_context_free(context);
}

TopicRouter::TopicRouter() = default;
TopicRouter::TopicRouter(TopicRouter&&) noexcept = default;
TopicRouter& TopicRouter::operator=(TopicRouter&&) noexcept = default;
TopicRouter::~TopicRouter() = default;

Result<TopicRouter> TopicRouter::make(const std::string& regex, const std::string& replacement) {
    TopicRouter router;
    Status status = router.compile(regex);
    if (status.ok()) status = router.parse_replacement(replacement);
    if (!status.ok()) return std::move(status).error();
    return router;
}

Status TopicRouter::compile(const std::string& regex) {
    const auto text = translated(regex);
    if (!text.ok()) return text.status();
    pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
    pcre2_set_newline(context, PCRE2_NEWLINE_ANY);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text->data()), text->size(),
                              PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context));
    pcre2_compile_context_free(context);
    if (code_ == nullptr) {
        std::array<PCRE2_UCHAR, 256> message{};
        pcre2_get_error_message(error, message.data(), message.size());
        return wrong("route.topic.regex", regex,
                     std::string(reinterpret_cast<const char*>(message.data())) + " at offset " +
                         std::to_string(offset) +
                         "; write it as java.util.regex and PCRE2 both take it");
    }
    std::uint32_t groups = 0;
    pcre2_pattern_info(code_.get(), PCRE2_INFO_CAPTURECOUNT, &groups);
    groups_ = static_cast<int>(groups);
    match_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    limits_.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(limits_.get(), kMatchLimit);
    pcre2_set_heap_limit(limits_.get(), kHeapKib);
    return {};
}

// Behind a '$'.
std::optional<TopicRouter::Part> TopicRouter::group_part(std::string_view& rest) const {
    Part part;
    if (rest.starts_with('{')) {
        const std::size_t close = rest.find('}');
        if (close == std::string_view::npos) return std::nullopt;
        const std::string name(rest.substr(1, close - 1));
        part.group = pcre2_substring_number_from_name(code_.get(),
                                                      reinterpret_cast<PCRE2_SPTR>(name.c_str()));
        rest.remove_prefix(close + 1);
        return part.group > 0 ? std::optional(part) : std::nullopt;
    }
    if (rest.empty() || !is_digit(rest.front())) return std::nullopt;
    part.group = rest.front() - '0';
    rest.remove_prefix(1);
    if (part.group > groups_) return std::nullopt;
    while (!rest.empty() && is_digit(rest.front())) {
        const int longer = part.group * 10 + (rest.front() - '0');
        if (longer > groups_) break;
        part.group = longer;
        rest.remove_prefix(1);
    }
    return part;
}

Status TopicRouter::parse_replacement(const std::string& replacement) {
    std::string_view rest = replacement;
    std::string text;
    const auto end_text = [&] {
        if (!text.empty()) parts_.push_back({std::move(text), -1});
        text.clear();
    };
    while (!rest.empty()) {
        const char c = rest.front();
        rest.remove_prefix(1);
        if (c == '\\') {
            if (rest.empty()) {
                return wrong("route.topic.replacement", replacement, "a backslash ends it");
            }
            text += rest.front();
            rest.remove_prefix(1);
        } else if (c == '$') {
            end_text();
            auto part = group_part(rest);
            if (!part) {
                return wrong("route.topic.replacement", replacement,
                             "behind $ stands ${NAME} or a number of a group that "
                             "route.topic.regex has; \\$ is a dollar");
            }
            parts_.push_back(std::move(*part));
        } else {
            text += c;
        }
    }
    end_text();
    return {};
}

std::optional<std::string> TopicRouter::route(std::string_view value) {
    const auto* const text = reinterpret_cast<PCRE2_SPTR>(value.data());
    const auto match = [&](std::uint32_t options) {
        return pcre2_match(code_.get(), text, value.size(), 0, options, match_.get(),
                           limits_.get());
    };
    // matches(): all of it. replaceFirst() then looks for the first match anew.
    const int whole = match(PCRE2_ANCHORED | PCRE2_ENDANCHORED);
    if (whole == PCRE2_ERROR_NOMATCH) return std::string(value);
    if (whole < 0 || match(0) < 0) return std::nullopt;
    const PCRE2_SIZE* places = pcre2_get_ovector_pointer(match_.get());
    std::string out(value.substr(0, places[0]));
    for (const Part& part : parts_) {
        if (part.group < 0) {
            out += part.text;
            continue;
        }
        const auto group = static_cast<std::size_t>(part.group);
        const PCRE2_SIZE begin = places[2 * group];
        if (begin != PCRE2_UNSET) out += value.substr(begin, places[2 * group + 1] - begin);
    }
    if (places[1] < value.size()) out += value.substr(places[1]);
    return out;
}

std::optional<std::string_view> TopicRouter::topic(std::string_view value, spi::EventBatch& arena) {
    scratch_.assign(value);
    if (const auto known = made_.find(scratch_); known != made_.end()) {
        return std::string_view(known->second);
    }
    auto made = route(value);
    if (!made) return std::nullopt;
    const std::size_t bytes = value.size() + made->size();
    if (made_bytes_ + bytes > kMaxMadeBytes) return arena.copy(*made);
    made_bytes_ += bytes;
    return std::string_view(made_.emplace(scratch_, std::move(*made)).first->second);
}

}  // namespace outbox::codec::debezium
