#include <utility>

#include <outbox/consumer/mailbox.h>

#include "mailbox/loop.h"

namespace outbox {

class MailboxConsumer::Impl : public consumer::MailboxLoop {
  public:
    using MailboxLoop::MailboxLoop;
};

MailboxConsumer::MailboxConsumer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MailboxConsumer::MailboxConsumer(MailboxConsumer&& other) noexcept = default;
MailboxConsumer& MailboxConsumer::operator=(MailboxConsumer&& other) noexcept = default;
MailboxConsumer::~MailboxConsumer() = default;

void MailboxConsumer::run() {
    impl_->run();
}
std::size_t MailboxConsumer::drain() {
    return impl_->drain();
}
void MailboxConsumer::stop() noexcept {
    impl_->stop();
}
ConsumerStats MailboxConsumer::stats() const noexcept {
    return impl_->stats();
}
std::int64_t MailboxConsumer::lag() const noexcept {
    return impl_->lag();
}

namespace consumer {
namespace {

constexpr std::size_t kMaxNameBytes = 255;

void require(bool condition, const char* message) {
    if (!condition) throw Error(ErrorCode::kConfigInvalid, Advice::kStop, message);
}

}  // namespace

MailboxOptions checked(MailboxOptions options) {
    if (options.consumer.empty()) options.consumer = options.mailbox;
    require(!options.mailbox.empty() && options.mailbox.size() <= kMaxNameBytes,
            "MailboxOptions::mailbox needs a name of 1 to 255 bytes");
    require(options.consumer.size() <= kMaxNameBytes,
            "MailboxOptions::consumer needs a name of 1 to 255 bytes");
    require(options.max_attempts > 0, "MailboxOptions::max_attempts must be at least 1");
    require(options.retry_base_ms > 0 && options.retry_max_ms >= options.retry_base_ms,
            "MailboxOptions: retry_base_ms must be above 0 and not above retry_max_ms");
    require(options.poll_busy_ms > 0 && options.poll_idle_ms >= options.poll_busy_ms,
            "MailboxOptions: poll_busy_ms must be above 0 and not above poll_idle_ms");
    require(options.batch_size > 0 && options.batch_size <= 10'000,
            "MailboxOptions::batch_size must be 1 to 10000");
    require(options.transaction_size > 0 && options.transaction_size <= 10'000,
            "MailboxOptions::transaction_size must be 1 to 10000");
    require(options.max_failing_keys > 0 && options.max_failing_keys <= 100'000,
            "MailboxOptions::max_failing_keys must be 1 to 100000");
    require(options.connect_timeout_s > 0, "MailboxOptions::connect_timeout_s must be above 0");
    require(options.inbox_retention_s == 0 || options.inbox_retention_s >= kLeastRetentionS,
            "MailboxOptions::inbox_retention_s must be 0 (never) or at least 7200");
    return options;
}

MailboxConsumer make_mailbox_consumer(std::unique_ptr<MailboxStore> store,
                                      MailboxLoop::Handler handler, MailboxOptions options,
                                      const Env& env) {
    return MailboxConsumer(std::make_unique<MailboxConsumer::Impl>(
        std::move(store), std::move(handler), std::move(options), env));
}

}  // namespace consumer
}  // namespace outbox
