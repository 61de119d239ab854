#include <outbox/adapters/sqlite.h>

#include "databases/sqlite/handle.h"
#include "producer/event_fields.h"

namespace outbox {
namespace {

using producer::EventField;
using producer::FieldKind;
using producer::SqliteStatement;

int bind(sqlite3_stmt* statement, int index, const Event& event, const EmitOptions& options,
         const EventField& field) {
    // SQLITE_STATIC: event and field outlive the statement.
    const std::string& text = field.kind == FieldKind::kPayload ? *event.payload : field.text;
    if (field.kind == FieldKind::kTime) {
        return sqlite3_bind_int64(statement, index, field.microseconds);
    }
    if (field.kind == FieldKind::kPayload && options.binary_payload) {
        return sqlite3_bind_blob64(statement, index, text.data(), text.size(), SQLITE_STATIC);
    }
    return sqlite3_bind_text64(statement, index, text.data(), text.size(), SQLITE_STATIC,
                               SQLITE_UTF8);
}

void execute(sqlite3* database, const char* sql, const std::string& doing) {
    if (sqlite3_exec(database, sql, nullptr, nullptr, nullptr) != SQLITE_OK) {
        throw Error(producer::sqlite_error(database, doing));
    }
}

class SqliteTransaction final : public UnitOfWorkTransaction {
  public:
    SqliteTransaction(sqlite3* database, const EmitOptions& options)
        : database_(database), options_(options) {}

    void begin() override {
        if (sqlite3_get_autocommit(database_) == 0) {
            throw Error(ErrorCode::kConflict, Advice::kStop,
                        "beginning a unit of work: the connection has a transaction open already");
        }
        execute(database_, "BEGIN IMMEDIATE", "beginning a unit of work");
    }

    void emit(std::span<const Event> events) override {
        for (const Event& event : events) outbox::emit(database_, event, options_);
    }

    void commit() override { execute(database_, "COMMIT", "committing a unit of work"); }

    void rollback() noexcept override {
        if (sqlite3_get_autocommit(database_) != 0) return;
        sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
    }

  private:
    sqlite3* database_;
    EmitOptions options_;
};

}  // namespace

std::string emit(sqlite3* transaction, const Event& event, const EmitOptions& options) {
    if (sqlite3_get_autocommit(transaction) != 0) {
        throw Error(ErrorCode::kNoTransaction, Advice::kStop,
                    "writing an event: no transaction is open on this connection. Run BEGIN "
                    "IMMEDIATE and the business statements first, and commit afterwards");
    }
    producer::EventFields row = producer::event_fields(event, options);
    std::string sql = insert_clause(row) + "VALUES (";
    for (std::size_t i = 0; i < row.fields.size(); ++i) sql += i == 0 ? "?" : ", ?";
    sql += ")";

    sqlite3_stmt* prepared = nullptr;
    int result = sqlite3_prepare_v2(transaction, sql.c_str(), -1, &prepared, nullptr);
    const SqliteStatement statement(prepared);
    int index = 0;
    for (const EventField& field : row.fields) {
        if (result == SQLITE_OK) result = bind(prepared, ++index, event, options, field);
    }
    if (result == SQLITE_OK) result = sqlite3_step(prepared);
    if (result != SQLITE_DONE) throw Error(producer::sqlite_error(transaction, "writing an event"));
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
