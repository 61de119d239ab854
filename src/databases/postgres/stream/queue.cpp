#include "databases/postgres/stream/queue.h"

#include <utility>

namespace outbox::postgres {

void StreamQueue::add(std::string_view message) {
    bytes_.insert(bytes_.end(), message.begin(), message.end());
    ends_.push_back(bytes_.size());
}

void StreamQueue::append(const StreamQueue& other) {
    const std::size_t shift = bytes_.size() - other.begin_;
    bytes_.insert(bytes_.end(), other.bytes_.begin() + static_cast<std::ptrdiff_t>(other.begin_),
                  other.bytes_.end());
    for (std::size_t i = other.next_; i < other.ends_.size(); ++i) {
        ends_.push_back(other.ends_[i] + shift);
    }
}

std::string_view StreamQueue::front() const {
    if (empty()) return {};
    return {bytes_.data() + begin_, ends_[next_] - begin_};
}

void StreamQueue::pop() {
    begin_ = ends_[next_++];
    if (empty()) clear();
}

void StreamQueue::clear() {
    bytes_.clear();
    ends_.clear();
    next_ = 0;
    begin_ = 0;
}

void StreamQueue::swap(StreamQueue& other) noexcept {
    bytes_.swap(other.bytes_);
    ends_.swap(other.ends_);
    std::swap(next_, other.next_);
    std::swap(begin_, other.begin_);
}

}  // namespace outbox::postgres
