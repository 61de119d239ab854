#pragma once

#include "databases/postgres/stream/row_decoder.h"

namespace outbox::test {

// The table that the fuzzed decoder reads: every field is mapped to a column of its own name.
inline postgres::StreamTable fuzz_table() {
    postgres::StreamTable table;
    table.oid = 16'400;
    table.schema = "s";
    table.name = "t";
    table.id_prefix = "s.t:";
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
        table.columns[i] = postgres::field_name(static_cast<postgres::RowColumn>(i));
    }
    table.metadata_columns = {"m", "other"};
    table.tenants = {"acme", "beta"};
    table.default_tenant = "acme";
    table.types[20'000] = postgres::WireType::kText;
    return table;
}

}  // namespace outbox::test
