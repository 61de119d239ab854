#pragma once

#include <span>
#include <string>

#include <outbox/result.h>

#include "consumer/libpq_transaction.h"

namespace outbox::consumer {

/// Throws `Error` kConfigInvalid for what libpq cannot read, without the secrets in it.
void check_postgres_url(const std::string& url);

/// A connection in whose transactions handlers work. After an error with advice retry_destination
/// there is none: `connect` makes a new one. Used by one thread.
class LibpqSession {
  public:
    struct Statement {
        const char* name;
        const char* sql;
        int parameters;
    };

    /// `statements` are prepared; `rights` is a query without rows when rights are missing.
    LibpqSession(std::string url, int connect_timeout_s, std::span<const Statement> statements,
                 const char* rights);

    [[nodiscard]] PGconn* connection() const { return connection_.get(); }
    [[nodiscard]] bool connected() const { return connection_ != nullptr; }

    /// Not known to be broken.
    [[nodiscard]] bool sound() const {
        return connection_ && PQstatus(connection_.get()) == CONNECTION_OK;
    }

    Status connect();
    void disconnect() { connection_.reset(); }

    Status begin();
    /// An error when the handler ended the transaction, or ignored an error that had ended it.
    Status commit();
    /// Rolls back after the handler threw `cause`, which is replaced by a conflict between
    /// transactions where the database said that there was one. An error: the session is lost.
    Status roll_back(ErrorInfo& cause);
    /// Leaves no transaction open; an error when the session had to be given up for it.
    Status end_transaction();

    /// Runs one of the prepared statements.
    Result<PgResult> execute(const char* statement, const Params& params, const char* doing);

  private:
    Status open();
    Status set_up();
    Status run(const char* sql, const char* doing);
    ErrorInfo lost(ErrorInfo error);
    void watch_results();
    static int on_result(int event, void* info, void* session);

    std::string url_;
    int connect_timeout_s_;
    std::span<const Statement> prepared_;
    const char* rights_;
    PgConnection connection_;
    // The last error that the server sent, the handler's statements included.
    std::string error_state_;
    std::string error_text_;
};

struct Figures;

/// The statement "outbox_report", and its execution.
extern const char* const kReportFigures;
Status report_figures(LibpqSession& session, std::string_view consumer, std::string_view member,
                      const Figures& figures);

}  // namespace outbox::consumer
