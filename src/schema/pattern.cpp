#define PCRE2_CODE_UNIT_WIDTH 8

#include "schema/pattern.h"

#include <array>
#include <pcre2.h>

namespace outbox::schema {
namespace {

struct FreeData {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeCompileContext {
    void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

// PCRE2's own limit of steps is one for each place where a search begins, which for a text of a
// megabyte is none at all.
struct Meter {
    std::size_t steps = 0;
    std::size_t most = 0;
    const std::stop_token& stop;
    std::size_t at = 0;
    std::size_t next_look = 0;
};
constexpr std::size_t kPatternStepsPerLook = 10'000;  // for `stop`

// Called before each item of a pattern.
extern "C" int outbox_pattern_step(pcre2_callout_block* block, void* user) {
    Meter& meter = *static_cast<Meter*>(user);
    const std::size_t at = block->current_position;
    const std::size_t way = at > meter.at ? at - meter.at : meter.at - at;
    meter.at = at;
    meter.steps += 1 + way / Pattern::kBytesPerStep;
    if (meter.steps >= meter.next_look) {
        meter.next_look = meter.steps + kPatternStepsPerLook;
        if (meter.stop.stop_requested()) return PCRE2_ERROR_CALLOUT;
    }
    return meter.steps > meter.most ? PCRE2_ERROR_CALLOUT : 0;
}

// What PCRE2 reads otherwise than ECMA 262 does.
std::optional<std::string> translated(std::string_view text, std::string& why) {
    constexpr std::string_view kForeign = "AaCEeGghHKLlNoQRUVXZz";  // escapes of PCRE2 alone
    std::string out;
    bool in_class = false;
    if (text.starts_with("(*")) {
        why = "begins with '(*', where there is nothing to repeat";
        return std::nullopt;
    }
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '\\' && i + 1 < text.size()) {
            const char escaped = text[++i];
            if (kForeign.find(escaped) != std::string_view::npos) {
                why = std::string("has the escape \\") + escaped + ", which ECMA 262 has not";
                return std::nullopt;
            }
            out += '\\';
            if (escaped == 'v') {
                out += "x0b";
            } else {
                out += escaped;
            }
            continue;
        }
        const char next = i + 1 < text.size() ? text[i + 1] : '\0';
        if (in_class && c == '[' && (next == ':' || next == '.' || next == '=')) {
            out += '\\';  // no class of POSIX
        }
        if (!in_class && c == '[') {
            in_class = true;
        } else if (in_class && c == ']') {
            in_class = false;
        }
        out += c;
    }
    return out;
}

}  // namespace

void Pattern::Free::operator()(pcre2_real_code_8* code) const {
    pcre2_code_free(code);
}

std::optional<Pattern> Pattern::compile(std::string_view text, std::string& why) {
    if (text.size() > kMaxBytes) {
        why = "has more than " + std::to_string(kMaxBytes) + " bytes";
        return std::nullopt;
    }
    const auto regex = translated(text, why);
    if (!regex) return std::nullopt;
    const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
        pcre2_compile_context_create(nullptr));
    pcre2_set_parens_nest_limit(context.get(), kMaxGroups);
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_ANYCRLF);
    pcre2_set_compile_extra_options(context.get(), PCRE2_EXTRA_ALT_BSUX);
    constexpr std::uint32_t kOptions = PCRE2_UTF | PCRE2_ALT_BSUX | PCRE2_ALLOW_EMPTY_CLASS |
                                       PCRE2_DOLLAR_ENDONLY | PCRE2_MATCH_UNSET_BACKREF |
                                       PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT;
    int error = 0;
    PCRE2_SIZE offset = 0;
    Pattern pattern;
    pattern.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex->data()), regex->size(),
                                      kOptions, &error, &offset, context.get()));
    if (pattern.code_ == nullptr) {
        std::array<PCRE2_UCHAR, 256> message{};
        pcre2_get_error_message(error, message.data(), message.size());
        why = "is not usable at its byte " + std::to_string(offset) + ": " +
              reinterpret_cast<const char*>(message.data());
        return std::nullopt;
    }
    return pattern;
}

Pattern::Outcome Pattern::search(std::string_view text, std::size_t& steps, std::size_t most,
                                 const std::stop_token& stop) const {
    Meter meter{steps + text.size() / kBytesPerStep, most, stop};
    const std::unique_ptr<pcre2_match_context, FreeMatchContext> context(
        pcre2_match_context_create(nullptr));
    pcre2_set_heap_limit(context.get(), kMaxHeapKib);
    pcre2_set_callout(context.get(), outbox_pattern_step, &meter);
    const std::unique_ptr<pcre2_match_data, FreeData> data(pcre2_match_data_create(1, nullptr));
    const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), 0, 0, data.get(), context.get());
    steps = meter.steps;
    if (found >= 0) return Outcome::kFound;
    // Whatever else ended the search did not end it without a find.
    return found == PCRE2_ERROR_NOMATCH ? Outcome::kNotFound : Outcome::kTooManySteps;
}

std::size_t Pattern::bytes() const {
    std::size_t bytes = 0;
    pcre2_pattern_info(code_.get(), PCRE2_INFO_SIZE, &bytes);
    return bytes;
}

}  // namespace outbox::schema
