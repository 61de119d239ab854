#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <outbox/consumer/fence.h>

#include "core/consumer_operations.h"

namespace outbox::consumer {

class Where;

/// One connection that runs SQL with text parameters and gives text; and what its SQL says
/// differently. Parameters are $1, $2, ... in the order of their first use. Used by one thread;
/// calls block on the database.
class Sql {
  public:
    using Row = std::vector<std::optional<std::string>>;
    using Rows = std::vector<Row>;

    Sql() = default;
    Sql(const Sql&) = delete;
    Sql& operator=(const Sql&) = delete;
    virtual ~Sql() = default;

    /// `changed`: how many rows a change touched.
    virtual Result<Rows> run(const std::string& sql, const std::vector<std::string>& parameters,
                             std::int64_t* changed = nullptr) = 0;
    struct Audit {
        std::string os_user;
        std::string source;
        std::string action;
        std::string detail;
        bool discards = false;  ///< The inbox remembers that they were never applied.
    };
    /// Changes dead letters of consumers ("DELETE FROM outbox_inbox_dead_letters") and writes down
    /// what was done, where it was to any. How many.
    virtual Result<std::int64_t> change_letters(const std::string& change, Where where,
                                                const Audit& audit) = 0;
    /// As the adapters' `look_for`.
    virtual Result<FenceLook> look_for(const std::string& consumer, const std::string& token) = 0;
    /// A time column in microseconds since the Unix epoch.
    [[nodiscard]] virtual std::string microseconds(const std::string& column) const = 0;
    [[nodiscard]] virtual std::string now() const = 0;
    /// The statement with our tables named so that no search_path finds others. `run` does it.
    [[nodiscard]] virtual std::string own(const std::string& sql) const { return sql; }
    /// A query that counts the tables of this name.
    [[nodiscard]] virtual std::string table_count(const std::string& table) const = 0;
    /// Whether any table of the producer's side is here, too.
    virtual Result<bool> has_producer() = 0;
    /// See `ConsumerOperations::unlogged`.
    virtual Result<std::vector<std::string>> unlogged() { return std::vector<std::string>(); }
    /// The column `payload` in hexadecimal digits.
    [[nodiscard]] virtual std::string payload_hex() const = 0;
    /// A value of outbox_audit's `event_ids` that names none.
    [[nodiscard]] virtual std::string no_ids() const = 0;
    /// One header out of a column of them, also where another header is of the kind that the
    /// database's own JSON functions fail at.
    [[nodiscard]] virtual std::string header(const std::string& column,
                                             const std::string& name) const = 0;
    /// The event type that the column `headers` names.
    [[nodiscard]] std::string event_type() const { return header("headers", "type"); }
    /// Removes some thousands of old ids, expired keys and finished sagas. With a consumer: of the
    /// ids only its own, no sagas, and keys only where the user may.
    virtual Result<PrunedInbox> prune(std::int64_t retention_s,
                                      const std::string& consumer = {}) = 0;
    /// From another thread: what runs ends soon, with an error, and no more can be run.
    virtual void break_off() {}
    /// A call that waits longer for the database fails, and the connection is of no use then. Not
    /// where a file is the database, or other limits hold.
    virtual void limit_waits(std::chrono::milliseconds /*most*/) {}
    /// Counts all that `prune` would remove.
    virtual Result<PrunedInbox> prunable(std::int64_t retention_s) = 0;
    /// Hands over the rows of a query that changes nothing, one by one. It is the user's: run as
    /// it stands, with the search_path of the role; refused with `no_query` if it is none.
    virtual Status read(const std::string& query,
                        const std::function<Status(ConsumerOperations::Cells)>& take) = 0;
};

/// A line of outbox_audit that names no events, in the transaction of what was done.
[[nodiscard]] Status write_audit(Sql& sql, const Sql::Audit& audit, std::int64_t events = 0);

/// What `Sql::read` says where it was not given one query that changes nothing.
[[nodiscard]] ErrorInfo no_query(const std::string& why);

/// The condition of a statement with its parameters.
class Where {
  public:
    /// `column` is one of `values`; of no values: says nothing.
    void in(const std::string& column, const std::vector<std::string>& values);
    /// `column` is `value`; of an empty one: says nothing.
    void equals(const std::string& column, const std::string& value);
    /// Without a parameter.
    void also(const std::string& condition) { sql_ += " AND " + condition; }

    [[nodiscard]] const std::string& sql() const { return sql_; }
    [[nodiscard]] const std::vector<std::string>& parameters() const { return parameters_; }

    /// A parameter of its own, for another part of the statement.
    std::string add(const std::string& value);

  private:
    std::string sql_ = " WHERE true";
    std::vector<std::string> parameters_;
};

/// An integer cell; 0 for NULL and for an empty text.
[[nodiscard]] std::int64_t number(const std::optional<std::string>& cell);

/// Whose objects an operator's command may use.
struct Trust {
    std::vector<std::string> owners;  ///< Besides the roles that every command trusts.
    bool with_events = false;         ///< It writes events, too.
};

/// Connects to a consumer's database.
using OpenSql = std::function<Result<std::unique_ptr<Sql>>()>;

}  // namespace outbox::consumer
