#include "consumer/janitor.h"

#include <memory>
#include <utility>

namespace outbox::consumer {

Janitor::Janitor(OpenSql open, std::string consumer, std::int64_t retention_s)
    : open_(std::move(open)), consumer_(std::move(consumer)), retention_s_(retention_s) {}

std::optional<ErrorInfo> Janitor::turn() {
    if (retention_s_ == 0) return std::nullopt;
    if (!thread_.joinable() && !stop_.requested()) {
        thread_ = std::thread([this] { run(); });
    }
    const core::Lock lock(mutex_);
    return std::exchange(error_, std::nullopt);
}

void Janitor::stop() {
    stop_.request();
    {
        const core::Lock lock(mutex_);
        if (at_work_ != nullptr) at_work_->break_off();
    }
    if (thread_.joinable()) thread_.join();
}

void Janitor::run() {
    constexpr std::int64_t kIntervalMs = 60'000;
    std::string told;
    while (!stop_.requested()) {
        const Status status = prune_all();
        const std::string text = status.ok() ? std::string() : describe(status.error());
        if (text != std::exchange(told, text) && !status.ok()) {
            const core::Lock lock(mutex_);
            error_ = status.error();
        }
        stop_.wait_ms(kIntervalMs);
    }
}

Status Janitor::prune_all() {
    const auto sql = open_();
    if (!sql.ok()) return sql.status();
    const auto show = [this](Sql* at_work) {
        const core::Lock lock(mutex_);
        at_work_ = at_work;
    };
    show(sql->get());
    const std::shared_ptr<void> hides(nullptr, [&](void*) { show(nullptr); });
    Status status;
    while (status.ok() && !stop_.requested()) {
        const auto some = (*sql)->prune(retention_s_, consumer_);
        if (some.ok() && some->messages == 0 && some->keys == 0) break;
        status = some.status();
    }
    return status;
}

}  // namespace outbox::consumer
