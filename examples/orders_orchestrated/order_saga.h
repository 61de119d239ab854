#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <outbox/saga/saga.h>

namespace orchestrated {

/// What an order's saga carries from command to command, as JSON.
struct Order {
    std::string id;
    std::string product_id;
    std::int64_t quantity = 0;
    std::int64_t cents = 0;  ///< Money is whole cents.

    [[nodiscard]] std::string to_json() const;
    /// Throws `outbox::Error` kInvalidEvent/dead_letter.
    static Order of_json(std::string_view json);
};

/// Reserve stock, then pay. The order is confirmed or cancelled in the transaction in which the
/// saga ends, because it lies in the same database. `timeout_ms`: for each step.
outbox::Sagas order_sagas(std::int64_t timeout_ms);

}  // namespace orchestrated
