#pragma once

#include <string>

namespace outbox::postgres {

/// Asks for the tables of `wanted` of which row security may hide rows from this session's role, or
/// keep it from a right that it has: what a policy hides is missing without a word. `wanted`: rows
/// of a VALUES list, each a table's name as in SQL and rights, `('outbox_lease', 'SELECT, INSERT'),
/// …`; a table that is not there is passed over. One column: the name.
[[nodiscard]] std::string hides_rows_sql(const std::string& wanted);

/// What such a table may do, and the statements that mend it. `user` as in SQL.
[[nodiscard]] std::string hides_rows_text(const std::string& table, const std::string& user);

}  // namespace outbox::postgres
