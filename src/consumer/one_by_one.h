#pragma once

#include <functional>
#include <span>
#include <utility>

#include <outbox/consumer/message.h>

namespace outbox::consumer {

/// A handler of batches that hands each message to a handler of one.
template <typename Connection>
std::function<void(Connection*, std::span<const Message>)> one_by_one(
    std::function<void(Connection*, const Message&)> handler) {
    return
        [handler = std::move(handler)](Connection* transaction, std::span<const Message> messages) {
            for (const Message& message : messages) handler(transaction, message);
        };
}

}  // namespace outbox::consumer
