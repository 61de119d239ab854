#pragma once

#include <memory>
#include <optional>
#include <string>

#include "consumer/operate.h"
#include "databases/postgres/receive/operator_sql.h"
#include "databases/sqlite/receive/operator_sql.h"

namespace outbox::test {

// What operators do in a consumer's database. Throws when it cannot be reached.
inline std::unique_ptr<ConsumerOperations> operations_of(const std::string& url) {
    constexpr int kTimeoutS = 60;
    constexpr std::string_view kSqlite = "sqlite://";
    return consumer::make_operations(
        (url.starts_with(kSqlite) ? consumer::open_sqlite_sql(url.substr(kSqlite.size()), kTimeoutS)
                                  : consumer::open_postgres_sql(url, kTimeoutS, consumer::Trust{}))
            .value_or_throw());
}

}  // namespace outbox::test
