#include "tests/simulation/database.h"

#include <algorithm>
#include <utility>

namespace outbox::simulation {

namespace {
ErrorInfo lease_lost() {
    return {ErrorCode::kLeaseLost, Advice::kStop, {}, "another relay has the lease"};
}
}  // namespace

void add_to(spi::EventBatch& batch, const SimEvent& event) {
    spi::EventView view;
    view.position = event.position;
    view.id = event.id;
    view.aggregate_type = event.type;
    if (!event.key.empty()) view.key = event.key;
    view.event_type = "Happened";
    view.payload = "{}";
    if (event.trouble == Trouble::kBadTopic) view.topic = "not a topic";
    batch.add_copy(view);
}

Database::TransactionId Database::begin() {
    const TransactionId id = next_transaction_++;
    transactions_[id];
    return id;
}

bool Database::lock_key(TransactionId transaction, const std::string& key) {
    if (!locked_keys_.insert(key).second) return false;
    transactions_.at(transaction).keys.push_back(key);
    return true;
}

Position Database::take_position(TransactionId transaction) {
    transactions_.at(transaction).writes = true;
    return next_position_++;
}

void Database::insert(TransactionId transaction, SimEvent event) {
    transactions_.at(transaction).events.push_back(std::move(event));
}

void Database::roll_back_events(TransactionId transaction, std::size_t count) {
    auto& events = transactions_.at(transaction).events;
    events.resize(events.size() - std::min(count, events.size()));
}

void Database::prepare(TransactionId transaction) {
    transactions_.at(transaction).prepared = true;
}

void Database::write_commit(TransactionId id) {
    Transaction& transaction = transactions_.at(id);
    if (std::exchange(transaction.logged, true)) return;
    for (const SimEvent& event : transaction.events) {
        world_.trace("writer " + std::to_string(id) + " committed " + event.id +
                     " key=" + event.key + " type=" + event.type);
        judge_.committed(event);
        log_.push_back({world_.now_us(), event});
    }
}

void Database::commit(TransactionId id) {
    write_commit(id);
    for (SimEvent& event : transactions_.at(id).events) {
        rows_.emplace(event.position, std::move(event));
    }
    end(id);
}

std::set<Database::TransactionId> Database::open_transactions() const {
    std::set<TransactionId> open;
    for (const auto& [id, transaction] : transactions_) open.insert(id);
    return open;
}

std::map<Position, SimEvent> Database::snapshot() const {
    std::map<Position, SimEvent> shown = rows_;
    for (const auto& [id, transaction] : transactions_) {
        if (!transaction.logged) continue;
        for (const SimEvent& event : transaction.events) shown.emplace(event.position, event);
    }
    return shown;
}

Status Database::remove(std::uint64_t epoch, std::span<const Position> positions,
                        std::vector<Position>& hit) {
    if (epoch != epoch_) return lease_lost();
    for (const Position position : positions) {
        if (rows_.erase(position) == 0) continue;
        judge_.removed(position);
        hit.push_back(position);
    }
    return forget(epoch, hit);
}

Status Database::forget(std::uint64_t epoch, std::span<const Position> gone) {
    if (epoch != epoch_) return lease_lost();
    for (auto& [route, ledger] : ledgers_) ledger.remove(gone);
    return {};
}

Result<spi::Beginning> Database::begin_term(std::uint64_t epoch,
                                            std::span<const spi::RouteName> routes) {
    if (epoch != epoch_) return lease_lost();
    spi::Beginning beginning;
    routes_.clear();
    for (const spi::RouteName& route : routes) {
        routes_.push_back(route.name);
        beginning.routes.push_back({ledgers_[route.name], "somewhere"});
    }
    return beginning;
}

void Database::roll_back(TransactionId id) {
    end(id);
}

void Database::end(TransactionId id) {
    for (const std::string& key : transactions_.at(id).keys) locked_keys_.erase(key);
    transactions_.erase(id);
}

// What `pg_locks` tells: a prepared transaction goes by another name than before.
std::vector<core::Writer> Database::writers() const {
    std::vector<core::Writer> writers;
    for (const auto& [id, transaction] : transactions_) {
        if (!transaction.writes) continue;
        writers.push_back({(transaction.prepared ? "prepared " : "backend ") + std::to_string(id),
                           transaction.prepared});
    }
    return writers;
}

Status Database::record(const spi::RecordBatch& batch) {
    if (batch.epoch != epoch_) return lease_lost();
    judge_.recorded(batch, batch.finished, routes_);
    for (const spi::Delivery& delivery : batch.failed) {
        deliveries_[{delivery.route, delivery.position}] = delivery;
    }
    for (const spi::DeadLetter& letter : batch.dead) {
        deliveries_.erase({letter.route, letter.position});
        const bool known = std::any_of(dead_.begin(), dead_.end(), [&](const auto& item) {
            return item.second.route == letter.route &&
                   item.second.event.position == letter.position;
        });
        const SimEvent* event = judge_.find(letter.position);
        if (known || event == nullptr) continue;
        dead_[next_dead_id_++] = {letter.route,      *event,       letter.attempts,
                                  letter.error_code, letter.error, false};
    }
    for (const spi::Finished& finished : batch.finished) {
        const std::string& route = routes_[finished.route];
        ledgers_[route].add(finished.positions);
        for (const Position position : finished.positions) deliveries_.erase({route, position});
    }
    for (const std::int64_t id : batch.redelivered) dead_.erase(id);
    for (const spi::Delivery& delivery : batch.failed_again) {
        if (const auto it = dead_.find(delivery.position); it != dead_.end()) {
            it->second.retry = false;
        }
    }
    return {};
}

std::vector<spi::Delivery> Database::deliveries(std::string_view route) const {
    std::vector<spi::Delivery> out;
    for (const auto& [key, delivery] : deliveries_) {
        if (delivery.route == route) out.push_back(delivery);
    }
    return out;
}

std::vector<spi::DeadLetter> Database::redeliveries(std::string_view route, std::int64_t after,
                                                    std::size_t limit) const {
    std::vector<spi::DeadLetter> out;
    for (const auto& [id, dead] : dead_) {
        if (!dead.retry || dead.route != route || id <= after || out.size() == limit) continue;
        spi::DeadLetter letter;
        letter.dead_id = id;
        letter.route = dead.route;
        letter.position = dead.event.position;
        SimEvent event = dead.event;
        event.trouble = Trouble::kNone;
        if (event.type == "none") event.type = "a";
        add_to(letter.event, event);
        out.push_back(std::move(letter));
    }
    return out;
}

std::vector<spi::DeadKey> Database::dead_keys(std::string_view route) const {
    std::vector<spi::DeadKey> keys;
    for (const auto& [id, dead] : dead_) {
        if (dead.route == route && !dead.event.key.empty()) keys.push_back({{}, dead.event.key});
    }
    return keys;
}

std::string Database::lingering() const {
    std::string text;
    for (const auto& [key, delivery] : deliveries_) {
        text += "attempts of " + std::to_string(key.second) + " on " + key.first + "; ";
    }
    for (const auto& [route, ledger] : ledgers_) {
        for (const Position position : ledger.positions()) {
            text += route + " has finished " + std::to_string(position) + "; ";
        }
    }
    return text;
}

void Database::retry_all_dead() {
    for (auto& [id, dead] : dead_) {
        judge_.mended(dead.event.position);
        dead.retry = true;
    }
}

std::optional<std::uint64_t> Database::acquire(int session, std::int64_t ttl_us) {
    if (!holder_gone_ && world_.now_us() < lease_until_us_) return std::nullopt;
    holder_ = session;
    holder_gone_ = false;
    lease_until_us_ = world_.now_us() + ttl_us;
    return ++epoch_;
}

bool Database::renew(int session, std::uint64_t epoch, std::int64_t ttl_us) {
    if (epoch != epoch_) return false;
    holder_ = session;
    holder_gone_ = false;
    lease_until_us_ = world_.now_us() + ttl_us;
    return true;
}

void Database::release(std::uint64_t epoch) {
    if (epoch == epoch_) holder_gone_ = true;
}

void Database::session_gone(int session) {
    if (session == holder_) holder_gone_ = true;
}

}  // namespace outbox::simulation
