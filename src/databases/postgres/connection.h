#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/result.h>

#include "databases/postgres/client.h"
#include "databases/postgres/params.h"
#include "databases/postgres/statement.h"

namespace outbox::postgres {

/// The bytes behind bytea's text form ("\\x0a..."); empty where it is malformed.
[[nodiscard]] std::string decode_bytea(std::string_view text);

/// A binary value on its way from the server; valid until the next row.
struct Field {
    const char* data = nullptr;  ///< Null for NULL.
    std::size_t size = 0;
};

/// What a replication connection is called, whatever the URL says.
inline constexpr const char* kStreamApplicationName = "outbox_stream";

/// One connection to PostgreSQL. Not thread-safe. Every call blocks until the server has answered,
/// which its `statement_timeout` makes it do within a minute, or `limit_waits` is over.
class Connection {
  public:
    enum class Kind : std::uint8_t { kPlain, kReplication };
    /// Connects within `timeout_s` and prepares the session. Errors name the remedy and never
    /// hold the password. A replication connection takes replication commands and, by `execute`
    /// alone, SQL.
    static Result<Connection> open(const std::string& url, int timeout_s, Kind kind = Kind::kPlain);

    /// Statements without parameters, several allowed.
    Status execute(const std::string& sql);
    Result<Rows> query(const std::string& sql, const Params& params = {});

    /// Parameter types come from `params`, whose values are ignored.
    Status prepare(const char* name, const std::string& sql, const Params& params);
    Result<Rows> query_prepared(const char* name, const Params& params);

    /// Sends several statements at once (pipeline mode) and waits for all. The first error stops
    /// those behind it. `affected`, if given, gets the row count of each. A statement owns what it
    /// sends: a recorder gathers those of several tables.
    struct Statement {
        std::string sql;
        Params params;
        const char* prepared = nullptr;  ///< Name of a prepared statement, in place of `sql`.

        [[nodiscard]] Step step() const {
            const bool is_prepared = prepared != nullptr;
            return {is_prepared ? prepared : sql.c_str(), &params, is_prepared};
        }
    };
    Status run_pipeline(std::span<const Statement> statements,
                        std::vector<std::int64_t>* affected = nullptr);

    /// Starts a statement whose binary rows come one by one through `next`. `start_prepared`
    /// answers fast; `start_copy` (COPY ... TO STDOUT, its query as literal SQL) costs the
    /// least per row.
    Status start_prepared(const char* name, const Params& params);
    Status start_copy(const std::string& query);
    /// True: `fields` hold a row. False: the end, or an error (`status`). Fewer or more columns
    /// than fields are an error.
    bool next(std::span<Field> fields, Status& status);
    /// Ends what `start_*` began: the rows that still come are dropped. Where that takes longer
    /// than a second the connection is closed, which ends the statement, too. (A request to cancel
    /// it would need another connection, which may not be had, and could hit a later statement.)
    void stop();

    /// From now on a call fails that waits longer than `max_wait` for something from the server, or
    /// until `stop`, a descriptor, can be read. The connection is of no use then.
    void limit_waits(std::chrono::milliseconds max_wait, int stop = -1) {
        client_.limit_waits({.most = max_wait, .descriptor = stop});
    }

    /// An operator's: where a lock is not to be had the error says who probably holds it, for which
    /// it asks by another connection.
    void name_holders(const std::string& url, int timeout_s) { asks_ = {url, timeout_s, {}}; }

    [[nodiscard]] bool usable() const { return client_.sound(); }
    /// As `Client::refuse`.
    void refuse() const { client_.refuse(); }
    /// As `Client::meet`.
    Status meet(std::string system_id, std::int64_t timeline) {
        return client_.meet(std::move(system_id), timeline);
    }
    /// As `Client::replaced`.
    [[nodiscard]] bool replaced() const { return client_.replaced(); }
    /// The database keeps any character; one of another encoding refuses those it lacks.
    [[nodiscard]] bool keeps_utf8() const;
    [[nodiscard]] int server_version() const;  ///< 150020 for 15.20.
    [[nodiscard]] int client_backend_pid() const;
    /// The schemas of the role's search path, quoted. The session's own path is the catalog's.
    [[nodiscard]] const std::vector<std::string>& schemas() const { return schemas_; }
    /// Sets it to a table's (`Table::path`), where that is not empty.
    Status follow(const std::string& path) {
        return path.empty() ? Status() : execute("SET search_path = " + path);
    }
    /// For who has to see all of `wanted` (as `hides_rows_sql` takes it): `kNoRights` where one of
    /// them hides rows, and from then on an error of each statement from which row security would
    /// hide any, of those that are prepared, too. That stays as it is where the role's policies are
    /// in force and show all, and where triggers of `table` (as in SQL; may be empty) may meet
    /// policies of others.
    Status require_all_rows(const std::string& wanted, const std::string& table = {});
    [[nodiscard]] std::string user() const { return client_.user(); }
    [[nodiscard]] std::string database() const { return client_.database(); }

    /// For `ReplicationStream`, which speaks the replication protocol on it. The answer may be of
    /// any kind; null: the connection broke.
    [[nodiscard]] pg_conn* handle() const { return client_.handle(); }
    Rows answer_to(const std::string& command) { return client_.answer_to(command.c_str()); }
    Result<Rows> command(const std::string& command) { return checked(answer_to(command)); }
    /// The last result of what was sent, if it was; the beginning of a COPY counts as one.
    Rows collect(bool sent) { return client_.collect(sent); }
    /// The server's error in `rows`, or what broke the connection.
    [[nodiscard]] ErrorInfo error_of(const Rows& rows) const;

  private:
    struct FreeCopy {
        void operator()(char* bytes) const;
    };
    enum class Stream : std::uint8_t { kNone, kRows, kCopy };

    struct Asks {
        std::string url;
        int timeout_s = 0;
        std::string statement;  // the last one; empty: not known
    };

    Connection() = default;
    void runs(std::string_view statement);
    [[nodiscard]] std::string holders() const;
    Result<Rows> checked(Rows rows) const;
    int take_copy_row();
    Status end_stream();
    bool next_row(std::span<Field> fields, Status& status);
    bool next_copy(std::span<Field> fields, Status& status);

    Client client_;
    std::vector<std::string> schemas_;
    std::optional<Asks> asks_;
    Stream stream_ = Stream::kNone;
    bool copy_header_ = false;
    std::optional<Rows> row_;
    std::unique_ptr<char, FreeCopy> copy_row_;
};

}  // namespace outbox::postgres
