#include "net/end_news.h"

#include <utility>

namespace outbox::net {
namespace {

constexpr std::chrono::minutes kTellEvery{1};

}  // namespace

void EndNews::ended(const ErrorInfo& error) {
    const core::Lock lock(mutex_);
    ++ends_;
    error_ = describe(error);
}

void EndNews::report(spi::SinkReport& out, Time now) {
    const core::Lock lock(mutex_);
    if (ends_ == 0 || (told_ && now - *told_ < kTellEvery)) return;
    told_ = now;
    out.notes.push_back({spi::SinkReport::Level::kWarning,
                         "connection_ended",
                         {{"times", std::to_string(std::exchange(ends_, 0))}, {"error", error_}}});
}

}  // namespace outbox::net
