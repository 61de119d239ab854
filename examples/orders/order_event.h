#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <outbox/consumer/message.h>
#include <outbox/event.h>

#include "journal.h"
#include "json_fields.h"

namespace orders {

/// An event about an order, as the services send them to each other: the payload is a JSON object
/// with at least `order_id`. An event that lacks what is asked for throws `outbox::Error` with
/// advice dead_letter: it will not read better next time.
class OrderEvent {
  public:
    /// The views of the message must outlive this.
    explicit OrderEvent(const outbox::Message& message);

    [[nodiscard]] std::string_view id() const { return message_.id; }
    [[nodiscard]] const std::string& type() const { return type_; }
    /// Who speaks: "Order", "Inventory" or "Payment".
    [[nodiscard]] const std::string& aggregate_type() const { return aggregate_type_; }

    /// Has a payload that can be read; else the other functions throw.
    [[nodiscard]] std::string order_id() const { return text("order_id"); }
    [[nodiscard]] std::string text(const std::string& field) const;
    [[nodiscard]] std::string text_or(const std::string& field, const std::string& other) const;
    [[nodiscard]] std::int64_t integer(const std::string& field) const;
    /// A number as it was written.
    [[nodiscard]] std::string number(const std::string& field) const;

    /// An event about the same order, with what was said of it so far and with `reason`, unless
    /// that is empty: who receives it needs to ask nobody.
    [[nodiscard]] outbox::Event answer(const std::string& aggregate_type, const std::string& type,
                                       const std::string& reason = {}) const;

    /// What a journal says about it.
    [[nodiscard]] JournalEntry entry() const { return {std::string(id()), key_, n_}; }

    [[noreturn]] void refuse(const std::string& why) const;

  private:
    [[nodiscard]] const JsonField& field(const std::string& name, const char* what) const;

    const outbox::Message& message_;
    std::string type_;
    std::string aggregate_type_;
    std::string key_;
    std::int64_t n_ = 0;
    JsonFields payload_;
};

}  // namespace orders
