#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct pg_result;

namespace outbox::postgres {

/// The result of a statement, in text or binary format.
class Rows {
  public:
    explicit Rows(pg_result* result = nullptr) : result_(result) {}

    [[nodiscard]] pg_result* get() const { return result_.get(); }
    /// The statement had no error.
    [[nodiscard]] bool succeeded() const;
    /// The SQLSTATE of the error, and what the server says of it; null `data()`: the server said
    /// nothing, the connection broke.
    [[nodiscard]] std::string_view state() const;
    [[nodiscard]] std::string_view message() const;
    [[nodiscard]] int size() const;
    [[nodiscard]] bool empty() const { return size() == 0; }
    [[nodiscard]] int columns() const;
    /// The value's bytes; null `data()` for NULL.
    [[nodiscard]] std::string_view text(int row, int column) const;
    [[nodiscard]] std::string string(int row, int column) const {
        return std::string(text(row, column));
    }
    [[nodiscard]] std::int64_t integer(int row, int column) const;  ///< NULL: 0.
    [[nodiscard]] bool boolean(int row, int column) const;          ///< NULL: false.
    [[nodiscard]] std::int64_t affected() const;  ///< Rows that an INSERT, UPDATE, DELETE changed.

  private:
    struct Clear {
        void operator()(pg_result* result) const;
    };
    std::unique_ptr<pg_result, Clear> result_;
};

}  // namespace outbox::postgres
