#include "tests/relay/table.h"

#include <algorithm>
#include <optional>
#include <span>
#include <thread>
#include <utility>

namespace outbox::test {

using spi::Position;

std::chrono::microseconds Table::now() const {
    if (clock_ != nullptr) return std::chrono::microseconds(clock_->boot_us());
    return std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
}

Status Table::reach() const {
    if (!away_) return {};
    return {ErrorCode::kConnectionLost, Advice::kRetryDestination, "the table is away"};
}

Status Table::reach_reading() {
    while (hanging_reads_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    while (replaced_ && !lease_forgotten_)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (replaced_.exchange(false)) {
        return {ErrorCode::kServerChanged, Advice::kStop, "another timeline"};
    }
    return reach();
}

void Table::insert(const std::string& id, const std::string& key, const std::string& topic,
                   const std::string& tenant, const std::string& payload) {
    const std::scoped_lock lock(mutex_);
    rows_[++last_position_] = {id, key, topic, 0, 0, tenant, payload};
}

void Table::remove(const std::string& id) {
    const std::scoped_lock lock(mutex_);
    std::erase_if(rows_, [&](const auto& row) { return row.second.id == id; });
}

void Table::insert_delayed(const std::string& id, const std::string& key,
                           std::int64_t occurred_at_us, std::int64_t available_at_us) {
    const std::scoped_lock lock(mutex_);
    rows_[++last_position_] = {id, key, {}, occurred_at_us, available_at_us};
}

std::size_t Table::unfinished() const {
    const std::scoped_lock lock(mutex_);
    return rows_.size();
}

std::size_t Table::dead() const {
    const std::scoped_lock lock(mutex_);
    return dead_.size();
}

std::string Table::owner() const {
    const std::scoped_lock lock(mutex_);
    return owner_;
}

std::uint64_t Table::epoch() const {
    const std::scoped_lock lock(mutex_);
    return epoch_;
}

void Table::drop_lease() {
    const std::scoped_lock lock(mutex_);
    owner_.clear();
}

void Table::let_another_lead() {
    const std::scoped_lock lock(mutex_);
    owner_.clear();
    ++epoch_;
}

void Table::set_ghosts(std::vector<spi::Ghost> ghosts) {
    const std::scoped_lock lock(mutex_);
    ghosts_ = std::move(ghosts);
}

class TableReader final : public spi::Reader {
  public:
    TableReader(Table& table, spi::PositionSet finished)
        : table_(table), finished_(std::move(finished)) {}

    Status read(const spi::ReadLimits& limits, spi::EventBatch& out) override {
        if (Status reached = table_.reach_reading(); !reached.ok()) return reached;
        const std::scoped_lock lock(table_.mutex_);
        auto row = table_.rows_.upper_bound(mark_);
        for (; row != table_.rows_.end() && out.size() < limits.max_events; ++row) {
            if (!finished_.contains(row->first)) take(row->first, row->second, limits.aside, out);
            mark_ = row->first;
        }
        return {};
    }
    Status fetch(std::span<const Position> positions, spi::EventBatch& out) override {
        if (Status reached = table_.reach(); !reached.ok()) return reached;
        const std::scoped_lock lock(table_.mutex_);
        for (const Position position : positions) {
            const auto row = table_.rows_.find(position);
            if (row != table_.rows_.end()) add(row->first, row->second, out);
        }
        return {};
    }
    void forget(std::span<const Position>) override {}

  private:
    void take(Position position, const Table::Row& row, std::span<const std::string> aside,
              spi::EventBatch& out) {
        if (std::find(aside.begin(), aside.end(), row.tenant) == aside.end()) {
            add(position, row, out);
            return;
        }
        ++table_.passed_over_;
        if (out.aside.empty() || out.aside.back().tenant_id != row.tenant) {
            out.aside.push_back({row.tenant, {}});
        }
        out.aside.back().positions.push_back(position);
    }
    static void add(Position position, const Table::Row& row, spi::EventBatch& out) {
        spi::EventView event;
        event.position = position;
        event.id = row.id;
        event.aggregate_type = "order";
        event.event_type = "changed";
        event.payload = row.payload;
        event.tenant_id = row.tenant;
        event.key = row.key;
        event.topic = row.topic;
        event.occurred_at_us = row.occurred_at_us;
        event.available_at_us = row.available_at_us;
        out.add_copy(event);
    }
    Table& table_;
    const spi::PositionSet finished_;
    Position mark_ = 0;
};

class TableRecorder final : public spi::Recorder {
  public:
    explicit TableRecorder(Table& table) : table_(table) {}

    Result<spi::Beginning> begin(std::uint64_t epoch,
                                 std::span<const spi::RouteName> routes) override {
        if (Status reached = table_.reach(); !reached.ok()) return reached;
        if (table_.lease_only_) {
            return ErrorInfo{ErrorCode::kDiskFull, Advice::kRetryDestination, "53100", "full"};
        }
        if (table_.changing_) {
            return ErrorInfo{ErrorCode::kServerChanged, Advice::kStop, "", "another timeline"};
        }
        const std::scoped_lock lock(table_.mutex_);
        if (epoch != table_.epoch_) return lease_lost();
        spi::Beginning beginning;
        table_.routes_.clear();
        for (const spi::RouteName& route : routes) {
            table_.routes_.push_back(route.name);
            beginning.routes.push_back(
                {table_.ledgers_[route.name], table_.destinations_[route.name]});
        }
        return beginning;
    }
    Result<std::vector<std::string>> destinations(std::span<const std::string> routes) override {
        if (Status reached = table_.reach(); !reached.ok()) return reached;
        const std::scoped_lock lock(table_.mutex_);
        std::vector<std::string> out;
        for (const std::string& route : routes) out.push_back(table_.destinations_[route]);
        return out;
    }
    Status record(const spi::RecordBatch& batch) override {
        if (Status reached = table_.reach(); !reached.ok()) return reached;
        const std::scoped_lock lock(table_.mutex_);
        if (batch.epoch != table_.epoch_) return lease_lost();
        for (const auto& delivery : batch.failed) {
            table_.deliveries_[{delivery.route, delivery.position}] = delivery;
        }
        for (const auto& letter : batch.dead) {
            table_.dead_[{letter.route, letter.position}] = letter.event.events()[0].key;
        }
        for (const auto& finished : batch.finished) {
            table_.ledgers_[table_.routes_[finished.route]].add(finished.positions);
        }
        for (const auto& [route, name] : batch.destinations) {
            table_.destinations_[table_.routes_[route]] = name;
        }
        return {};
    }
    Result<spi::Removed> remove(std::uint64_t epoch, std::span<const Position> positions) override {
        if (Status reached = table_.reach(); !reached.ok()) return reached;
        const std::scoped_lock lock(table_.mutex_);
        if (epoch != table_.epoch_) return lease_lost();
        for (const Position position : positions) table_.rows_.erase(position);
        for (auto& [route, ledger] : table_.ledgers_) ledger.remove(positions);
        return spi::Removed{{positions.begin(), positions.end()}, 0, {}};
    }
    Result<std::size_t> move_due(std::uint64_t, std::size_t) override {
        if (!table_.replaced_) return none();
        table_.lease_forgotten_ = true;
        return lease_lost();
    }
    Result<std::size_t> prune(std::chrono::seconds, std::size_t) override { return none(); }
    Result<std::int64_t> prunable(std::chrono::seconds) override { return std::int64_t{0}; }
    Result<std::vector<spi::Delivery>> load_deliveries(std::string_view route) override {
        if (Status reached = table_.reach(); !reached.ok()) return reached;
        const std::scoped_lock lock(table_.mutex_);
        std::vector<spi::Delivery> out;
        for (const auto& [key, delivery] : table_.deliveries_) {
            if (delivery.route == route) out.push_back(delivery);
        }
        return out;
    }
    Result<std::vector<spi::DeadLetter>> load_redeliveries(std::string_view, std::int64_t,
                                                           std::size_t) override {
        if (Status reached = table_.reach(); !reached.ok()) return reached;
        return std::vector<spi::DeadLetter>{};
    }
    Result<std::vector<spi::DeadKey>> load_dead_keys(std::string_view) override {
        if (Status reached = table_.reach(); !reached.ok()) return reached;
        return std::vector<spi::DeadKey>{};
    }
    Status save_stats(std::uint64_t, std::span<const spi::SavedStats>) override {
        return table_.reach();
    }
    Result<Stats> stats() override {
        if (Status reached = table_.reach(); !reached.ok()) return reached;
        Stats stats;
        stats.backlog = static_cast<std::int64_t>(table_.unfinished());
        return stats;
    }

  private:
    static ErrorInfo lease_lost() {
        return {ErrorCode::kLeaseLost, Advice::kStop, {}, "another relay has the lease"};
    }
    [[nodiscard]] Result<std::size_t> none() const {
        if (Status reached = table_.reach(); !reached.ok()) return reached;
        return std::size_t{0};
    }
    Table& table_;
};

class TableLease final : public spi::LeaseStore {
  public:
    explicit TableLease(Table& table) : table_(table) {}

    Result<std::optional<std::uint64_t>> acquire(const std::string& owner,
                                                 std::chrono::milliseconds ttl) override {
        if (Status reached = table_.reach(); !reached.ok()) return reached;
        if (table_.on_acquire_) table_.on_acquire_();
        const std::scoped_lock lock(table_.mutex_);
        const auto now = table_.now();
        if (!table_.owner_.empty() && now < table_.lease_until_) {
            return std::optional<std::uint64_t>{};
        }
        table_.owner_ = owner;
        table_.lease_until_ = now + ttl;
        return std::optional<std::uint64_t>{++table_.epoch_};
    }
    Result<bool> renew(std::uint64_t epoch, std::chrono::milliseconds ttl) override {
        if (Status reached = table_.reach(); !reached.ok()) return reached;
        const std::scoped_lock lock(table_.mutex_);
        if (epoch != table_.epoch_ || table_.owner_.empty()) return false;
        ++table_.renewals_;
        table_.lease_until_ = table_.now() + ttl;
        return true;
    }
    Status release(std::uint64_t epoch) override {
        if (Status reached = table_.reach(); !reached.ok()) return reached;
        const std::scoped_lock lock(table_.mutex_);
        if (epoch == table_.epoch_) table_.owner_.clear();
        return {};
    }

  private:
    Table& table_;
};

class TableSource final : public spi::Source {
  public:
    explicit TableSource(Table& table) : table_(table) {}
    [[nodiscard]] std::string table_name() const override { return "outbox_events"; }
    [[nodiscard]] bool stable_positions() const override { return true; }
    Result<std::unique_ptr<spi::Reader>> open_reader(const std::string&,
                                                     spi::PositionSet finished) override {
        return std::unique_ptr<spi::Reader>(
            std::make_unique<TableReader>(table_, std::move(finished)));
    }
    Result<std::unique_ptr<spi::Recorder>> open_recorder() override {
        while (table_.slow_start_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return std::unique_ptr<spi::Recorder>(std::make_unique<TableRecorder>(table_));
    }
    Result<std::unique_ptr<spi::LeaseStore>> open_lease() override {
        return std::unique_ptr<spi::LeaseStore>(std::make_unique<TableLease>(table_));
    }
    Result<std::vector<spi::Finding>> check() override { return std::vector<spi::Finding>{}; }
    Result<std::vector<spi::Ghost>> ghosts() override {
        const std::scoped_lock lock(table_.mutex_);
        return table_.ghosts_;
    }

  private:
    Table& table_;
};

std::unique_ptr<spi::Source> Table::connect() {
    return std::make_unique<TableSource>(*this);
}

}  // namespace outbox::test
