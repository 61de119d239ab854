#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "consumer/workers/hub.h"

namespace outbox::consumer {

/// For workers: sessions of `Store`, and the handler with the connection whose transaction is open.
template <typename Store, typename Handler>
MakeApplier appliers(const std::string& where, const BrokerStoreOptions& options, Handler handler) {
    return [where, options, handler = std::move(handler)](const core::Clock& clock) {
        auto store = std::make_unique<Store>(where, options, clock);
        Store& session = *store;
        return Applier{std::move(store), [&session, handler](std::span<const Message> messages) {
                           handler(session.connection(), messages);
                       }};
    };
}

}  // namespace outbox::consumer
