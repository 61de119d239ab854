#include "relay/later_sink.h"

#include <iterator>
#include <thread>

namespace outbox::relay {

const spi::SinkCapabilities& LaterSink::capabilities() const {
    static const spi::SinkCapabilities least{.name = "later", .across_topics = false};
    return least;
}

Status LaterSink::make() {
    if (sink_) return {};
    auto made = make_();
    if (!made.ok()) {
        fail(made.error());
        return error_;
    }
    sink_ = *std::move(made);
    sink_->more_follows(more_follows_);
    sink_->outcomes_may_wait(outcomes_may_wait_);
    return {};
}

void LaterSink::fail(ErrorInfo error) {
    error_ = std::move(error);
    error_.advice = Advice::kRetryDestination;
}

Status LaterSink::check() {
    Status status = make();
    return status.ok() ? sink_->check() : status;
}

Result<std::string> LaterSink::destination() {
    if (Status status = make(); !status.ok()) return status;
    return sink_->destination();
}

bool LaterSink::publish(const spi::Record& record) {
    if (sink_) return sink_->publish(record);
    failed_.push_back({.token = record.token, .error = error_});
    return true;
}

void LaterSink::poll(std::chrono::milliseconds max_wait, spi::Completions& out) {
    if (sink_ && failed_.empty()) {
        sink_->poll(max_wait, out);
        return;
    }
    if (failed_.empty()) std::this_thread::sleep_for(max_wait);
    std::move(failed_.begin(), failed_.end(), std::back_inserter(out.failed));
    failed_.clear();
}

void LaterSink::more_follows(bool more) {
    more_follows_ = more;
    if (sink_) sink_->more_follows(more);
}

void LaterSink::outcomes_may_wait(bool may) {
    outcomes_may_wait_ = may;
    if (sink_) sink_->outcomes_may_wait(may);
}

void LaterSink::all_recorded() {
    if (sink_) sink_->all_recorded();
}

void LaterSink::report(spi::SinkReport& out) {
    if (sink_) sink_->report(out);
}

}  // namespace outbox::relay
