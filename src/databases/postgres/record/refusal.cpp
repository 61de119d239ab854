#include "databases/postgres/record/refusal.h"

#include "databases/postgres/errors.h"

namespace outbox::postgres {

bool rows_are_to_blame(Connection& connection, const ErrorInfo& error, const std::string& sql,
                       const Params& params) {
    switch (what_concerns(error)) {
        case Concerns::kRows:
            return true;
        case Concerns::kPerhaps:
            return connection.query("EXPLAIN " + sql, params).ok();
        case Concerns::kAll:
            return false;
    }
    return false;
}

}  // namespace outbox::postgres
