#include "tests/simulation/source.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "core/absence.h"
#include "core/stream_state.h"

namespace outbox::simulation {

void Wire::travel() {
    Random& random = world_.random();
    if (!random.chance(0.002)) return world_.sleep(random.between(20, 1'500));
    const std::int64_t us = random.between(1, 4'000) * kMs;
    judge_.slow_call(us);
    world_.sleep(us);
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

// A slot waits for the transactions that are open when it is made.
struct Slot {
    std::set<Database::TransactionId> waits_for;
    int cuts = 0;
    bool made = false;
    std::size_t start = 0;  // in the log
    std::map<Position, SimEvent> snapshot;
};

/// Reads like the reader of PostgreSQL: the real read mark and the real choice between table and
/// stream, over a table that hides what is not visible and a log that does not.
class SimReader final : public spi::Reader {
  public:
    SimReader(const Context& context, spi::PositionSet finished) : c_(context) {
        mark_.set_finished(std::move(finished));
    }

    Status read(const spi::ReadLimits& limits, spi::EventBatch& out) override {
        if (on_stream()) take_stream(limits, out);
        const bool room = out.size() < limits.max_events && (out.empty() || limits.max_bytes > 30);
        if (!room || !state_.table_due(c_.world.now_us(), !mark_.holes().empty(), false)) return {};
        if (!on_stream() && slot_ && c_.world.random().chance(0.5) && slot_made()) {
            return join(limits, out);
        }
        const Status read = read_table({limits.max_events - out.size(), limits.max_bytes}, out);
        if (!read.ok()) return out.empty() ? read : Status();
        if (!slot_ && c_.settings.stream && state_.wants_stream(c_.world.now_us())) make_slot();
        return {};
    }
    Status fetch(std::span<const Position> positions, spi::EventBatch& out) override {
        Status first = fetch_visible(positions, out);
        if (!first.ok() || out.size() == positions.size() ||
            c_.settings.fault == Fault::kMissingIsGone) {
            return first;
        }
        if (!std::equal(positions.begin(), positions.end(), looked_for_.begin(),
                        looked_for_.end())) {
            looked_for_.assign(positions.begin(), positions.end());
            absence_ = core::Absence();
            gone_.clear();
        }
        std::vector<Position> missing;
        for (const Position position : positions) {
            if (!contains(out, position) && !gone_.contains(position)) missing.push_back(position);
        }
        absence_.add(missing);
        out.clear();
        std::vector<core::Writer> writers;
        if (Status asked = ask_writers(writers); !asked.ok()) return asked;
        absence_.writers_now(writers);
        if (Status second = fetch_visible(positions, out); !second.ok()) return second;
        std::vector<Position> found;
        for (const auto& event : out.events()) found.push_back(event.position);
        for (const Position position : absence_.looked(found)) gone_.insert(position);
        if (absence_.empty()) return {};
        out.clear();
        return {ErrorCode::kQueryFailed, Advice::kRetryDestination, "not visible yet"};
    }
    void forget(std::span<const Position>) override {}

  private:
    [[nodiscard]] bool on_stream() const {
        return state_.path() == core::StreamState::Path::kStream;
    }

    void make_slot() {
        slot_.emplace();
        slot_->waits_for = c_.database.open_transactions();
        slot_->cuts = c_.database.cuts();
    }
    bool slot_made() {
        if (slot_->cuts != c_.database.cuts() || c_.world.now_us() < c_.database.away_until_us) {
            slot_.reset();
            return false;
        }
        if (slot_->made) return true;
        const auto open = c_.database.open_transactions();
        for (const auto id : slot_->waits_for) {
            if (open.contains(id)) return false;
        }
        slot_->made = true;
        slot_->start = c_.database.log().size();
        slot_->snapshot = c_.settings.fault == Fault::kJoinWithoutSnapshot ? c_.database.rows()
                                                                           : c_.database.snapshot();
        return false;  // the route reads in it later
    }

    Status join(const spi::ReadLimits& limits, spi::EventBatch& out) {
        bool complete = false;
        std::vector<SimEvent> found;
        const Status read = c_.wire.call([&]() -> Status {
            found = look(slot_->snapshot, limits, true, complete);
            complete = complete && covered_ == core::ReadMark::kEverything;
            return {};
        });
        if (read.ok()) {
            for (const SimEvent& event : found) {
                mark_.saw(event.position);
                add_to(out, event);
            }
        }
        const bool may = read.ok() && complete && mark_.may_advance();
        if (may && slot_->cuts == c_.database.cuts()) {
            state_.joined(c_.world.now_us());
            ++c_.judge.streamed.joins;
            cursor_ = slot_->start;
            cuts_ = slot_->cuts;
        } else {
            state_.left(c_.world.now_us(),
                        complete ? core::StreamState::Why::kLost : core::StreamState::Why::kBehind);
        }
        slot_.reset();
        return {};
    }

    // What came over the wire since the last call, which took time on its way.
    void take_stream(const spi::ReadLimits& limits, spi::EventBatch& out) {
        const auto& log = c_.database.log();
        const std::int64_t now_us = c_.world.now_us();
        if (cuts_ != c_.database.cuts() || now_us < c_.database.away_until_us) {
            state_.left(now_us, core::StreamState::Why::kLost);
            return;
        }
        std::size_t arrived = cursor_;
        while (arrived < log.size() && log[arrived].written_us + kOnTheWayUs <= now_us) ++arrived;
        if (arrived - cursor_ > c_.settings.queue_max || !mark_.may_advance()) {
            state_.left(now_us, core::StreamState::Why::kBehind);
            ++c_.judge.streamed.behind;
            return;
        }
        for (; cursor_ < arrived && out.size() < limits.max_events; ++cursor_) {
            const SimEvent& event = log[cursor_].event;
            if (!mark_.saw(event.position)) continue;
            add_to(out, event);
            ++c_.judge.streamed.events;
        }
        if (c_.settings.fault == Fault::kStreamClosesHoles) {
            mark_.writers_now({});
            mark_.read_done({}, core::ReadMark::kEverything, out.closed);
        }
    }

    Status read_table(const spi::ReadLimits& limits, spi::EventBatch& out) {
        std::vector<SimEvent> found;
        bool complete = false;
        Status read = c_.wire.call([&]() -> Status {
            found = look(c_.database.rows(), limits, false, complete);
            return {};
        });
        if (!read.ok()) return read;
        std::vector<Position> seen;
        for (const SimEvent& event : found) seen.push_back(event.position);
        if (mark_.left_out()) {
            std::vector<core::Writer> writers;
            const Status asked = ask_writers(writers);
            if (!asked.ok() || !mark_.writers_now(writers)) return asked;
        }
        for (const SimEvent& event : found) add_to(out, event);
        const Position covered = complete ? covered_ : std::min(covered_, seen.back());
        complete = complete && covered_ == core::ReadMark::kEverything;
        mark_.read_done(seen, covered, out.closed);
        state_.table_read(c_.world.now_us(), complete);
        if (mark_.wants_writers()) {
            // A failure here only delays the closing of holes.
            std::vector<core::Writer> writers;
            if (ask_writers(writers).ok()) mark_.writers_now(writers);
        }
        return {};
    }
    Status ask_writers(std::vector<core::Writer>& writers) {
        return c_.wire.call([&]() -> Status {
            if (c_.settings.fault != Fault::kHoleClosedWithoutProof) {
                writers = c_.database.writers();
            }
            return {};
        });
    }
    Status fetch_visible(std::span<const Position> positions, spi::EventBatch& out) {
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
    static bool contains(const spi::EventBatch& batch, Position position) {
        return std::any_of(batch.events().begin(), batch.events().end(),
                           [&](const auto& event) { return event.position == position; });
    }
    std::vector<SimEvent> look(const std::map<Position, SimEvent>& rows,
                               const spi::ReadLimits& limits, bool all_holes, bool& complete) {
        ranges_.clear();
        mark_.append_holes(all_holes, ranges_);
        if (c_.settings.fault == Fault::kBareCursor) ranges_.clear();
        covered_ = mark_.may_advance() ? mark_.append_unread(kUnreadRanges, ranges_)
                                       : core::ReadMark::kEverything;
        std::vector<SimEvent> found;
        std::size_t bytes = 0;
        complete = true;
        for (const auto& [position, event] : rows) {
            const auto in = [p = position](const auto& range) {
                return range.first <= p && p <= range.last;
            };
            if (std::none_of(ranges_.begin(), ranges_.end(), in)) continue;
            if (found.size() >= limits.max_events || (bytes >= limits.max_bytes && bytes > 0)) {
                complete = false;
                break;
            }
            found.push_back(event);
            bytes += 30;
        }
        return found;
    }

    static constexpr std::int64_t kOnTheWayUs = 300;
    static constexpr std::size_t kUnreadRanges = 3;  // few, so that histories have several reads

    Context c_;
    core::ReadMark mark_;
    std::vector<spi::PositionRange> ranges_;  // of the read under way
    Position covered_ = 0;                    // by them
    core::StreamState state_;
    std::optional<Slot> slot_;
    std::size_t cursor_ = 0;  // in the log
    int cuts_ = 0;
    core::Absence absence_;
    std::vector<Position> looked_for_;
    std::set<Position> gone_;
};

class SimRecorder final : public spi::Recorder {
  public:
    explicit SimRecorder(const Context& context) : c_(context) {}

    Result<spi::Beginning> begin(std::uint64_t epoch,
                                 std::span<const spi::RouteName> routes) override {
        return c_.wire.call([&] { return c_.database.begin_term(epoch, routes); });
    }
    Result<std::vector<std::string>> destinations(std::span<const std::string> routes) override {
        return std::vector<std::string>(routes.size(), "somewhere");
    }
    Status record(const spi::RecordBatch& batch) override {
        return c_.wire.call([&] { return c_.database.record(batch); });
    }
    Result<spi::Removed> remove(std::uint64_t epoch, std::span<const Position> positions) override {
        std::vector<Position> hit;
        Status status = c_.wire.call([&] { return c_.database.remove(epoch, positions, hit); });
        if (!status.ok()) return status;
        std::vector<Position> missed;
        std::set_difference(positions.begin(), positions.end(), hit.begin(), hit.end(),
                            std::back_inserter(missed));
        if (c_.settings.fault != Fault::kRemovalForgotten) unseen_.add(missed);
        if (!unseen_.empty()) status = look_for_unseen(epoch, hit);
        // What is lost here is named again by the next call.
        return spi::Removed{std::move(hit), unseen_.size(), {}};
    }
    Result<std::size_t> move_due(std::uint64_t, std::size_t) override { return std::size_t{0}; }
    Result<std::size_t> prune(std::chrono::seconds, std::size_t) override { return std::size_t{0}; }
    Result<std::int64_t> prunable(std::chrono::seconds) override { return std::int64_t{0}; }
    Result<std::vector<spi::Delivery>> load_deliveries(std::string_view route) override {
        return ask([&] { return c_.database.deliveries(route); });
    }
    Result<std::vector<spi::DeadLetter>> load_redeliveries(std::string_view route,
                                                           std::int64_t after_dead_id,
                                                           std::size_t limit) override {
        return ask([&] { return c_.database.redeliveries(route, after_dead_id, limit); });
    }
    Result<std::vector<spi::DeadKey>> load_dead_keys(std::string_view route) override {
        return ask([&] { return c_.database.dead_keys(route); });
    }
    Status save_stats(std::uint64_t, std::span<const spi::SavedStats>) override { return {}; }
    Result<Stats> stats() override { return Stats{}; }

  private:
    Status look_for_unseen(std::uint64_t epoch, std::vector<Position>& hit) {
        const auto writers = ask([&] { return c_.database.writers(); });
        if (!writers.ok()) return writers.status();
        unseen_.writers_now(*writers);
        const std::vector<Position> unseen = unseen_.positions();
        std::vector<Position> found;
        Status status = c_.wire.call([&] { return c_.database.remove(epoch, unseen, found); });
        if (!status.ok()) return status;
        std::vector<Position> gone = unseen_.looked(found);
        status = c_.wire.call([&] { return c_.database.forget(epoch, gone); });
        if (!status.ok()) unseen_.add(gone);
        hit.insert(hit.end(), found.begin(), found.end());
        if (status.ok()) hit.insert(hit.end(), gone.begin(), gone.end());
        return status;
    }
    template <typename Query>
    auto ask(Query query) -> Result<decltype(query())> {
        return c_.wire.call([&]() -> Result<decltype(query())> { return query(); });
    }
    Context c_;
    core::Absence unseen_;
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

Result<std::unique_ptr<spi::Reader>> SimSource::open_reader(const std::string&,
                                                            spi::PositionSet finished) {
    return wire_.call([&]() -> Result<std::unique_ptr<spi::Reader>> {
        return std::unique_ptr<spi::Reader>(std::make_unique<SimReader>(
            Context{world_, database_, judge_, settings_, relay_, wire_, vanished_},
            std::move(finished)));
    });
}

Result<std::unique_ptr<spi::Recorder>> SimSource::open_recorder() {
    return wire_.call([&]() -> Result<std::unique_ptr<spi::Recorder>> {
        return std::unique_ptr<spi::Recorder>(std::make_unique<SimRecorder>(
            Context{world_, database_, judge_, settings_, relay_, wire_, vanished_}));
    });
}

Result<std::unique_ptr<spi::LeaseStore>> SimSource::open_lease() {
    return lease_wire_.call([&]() -> Result<std::unique_ptr<spi::LeaseStore>> {
        return std::unique_ptr<spi::LeaseStore>(std::make_unique<SimLease>(
            Context{world_, database_, judge_, settings_, relay_, lease_wire_, vanished_},
            database_.new_session()));
    });
}

}  // namespace outbox::simulation
