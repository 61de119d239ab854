#pragma once

#include <chrono>
#include <libpq-fe.h>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

#include "databases/postgres/client.h"
#include "databases/postgres/receive/prepared.h"
#include "databases/postgres/receive/transaction.h"
#include "databases/postgres/watch.h"

namespace outbox::consumer {

/// Throws `Error` kConfigInvalid for what libpq cannot read, without the secrets in it.
void check_postgres_url(const std::string& url);

/// A connection in whose transactions handlers work, who call libpq themselves: so it waits as
/// libpq does, and `postgres::Watch` sees to a server that does not answer. After an error with
/// advice retry_destination there is none: `connect` makes a new one. Used by one thread.
class LibpqSession {
  public:
    /// What the user must be allowed to do with a table: "SELECT, INSERT".
    struct Right {
        const char* table;
        const char* privileges;
    };

    /// `statements` are prepared, `rights` are looked for when connecting.
    LibpqSession(std::string url, int connect_timeout_s, std::vector<Prepared> statements,
                 std::vector<Right> rights);

    [[nodiscard]] const std::string& url() const { return url_; }
    [[nodiscard]] int connect_timeout_s() const { return connect_timeout_s_; }
    [[nodiscard]] PGconn* connection() const { return client_.handle(); }
    [[nodiscard]] bool connected() const { return connection() != nullptr; }

    /// Not known to be broken, nor with an old primary.
    [[nodiscard]] bool sound() const { return client_.sound() && !client_.replaced(); }

    /// A `connect` and an `ask` that wait longer than that for something from the server fail, and
    /// the session is of no use then. Before `connect`, and not where a handler works on it.
    void limit_waits(std::chrono::milliseconds most) { client_.limit_waits({.most = most}); }
    /// Runs one statement, which such a limit holds for.
    Rows ask(const char* statement, const Params& params);
    /// The server gave no answer in time, and the error that says so.
    [[nodiscard]] bool silent() const { return client_.silent(); }
    [[nodiscard]] ErrorInfo silence() const;

    Status connect();
    /// Of this session; another one each time it is made anew, and never 0.
    [[nodiscard]] std::uint64_t number() const { return number_; }
    void disconnect() {
        watch_.leave();
        client_.close();
    }

    /// From another thread: the statement in hand ends with an error, the session is lost.
    void break_off() { watch_.break_off(); }

    /// To be held while the server is waited for: a server that does not answer is noticed.
    class Use {
      public:
        explicit Use(LibpqSession& session) : session_(session) { session_.watch_.busy(); }
        ~Use();
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;

      private:
        LibpqSession& session_;
    };

    /// BEGIN and these prepared statements in one round trip; gives their results. After an error
    /// no transaction is open.
    Result<std::vector<Rows>> begin_with(std::span<const Step> steps, const char* doing);
    /// An error when the handler ended the transaction, also where it began another one (but by AND
    /// CHAIN), or ignored an error that had ended it.
    Status commit();

    struct Turn {
        Status committed;
        std::optional<Result<std::vector<Rows>>> begun;
    };
    /// `commit` and `begin_with` in one round trip; begins only where the commit succeeded.
    Turn commit_and_begin_with(std::span<const Step> steps, const char* doing);

    /// Rolls back after the handler threw `cause`, which is replaced by a conflict between
    /// transactions where the database said that there was one. An error: the session is lost.
    Status roll_back(ErrorInfo& cause);
    /// Leaves no transaction open; an error when the session had to be given up for it.
    Status end_transaction();

    /// Runs one of the prepared statements.
    Result<Rows> execute(const char* statement, const Params& params, const char* doing);

  private:
    [[nodiscard]] bool is_limited() const { return client_.patience().most.count() >= 0; }
    Status open();
    Status set_up();
    Status check_rights();
    Status may_commit();
    Result<std::vector<Rows>> begun(StepResults results, std::size_t skip);
    Status run(const char* sql, const char* doing);
    ErrorInfo lost(ErrorInfo error);
    ErrorInfo refused_commit(ErrorInfo error);
    void watch_results();
    static int on_result(int event, void* info, void* session);
    void heed_command(std::string_view tag);

    std::string url_;
    int connect_timeout_s_;
    std::vector<Prepared> prepared_;
    std::vector<Right> rights_;
    postgres::Client client_;
    postgres::Watch watch_;  // behind the client, as it has the client's socket
    std::uint64_t number_ = 0;
    // The last error that the server sent, the handler's statements included.
    std::string error_state_;
    std::string error_text_;
    // What the handler has done to its transaction. ROLLBACK is how a savepoint's is reported, too.
    bool may_have_rolled_back_ = false;
    bool left_transaction_ = false;
};

}  // namespace outbox::consumer
