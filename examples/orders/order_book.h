#pragma once

#include <string>

#include "order_event.h"
#include "transaction.h"

namespace orders {

/// What the order of events is kept by.
enum class OrderBy : std::uint8_t {
    kOrder,  ///< The order's id: the aggregate, as usual.
    kUser,   ///< The user: events of one user arrive in the order of the user's orders.
};

inline constexpr const char* kCreated = "CREATED";
inline constexpr const char* kConfirmed = "CONFIRMED";
inline constexpr const char* kCancelled = "CANCELLED";

/// What came of an attempt to end an order.
struct Settlement {
    bool done = false;   ///< False: nothing was changed, because of `status`.
    std::string status;  ///< The order's, as it is now; empty: there is no such order.
};

/// Ends an order that is CREATED, by conditional update: CONFIRMED with the event OrderConfirmed,
/// or CANCELLED with OrderCancelled and the reason.
Settlement settle_order(Transaction& transaction, OrderBy order_by, const std::string& id,
                        const std::string& status, const std::string& reason);

/// Applies what another service says about an order. Throws `outbox::Error` with advice dead_letter
/// for an order that is not there or that has the opposite outcome already.
void apply_answer(Transaction& transaction, OrderBy order_by, const OrderEvent& event);

/// The next number among the events of a user. The counter's row lock is what serialises the
/// writers of the user's events.
[[nodiscard]] std::int64_t next_number(Transaction& transaction, const std::string& user_id);

}  // namespace orders
