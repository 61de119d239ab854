#include "databases/postgres/source/writers.h"

#include "core/sql_text.h"

namespace outbox::postgres {
namespace {

// Who inserts into a partition by its own name locks it alone, and takes a number of the root's.
std::string relations_of(const Table& table) {
    std::string root = quote_literal(table.sql) + "::regclass";
    if (!table.partitioned) return root;
    return "ANY (SELECT relid FROM pg_partition_tree(" + root + "))";
}

}  // namespace

WriterQuery::WriterQuery(const Table& table)
    : sql_(
          "SELECT DISTINCT virtualtransaction, pid IS NULL FROM pg_locks WHERE locktype = "
          "'relation' "
          "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
          "AND relation = " +
          relations_of(table) + " AND mode = 'RowExclusiveLock' AND granted") {}

Result<std::vector<core::Writer>> WriterQuery::ask(Connection& connection) const {
    Result<Rows> rows = connection.query(sql_);
    if (!rows.ok()) return rows.status();
    std::vector<core::Writer> writers;
    for (int row = 0; row < rows->size(); ++row) {
        writers.push_back({rows->string(row, 0), rows->boolean(row, 1)});
    }
    return writers;
}

}  // namespace outbox::postgres
