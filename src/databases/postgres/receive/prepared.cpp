#include "databases/postgres/receive/prepared.h"

#include <libpq-events.h>
#include <memory>
#include <set>
#include <string>

namespace outbox::consumer {
namespace {

// What a connection keeps. libpq holds it, and says when the connection goes.
struct Keeping {
    bool is_possible = true;
    std::set<std::string> names;
};

Keeping* keeping_of(const PGconn* connection);

int on_connection_event(PGEventId event, void* info, void* /*unused*/) {
    if (event == PGEVT_CONNRESET) {
        *keeping_of(static_cast<PGEventConnReset*>(info)->conn) = {};
    } else if (event == PGEVT_CONNDESTROY) {
        const std::unique_ptr<Keeping> last(
            keeping_of(static_cast<PGEventConnDestroy*>(info)->conn));
    }
    return 1;
}

Keeping* keeping_of(const PGconn* connection) {
    return static_cast<Keeping*>(PQinstanceData(connection, on_connection_event));
}

// Null where libpq has no memory for it.
Keeping* make_keeping(PGconn* connection) {
    if (Keeping* found = keeping_of(connection)) return found;
    auto made = std::make_unique<Keeping>();
    if (PQregisterEventProc(connection, on_connection_event, "outbox statements", nullptr) == 0 ||
        PQsetInstanceData(connection, on_connection_event, made.get()) == 0) {
        return nullptr;
    }
    return made.release();
}

}  // namespace

void keep(PGconn* connection, const Prepared& statement) {
    constexpr std::string_view kThereAlready = "42P05";
    Keeping* keeping = make_keeping(connection);
    if (keeping == nullptr || !keeping->is_possible || keeping->names.contains(statement.name)) {
        return;
    }
    const Rows prepared(PQprepare(connection, statement.name, statement.sql, 0, nullptr));
    const char* state = PQresultErrorField(prepared.get(), PG_DIAG_SQLSTATE);
    if (prepared.succeeded() || (state != nullptr && state == kThereAlready)) {
        keeping->names.insert(statement.name);
    }
}

Step step_of(PGconn* connection, const Prepared& statement, const Params& params) {
    const Keeping* keeping = keeping_of(connection);
    const bool is_kept =
        keeping != nullptr && keeping->is_possible && keeping->names.contains(statement.name);
    return {is_kept ? statement.name : statement.sql, &params, is_kept};
}

bool must_send_sql(PGconn* connection, const ErrorInfo& error) {
    constexpr std::string_view kNoSuchStatement = "26000";
    Keeping* keeping = keeping_of(connection);
    if (error.backend_code != kNoSuchStatement || keeping == nullptr || !keeping->is_possible) {
        return false;
    }
    keeping->is_possible = false;
    return true;
}

Rows begun_with(PGconn* connection, const Prepared& statement, const Params& params,
                const char* doing) {
    while (true) {
        const Step steps[] = {{"BEGIN", nullptr, false}, step_of(connection, statement, params)};
        try {
            return begun(connection, steps, doing);
        } catch (const Error& error) {
            if (!must_send_sql(connection, error.info())) throw;
        }
    }
}

}  // namespace outbox::consumer
