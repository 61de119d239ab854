#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <outbox/spi/source.h>

namespace outbox::relay {

/// A lease where another database may take the place of the one that was there, without our side
/// tables: those of an adopted table are made as at the start. A relay waits as long as they are
/// not there.
class RestoringLease final : public spi::LeaseStore {
  public:
    /// Makes those that are missing; true: some were.
    using Make = std::function<Result<bool>()>;

    RestoringLease(std::unique_ptr<spi::LeaseStore> lease, Make make)
        : lease_(std::move(lease)), make_(std::move(make)) {}

    /// `kServerChanged` where side tables were made.
    Result<std::optional<std::uint64_t>> acquire(const std::string& owner,
                                                 std::chrono::milliseconds ttl) override;
    Result<bool> renew(std::uint64_t epoch, std::chrono::milliseconds ttl) override {
        return lease_->renew(epoch, ttl);
    }
    Status release(std::uint64_t epoch) override { return lease_->release(epoch); }
    Status stand_by(const std::string& owner, std::span<const std::string> routes) override {
        return lease_->stand_by(owner, routes);
    }

  private:
    std::unique_ptr<spi::LeaseStore> lease_;
    Make make_;
};

}  // namespace outbox::relay
