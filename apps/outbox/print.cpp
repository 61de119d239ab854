#include "print.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fmt/format.h>
#include <iostream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/redact.h"
#include "core/utf8.h"

namespace outbox::app {

using nlohmann::ordered_json;

namespace {

// Characters on the screen: bytes that do not continue a UTF-8 sequence.
std::size_t columns_of(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    }));
}

// More than this is shown as text: what is printed with an indentation grows with the square of its
// depth, and is printed by recursion.
constexpr int kMaxJsonDepth = 64;

bool is_nested_too_deeply(std::string_view json) {
    int depth = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < json.size(); ++i) {
        const char c = json[i];
        if (in_string && c == '\\') {
            ++i;
        } else if (c == '"') {
            in_string = !in_string;
        } else if (!in_string && (c == '[' || c == '{')) {
            if (++depth > kMaxJsonDepth) return true;
        } else if (!in_string && (c == ']' || c == '}')) {
            --depth;
        }
    }
    return false;
}

std::size_t terminal_columns() {
    constexpr std::size_t kElsewhere = 80;
    winsize size{};
    if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) {
        return kElsewhere;
    }
    return size.ws_col == 0 ? kElsewhere : size.ws_col;
}

bool colours_wanted() {
    static const bool wanted = isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
    return wanted;
}

}  // namespace

void TextColumns::add(std::vector<std::string> cells) {
    cells.resize(headings_.size());
    std::transform(cells.begin(), cells.end(), cells.begin(),
                   [](const std::string& cell) { return to_printable(cell); });
    rows_.push_back(std::move(cells));
}

void TextColumns::print(std::ostream& out) const {
    std::vector<std::size_t> widths;
    for (std::size_t i = 0; i < headings_.size(); ++i) {
        std::size_t width = columns_of(headings_[i].text);
        for (const auto& row : rows_) width = std::max(width, columns_of(row[i]));
        widths.push_back(width);
    }
    const auto line_of = [&](const auto& text_at) {
        std::string line;
        for (std::size_t i = 0; i < headings_.size(); ++i) {
            const std::string& text = text_at(i);
            const std::string gap(widths[i] - columns_of(text), ' ');
            if (i > 0) line += "  ";
            line += headings_[i].align == Align::kRight ? gap + text : text + gap;
        }
        line.erase(line.find_last_not_of(' ') + 1);
        return line;
    };
    out << coloured(Colour::kBold,
                    line_of([&](std::size_t i) -> const std::string& { return headings_[i].text; }))
        << "\n";
    for (const auto& row : rows_) {
        out << line_of([&](std::size_t i) -> const std::string& { return row[i]; }) << "\n";
    }
}

std::string coloured(Colour colour, std::string_view text) {
    if (!colours_wanted()) return std::string(text);
    const char* code = colour == Colour::kRed      ? "31"
                       : colour == Colour::kYellow ? "33"
                       : colour == Colour::kGreen  ? "32"
                                                   : "1";
    return fmt::format("\033[{}m{}\033[0m", code, text);
}

std::string with_commas(std::int64_t number) {
    std::string text = std::to_string(number);
    const std::size_t first = number < 0 ? 1 : 0;
    for (std::size_t i = text.size(); i > first + 3; i -= 3) text.insert(i - 3, ",");
    return text;
}

std::string age_text(double seconds) {
    if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1000);
    if (seconds < 120) return fmt::format("{:.1f} s", seconds);
    if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
    if (seconds < 172'800) return fmt::format("{:.0f} h", seconds / 3600);
    return fmt::format("{:.0f} d", seconds / 86'400);
}

std::string time_text(std::int64_t epoch_us) {
    if (epoch_us == 0) return {};
    std::int64_t us = epoch_us % 1'000'000;
    std::time_t seconds = epoch_us / 1'000'000;
    if (us < 0) {
        us += 1'000'000;
        --seconds;
    }
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", parts.tm_year + 1900,
                       parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                       us);
}

std::string shortened(std::string_view text, std::size_t max_columns) {
    std::string line = to_printable(text);
    if (columns_of(line) <= max_columns) return line;
    std::size_t columns = 0;
    std::size_t end = 0;
    while (end < line.size()) {
        if ((static_cast<unsigned char>(line[end]) & 0xC0U) != 0x80U && ++columns == max_columns) {
            break;
        }
        ++end;
    }
    return line.substr(0, end) + "…";
}

std::string wrapped(std::string_view text, std::size_t columns) {
    constexpr std::size_t kLeast = 20;  // of text, however narrow the terminal is
    const std::size_t width = std::max(terminal_columns(), columns + kLeast) - columns;
    const std::string plain = to_printable(text);
    std::string out;
    std::size_t used = 0;
    for (std::size_t at = 0; at < plain.size();) {
        const std::size_t end = std::min(plain.find(' ', at), plain.size());
        const std::string_view word = std::string_view(plain).substr(at, end - at);
        const std::size_t size = columns_of(word);
        if (used > 0 && used + 1 + size > width) {
            out.append(1, '\n').append(columns, ' ');
            used = 0;
        }
        if (used > 0) out += ' ';
        out += word;
        used += size + (used > 0 ? 1 : 0);
        at = end + 1;
    }
    return out;
}

std::string indented(std::string_view text, std::size_t columns) {
    std::string out;
    for (const char c : to_printable(text, true)) {
        out += c;
        if (c == '\n') out.append(columns, ' ');
    }
    return out;
}

void print_field(std::string_view name, const std::string& text, std::optional<Colour> colour) {
    if (text.empty()) return;
    std::string label(name);
    label.resize(16, ' ');
    const std::string safe = indented(text, label.size());
    std::cout << label << (colour ? coloured(*colour, safe) : safe) << "\n";
}

void print_rest(std::size_t shown, std::int64_t total) {
    if (total <= static_cast<std::int64_t>(shown)) return;
    std::cout << "\nthe oldest " << shown << " of " << with_commas(total)
              << "; see more with --limit\n";
}

void warn(std::string_view text) {
    std::cerr << "outbox: warning: " << to_printable(redact(text)) << "\n";
}

ordered_json time_or_null(std::int64_t epoch_us) {
    return text_or_null(time_text(epoch_us));
}

ordered_json text_or_null(const std::string& text) {
    return text.empty() ? ordered_json() : ordered_json(text);
}

ordered_json json_or_text(const std::string& text) {
    if (is_nested_too_deeply(text)) return text;
    auto parsed = ordered_json::parse(text, nullptr, false);
    return parsed.is_discarded() ? ordered_json(text) : parsed;
}

std::string json_as_written(const std::string& text) {
    if (is_nested_too_deeply(text) || !ordered_json::accept(text)) {
        return ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    }
    std::string out;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '"') in_string = !in_string;
        const bool blank = text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r';
        if (!in_string && blank) continue;
        out += text[i];
        if (in_string && text[i] == '\\') out += text[++i];
    }
    return out;
}

void print_json(const ordered_json& value) {
    std::cout << printable_json(value.dump(2, ' ', false, ordered_json::error_handler_t::replace))
              << "\n";
}

}  // namespace outbox::app
