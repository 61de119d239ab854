#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "print.h"

namespace outbox::app {

inline constexpr std::size_t kNarrow = 40;  ///< Columns, below which gaps are one blank.

/// Text of one look.
struct Span {
    std::string text;
    std::optional<Colour> colour = {};
};
using Line = std::vector<Span>;

/// In columns: two for what may be wide, as a line that is too short harms nothing.
[[nodiscard]] std::size_t width_of_text(std::string_view text);
[[nodiscard]] std::size_t width_of_line(const Line& line);
/// What of the line fits into so many columns, "…" in place of the rest. UTF-8 throughout.
[[nodiscard]] std::string render(const Line& line, std::size_t columns, bool colours);

/// Of a table.
struct Column {
    std::string heading;
    bool right = false;
    int rank = 0;           ///< The highest go first where not all fit.
    std::size_t least = 0;  ///< Above 0: may be cut down to this.
    std::size_t most = 1'000;
    std::vector<Span> cells = {};

    [[nodiscard]] std::size_t natural() const;
    [[nodiscard]] std::size_t smallest() const;
};

/// Columns of which as many are shown as fit.
class Columns {
  public:
    Columns(std::vector<Column> columns, std::size_t width);

    [[nodiscard]] bool shows(std::string_view heading) const;
    [[nodiscard]] Line heading() const;
    [[nodiscard]] Line row(std::size_t index) const;

  private:
    [[nodiscard]] std::size_t total(std::size_t (Column::*width)() const) const;
    template <typename CellOf>
    Line line_of(const CellOf& cell_of) const;

    std::vector<Column> columns_;
    std::size_t gap_;
    std::vector<std::size_t> widths_;
};

}  // namespace outbox::app
