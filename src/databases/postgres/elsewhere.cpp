#include "databases/postgres/elsewhere.h"

#include "core/sql_text.h"

namespace outbox::postgres {

std::string elsewhere_sql(std::string_view table) {
    return "SELECT quote_ident(n.nspname) FROM pg_class c JOIN pg_namespace n ON n.oid = "
           "c.relnamespace WHERE c.relname = " +
           quote_literal(table) +
           " AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND "
           "has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'INSERT') ORDER BY "
           "1 LIMIT 1";
}

ErrorInfo elsewhere(std::string_view what, std::string_view schema, std::string_view where) {
    return {ErrorCode::kNoSuchTable, Advice::kRetryDestination, "42P01",
            std::string(what) + " of " + std::string(where) + " stand in schema " +
                std::string(schema) +
                ", which is not on the search path of the route's URL, and others, which nobody "
                "reads, would be made: add options=-csearch_path%3D" +
                std::string(schema) +
                " to that URL; or, if it is to have its own, make them: outbox migrate --only "
                "consumer"};
}

}  // namespace outbox::postgres
