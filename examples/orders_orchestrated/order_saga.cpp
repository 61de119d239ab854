#include "order_saga.h"

#include <nlohmann/json.hpp>

#include <outbox/error.h>

namespace orchestrated {

std::string Order::to_json() const {
    return nlohmann::json{
        {"order_id", id}, {"product_id", product_id}, {"quantity", quantity}, {"cents", cents}}
        .dump();
}

Order Order::of_json(std::string_view json) {
    try {
        const auto order = nlohmann::json::parse(json);
        return {order.at("order_id"), order.at("product_id"), order.at("quantity"),
                order.at("cents")};
    } catch (const nlohmann::json::exception& error) {
        throw outbox::Error(outbox::ErrorCode::kInvalidEvent, outbox::Advice::kDeadLetter,
                            "not an order: " + std::string(error.what()));
    }
}

// [definition]
outbox::SagaCommand ask(const std::string& service, const std::string& type) {
    return [service, type](const outbox::SagaView& saga) {
        outbox::Event command;
        command.topic = service;
        command.event_type = type;
        command.payload = std::string(saga.data);
        return command;
    };
}

outbox::Sagas order_sagas(std::int64_t timeout_ms) {
    const outbox::SagaStep reserve{.name = "reserve",
                                   .command = ask("inventory", "ReserveStock"),
                                   .done = {{.event_type = "StockReserved"}},
                                   .refused = {"StockRefused"},
                                   .compensation = ask("inventory", "ReleaseStock"),
                                   .compensated = "StockReleased",
                                   .timeout_ms = timeout_ms,
                                   .retries = 2};
    const outbox::SagaStep pay{.name = "pay",
                               .command = ask("payment", "Pay"),
                               .done = {{.event_type = "PaymentProcessed"}},
                               .refused = {"PaymentRefused"},
                               .compensation = ask("payment", "Refund"),
                               .compensated = "PaymentRefunded",
                               .timeout_ms = timeout_ms,
                               .retries = 2};
    return {"orders", {outbox::SagaDefinition("order", 1, {reserve, pay})}};
}
// [end]

}  // namespace orchestrated
