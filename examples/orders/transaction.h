#pragma once

#include <cstdint>
#include <libpq-fe.h>
#include <sqlite3.h>
#include <string>
#include <variant>
#include <vector>

#include <outbox/event.h>

#include "journal.h"

namespace orders {

/// The open transaction of a handler, in either database: what a handler changes and what it tells
/// others go through here. The SQL is what both databases understand; parameters are $1, $2, ...,
/// each used in their order first.
///
/// Neither begins nor ends the transaction. Failures throw `outbox::Error`.
class Transaction {
  public:
    using Parameter = std::variant<std::string, std::int64_t>;
    using Row = std::vector<std::string>;  ///< NULL is an empty text.

    explicit Transaction(PGconn* connection) : handle_(connection) {}
    explicit Transaction(sqlite3* connection) : handle_(connection) {}

    std::vector<Row> query(const std::string& sql, const std::vector<Parameter>& parameters = {});

    /// Writes the event; `n` is its place among those of its key (header `n`).
    void emit(outbox::Event event, std::int64_t n);

    /// The events written through this object.
    [[nodiscard]] const std::vector<JournalEntry>& emitted() const { return emitted_; }

  private:
    std::variant<PGconn*, sqlite3*> handle_;
    std::vector<JournalEntry> emitted_;
};

/// Creates a service's own tables, several statements, and those of both sides of the outbox where
/// they are missing. `url`: postgresql://... or sqlite:///path.
void prepare_database(const std::string& url, const std::string& tables);

/// The path in sqlite:///path; empty for another URL.
[[nodiscard]] std::string sqlite_path(const std::string& url);
[[nodiscard]] bool is_postgres(const std::string& url);

}  // namespace orders
