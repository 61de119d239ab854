#include "tests/simulation/postgres/client.h"

#include <poll.h>
#include <utility>

namespace outbox::simulation {

namespace {
constexpr int kMaxWaitMs = 3'600'000;  // of simulated time
}

void Client::close() {
    if (connection_ != nullptr) PQfinish(std::exchange(connection_, nullptr));
}

bool Client::wait(short events) {
    pollfd entry{PQsocket(connection_), events, 0};
    return ::poll(&entry, 1, kMaxWaitMs) > 0;
}

bool Client::connect() {
    const char* names[] = {"dbname", nullptr};
    const char* values[] = {url_.c_str(), nullptr};
    connection_ = PQconnectStartParams(names, values, 1);
    auto state =
        PQstatus(connection_) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
    while (state == PGRES_POLLING_READING || state == PGRES_POLLING_WRITING) {
        if (!wait(state == PGRES_POLLING_READING ? POLLIN : POLLOUT)) break;
        state = PQconnectPoll(connection_);
    }
    if (state == PGRES_POLLING_OK) {
        PQsetNoticeProcessor(connection_, [](void*, const char*) {}, nullptr);
        return true;
    }
    error_ = PQerrorMessage(connection_);
    close();
    return false;
}

pg_conn* Client::handle() {
    if (connection_ == nullptr) connect();
    return connection_;
}

bool Client::run(const std::string& sql) {
    rows_.clear();
    error_.clear();
    state_.clear();
    if (connection_ == nullptr && !connect()) return false;
    bool done = PQsendQuery(connection_, sql.c_str()) != 0;
    while (done) {
        while (PQisBusy(connection_) != 0 && wait(POLLIN) && PQconsumeInput(connection_) != 0) {
        }
        PGresult* result = PQgetResult(connection_);
        if (result == nullptr) break;
        const auto status = PQresultStatus(result);
        if (status == PGRES_TUPLES_OK) {
            rows_.clear();
            for (int row = 0; row < PQntuples(result); ++row) {
                rows_.emplace_back();
                for (int column = 0; column < PQnfields(result); ++column) {
                    rows_.back().emplace_back(PQgetvalue(result, row, column));
                }
            }
        } else if (status != PGRES_COMMAND_OK) {
            error_ = PQresultErrorMessage(result);
            const char* state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
            state_ = state == nullptr ? "" : state;
        }
        PQclear(result);
        if (PQstatus(connection_) != CONNECTION_OK) break;
    }
    if (PQstatus(connection_) != CONNECTION_OK) {
        if (error_.empty()) error_ = PQerrorMessage(connection_);
        close();
    }
    return done && error_.empty();
}

}  // namespace outbox::simulation
