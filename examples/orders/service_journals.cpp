#include "service_journals.h"

#include <filesystem>
#include <iostream>

#include <outbox/error.h>

namespace orders {

ServiceJournals::ServiceJournals(Journal& produced, const std::string& received_folder)
    : produced_(produced) {
    if (received_folder.empty()) return;
    const std::filesystem::path folder = received_folder;
    std::filesystem::create_directories(folder);
    received_.try_emplace("Order", folder / "order.jsonl");
    received_.try_emplace("Inventory", folder / "inventory.jsonl");
    received_.try_emplace("Payment", folder / "payment.jsonl");
}

Journal* ServiceJournals::received_from(const std::string& aggregate_type) {
    const auto found = received_.find(aggregate_type);
    return found != received_.end() ? &found->second : nullptr;
}

void ServiceJournals::before_commit(const OrderEvent& event,
                                    const std::vector<JournalEntry>& emitted) {
    try {
        if (Journal* journal = received_from(event.aggregate_type()))
            journal->intent(event.entry());
        if (!produced_.is_open()) return;
        const std::lock_guard lock(mutex_);
        auto& pending = emitted_[std::string(event.id())];
        // What an attempt before this one wrote was rolled back: the inbox let the message in
        // again.
        for (const JournalEntry& entry : pending) produced_.rolled_back(entry);
        pending = emitted;
        for (const JournalEntry& entry : emitted) produced_.intent(entry);
    } catch (const std::exception& error) {
        throw outbox::Error(outbox::ErrorCode::kDiskFull, outbox::Advice::kRetryDestination,
                            error.what());
    }
}

void ServiceJournals::report(const outbox::ConsumerReport& report) {
    using What = outbox::ConsumerReport::What;
    if (report.what != What::kApplied && report.what != What::kRepeat) return;
    if (received_.empty() && !produced_.is_open()) return;
    try {
        settle(OrderEvent(*report.message), report.what == What::kApplied);
    } catch (const std::exception& error) {
        std::cerr << error.what() << std::endl;
    }
}

void ServiceJournals::settle(const OrderEvent& event, bool applied) {
    if (Journal* journal = received_from(event.aggregate_type()))
        journal->received(event.entry(), applied);
    if (!produced_.is_open()) return;
    const std::lock_guard lock(mutex_);
    const auto pending = emitted_.find(std::string(event.id()));
    if (pending == emitted_.end()) return;
    // A repeat of a message whose commit had no answer: it was committed, by us or by another.
    if (applied)
        for (const JournalEntry& entry : pending->second) produced_.committed(entry);
    emitted_.erase(pending);
}

}  // namespace orders
