#include "tests/support/pg.h"

#include <stdexcept>

namespace outbox::test {

Pg::Pg(const std::string& url) : connection_(PQconnectdb(url.c_str())) {
    if (PQstatus(handle()) != CONNECTION_OK) throw std::runtime_error(PQerrorMessage(handle()));
    PQsetNoticeProcessor(handle(), [](void*, const char*) {}, nullptr);
}

std::vector<Pg::Row> Pg::query(PGconn* connection, const std::string& sql) {
    const std::unique_ptr<PGresult, decltype(&PQclear)> result(PQexec(connection, sql.c_str()),
                                                               PQclear);
    const auto status = PQresultStatus(result.get());
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        throw std::runtime_error(PQerrorMessage(connection) + ("in: " + sql));
    }
    std::vector<Row> rows(static_cast<size_t>(PQntuples(result.get())));
    for (int row = 0; row < PQntuples(result.get()); ++row) {
        for (int column = 0; column < PQnfields(result.get()); ++column) {
            std::optional<std::string> cell;
            if (!PQgetisnull(result.get(), row, column)) {
                cell.emplace(PQgetvalue(result.get(), row, column),
                             static_cast<size_t>(PQgetlength(result.get(), row, column)));
            }
            rows[static_cast<size_t>(row)].push_back(std::move(cell));
        }
    }
    return rows;
}

std::string Pg::value(const std::string& sql) {
    const auto rows = query(sql);
    if (rows.size() != 1) {
        throw std::runtime_error(std::to_string(rows.size()) + " rows instead of one: " + sql);
    }
    return rows[0].at(0).value_or("");
}

}  // namespace outbox::test
