#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consumer/libpq_errors.h"

namespace outbox::consumer {

/// Throws `Error` unless a sound transaction is open; `who` names the call: "accept".
void require_transaction(PGconn* connection, const std::string& who);

/// The cell's bytes; null data for NULL.
[[nodiscard]] std::string_view cell(const PGresult* rows, int row, int column);

/// An int4 or int8 in binary format; 0 for NULL.
[[nodiscard]] std::int64_t big_endian(std::string_view bytes);

/// A PostgreSQL array in text form.
[[nodiscard]] std::string array_literal(std::span<const std::string_view> texts);
[[nodiscard]] std::string array_literal(const std::vector<std::string>& texts);
[[nodiscard]] std::string array_literal(const std::vector<std::int64_t>& numbers);
[[nodiscard]] std::string array_literal(const std::vector<std::optional<std::int64_t>>& numbers);

/// Parameters of one statement. Texts must outlive it.
class Params {
  public:
    /// Sent in binary, so that a NUL in it is refused instead of ending it.
    Params& text(std::string_view value);
    /// The server decides on the type.
    Params& untyped(std::string_view value);
    Params& bytes(std::string_view value);
    Params& number(std::int64_t value);
    Params& null();
    Params& number_or_null(std::optional<std::int64_t> value) {
        return value ? number(*value) : null();
    }

    [[nodiscard]] PgResult execute(PGconn* connection, const char* sql) const;
    [[nodiscard]] PgResult execute_prepared(PGconn* connection, const char* name) const;
    /// Queues it in pipeline mode.
    [[nodiscard]] bool send_prepared(PGconn* connection, const char* name) const;

  private:
    struct Value {
        Oid type = 0;
        int format = 0;
        bool is_null = false;
        std::string_view borrowed;  // unless `owned` is set
        std::string owned;          // ends in NUL, as the text format needs
    };
    struct Arrays {
        explicit Arrays(const std::vector<Value>& values);
        [[nodiscard]] int count() const { return static_cast<int>(data.size()); }
        std::vector<Oid> types;
        std::vector<const char*> data;
        std::vector<int> sizes;
        std::vector<int> formats;
    };
    std::vector<Value> values_;
};

}  // namespace outbox::consumer
