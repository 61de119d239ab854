#pragma once

#include <cstdint>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::app {

/// Columns of text under a heading, each as wide as it needs.
class TextColumns {
  public:
    enum class Align : std::uint8_t { kLeft, kRight };
    struct Heading {
        std::string text;
        Align align = Align::kLeft;
    };

    explicit TextColumns(std::vector<Heading> headings) : headings_(std::move(headings)) {}
    /// Control characters are shown as "?"; a line never breaks.
    void add(std::vector<std::string> cells);
    void print(std::ostream& out) const;

  private:
    std::vector<Heading> headings_;
    std::vector<std::vector<std::string>> rows_;
};

enum class Colour : std::uint8_t { kRed, kYellow, kGreen, kBold };

/// `text` in a colour when stdout is a terminal and NO_COLOR is not set.
[[nodiscard]] std::string coloured(Colour colour, std::string_view text);

/// "1,234,567".
[[nodiscard]] std::string with_commas(std::int64_t number);

/// "320 ms", "4.2 s", "3 min", "5 h", "2 d".
[[nodiscard]] std::string age_text(double seconds);

/// "2026-01-31T08:15:00.123456Z"; "" for 0.
[[nodiscard]] std::string time_text(std::int64_t epoch_us);

/// At most `max_columns` characters, "…" for the rest; on one line.
[[nodiscard]] std::string shortened(std::string_view text, std::size_t max_columns);

/// `text` on lines no longer than a terminal is wide (80 columns where it is none), those after the
/// first `columns` to the right, where the first begins, too. Control characters are shown as "?".
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t columns);

/// Control characters are shown as "?", but for tabs and line breaks, behind which the text goes on
/// `columns` to the right: nothing in it can pass for a line of ours.
[[nodiscard]] std::string indented(std::string_view text, std::size_t columns);

/// A line of a record that is shown whole; nothing where `text` is empty.
void print_field(std::string_view name, const std::string& text,
                 std::optional<Colour> colour = std::nullopt);

/// After a list that may have been cut: how many of `total` were shown, if not all.
void print_rest(std::size_t shown, std::int64_t total);

[[nodiscard]] nlohmann::ordered_json text_or_null(const std::string& text);
/// As `time_text`; null for 0.
[[nodiscard]] nlohmann::ordered_json time_or_null(std::int64_t epoch_us);
/// JSON text as JSON; a string where it is none, or is nested very deeply.
[[nodiscard]] nlohmann::ordered_json json_or_text(const std::string& text);
/// JSON text on one line, every value as it is written; quoted where it is none.
[[nodiscard]] std::string json_as_written(const std::string& text);
/// On stderr, without secrets.
void warn(std::string_view text);
/// Bytes that are no UTF-8 are replaced.
void print_json(const nlohmann::ordered_json& value);

}  // namespace outbox::app
