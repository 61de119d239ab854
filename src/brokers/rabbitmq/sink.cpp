#include "brokers/rabbitmq/sink.h"

#include <iterator>
#include <utility>

#include "brokers/rabbitmq/client.h"
#include "brokers/rabbitmq/message.h"
#include "core/record_bytes.h"

namespace outbox::rabbitmq {
namespace {

constexpr std::size_t kBatch = 256;  // handed over at once, so that the thread begins meanwhile

}  // namespace

RabbitmqSink::RabbitmqSink(RabbitmqConfig config) : config_(std::move(config)), worker_(config_) {}

const spi::SinkCapabilities& RabbitmqSink::capabilities() const {
    return kCapabilities;
}

Status RabbitmqSink::check() {
    if (auto blocked = worker_.blocked()) return *std::move(blocked);
    auto client = Client::open(config_, 0);
    if (!client.ok()) return client.error();
    return (*client)->look_for_exchange();
}

Result<std::string> RabbitmqSink::destination() {
    auto client = Client::open(config_, 0);
    if (!client.ok()) return client.error();
    return "RabbitMQ cluster " + (*client)->cluster_name() + ", " + name_of_exchange(config_);
}

bool RabbitmqSink::publish(const spi::Record& record) {
    const std::size_t bytes = payload_bytes(record);
    if (records_ >= config_.max_records) return false;
    if (records_ > 0 && bytes_ + bytes > config_.max_bytes) return false;
    ++records_;
    bytes_ += bytes;
    batch_.push_back({record, bytes});
    if (batch_.size() >= kBatch) worker_.take(batch_);
    return true;
}

void RabbitmqSink::poll(std::chrono::milliseconds max_wait, spi::Completions& out) {
    if (!batch_.empty()) worker_.take(batch_);
    worker_.collect(max_wait, outcomes_);
    records_ -= outcomes_.acknowledged.size() + outcomes_.failed.size();
    bytes_ -= outcomes_.bytes;
    out.acknowledged.insert(out.acknowledged.end(), outcomes_.acknowledged.begin(),
                            outcomes_.acknowledged.end());
    std::move(outcomes_.failed.begin(), outcomes_.failed.end(), std::back_inserter(out.failed));
}

}  // namespace outbox::rabbitmq
