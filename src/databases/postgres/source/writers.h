#pragma once

#include <string>
#include <vector>

#include <outbox/result.h>

#include "core/read_mark.h"
#include "databases/postgres/connection.h"
#include "databases/postgres/source/table.h"

namespace outbox::postgres {

/// The condition of locks l (pg_locks) that a writer of the table holds.
[[nodiscard]] std::string writers_condition(const Table& table);

/// Who may still insert into a table: every transaction that holds the lock of a writer, prepared
/// ones included.
class WriterQuery {
  public:
    explicit WriterQuery(const Table& table);
    Result<std::vector<core::Writer>> ask(Connection& connection) const;

  private:
    std::string sql_;
};

}  // namespace outbox::postgres
