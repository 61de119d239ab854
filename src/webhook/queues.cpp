#include "webhook/queues.h"

#include <algorithm>
#include <sys/eventfd.h>
#include <tuple>
#include <unistd.h>
#include <utility>

namespace outbox::webhook {

Queues::Queues() : wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Queues::~Queues() {
    if (wake_fd_ >= 0) close(wake_fd_);
}

void Queues::wake() const {
    const std::uint64_t one = 1;
    std::ignore = write(wake_fd_, &one, sizeof one);
}

Queues::Length& Queues::of(std::string_view endpoint) {
    const auto found = lengths_.find(endpoint);
    return found != lengths_.end() ? found->second
                                   : lengths_.emplace(endpoint, Length()).first->second;
}

void Queues::add(std::string_view endpoint, std::int64_t rows) {
    Length& length = of(endpoint);
    length.rows = std::max<std::int64_t>(0, length.rows + rows);
    length.since += rows;
}

void Queues::looked(std::string_view endpoint, std::int64_t rows) {
    const core::Lock lock(mutex_);
    Length& length = of(endpoint);
    length.rows = length.since = rows;
}

void Queues::expect(std::string_view endpoint, std::int64_t rows) {
    const core::Lock lock(mutex_);
    add(endpoint, rows);
}

bool Queues::has_room(std::string_view endpoint, std::int64_t rows) const {
    const core::Lock lock(mutex_);
    const auto found = lengths_.find(endpoint);
    return found == lengths_.end() || found->second.rows + rows <= kMaxQueuePerEndpoint;
}

void Queues::written(std::string_view endpoint) {
    const core::Lock lock(mutex_);
    news_.emplace(endpoint);
}

void Queues::take_back(std::string_view endpoint, std::int64_t rows) {
    removed(endpoint, rows);
}

void Queues::removed(std::string_view endpoint, std::int64_t rows) {
    const core::Lock lock(mutex_);
    add(endpoint, -rows);
}

void Queues::begin_count() {
    const core::Lock lock(mutex_);
    for (auto& [endpoint, length] : lengths_) {
        length.since = 0;
        length.counted = false;
    }
}

void Queues::count(const std::vector<Count>& counts) {
    const core::Lock lock(mutex_);
    for (const Count& one : counts) {
        Length& length = of(one.endpoint_id);
        length.rows = one.waiting + one.dead;
        length.counted = true;
    }
}

void Queues::end_count() {
    const core::Lock lock(mutex_);
    for (auto& [endpoint, length] : lengths_) {
        if (!length.counted) length.rows = std::max<std::int64_t>(0, length.since);
    }
    std::erase_if(lengths_, [](const auto& one) { return one.second.rows == 0; });
}

std::unordered_set<std::string> Queues::take_news() {
    std::uint64_t count = 0;
    std::ignore = read(wake_fd_, &count, sizeof count);
    const core::Lock lock(mutex_);
    return std::exchange(news_, {});
}

}  // namespace outbox::webhook
