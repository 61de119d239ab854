#include <algorithm>

#include <outbox/producer/unit_of_work.h>

namespace outbox {

UnitOfWork::UnitOfWork(std::unique_ptr<UnitOfWorkTransaction> transaction)
    : transaction_(std::move(transaction)) {
    transaction_->begin();
}

UnitOfWork::~UnitOfWork() {
    rollback();
}

void UnitOfWork::track_entry(Tracked entry) {
    require_open();
    const bool known = std::any_of(tracked_.begin(), tracked_.end(), [&](const Tracked& tracked) {
        return tracked.identity == entry.identity;
    });
    if (!known) tracked_.push_back(std::move(entry));
}

std::string UnitOfWork::emit(Event event) {
    require_open();
    if (event.id.empty()) event.id = new_event_id();
    queued_.push_back(std::move(event));
    return queued_.back().id;
}

void UnitOfWork::flush() {
    require_open();
    try {
        save_and_emit();
    } catch (...) {
        failed_ = true;
        throw;
    }
}

void UnitOfWork::save_and_emit() {
    for (std::size_t i = 0; i < tracked_.size(); ++i) tracked_[i].save();
    std::vector<Event> events;
    for (const Tracked& entry : tracked_) {
        for (Event& event : entry.take_events()) events.push_back(std::move(event));
    }
    for (Event& event : queued_) events.push_back(std::move(event));
    tracked_.clear();
    queued_.clear();
    for (Event& event : events) {
        if (event.id.empty()) event.id = new_event_id();
    }
    transaction_->emit(events);
    for (const Event& event : events) {
        if (written_.size() <= kMaxFencedEvents) written_.push_back(event.id);
    }
}

std::string UnitOfWork::fence() const {
    if (written_.size() > kMaxFencedEvents) {
        throw Error(ErrorCode::kInvalidEvent, Advice::kStop,
                    "a fence token holds up to " + std::to_string(kMaxFencedEvents) +
                        " events, and this unit of work has written more: keep the ids that the "
                        "reader looks for, which emit gives, and call fence_token with those");
    }
    return fence_token(written_);
}

void UnitOfWork::commit() {
    commit([this] { transaction_->commit(); });
}

void UnitOfWork::commit(const std::function<void()>& commit_transaction) {
    flush();
    failed_ = true;
    commit_transaction();
    transaction_.reset();
}

void UnitOfWork::rollback() noexcept {
    if (!transaction_) return;
    transaction_->rollback();
    transaction_.reset();
}

void UnitOfWork::require_open() const {
    if (!transaction_) {
        throw Error(ErrorCode::kNoTransaction, Advice::kStop,
                    "this unit of work was committed or rolled back already");
    }
    if (failed_) {
        throw Error(ErrorCode::kConflict, Advice::kRetryEvent,
                    "this unit of work has failed: roll it back and run it again");
    }
}

}  // namespace outbox
