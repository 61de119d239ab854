#include "tests/simulation/source.h"

#include <algorithm>
#include <utility>

namespace outbox::simulation {

void Wire::travel() {
    Random& random = world_.random();
    const bool slow = random.chance(0.002);
    world_.sleep(slow ? random.between(1, 4'000) * kMs : random.between(20, 1'500));
}

bool Wire::broken() {
    return world_.now_us() < database_.away_until_us ||
           world_.random().chance(settings_.call_fails);
}

namespace {

struct Context {
    World& world;
    Database& database;
    Judge& judge;
    const Settings& settings;
    int relay;
    Wire& wire;
    const bool& vanished;
};

/// Reads like the reader of PostgreSQL: the real read mark over a table that hides what is not
/// committed.
class SimReader final : public spi::Reader {
  public:
    explicit SimReader(const Context& context) : c_(context) {}

    Status read(const spi::ReadLimits& limits, spi::EventBatch& out) override {
        std::vector<SimEvent> found;
        bool complete = false;
        Status read = c_.wire.call([&]() -> Status {
            found = look(limits, complete);
            return {};
        });
        if (!read.ok()) return read;
        std::vector<Position> seen;
        for (const SimEvent& event : found) {
            seen.push_back(event.position);
            add_to(out, event);
        }
        mark_.read_done(seen, complete, out.closed);
        if (mark_.wants_writers()) {
            // A failure here only delays the closing of holes.
            std::vector<core::Writer> writers;
            const Status asked = c_.wire.call([&]() -> Status {
                if (c_.settings.fault != Fault::kHoleClosedWithoutProof) {
                    writers = c_.database.writers();
                }
                return {};
            });
            if (asked.ok()) mark_.writers_now(writers);
        }
        return {};
    }
    Status fetch(std::span<const Position> positions, spi::EventBatch& out) override {
        std::vector<SimEvent> found;
        Status read = c_.wire.call([&]() -> Status {
            found.clear();
            for (const Position position : positions) {
                const auto row = c_.database.rows().find(position);
                if (row != c_.database.rows().end()) found.push_back(row->second);
            }
            return {};
        });
        if (!read.ok()) return read;
        for (const SimEvent& event : found) add_to(out, event);
        return {};
    }
    void forget(std::span<const Position>) override {}
    void rewind() override { mark_.reset(); }

  private:
    std::vector<SimEvent> look(const spi::ReadLimits& limits, bool& complete) {
        std::vector<SimEvent> found;
        std::size_t bytes = 0;
        complete = true;
        for (const auto& [position, event] : c_.database.rows()) {
            if (position > mark_.mark() ? !mark_.may_advance() : !in_hole(position)) continue;
            if (found.size() >= limits.max_events || (bytes >= limits.max_bytes && bytes > 0)) {
                complete = false;
                break;
            }
            found.push_back(event);
            bytes += 30;
        }
        return found;
    }
    [[nodiscard]] bool in_hole(Position position) const {
        if (c_.settings.fault == Fault::kBareCursor) return false;
        return std::any_of(mark_.holes().begin(), mark_.holes().end(), [&](const auto& hole) {
            return hole.range.first <= position && position <= hole.range.last;
        });
    }

    Context c_;
    core::ReadMark mark_;
};

class SimRecorder final : public spi::Recorder {
  public:
    explicit SimRecorder(const Context& context) : c_(context) {}

    Status record(const spi::RecordBatch& batch) override {
        return c_.wire.call([&] { return c_.database.record(batch); });
    }
    Result<std::size_t> move_due(std::uint64_t, std::size_t) override { return std::size_t{0}; }
    Result<std::size_t> prune(std::chrono::seconds, std::size_t) override { return std::size_t{0}; }
    Result<std::int64_t> prunable(std::chrono::seconds) override { return std::int64_t{0}; }
    Result<std::vector<spi::Delivery>> load_deliveries(std::string_view route) override {
        return ask([&] { return c_.database.deliveries(route); });
    }
    Result<std::vector<spi::PositionRange>> load_ledger(std::string_view route) override {
        return ask([&] { return c_.database.ledger(route); });
    }
    Result<std::vector<spi::DeadLetter>> load_redeliveries(std::string_view route,
                                                           std::size_t limit) override {
        return ask([&] { return c_.database.redeliveries(route, limit); });
    }
    Result<std::vector<std::string>> load_dead_keys(std::string_view route) override {
        return ask([&] { return c_.database.dead_keys(route); });
    }
    Status save_figures(std::uint64_t, std::span<const spi::RouteFigures>) override { return {}; }
    Result<Stats> stats() override { return Stats{}; }

  private:
    template <typename Query>
    auto ask(Query query) -> Result<decltype(query())> {
        return c_.wire.call([&]() -> Result<decltype(query())> { return query(); });
    }
    Context c_;
};

class SimLease final : public spi::LeaseStore {
  public:
    SimLease(const Context& context, int session) : c_(context), session_(session) {}
    /// The connection closes, which the server notices when the process still lives.
    ~SimLease() override {
        if (!c_.vanished) c_.database.session_gone(session_);
    }

    Result<std::optional<std::uint64_t>> acquire(const std::string&,
                                                 std::chrono::milliseconds ttl) override {
        const std::int64_t started_us = c_.world.now_us();
        auto epoch = c_.wire.call([&]() -> Result<std::optional<std::uint64_t>> {
            return c_.database.acquire(session_, ttl.count() * kMs);
        });
        if (epoch.ok() && *epoch) entitle(started_us, ttl);
        return epoch;
    }
    Result<bool> renew(std::uint64_t epoch, std::chrono::milliseconds ttl) override {
        const std::int64_t started_us = c_.world.now_us();
        auto renewed = c_.wire.call([&]() -> Result<bool> {
            return c_.database.renew(session_, epoch, ttl.count() * kMs);
        });
        if (!renewed.ok()) return renewed;
        if (*renewed) {
            entitle(started_us, ttl);
        } else {
            c_.judge.may_send_until(c_.relay, 0);
            if (c_.settings.fault == Fault::kLostLeaseIgnored) return true;
        }
        return renewed;
    }
    Status release(std::uint64_t epoch) override {
        return c_.wire.call([&]() -> Status {
            c_.database.release(epoch);
            return {};
        });
    }

  private:
    void entitle(std::int64_t started_us, std::chrono::milliseconds ttl) {
        c_.judge.may_send_until(
            c_.relay, started_us + ttl.count() * kMs - c_.settings.options.lease_margin_ms * kMs);
    }

    Context c_;
    int session_;
};

}  // namespace

Result<std::unique_ptr<spi::Reader>> SimSource::open_reader(const std::string&) {
    return wire_.call([&]() -> Result<std::unique_ptr<spi::Reader>> {
        return std::unique_ptr<spi::Reader>(std::make_unique<SimReader>(
            Context{world_, database_, judge_, settings_, relay_, wire_, vanished_}));
    });
}

Result<std::unique_ptr<spi::Recorder>> SimSource::open_recorder() {
    return wire_.call([&]() -> Result<std::unique_ptr<spi::Recorder>> {
        return std::unique_ptr<spi::Recorder>(std::make_unique<SimRecorder>(
            Context{world_, database_, judge_, settings_, relay_, wire_, vanished_}));
    });
}

Result<std::unique_ptr<spi::LeaseStore>> SimSource::open_lease() {
    return wire_.call([&]() -> Result<std::unique_ptr<spi::LeaseStore>> {
        return std::unique_ptr<spi::LeaseStore>(std::make_unique<SimLease>(
            Context{world_, database_, judge_, settings_, relay_, wire_, vanished_},
            database_.new_session()));
    });
}

}  // namespace outbox::simulation
