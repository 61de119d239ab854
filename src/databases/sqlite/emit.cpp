#include <outbox/adapters/sqlite.h>

#include "databases/sqlite/client.h"
#include "producer/event_fields.h"

namespace outbox {
namespace {

using producer::EventField;
using producer::FieldKind;
using sqlite::Role;

constexpr const char* kBeginning = "beginning a unit of work";
constexpr const char* kWriting = "writing an event";

// Event and field outlive the statement.
void bind(sqlite::Statement& statement, const Event& event, const EmitOptions& options,
          const EventField& field) {
    const std::string& text = field.kind == FieldKind::kPayload ? *event.payload : field.text;
    if (field.kind == FieldKind::kTime) {
        statement.bind(field.microseconds);
    } else if (field.kind == FieldKind::kPayload && options.binary_payload) {
        statement.lend_blob(text);
    } else {
        statement.lend(text);
    }
}

class SqliteTransaction final : public UnitOfWorkTransaction {
  public:
    SqliteTransaction(sqlite3* database, const EmitOptions& options)
        : database_(database), options_(options) {}

    void begin() override {
        if (sqlite::in_transaction(database_)) {
            throw Error(ErrorCode::kConflict, Advice::kStop,
                        "beginning a unit of work: the connection has a transaction open already");
        }
        sqlite::execute(database_, "BEGIN IMMEDIATE", Role::kEmit, kBeginning);
        sqlite::read_schema(database_, Role::kEmit, kBeginning);
    }

    void emit(std::span<const Event> events) override {
        for (const Event& event : events) outbox::emit(database_, event, options_);
    }

    void commit() override {
        sqlite::execute(database_, "COMMIT", Role::kEmit, "committing a unit of work");
    }

    void rollback() noexcept override { sqlite::roll_back(database_); }

  private:
    sqlite3* database_;
    EmitOptions options_;
};

}  // namespace

std::string emit(sqlite3* transaction, const Event& event, const EmitOptions& options) {
    if (!sqlite::in_transaction(transaction)) {
        throw Error(ErrorCode::kNoTransaction, Advice::kStop,
                    "writing an event: no transaction is open on this connection. Run BEGIN "
                    "IMMEDIATE and the business statements first, and commit afterwards");
    }
    producer::EventFields row = producer::event_fields(event, options);
    std::string sql = insert_clause(row) + "VALUES (";
    for (std::size_t i = 0; i < row.fields.size(); ++i) sql += i == 0 ? "?" : ", ?";
    sql += ')';

    sqlite::begin_writing(transaction, "DELETE FROM outbox_events WHERE 0", Role::kEmit, kWriting);
    sqlite::Statement statement(transaction, sql, Role::kEmit, kWriting);
    for (const EventField& field : row.fields) bind(statement, event, options, field);
    statement.step();
    return std::move(row.id);
}

std::string emit(sqlite3* transaction, std::string_view topic, std::string_view payload,
                 const EmitOptions& options) {
    Event event;
    event.topic = topic;
    event.payload = payload;
    return emit(transaction, event, options);
}

UnitOfWork begin_unit_of_work(sqlite3* connection, const EmitOptions& options) {
    return UnitOfWork(std::make_unique<SqliteTransaction>(connection, options));
}

}  // namespace outbox
