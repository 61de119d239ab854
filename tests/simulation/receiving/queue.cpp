#include "tests/simulation/receiving/queue.h"

#include <algorithm>
#include <optional>
#include <poll.h>
#include <string>
#include <utility>

namespace outbox::simulation {

namespace {

constexpr std::int64_t kLook = 10 * kMs;
constexpr std::int64_t kUnnoticedMax = 5 * kSecond;  // that a connection's host is gone

Status away(const char* what) {
    return {ErrorCode::kSinkUnavailable, Advice::kRetryDestination, what};
}

bool rings(int wake_fd) {
    pollfd entry{wake_fd, POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
}

}  // namespace

class SimInlet final : public consumer::Inlet {
  public:
    explicit SimInlet(SimQueue& queue) : queue_(queue), world_(queue.world_) {}
    // A process that dies says nothing: where its host is gone with it, the broker notices later.
    ~SimInlet() override {
        if (!world_.dying() || world_.random().chance(0.7)) {
            queue_.end(connection_);
            return;
        }
        const std::int64_t later_us = world_.random().between(0, kUnnoticedMax);
        world_.spawn(World::kNoGroup, "heartbeats",
                     [&queue = queue_, connection = connection_, later_us] {
                         queue.world_.sleep(later_us);
                         queue.end(connection);
                     });
    }
    SimInlet(const SimInlet&) = delete;
    SimInlet& operator=(const SimInlet&) = delete;

    Status connect() override {
        travel();
        if (queue_.breaks()) return simulation::away("the broker takes no connection");
        connection_ = queue_.connect();
        return {};
    }
    void disconnect() override { queue_.end(connection_); }

    Status fetch(consumer::Amount room, std::chrono::milliseconds most, int wake_fd,
                 std::vector<consumer::Arrival>& out) override {
        const std::int64_t until_us = world_.now_us() + most.count() * kMs;
        travel();
        while (true) {
            if (!queue_.connected(connection_) || queue_.breaks()) {
                return simulation::away("the connection is lost");
            }
            queue_.hand_over(connection_, room, out);
            if (!out.empty() || world_.now_us() >= until_us || rings(wake_fd)) return {};
            world_.sleep(std::min(kLook, until_us - world_.now_us()));
        }
    }
    Status acknowledge(std::span<const std::uint64_t> numbers) override {
        travel();
        const bool lost = !queue_.connected(connection_);
        const bool breaks = queue_.breaks();
        if (!lost && (!breaks || (!queue_.away() && world_.random().chance(0.5)))) {
            queue_.acknowledge(connection_, numbers);
        }
        return lost || breaks ? simulation::away("the connection is lost") : Status();
    }
    [[nodiscard]] std::string queue() const override { return "simulated"; }
    Result<std::optional<std::int64_t>> waiting() override {
        travel();
        if (!queue_.connected(connection_)) return simulation::away("the connection is lost");
        return std::optional(static_cast<std::int64_t>(queue_.ready_.size()));
    }

  private:
    void travel() { world_.sleep(world_.random().between(20, 1'500)); }

    SimQueue& queue_;
    World& world_;
    int connection_ = 0;
};

void SimQueue::put(consumer::Arrival arrival) {
    const Place place = next_place_++;
    arrival.where = "message " + std::to_string(place) + " of the queue";
    ready_.insert(place);
    items_.emplace(place, Item{std::move(arrival)});
}

std::unique_ptr<consumer::Inlet> SimQueue::open() {
    return std::make_unique<SimInlet>(*this);
}

bool SimQueue::cut_one() {
    if (connections_.empty()) return false;
    end(connections_[world_.random().index(connections_.size())]);
    return true;
}

int SimQueue::connect() {
    connections_.push_back(next_connection_);
    return next_connection_++;
}

bool SimQueue::connected(int connection) const {
    return std::find(connections_.begin(), connections_.end(), connection) != connections_.end();
}

void SimQueue::end(int connection) {
    std::erase(connections_, connection);
    std::erase_if(handed_, [&](const auto& delivery) {
        if (delivery.second.connection != connection) return false;
        take_back(delivery.second);
        return true;
    });
}

// It may be acknowledged by now.
void SimQueue::take_back(const Handed& handed) {
    if (items_.contains(handed.place)) ready_.insert(handed.place);
}

void SimQueue::take_back_what_takes_long() {
    if (settings_.again_after_us == kNever) return;
    for (auto& [delivery, handed] : handed_) {
        if (world_.now_us() - handed.since_us < settings_.again_after_us) continue;
        handed.since_us = kNever;
        take_back(handed);
    }
}

void SimQueue::hand_over(int connection, consumer::Amount room,
                         std::vector<consumer::Arrival>& out) {
    if (settings_.one_at_a_time && connections_.front() != connection) return;
    take_back_what_takes_long();
    std::size_t bytes = 0;
    while (!ready_.empty() && out.size() < room.records && bytes < room.bytes) {
        const Place place = *ready_.begin();
        ready_.erase(ready_.begin());
        Item& item = items_.at(place);
        out.push_back(item.arrival);
        out.back().number = next_delivery_;
        out.back().deliveries = ++item.deliveries;
        bytes += out.back().bytes();
        handed_[next_delivery_++] = {place, connection, world_.now_us()};
    }
}

void SimQueue::acknowledge(int connection, std::span<const std::uint64_t> deliveries) {
    for (const std::uint64_t delivery : deliveries) {
        const auto found = handed_.find(delivery);
        if (found == handed_.end() || found->second.connection != connection) continue;
        items_.erase(found->second.place);
        ready_.erase(found->second.place);
        handed_.erase(found);
    }
}

}  // namespace outbox::simulation
