#pragma once

#include <optional>
#include <tuple>
#include <utility>

#include "databases/sqlite/client.h"
#include "databases/sqlite/source/table.h"

namespace outbox::sqlite {

/// The connection of a reader with its statements, made when they are needed; it knows whether
/// anybody has written since a read came to the end of the rows, so that an idle poll costs no
/// query. `Statements` is made from (Database&, const Table&, const Extra&...) and has
/// `first_error()`.
template <class Statements, class... Extra>
class PollSession {
  public:
    explicit PollSession(const Table& table, Extra... extra)
        : table_(table), extra_(std::move(extra)...), session_(table.path, table.busy_timeout_ms) {}

    Result<Statements*> statements() {
        const Result<Database*> database = session_.get();
        if (!database.ok()) {
            prepared_.reset();
            return database.error();
        }
        if (prepared_) return &prepared_->statements;
        std::apply([&](const Extra&... extra) { prepared_.emplace(**database, table_, extra...); },
                   extra_);
        Status status = prepared_->version.status();
        if (status.ok()) status = prepared_->statements.first_error();
        if (status.ok()) return &prepared_->statements;
        drop();
        return status.error();
    }

    /// `read_rows(Statements&, bool& at_end)` is called unless nobody has written since it set
    /// `at_end`.
    template <class ReadRows>
    Status poll(ReadRows&& read_rows) {
        const Result<Statements*> statements = this->statements();
        if (!statements.ok()) return statements.status();
        Statement& version = prepared_->version;
        version.step();
        const std::int64_t now = version.integer(0);
        Status status = version.status();
        version.reset();
        if (status.ok() && version_at_end_ == now) return {};
        version_at_end_.reset();
        bool at_end = false;
        if (status.ok()) status = read_rows(**statements, at_end);
        if (!status.ok()) {
            drop();
        } else if (at_end) {
            version_at_end_ = now;
        }
        return status;
    }

    /// The next poll reads, whether somebody has written or not.
    void look_again() { version_at_end_.reset(); }

    void drop() {
        prepared_.reset();
        session_.drop();
        version_at_end_.reset();  // It counts from the connection's begin.
    }

  private:
    struct Prepared {
        Prepared(Database& database, const Table& table, const Extra&... extra)
            : version(database, "PRAGMA data_version"), statements(database, table, extra...) {}
        Statement version;
        Statements statements;
    };

    const Table& table_;
    const std::tuple<Extra...> extra_;
    Session session_;
    std::optional<Prepared> prepared_;            // Goes before the connection does.
    std::optional<std::int64_t> version_at_end_;  // The database's, when nothing was left.
};

}  // namespace outbox::sqlite
