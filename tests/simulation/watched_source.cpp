#include "tests/simulation/watched_source.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace outbox::simulation {

namespace {

struct Watch {
    World& world;
    Judge& judge;
    const Settings& settings;
    int relay;
    // The events that this term means by its positions, which come again after it.
    std::map<Position, Position> numbers;
    bool was_told = false;                          // who is paused
    std::map<std::int64_t, Position> letters = {};  // events of those to be sent again
};

class WatchedReader final : public spi::Reader {
  public:
    WatchedReader(std::unique_ptr<spi::Reader> reader, Watch& watch)
        : reader_(std::move(reader)), watch_(watch) {}

    Status read(const spi::ReadLimits& limits, spi::EventBatch& out) override {
        const std::size_t before = out.size();
        const std::size_t closed_before = out.closed.size();
        const std::int64_t since_us = watch_.world.now_us();
        Status status = reader_->read(limits, out);
        if (status.ok()) watch_.judge.looked(since_us);
        note(out, before);
        if (streams_) watch_.judge.streamed.events += out.size() - before;
        if (watch_.world.tracing()) trace(out, before, closed_before, status);
        return status;
    }
    Status fetch(std::span<const Position> positions, spi::EventBatch& out) override {
        const std::size_t before = out.size();
        Status status = reader_->fetch(positions, out);
        note(out, before);
        return status;
    }
    void forget(std::span<const Position> positions) override { reader_->forget(positions); }
    Waited wait(std::chrono::milliseconds max_wait) override { return reader_->wait(max_wait); }
    std::optional<spi::ReadPath> new_path() override {
        auto path = reader_->new_path();
        if (path) streams_ = path->path == "stream";
        if (path && streams_) ++watch_.judge.streamed.joins;
        return path;
    }

  private:
    void note(const spi::EventBatch& batch, std::size_t from) {
        for (std::size_t i = from; i < batch.size(); ++i) {
            const spi::EventView& event = batch.events()[i];
            watch_.numbers[event.position] = number_of(event.id);
        }
    }
    void trace(const spi::EventBatch& batch, std::size_t from, std::size_t closed_from,
               const Status& status) {
        std::string line = "relay " + std::to_string(watch_.relay) + " reads";
        for (std::size_t i = from; i < batch.size(); ++i) {
            const spi::EventView& event = batch.events()[i];
            line +=
                " " + std::to_string(event.position) + "=e" + std::to_string(number_of(event.id));
        }
        for (std::size_t i = closed_from; i < batch.closed.size(); ++i) {
            line += " closed " + std::to_string(batch.closed[i].first) + "-" +
                    std::to_string(batch.closed[i].last);
        }
        if (!status.ok()) line += " " + describe(status.error());
        if (batch.size() > from || batch.closed.size() > closed_from || !status.ok()) {
            watch_.world.trace(line);
        }
    }

    std::unique_ptr<spi::Reader> reader_;
    Watch& watch_;
    bool streams_ = false;
};

class WatchedRecorder final : public spi::Recorder {
  public:
    WatchedRecorder(std::unique_ptr<spi::Recorder> recorder, Watch& watch)
        : recorder_(std::move(recorder)), watch_(watch) {}

    Result<spi::Beginning> begin(std::uint64_t epoch,
                                 std::span<const spi::RouteName> routes) override {
        routes_.clear();
        for (const spi::RouteName& route : routes) routes_.push_back(route.name);
        auto begun = recorder_->begin(epoch, routes);
        if (!begun.ok()) return begun;
        for (const std::string& route : routes_) {
            watch_.judge.added(watch_.judge.route_of(route));
        }
        return begun;
    }
    Result<std::vector<std::string>> destinations(std::span<const std::string> routes) override {
        return recorder_->destinations(routes);
    }
    Status record(const spi::RecordBatch& batch) override {
        std::vector<spi::Finished> finished;
        for (const spi::Finished& one : batch.finished) {
            finished.push_back({one.route, {}, {}});
            for (const Position position : one.positions) {
                const auto found = watch_.numbers.find(position);
                finished.back().positions.push_back(found == watch_.numbers.end() ? Position{0}
                                                                                  : found->second);
            }
        }
        Status status = recorder_->record(batch);
        if (status.ok()) {
            watch_.judge.recorded(batch, finished, routes_);
            for (const std::int64_t dead_id : batch.redelivered) retried(dead_id);
            for (const spi::Delivery& again : batch.failed_again) retried(again.position);
        } else {
            watch_.world.trace("relay " + std::to_string(watch_.relay) +
                               " cannot record: " + describe(status.error()));
        }
        return status;
    }
    Result<spi::Removed> remove(std::uint64_t epoch, std::span<const Position> positions) override {
        return recorder_->remove(epoch, positions);
    }
    Result<Position> tidy(std::uint64_t epoch) override { return recorder_->tidy(epoch); }
    Result<std::size_t> move_due(std::uint64_t epoch, std::size_t limit) override {
        return recorder_->move_due(epoch, limit);
    }
    Result<std::size_t> prune(std::chrono::seconds retention, std::size_t limit) override {
        return recorder_->prune(retention, limit);
    }
    Result<std::int64_t> prunable(std::chrono::seconds retention) override {
        return recorder_->prunable(retention);
    }
    Result<std::vector<spi::Delivery>> load_deliveries(std::string_view route) override {
        return recorder_->load_deliveries(route);
    }
    Result<std::vector<spi::DeadLetter>> load_redeliveries(std::string_view route,
                                                           std::int64_t after_dead_id,
                                                           std::size_t limit) override {
        auto letters = recorder_->load_redeliveries(route, after_dead_id, limit);
        if (!letters.ok()) return letters;
        for (const spi::DeadLetter& letter : *letters) {
            watch_.letters[letter.dead_id] = number_of(letter.event.events()[0].id);
        }
        return letters;
    }
    Result<std::vector<spi::DeadKey>> load_dead_keys(std::string_view route) override {
        return recorder_->load_dead_keys(route);
    }
    Result<std::vector<std::string>> load_paused_tenants() override {
        auto paused = recorder_->load_paused_tenants();
        if (!paused.ok()) return paused;
        // Before it is first told, nothing is sent; what it is told later takes it some time.
        std::set<std::string> now(paused->begin(), paused->end());
        watch_.judge.stay_away(now);
        if (std::exchange(watch_.was_told, true)) {
            std::erase_if(now, [&](const std::string& tenant) {
                return !watch_.judge.paused(watch_.relay).contains(tenant);
            });
        }
        watch_.judge.paused(watch_.relay, std::move(now));
        return paused;
    }
    Status save_stats(std::uint64_t epoch, std::span<const spi::SavedStats> stats) override {
        return recorder_->save_stats(epoch, stats);
    }
    Result<Stats> stats() override { return recorder_->stats(); }

  private:
    void retried(std::int64_t dead_id) {
        if (const auto letter = watch_.letters.find(dead_id); letter != watch_.letters.end()) {
            watch_.judge.letter_recorded(letter->second);
        }
    }

    std::unique_ptr<spi::Recorder> recorder_;
    Watch& watch_;
    std::vector<std::string> routes_;
};

class WatchedLease final : public spi::LeaseStore {
  public:
    WatchedLease(std::unique_ptr<spi::LeaseStore> lease, Watch& watch)
        : lease_(std::move(lease)), watch_(watch) {}

    Result<std::optional<std::uint64_t>> acquire(const std::string& owner,
                                                 std::chrono::milliseconds ttl) override {
        const std::int64_t started_us = watch_.world.now_us();
        auto epoch = lease_->acquire(owner, ttl);
        if (epoch.ok() && *epoch) {
            watch_.judge.holds(watch_.relay, **epoch, started_us);
            entitle(started_us, ttl);
        }
        return epoch;
    }
    Result<bool> renew(std::uint64_t epoch, std::chrono::milliseconds ttl) override {
        const std::int64_t started_us = watch_.world.now_us();
        auto renewed = lease_->renew(epoch, ttl);
        if (!renewed.ok()) return renewed;
        if (*renewed) {
            entitle(started_us, ttl);
        } else {
            watch_.judge.may_send_until(watch_.relay, 0);
            if (watch_.settings.fault == Fault::kLostLeaseIgnored) return true;
        }
        return renewed;
    }
    Status release(std::uint64_t epoch) override { return lease_->release(epoch); }
    Status stand_by(const std::string& owner, std::span<const std::string> routes) override {
        return lease_->stand_by(owner, routes);
    }

  private:
    void entitle(std::int64_t started_us, std::chrono::milliseconds ttl) {
        watch_.judge.may_send_until(
            watch_.relay,
            started_us + ttl.count() * kMs - watch_.settings.options.lease_margin_ms * kMs);
    }

    std::unique_ptr<spi::LeaseStore> lease_;
    Watch& watch_;
};

class WatchedSource final : public spi::Source {
  public:
    WatchedSource(std::unique_ptr<spi::Source> source, Watch watch)
        : source_(std::move(source)), watch_(std::move(watch)) {}

    [[nodiscard]] std::string table_name() const override { return source_->table_name(); }
    [[nodiscard]] bool stable_positions() const override { return source_->stable_positions(); }
    [[nodiscard]] bool keeps_rows() const override { return source_->keeps_rows(); }
    [[nodiscard]] spi::RowShape shape() const override { return source_->shape(); }
    void begin_term() override {
        watch_.numbers.clear();
        watch_.was_told = false;
        watch_.judge.paused(watch_.relay, {});
        source_->begin_term();
    }
    Result<std::unique_ptr<spi::Reader>> open_reader(const std::string& route,
                                                     spi::PositionSet finished) override {
        auto reader = source_->open_reader(route, std::move(finished));
        if (!reader.ok()) return reader;
        return std::unique_ptr<spi::Reader>(
            std::make_unique<WatchedReader>(*std::move(reader), watch_));
    }
    Result<std::unique_ptr<spi::Recorder>> open_recorder() override {
        auto recorder = source_->open_recorder();
        if (!recorder.ok()) return recorder;
        return std::unique_ptr<spi::Recorder>(
            std::make_unique<WatchedRecorder>(*std::move(recorder), watch_));
    }
    Result<std::unique_ptr<spi::LeaseStore>> open_lease() override {
        auto lease = source_->open_lease();
        if (!lease.ok()) return lease;
        return std::unique_ptr<spi::LeaseStore>(
            std::make_unique<WatchedLease>(*std::move(lease), watch_));
    }
    Result<std::vector<spi::Ghost>> ghosts() override { return source_->ghosts(); }
    Result<std::vector<spi::Finding>> check() override { return source_->check(); }

  private:
    std::unique_ptr<spi::Source> source_;
    Watch watch_;
};

}  // namespace

std::unique_ptr<spi::Source> watched(std::unique_ptr<spi::Source> source, World& world,
                                     Judge& judge, const Settings& settings, int relay) {
    return std::make_unique<WatchedSource>(std::move(source),
                                           Watch{world, judge, settings, relay, {}, false});
}

}  // namespace outbox::simulation
