#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "webhook/store.h"

namespace outbox::test {

// A database in which a test has things take time, or fail.
class MeddledOutlet final : public webhook::Outlet {
  public:
    explicit MeddledOutlet(std::unique_ptr<webhook::Outlet> outlet) : outlet_(std::move(outlet)) {}

    // For so many rows, before they are counted.
    std::function<Status(std::size_t)> counts = [](std::size_t) { return Status(); };
    // Before anything is recorded.
    std::function<void()> records = [] {};
    Status away;                      // while it is no success, the database is
    std::vector<std::int64_t> asked;  // behind which positions slices were
    // After a read, what it gave.
    std::function<void(const std::vector<webhook::Delivery>&)> has_read = [](const auto&) {};

    Result<std::optional<std::uint64_t>> acquire(const std::string& owner,
                                                 std::chrono::milliseconds ttl) override {
        if (!away.ok()) return away;
        return outlet_->acquire(owner, ttl);
    }
    Result<bool> renew(std::uint64_t epoch, std::chrono::milliseconds ttl) override {
        if (!away.ok()) return away;
        return outlet_->renew(epoch, ttl);
    }
    Status release(std::uint64_t epoch) override { return outlet_->release(epoch); }
    Result<std::vector<webhook::Endpoint>> endpoints() override { return outlet_->endpoints(); }
    Result<std::vector<webhook::Backlog>> backlog(std::span<const webhook::BacklogOf> of) override {
        return outlet_->backlog(of);
    }
    Result<webhook::Read> fetch(std::span<const webhook::Slice> slices, const webhook::Due& due,
                                const webhook::MaxBytes& max,
                                std::vector<webhook::Delivery>& out) override {
        if (!away.ok()) return away;
        for (const webhook::Slice& slice : slices) asked.push_back(slice.after);
        auto read = outlet_->fetch(slices, due, max, out);
        has_read(out);
        return read;
    }
    Result<std::vector<std::string>> record(
        std::uint64_t epoch, std::span<const webhook::Outcome> outcomes,
        std::span<const webhook::EndpointChange> changes) override {
        if (!away.ok()) return away;
        records();
        return outlet_->record(epoch, outcomes, changes);
    }
    Result<std::vector<webhook::Count>> count(const std::string& endpoint, std::int64_t after,
                                              std::size_t max_rows) override {
        if (Status status = counts(max_rows); !status.ok()) return status;
        return outlet_->count(endpoint, after, max_rows);
    }
    Result<std::int64_t> sweep(const std::string& endpoint) override {
        return outlet_->sweep(endpoint);
    }

  private:
    std::unique_ptr<webhook::Outlet> outlet_;
};

}  // namespace outbox::test
