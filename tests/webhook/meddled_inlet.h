#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "webhook/store.h"

namespace outbox::test {

// A database that says that queues are longer than they are, or cannot be asked.
class MeddledInlet final : public webhook::Inlet {
  public:
    explicit MeddledInlet(std::unique_ptr<webhook::Inlet> inlet) : inlet_(std::move(inlet)) {}

    std::map<std::string, std::int64_t, std::less<>> lengths;  // by endpoint
    int looks = 0;
    Status look_fails;
    Status count_fails;  // of what was missed

    Status prepare() override { return inlet_->prepare(); }
    Result<std::vector<webhook::Endpoint>> look() override { return inlet_->look(); }
    Result<std::string> destination() override { return inlet_->destination(); }
    Result<std::string> version() override { return inlet_->version(); }
    Result<std::vector<webhook::Endpoint>> endpoints() override { return inlet_->endpoints(); }
    Result<std::int64_t> queued(std::string_view endpoint, std::int64_t most) override {
        ++looks;
        if (!look_fails.ok()) return look_fails;
        const auto found = lengths.find(endpoint);
        return found == lengths.end() ? inlet_->queued(endpoint, most) : found->second;
    }
    Result<std::vector<webhook::LeftOut>> insert(
        std::span<const webhook::Event> events, std::span<const std::string_view> endpoints,
        std::span<const webhook::Target> targets) override {
        return inlet_->insert(events, endpoints, targets);
    }
    Result<std::vector<std::string>> count_missed(
        std::span<const webhook::Missed> missed) override {
        if (!count_fails.ok()) return count_fails;
        return inlet_->count_missed(missed);
    }

  private:
    std::unique_ptr<webhook::Inlet> inlet_;
};

}  // namespace outbox::test
