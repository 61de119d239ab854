#include "tests/simulation/receiving/watched_sink.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace outbox::simulation {

namespace {

class WatchedSink final : public spi::Sink {
  public:
    using FindOut = std::function<void(Position)>;
    WatchedSink(std::unique_ptr<spi::Sink> sink, Judge& judge, FindOut find_out, int session,
                int relay, int route)
        : sink_(std::move(sink)),
          judge_(judge),
          find_out_(std::move(find_out)),
          session_(session),
          relay_(relay),
          route_(route) {}
    ~WatchedSink() override { judge_.session_ended(session_); }

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        return sink_->capabilities();
    }
    Status check() override { return sink_->check(); }
    Result<std::string> destination() override { return sink_->destination(); }
    [[nodiscard]] bool publish(const spi::Record& record) override {
        const Position number = number_of(record.id);
        if (!sink_->publish(record)) return false;
        find_out_(number);
        judge_.published(relay_, session_, route_, number);
        numbers_[record.token] = number;
        return true;
    }
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override {
        const std::size_t acknowledged = out.acknowledged.size();
        const std::size_t failed = out.failed.size();
        sink_->poll(max_wait, out);
        for (std::size_t i = acknowledged; i < out.acknowledged.size(); ++i) {
            judge_.accepted(route_, numbers_.at(out.acknowledged[i]));
        }
        for (std::size_t i = failed; i < out.failed.size(); ++i) {
            judge_.not_accepted(session_, numbers_.at(out.failed[i].token));
        }
    }
    void more_follows(bool more) override { sink_->more_follows(more); }
    void outcomes_may_wait(bool may) override { sink_->outcomes_may_wait(may); }
    void all_recorded() override { sink_->all_recorded(); }
    void report(spi::SinkReport& out) override { sink_->report(out); }

  private:
    std::unique_ptr<spi::Sink> sink_;
    Judge& judge_;
    const FindOut find_out_;  // about an event that handlers may have written
    const int session_;
    const int relay_;
    const int route_;
    std::map<std::uint64_t, Position> numbers_;
};

}  // namespace

std::unique_ptr<spi::Sink> watched(std::unique_ptr<spi::Sink> sink, Judge& judge,
                                   std::function<void(Position)> find_out, int session, int relay,
                                   int route) {
    return std::make_unique<WatchedSink>(std::move(sink), judge, std::move(find_out), session,
                                         relay, route);
}

}  // namespace outbox::simulation
