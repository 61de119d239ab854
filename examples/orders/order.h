#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "money.h"

namespace orders {

struct NewOrder {
    std::string user_id;
    std::string product_id;
    std::int64_t quantity = 0;
    Money total_amount;
    std::string currency = {};  ///< Three letters; empty: the shop's own.
};

/// The body of POST /api/orders.
struct OrderRequest {
    NewOrder order;
    std::string request_id;  ///< The Idempotency-Key, for clients that set no header; may be empty.
};

struct Order {
    std::string id;
    NewOrder details;
    std::string status = "CREATED";
    std::string reason = {};  ///< Why it was cancelled.
    std::string created_at;   ///< 2026-01-31T12:00:00.123456Z
};

/// Why a body was refused: one text for the whole, or one for each field at fault.
struct Refusal {
    std::string error;
    std::map<std::string, std::string> fields;
    [[nodiscard]] std::string json() const;
};

/// Reads and checks the body of POST /api/orders.
[[nodiscard]] std::variant<OrderRequest, Refusal> parse_new_order(std::string_view body);

/// The order as the API shows it.
[[nodiscard]] std::string order_json(const Order& order);

/// The payload of the event OrderCreated.
[[nodiscard]] std::string order_created_json(const Order& order);

/// Has the form of an order's id.
[[nodiscard]] bool is_uuid(std::string_view text);

/// Now, as in `Order::created_at`.
[[nodiscard]] std::string now_text();

}  // namespace orders
