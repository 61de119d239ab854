#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <outbox/spi/sink.h>

namespace outbox::null {

inline const spi::SinkCapabilities kCapabilities{"null", spi::Guarantee::kAtLeastOnce,
                                                 /*fail_stop_order=*/true, /*durable=*/false};

/// Acknowledges every record at the next `poll` and keeps nothing. Not thread-safe.
class NullSink final : public spi::Sink {
  public:
    /// `max_records` between two polls; more makes `publish` return false.
    explicit NullSink(std::size_t max_records = 10'000) : max_records_(max_records) {}

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override;
    Status check() override { return {}; }
    Result<std::string> destination() override { return std::string("null"); }
    [[nodiscard]] bool publish(const spi::Record& record) override;
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override;

  private:
    std::size_t max_records_;
    std::vector<std::uint64_t> taken_;
};

}  // namespace outbox::null
