#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::postgres {

/// Parameters of one statement; keeps a copy of each value until it is sent, but of those that are
/// lent, which must outlive it.
class Params {
  public:
    /// Sent in binary, so that a NUL in it is refused instead of ending it.
    Params& text(std::string_view value);
    Params& text_or_null(std::string_view value);  ///< Null `data()` is NULL.
    Params& integer(std::int64_t value);           ///< bigint
    Params& integer_or_null(std::optional<std::int64_t> value);
    Params& bytes_or_null(std::string_view value);           ///< bytea
    Params& bits(std::span<const std::uint8_t> bytes);       ///< bit(8 * size)
    Params& integers(std::span<const std::int64_t> values);  ///< bigint[]
    Params& texts(std::span<const std::string> values);      ///< As '{...}'; cast it in the SQL.

    /// As text, of the type that the statement gives it.
    Params& untyped(std::string_view value);
    Params& number(std::int64_t value);
    Params& number_or_null(std::optional<std::int64_t> value) {
        return value ? number(*value) : null();
    }
    Params& null();

    Params& lend_untyped(const std::string& value);
    /// In binary, of the type with this number.
    Params& lend(unsigned type, std::string_view value);
    Params& lend_bytes(std::string_view value);  ///< bytea
    void clear();

    /// What libpq is given; valid until the next change.
    [[nodiscard]] int count() const { return static_cast<int>(types_.size()); }
    [[nodiscard]] const unsigned* types() const { return types_.data(); }
    [[nodiscard]] const char* const* values() const;
    [[nodiscard]] const int* lengths() const { return lengths_.data(); }
    [[nodiscard]] const int* formats() const { return formats_.data(); }

  private:
    struct Place {
        const char* lent;    // null: in `bytes_`, from
        std::size_t offset;  // this on, or NULL
    };
    void add(unsigned type, int format, std::string_view value, bool null = false);
    void note(unsigned type, int format, std::size_t size, Place place);

    std::string bytes_;
    std::vector<unsigned> types_;
    std::vector<int> lengths_;
    std::vector<int> formats_;
    std::vector<Place> places_;
    mutable std::vector<const char*> pointers_;
};

}  // namespace outbox::postgres
