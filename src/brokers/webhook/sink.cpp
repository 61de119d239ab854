#include "brokers/webhook/sink.h"

#include <array>
#include <atomic>
#include <string_view>
#include <thread>
#include <utility>

#include "mailbox/table_sink.h"
#include "webhook/dispatcher.h"
#include "webhook/fan_out.h"
#include "webhook/queues.h"

namespace outbox::webhook {
namespace {

constexpr std::chrono::milliseconds kIdle{50};

spi::SinkReport::Level level_of(Remark::Level level) {
    return level == Remark::Level::kError     ? spi::SinkReport::Level::kError
           : level == Remark::Level::kWarning ? spi::SinkReport::Level::kWarning
                                              : spi::SinkReport::Level::kInfo;
}

class WebhookSink final : public spi::Sink {
  public:
    explicit WebhookSink(SinkParts parts)
        : outlet_(std::move(parts.outlet)),
          sender_(std::move(parts.sender)),
          dispatcher_({*outlet_, *sender_, queues_, parts.clock}, std::move(parts.options)),
          fan_out_(new FanOut(std::move(parts.inlet), queues_, parts.clock)),
          table_(std::unique_ptr<FanOut>(fan_out_), kCapabilities) {}

    ~WebhookSink() override {
        stopping_.store(true, std::memory_order_release);
        queues_.wake();
        if (thread_.joinable()) thread_.join();
        fan_out_->count_missed();
    }

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        return kCapabilities;
    }
    Status check() override { return table_.check(); }
    Result<std::string> destination() override { return table_.destination(); }
    [[nodiscard]] bool publish(const spi::Record& record) override {
        return table_.publish(record);
    }

    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override {
        if (!thread_.joinable()) thread_ = std::thread([this] { dispatch(); });
        table_.poll(max_wait, out);
    }

    void all_recorded() override { table_.all_recorded(); }

    void report(spi::SinkReport& out) override {
        auto told = dispatcher_.take_remarks();
        fan_out_->count_missed();
        auto missed = fan_out_->take_remarks(out.last);
        for (auto* remarks : {&told, &missed}) {
            for (Remark& remark : *remarks) {
                out.notes.push_back(
                    {level_of(remark.level), std::move(remark.what), std::move(remark.fields)});
            }
        }
        const DispatcherStats stats = dispatcher_.stats();
        out.stats = {{"outbox_webhook_dispatching", stats.dispatching ? 1 : 0},
                     {"outbox_webhook_endpoints", stats.enabled},
                     {"outbox_webhook_endpoints_disabled", stats.disabled},
                     {"outbox_webhook_endpoints_paused", stats.paused},
                     {"outbox_webhook_waiting", stats.waiting},
                     {"outbox_webhook_dead", stats.dead},
                     {"outbox_webhook_in_flight", stats.under_way},
                     {"outbox_webhook_delivered_total", stats.delivered_total},
                     {"outbox_webhook_failures_total", stats.failed_total},
                     {"outbox_webhook_missed_total", fan_out_->missed_total()}};
    }

  private:
    void dispatch() {
        while (!stopping_.load(std::memory_order_acquire)) dispatcher_.turn(kIdle);
        dispatcher_.finish();
    }

    Queues queues_;
    std::unique_ptr<Outlet> outlet_;
    std::unique_ptr<Sender> sender_;
    Dispatcher dispatcher_;
    FanOut* fan_out_;  // the table's
    mailbox::TableSink table_;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

}  // namespace

std::unique_ptr<spi::Sink> make_webhook_sink(SinkParts parts) {
    return std::make_unique<WebhookSink>(std::move(parts));
}

}  // namespace outbox::webhook
