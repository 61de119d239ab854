#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "databases/postgres/receive/errors.h"

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
    /// Queue it in pipeline mode.
    [[nodiscard]] bool send(PGconn* connection, const char* sql) const;
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

/// One of several statements for one round trip.
struct Step {
    const char* statement;
    const Params* params = nullptr;
    bool prepared = true;  ///< `statement` is a prepared statement's name, not SQL.
};

/// What became of them: those after one that fails are not run.
struct StepResults {
    std::vector<PgResult> done;
    std::optional<ErrorInfo> error;  ///< Of the first that is not done.
};

/// Sends the statements together and waits for all their results. On an idle connection that is not
/// in pipeline mode.
StepResults run_together(PGconn* connection, std::span<const Step> steps, const char* doing);

/// Throws `Error` unless the connection is idle and may begin a transaction.
void require_idle(PGconn* connection, const std::string& who);

/// Runs BEGIN and what follows it; gives the last result. After an exception no transaction is
/// open.
PgResult begun(PGconn* connection, std::span<const Step> steps, const char* doing);

}  // namespace outbox::consumer
