#include <cstring>
#include <libpq-fe.h>

#include <outbox/adapters/libpq.h>

#include "databases/postgres/errors.h"
#include "databases/postgres/statement.h"
#include "producer/event_fields.h"

namespace outbox {
namespace {

using postgres::Rows;

// Costs no round trip: libpq follows the server's reports.
void require_open_transaction(PGconn* connection, const char* doing) {
    const std::string prefix = std::string(doing) + ": ";
    switch (PQtransactionStatus(connection)) {
        case PQTRANS_INTRANS:
            break;
        case PQTRANS_IDLE:
            throw Error(ErrorCode::kNoTransaction, Advice::kStop,
                        prefix +
                            "no transaction is open on this connection. Run BEGIN and the "
                            "business statements first, and commit afterwards");
        case PQTRANS_INERROR:
            throw Error(ErrorCode::kConflict, Advice::kRetryEvent,
                        prefix +
                            "the transaction has failed already. Roll it back and run it "
                            "again");
        case PQTRANS_ACTIVE:
            throw Error(ErrorCode::kConflict, Advice::kStop,
                        prefix +
                            "the connection is busy with another command: read its results "
                            "first");
        case PQTRANS_UNKNOWN:
            throw Error(ErrorCode::kConnectionLost, Advice::kRetryDestination,
                        prefix +
                            "the connection is lost. Connect again and run the transaction "
                            "again");
    }
    if (PQpipelineStatus(connection) != PQ_PIPELINE_OFF) {
        throw Error(ErrorCode::kConflict, Advice::kStop,
                    prefix + "the connection is in pipeline mode: leave it first");
    }
    const char* encoding = PQparameterStatus(connection, "client_encoding");
    if (encoding == nullptr || std::strcmp(encoding, "UTF8") != 0) {
        throw Error(ErrorCode::kConfigInvalid, Advice::kStop,
                    prefix + "the connection's client_encoding is " +
                        (encoding != nullptr ? encoding : "unknown") +
                        ", events are UTF-8. Run SET client_encoding = 'UTF8'");
    }
}

Rows checked(PGconn* connection, const char* doing, Rows rows) {
    if (!rows.succeeded()) throw Error(postgres::emit_error(connection, rows.get(), doing));
    return rows;
}

// The columns say what types the values have.
Rows run(PGconn* connection, const char* doing, const std::string& sql,
         std::span<const std::optional<std::string>> values) {
    postgres::Params params;
    for (const auto& value : values) {
        if (value) {
            params.lend_untyped(*value);
        } else {
            params.null();
        }
    }
    return checked(connection, doing,
                   postgres::execute(connection, sql.c_str(), params, postgres::Format::kText));
}

class LibpqTransaction final : public UnitOfWorkTransaction {
  public:
    LibpqTransaction(PGconn* connection, const EmitOptions& options, bool joins)
        : connection_(connection), options_(options), joins_(joins) {}

    void begin() override {
        if (joins_) return require_open_transaction(connection_, "joining a transaction");
        const auto status = PQtransactionStatus(connection_);
        if (status != PQTRANS_IDLE && status != PQTRANS_UNKNOWN) {
            throw Error(ErrorCode::kConflict, Advice::kStop,
                        "beginning a unit of work: the connection has a transaction open already");
        }
        run(connection_, "beginning a unit of work", "BEGIN", {});
    }

    void emit(std::span<const Event> events) override {
        EmitOptions options = options_;
        if (options.lock_key) {
            std::vector<std::string> keys;
            for (const Event& event : events) keys.push_back(producer::lane_key(event));
            lock_keys(connection_, keys);
            options.lock_key = false;
        }
        for (const Event& event : events) outbox::emit(connection_, event, options);
    }

    void commit() override {
        const Rows result = run(connection_, "committing a unit of work", "COMMIT", {});
        // The server answers COMMIT of a failed transaction with a rollback, not with an error.
        if (std::strcmp(PQcmdStatus(result.get()), "COMMIT") != 0) {
            throw Error(ErrorCode::kConflict, Advice::kRetryEvent,
                        "committing a unit of work: a statement had failed, so the server rolled "
                        "it back. Run it again");
        }
    }

    void rollback() noexcept override {
        if (PQtransactionStatus(connection_) == PQTRANS_IDLE) return;
        static_cast<void>(postgres::execute(connection_, "ROLLBACK"));
    }

  private:
    PGconn* connection_;
    EmitOptions options_;
    bool joins_;
};

}  // namespace

std::string emit(pg_conn* transaction, const Event& event, const EmitOptions& options) {
    require_open_transaction(transaction, "writing an event");
    InsertCommand command = insert_command(event, options);
    run(transaction, "writing an event", command.sql, command.values);
    return std::move(command.id);
}

std::string emit(pg_conn* transaction, std::string_view topic, std::string_view payload,
                 const EmitOptions& options) {
    Event event;
    event.topic = topic;
    event.payload = payload;
    return emit(transaction, event, options);
}

void lock_keys(pg_conn* transaction, std::span<const std::string> keys) {
    require_open_transaction(transaction, "locking keys");
    std::vector<std::optional<std::string>> values;
    std::string parameters;
    for (const std::string& key : keys) {
        if (key.empty()) continue;
        values.emplace_back(key);
        parameters += (parameters.empty() ? "$" : ", $") + std::to_string(values.size());
    }
    if (values.empty()) return;
    run(transaction, "locking keys", "SELECT outbox_lock_keys(" + parameters + ")", values);
}

UnitOfWork begin_unit_of_work(pg_conn* connection, const EmitOptions& options) {
    return UnitOfWork(std::make_unique<LibpqTransaction>(connection, options, false));
}

UnitOfWork join_unit_of_work(pg_conn* transaction, const EmitOptions& options) {
    return UnitOfWork(std::make_unique<LibpqTransaction>(transaction, options, true));
}

}  // namespace outbox
