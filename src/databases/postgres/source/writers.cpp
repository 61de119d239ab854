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

std::string writers_condition(const Table& table) {
    return "l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = "
           "current_database()) AND l.relation = " +
           relations_of(table) + " AND l.mode = 'RowExclusiveLock' AND l.granted";
}

WriterQuery::WriterQuery(const Table& table)
    : sql_("SELECT DISTINCT l.virtualtransaction, l.pid IS NULL FROM pg_locks l WHERE " +
           writers_condition(table)) {}

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
