#include "brokers/null/sink.h"

#include <thread>

namespace outbox::null {

const spi::SinkCapabilities& NullSink::capabilities() const {
    return kCapabilities;
}

bool NullSink::publish(const spi::Record& record) {
    if (taken_.size() >= max_records_) return false;
    taken_.push_back(record.token);
    return true;
}

void NullSink::poll(std::chrono::milliseconds max_wait, spi::Completions& out) {
    // The contract's wait: the caller paces itself by it when there is nothing to send.
    if (taken_.empty()) std::this_thread::sleep_for(max_wait);
    out.acknowledged.insert(out.acknowledged.end(), taken_.begin(), taken_.end());
    taken_.clear();
}

}  // namespace outbox::null
