#pragma once

#include <pqxx/pqxx>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/producer/emit.h>

namespace outbox {

/// Writes the event into `outbox_events` (`outbox_scheduled` if it has `available_at`) in the open
/// transaction, and returns its id. The event exists if and only if the caller commits. One round
/// trip. Header only: link your own libpqxx (6.4 or newer).
///
/// Throws `Error` as `insert_command`, `kNoTransaction` for a `nontransaction`, and what libpqxx
/// throws for an error of the server.
inline std::string emit(pqxx::transaction_base& transaction, const Event& event,
                        const EmitOptions& options = {}) {
    if (dynamic_cast<pqxx::nontransaction*>(&transaction) != nullptr) {
        throw Error(ErrorCode::kNoTransaction, Advice::kStop,
                    "a pqxx::nontransaction commits each statement by itself: use pqxx::work");
    }
    const InsertCommand command = insert_command(event, options);
#if PQXX_VERSION_MAJOR >= 7
    pqxx::params values;
    for (const auto& value : command.values) values.append(value);
    transaction.exec_params(command.sql, values);
#else
    std::vector<const char*> values;
    for (const auto& value : command.values) values.push_back(value ? value->c_str() : nullptr);
    transaction.exec_params(command.sql, pqxx::prepare::make_dynamic_params(values));
#endif
    return command.id;
}

/// The same for an event that has only a topic and a payload; it has no key and no order.
inline std::string emit(pqxx::transaction_base& transaction, std::string_view topic,
                        std::string_view payload, const EmitOptions& options = {}) {
    Event event;
    event.topic = topic;
    event.payload = payload;
    return emit(transaction, event, options);
}

}  // namespace outbox
