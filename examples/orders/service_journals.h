#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <outbox/consumer/mailbox.h>

#include "journal.h"
#include "order_event.h"

namespace orders {

/// What a service received and what it told others, for `outbox verify`. Thread-safe.
class ServiceJournals {
  public:
    /// `produced`: the journal of the service's own events. `received_folder`: has one journal for
    /// each side that speaks (order.jsonl, inventory.jsonl, payment.jsonl); empty: none. Throws
    /// std::runtime_error if they cannot be used.
    ServiceJournals(Journal& produced, const std::string& received_folder);

    /// Before the commit of a handler: the lines must be on their way, else the message has to
    /// wait. Throws `outbox::Error`.
    void before_commit(const OrderEvent& event, const std::vector<JournalEntry>& emitted);

    /// What the consumer says afterwards: nothing can be taken back any more.
    void report(const outbox::ConsumerReport& report);

  private:
    [[nodiscard]] Journal* received_from(const std::string& aggregate_type);
    void settle(const OrderEvent& event, bool applied);

    Journal& produced_;
    std::map<std::string, Journal> received_;
    std::mutex mutex_;
    std::map<std::string, std::vector<JournalEntry>> emitted_;  ///< By message, until its commit.
};

}  // namespace orders
