#include "consumer/operator_sql.h"

namespace outbox::consumer {

void Where::in(const std::string& column, const std::vector<std::string>& values) {
    if (values.empty()) return;
    std::string list;
    for (const std::string& value : values) list += (list.empty() ? "" : ", ") + add(value);
    also(column + " IN (" + list + ")");
}

void Where::equals(const std::string& column, const std::string& value) {
    if (!value.empty()) also(column + " = " + add(value));
}

std::string Where::add(const std::string& value) {
    parameters_.push_back(value);
    return "$" + std::to_string(parameters_.size());
}

std::int64_t number(const std::optional<std::string>& cell) {
    return cell && !cell->empty() ? std::stoll(*cell) : 0;
}

Status write_audit(Sql& sql, const Sql::Audit& audit, std::int64_t events) {
    return sql
        .run(
            "INSERT INTO outbox_audit (at, os_user, source, action, detail, events, event_ids) "
            "VALUES (" +
                sql.now() + ", $1, $2, $3, $4, " + std::to_string(events) + ", " + sql.no_ids() +
                ")",
            {audit.os_user, audit.source, audit.action, audit.detail})
        .status();
}

ErrorInfo no_query(const std::string& why) {
    return {ErrorCode::kConfigInvalid,
            Advice::kStop,
            {},
            "must be one query, which changes nothing: " + why};
}

}  // namespace outbox::consumer
