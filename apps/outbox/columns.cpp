#include "columns.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <numeric>
#include <utility>

namespace outbox::app {
namespace {

// The code points of well-formed UTF-8, one by one.
std::uint32_t next_code(std::string_view text, std::size_t& at) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned first = byte(at);
    const std::size_t more = first < 0x80U ? 0 : first < 0xE0U ? 1 : first < 0xF0U ? 2 : 3;
    std::uint32_t code = more == 0 ? first : first & (0x3FU >> more);
    for (std::size_t i = 1; i <= more && at + i < text.size(); ++i) {
        code = code << 6U | (byte(at + i) & 0x3FU);
    }
    at = std::min(at + more + 1, text.size());
    return code;
}

std::size_t width_of(std::uint32_t code) {
    constexpr std::uint32_t kFirstWide = 0x1100;
    constexpr std::uint32_t kFirstPunctuation = 0x2000;
    constexpr std::uint32_t kFirstSymbol = 0x2300;
    const bool narrow = code < kFirstWide || (code >= kFirstPunctuation && code < kFirstSymbol);
    return narrow ? 1 : 2;
}

// At most so wide, "…" in place of the rest.
std::string cut(const std::string& text, std::size_t columns) {
    if (width_of_text(text) <= columns) return text;
    if (columns == 0) return {};
    std::size_t width = 0;
    std::size_t at = 0;
    while (at < text.size()) {
        std::size_t next = at;
        width += width_of(next_code(text, next));
        if (width + 1 > columns) break;
        at = next;
    }
    return text.substr(0, at) + "…";
}

std::string_view code_of(Colour colour) {
    switch (colour) {
        case Colour::kRed:
            return "31";
        case Colour::kYellow:
            return "33";
        case Colour::kGreen:
            return "32";
        case Colour::kBold:
            return "1";
    }
    return "0";
}

}  // namespace

std::size_t width_of_text(std::string_view text) {
    std::size_t width = 0;
    for (std::size_t at = 0; at < text.size();) width += width_of(next_code(text, at));
    return width;
}

std::size_t width_of_line(const Line& line) {
    return std::accumulate(
        line.begin(), line.end(), std::size_t{0},
        [](std::size_t sum, const Span& span) { return sum + width_of_text(span.text); });
}

std::string render(const Line& line, std::size_t columns, bool colours) {
    std::string out;
    std::size_t room = columns;
    const bool fits = width_of_line(line) <= columns;
    for (const Span& span : line) {
        // Where the line is cut somewhere it ends with the sign for that.
        const std::size_t width = width_of_text(span.text);
        const bool last = !fits && (width >= room);
        const std::string text = last ? cut(span.text + "…", room) : span.text;
        room -= std::min(room, width_of_text(text));
        if (colours && span.colour && !text.empty()) {
            out += fmt::format("\033[{}m{}\033[0m", code_of(*span.colour), text);
        } else {
            out += text;
        }
        if (last) break;
    }
    if (colours) return out;
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
}

std::size_t Column::natural() const {
    std::size_t width = width_of_text(heading);
    for (const Span& cell : cells) width = std::max(width, width_of_text(cell.text));
    return std::min(width, most);
}

std::size_t Column::smallest() const {
    return least == 0 ? natural() : std::min(least, natural());
}

template <typename CellOf>
Line Columns::line_of(const CellOf& cell_of) const {
    Line line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        if (i > 0) line.push_back({std::string(gap_, ' ')});
        Span cell = cell_of(columns_[i]);
        cell.text = cut(cell.text, widths_[i]);
        const Span blank{std::string(widths_[i] - width_of_text(cell.text), ' ')};
        if (columns_[i].right) line.push_back(blank);
        line.push_back(std::move(cell));
        if (!columns_[i].right) line.push_back(blank);
    }
    return line;
}

std::size_t Columns::total(std::size_t (Column::*width)() const) const {
    std::size_t sum = gap_ * (columns_.size() - 1);
    for (const Column& column : columns_) sum += (column.*width)();
    return sum;
}

Columns::Columns(std::vector<Column> columns, std::size_t width)
    : columns_(std::move(columns)), gap_(width < kNarrow ? 1 : 2) {
    while (columns_.size() > 1 && total(&Column::smallest) > width) {
        columns_.erase(
            std::max_element(columns_.begin(), columns_.end(),
                             [](const Column& a, const Column& b) { return a.rank < b.rank; }));
    }
    std::size_t spare = width - std::min(width, total(&Column::smallest));
    for (const Column& column : columns_) {
        const std::size_t more = std::min(spare, column.natural() - column.smallest());
        widths_.push_back(column.smallest() + more);
        spare -= more;
    }
}

bool Columns::shows(std::string_view heading) const {
    return std::any_of(columns_.begin(), columns_.end(),
                       [&](const Column& column) { return column.heading == heading; });
}

Line Columns::heading() const {
    return line_of([](const Column& column) { return Span{column.heading, Colour::kBold}; });
}

Line Columns::row(std::size_t index) const {
    return line_of([index](const Column& column) { return column.cells[index]; });
}

}  // namespace outbox::app
