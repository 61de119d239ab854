#include "core/redact.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "core/ascii.h"
#include "core/mutex.h"
#include "core/url.h"

namespace outbox {
namespace {

constexpr std::string_view kMask = "***";
constexpr std::size_t kMinRemembered = 4;
constexpr std::array<std::string_view, 2> kFileEndings{"_file", "-file"};  // names one, holds none
constexpr std::array<std::string_view, 8> kParts{"password", "passwd",     "passphrase",  "secret",
                                                 "token",    "credential", "private_key", "scram_"};

using Region = std::pair<std::size_t, std::size_t>;  // first, behind the last

// Held for a few comparisons.
struct Known {
    core::Mutex mutex;
    std::vector<std::string> parts OUTBOX_GUARDED_BY(mutex){kParts.begin(), kParts.end()};
    std::vector<std::string> values OUTBOX_GUARDED_BY(mutex);
    std::vector<std::string> temporary OUTBOX_GUARDED_BY(mutex);  // one for each holder
};

Known& known() {
    static Known instance;
    return instance;
}

bool is_blank(char c) {
    return std::isspace(static_cast<unsigned char>(c)) != 0;
}

bool is_quote(char c) {
    return c == '"' || c == '\'';
}

bool is_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
}

// "user:secret@" of what may be a URL, "postgres//u:p@h" included. A password that was not encoded
// may hold anything: it reaches from the first colon to the last "@" before a blank, or before the
// end where the text is one URL.
void find_user_info(std::string_view text, bool whole, std::vector<Region>& found) {
    for (std::size_t begin = 0; begin < text.size();) {
        std::size_t end = begin;
        while (end < text.size() && (whole || !is_blank(text[end]))) ++end;
        const std::string_view word = text.substr(begin, end - begin);
        const auto at = word.rfind('@');
        auto colon = word.find(':');
        // That of "scheme://".
        if (colon != std::string_view::npos && word.substr(colon + 1).starts_with("//") &&
            word.find('/') > colon) {
            colon = word.find(':', colon + 1);
        }
        if (at != std::string_view::npos && colon != std::string_view::npos && colon + 1 < at) {
            found.emplace_back(begin + colon + 1, begin + at);
        }
        begin = end + 1;
    }
}

// Where the value ends that begins at `pos`. Not at "&", which may be one of the secret's own that
// was not encoded: options behind it are hidden with it.
std::size_t end_of_value(std::string_view text, std::size_t pos, bool whole) {
    if (pos < text.size() && is_quote(text[pos])) {
        const char quote = text[pos];
        for (++pos; pos < text.size() && text[pos] != quote; ++pos) {
            if (text[pos] == '\\') ++pos;
        }
        pos = std::min(pos + 1, text.size());
    }
    while (pos < text.size() && (whole || !is_blank(text[pos]))) ++pos;
    return pos;
}

// The value behind `password=`, `password = ` and `"password": `.
void find_values(std::string_view text, bool whole, std::vector<Region>& found) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '=' && text[i] != ':') continue;
        std::size_t end = i;
        while (end > 0 && is_blank(text[end - 1])) --end;
        const bool quoted = end > 0 && is_quote(text[end - 1]);
        if (quoted) --end;
        if (text[i] == ':' && !quoted) continue;
        std::size_t begin = end;
        while (begin > 0 && is_name(text[begin - 1])) --begin;
        if (!is_secret_option(text.substr(begin, end - begin))) continue;
        std::size_t value = i + 1;
        while (value < text.size() && is_blank(text[value])) ++value;
        const std::size_t behind = end_of_value(text, value, whole);
        if (behind > value) found.emplace_back(value, behind);
        i = std::max(i, behind - 1);
    }
}

std::vector<Region> find_secrets(std::string_view text, bool whole) {
    std::vector<Region> found;
    find_user_info(text, whole, found);
    find_values(text, whole, found);
    return found;
}

// Regions may overlap: what is remembered is looked for in the text as it came, not in what is left
// of it, where a mask may have taken half of a name.
std::string mask(std::string_view text, std::vector<Region> regions) {
    std::sort(regions.begin(), regions.end());
    std::string out;
    std::size_t pos = 0;
    for (const auto& [begin, end] : regions) {
        if (end <= pos) continue;
        if (begin >= pos) out.append(text.substr(pos, begin - pos)).append(kMask);
        pos = end;
    }
    return out.append(text.substr(pos));
}

void find_remembered(std::string_view text, std::vector<Region>& found) {
    Known& all = known();
    const core::Lock lock(all.mutex);
    for (const auto* const values : {&all.values, &all.temporary}) {
        for (const std::string& value : *values) {
            for (auto at = text.find(value); at != std::string::npos;
                 at = text.find(value, at + 1)) {
                found.emplace_back(at, at + value.size());
            }
        }
    }
}

}  // namespace

void add_secret_options(std::span<const std::string_view> parts) {
    Known& all = known();
    const core::Lock lock(all.mutex);
    for (const std::string_view part : parts) {
        if (std::find(all.parts.begin(), all.parts.end(), part) == all.parts.end()) {
            all.parts.emplace_back(part);
        }
    }
}

bool is_secret_option(std::string_view name) {
    const std::string plain = lower(name);
    if (std::any_of(kFileEndings.begin(), kFileEndings.end(),
                    [&](std::string_view ending) { return plain.ends_with(ending); })) {
        return false;
    }
    Known& all = known();
    const core::Lock lock(all.mutex);
    return std::any_of(all.parts.begin(), all.parts.end(), [&](const std::string& part) {
        return plain.find(part) != std::string::npos;
    });
}

void remember_secret(std::string_view value) {
    if (value.size() < kMinRemembered) return;
    {
        Known& all = known();
        const core::Lock lock(all.mutex);
        if (std::find(all.values.begin(), all.values.end(), value) == all.values.end()) {
            all.values.emplace_back(value);
        }
    }
    if (const auto end = value.find('\n'); end != std::string_view::npos) {
        remember_secret(value.substr(0, end));
        remember_secret(value.substr(end + 1));
    }
}

TemporarySecret::TemporarySecret(std::string_view value) : value_(value) {
    if (value_.size() < kMinRemembered) return;
    Known& all = known();
    const core::Lock lock(all.mutex);
    all.temporary.push_back(value_);
}

TemporarySecret::~TemporarySecret() {
    Known& all = known();
    const core::Lock lock(all.mutex);
    const auto place = std::find(all.temporary.begin(), all.temporary.end(), value_);
    if (place != all.temporary.end()) all.temporary.erase(place);
}

void remember_secrets_of(std::string_view url) {
    for (const bool whole : {false, true}) {
        for (const auto& [begin, end] : find_secrets(url, whole)) {
            const std::string_view value = url.substr(begin, end - begin);
            remember_secret(value);
            remember_secret(percent_decode(value));
            // "postgres:/app:s3cret@db": the first colon was not the user's.
            const auto colon = value.find(':');
            if (colon != std::string_view::npos) remember_secret(value.substr(colon + 1));
            // The value as a parser takes it, and what has the form of no option behind it.
            for (std::size_t at = 0; at < value.size();) {
                const std::size_t next = std::min(value.find('&', at), value.size());
                const std::string_view part = value.substr(at, next - at);
                if (at == 0 || part.find('=') == std::string_view::npos) {
                    remember_secret(part);
                    remember_secret(percent_decode(part));
                }
                at = next + 1;
            }
            if (value.size() > 2 && is_quote(value.front()) && value.back() == value.front()) {
                remember_secret(value.substr(1, value.size() - 2));
            }
        }
    }
}

void forget_secrets() {
    Known& all = known();
    const core::Lock lock(all.mutex);
    all.values.clear();
}

std::string redact(std::string_view text) {
    std::vector<Region> found = find_secrets(text, false);
    find_remembered(text, found);
    return mask(text, std::move(found));
}

std::string redacted_url(std::string_view url) {
    std::vector<Region> found = find_secrets(url, true);
    find_remembered(url, found);
    return mask(url, std::move(found));
}

std::string redacted_line(std::string_view text) {
    std::string line;
    for (const char c : redact(text)) {
        if (!is_blank(c)) {
            line += c;
        } else if (!line.empty() && line.back() != ' ') {
            line += ' ';
        }
    }
    if (line.ends_with(' ')) line.pop_back();
    return line;
}

bool holds_secret(std::string_view text) {
    return !find_secrets(text, false).empty();
}

}  // namespace outbox
