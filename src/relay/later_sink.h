#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

namespace outbox::relay {

/// Stands for a sink that could not be made as the term began, as where a file of its own is
/// broken: its route is down, alone. It is made once the circuit asks (`check`); until then each
/// record fails with what the last try said, as an outage. Promises only what any sink does.
class LaterSink final : public spi::Sink {
  public:
    using Make = std::function<Result<std::unique_ptr<spi::Sink>>()>;

    LaterSink(Make make, ErrorInfo error) : make_(std::move(make)) { fail(std::move(error)); }

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override;
    Status check() override;
    Result<std::string> destination() override;
    [[nodiscard]] bool publish(const spi::Record& record) override;
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override;
    void more_follows(bool more) override;
    void outcomes_may_wait(bool may) override;
    void all_recorded() override;
    void report(spi::SinkReport& out) override;

  private:
    Status make();
    void fail(ErrorInfo error);

    const Make make_;
    ErrorInfo error_;
    std::unique_ptr<spi::Sink> sink_;
    bool more_follows_ = false;
    bool outcomes_may_wait_ = false;
    std::vector<spi::FailedRecord> failed_;
};

}  // namespace outbox::relay
