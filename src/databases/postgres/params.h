#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::postgres {

/// Parameters of one statement; keeps a copy of each value until it is sent.
class Params {
  public:
    Params& text(std::string_view value);
    Params& text_or_null(std::string_view value);  ///< Null `data()` is NULL.
    Params& integer(std::int64_t value);
    Params& integer_or_null(std::optional<std::int64_t> value);
    Params& bytes_or_null(std::string_view value);           ///< bytea
    Params& bits(std::span<const std::uint8_t> bytes);       ///< bit(8 * size)
    Params& integers(std::span<const std::int64_t> values);  ///< bigint[]
    Params& texts(std::span<const std::string> values);      ///< As '{...}'; cast it in the SQL.
    void clear();

  private:
    friend class Connection;
    void add(unsigned type, int format, std::string_view value, bool null = false);
    void note(unsigned type, int format, std::size_t offset, bool null);
    [[nodiscard]] int size() const { return static_cast<int>(types_.size()); }
    /// Where each value lies; valid until the next change.
    [[nodiscard]] const char* const* pointers() const;

    std::string bytes_;
    std::vector<unsigned> types_;
    std::vector<int> lengths_;
    std::vector<int> formats_;
    std::vector<std::size_t> offsets_;
    mutable std::vector<const char*> pointers_;
};

}  // namespace outbox::postgres
