#include "brokers/memory/sink.h"

namespace outbox::memory {

namespace {

ErrorInfo down_error() {
    return {ErrorCode::kSinkUnavailable,
            Advice::kRetryDestination,
            {},
            "the memory destination was set down"};
}

std::optional<std::string> copy_of(std::string_view bytes) {
    if (bytes.data() == nullptr) return std::nullopt;
    return std::string(bytes);
}

StoredRecord stored(const spi::Record& record) {
    StoredRecord copy{std::string(record.topic), copy_of(record.key),   copy_of(record.value), {},
                      record.position,           std::string(record.id)};
    for (const spi::HeaderView& header : record.headers) {
        copy.headers.emplace_back(header.name, header.value);
    }
    return copy;
}

}  // namespace

void Destination::set_down(bool down) {
    const core::Lock lock(mutex_);
    down_ = down;
    changed_.notify_all();
}

void Destination::set_topic_down(const std::string& topic, bool down) {
    const core::Lock lock(mutex_);
    if (down) {
        topics_down_.insert(topic);
    } else {
        topics_down_.erase(topic);
    }
}

void Destination::set_paused(bool paused) {
    const core::Lock lock(mutex_);
    paused_ = paused;
    changed_.notify_all();
}

void Destination::fail(const std::string& id, ErrorInfo error, std::size_t times) {
    const core::Lock lock(mutex_);
    failures_[id] = {std::move(error), times};
}

std::vector<StoredRecord> Destination::records() const {
    const core::Lock lock(mutex_);
    return records_;
}

std::size_t Destination::refused() const {
    const core::Lock lock(mutex_);
    return refused_;
}

std::optional<ErrorInfo> Destination::take_failure(const spi::Record& record) {
    if (down_) return down_error();
    if (topics_down_.contains(std::string(record.topic))) {
        ++refused_;
        return ErrorInfo{ErrorCode::kNoRights, Advice::kRetryDestination, {}, "not allowed"};
    }
    const auto found = failures_.find(std::string(record.id));
    if (found == failures_.end()) return std::nullopt;
    ErrorInfo error = found->second.error;
    if (--found->second.times == 0) failures_.erase(found);
    return error;
}

std::string Destination::part_down(const spi::Record& record, const ErrorInfo& error) const {
    const std::string topic(record.topic);
    const bool down = topics_down_.contains(topic) || error.code == ErrorCode::kTopicUnknown;
    return down && !down_ ? "topic " + topic : std::string();
}

MemorySink::MemorySink(std::shared_ptr<Destination> destination, const MemoryOptions& options)
    : destination_(std::move(destination)),
      options_(options),
      capabilities_{"memory", spi::Guarantee::kAtLeastOnce, options.fail_stop_order,
                    /*durable=*/true, options.across_topics} {}

Status MemorySink::check() {
    const core::Lock lock(destination_->mutex_);
    if (destination_->down_) return down_error();
    return {};
}

bool MemorySink::publish(const spi::Record& record) {
    if (under_way_.size() >= options_.max_records) return false;
    under_way_.push_back(record);
    return true;
}

void MemorySink::poll(std::chrono::milliseconds max_wait, spi::Completions& out) {
    core::Lock lock(destination_->mutex_);
    destination_->changed_.wait_for(destination_->mutex_, max_wait,
                                    [this]() OUTBOX_REQUIRES(destination_->mutex_) {
                                        return !under_way_.empty() && !destination_->paused_;
                                    });
    if (!destination_->paused_) deliver(out);
}

void MemorySink::deliver(spi::Completions& out) {
    std::set<std::string_view> broken;  // topics, where a failure stops only its own
    std::set<std::pair<std::string_view, std::string_view>> broken_keys;  // of parts that are down
    for (const spi::Record& record : under_way_) {
        const std::string_view stops = options_.across_topics ? std::string_view() : record.topic;
        if (broken_keys.contains({record.topic, record.key})) {
            out.failed.push_back({.token = record.token, .error = down_error(), .behind = true});
            continue;
        }
        if (broken.contains(stops) && options_.fail_stop_order) {
            out.failed.push_back({.token = record.token,
                                  .error = {ErrorCode::kSinkRebuilt,
                                            Advice::kRetryDestination,
                                            {},
                                            "a record before this one failed; it goes again"}});
            continue;
        }
        if (auto error = destination_->take_failure(record)) {
            const bool guilty = error->advice != Advice::kRetryDestination;
            const bool alone = under_way_.size() == 1;
            std::string part = destination_->part_down(record, *error);
            const bool whole = part.empty();
            out.failed.push_back({.token = record.token,
                                  .error = *std::move(error),
                                  .suspect = guilty && options_.fail_stop_order && !alone && whole,
                                  .part = std::move(part)});
            if (!whole) {
                broken_keys.emplace(record.topic, record.key);
                continue;
            }
            broken.insert(stops);
            continue;
        }
        destination_->records_.push_back(stored(record));
        out.acknowledged.push_back(record.token);
    }
    under_way_.clear();
}

}  // namespace outbox::memory
