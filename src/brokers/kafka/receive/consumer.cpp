#include "brokers/kafka/receive/consumer.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "brokers/kafka/receive/delivery.h"
#include "brokers/kafka/receive/options.h"
#include "brokers/kafka/receive/places.h"
#include "consumer/workers/worker.h"

namespace outbox {

using consumer::Amount;
using consumer::Hub;
using consumer::MakeApplier;
using consumer::Worker;
using consumer::kafka::Client;
using consumer::kafka::name_of;
using consumer::kafka::Partition;
using consumer::kafka::Partitions;
using consumer::kafka::Record;
using consumer::kafka::RecordDelivery;
using consumer::kafka::Start;
using consumer::kafka::TopicPartition;
using consumer::kafka::Witness;
using What = ConsumerReport::What;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr int kPollMs = 50;
constexpr int kFullMs = 2;
constexpr milliseconds kLagInterval{1'000};
constexpr std::size_t kMostProvedAtOnce = 1'000;

}  // namespace

class KafkaConsumer::Impl {
  public:
    Impl(MakeApplier make_applier, KafkaConsumerOptions options, const consumer::Env& env)
        : options_(std::move(options)),
          settings_(consumer::kafka::settings_of(options_)),
          hub_(consumer::kafka::worker_options(options_), std::move(make_applier), env),
          log_(hub_.make_applier().store),
          places_(hub_, *log_, consumer::kafka::first_start(options_), settings_, partitions_) {
        // Settings that librdkafka does not know are an error of the one who made us.
        Client::open(settings_, {}).status().or_throw();
    }

    ~Impl() {
        workers_.clear();
        client_.reset();
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    void run() {
        log_->inbox().connect().or_throw();
        if (!hub_.options.by_offset) log_->inbox().disconnect();
        client_ = Client::open(settings_, events(), options_.format).value_or_throw();
        places_.use(*client_);
        client_->subscribe(options_.topics).or_throw();
        for (std::size_t i = 0; i < options_.workers; ++i) {
            workers_.push_back(std::make_unique<Worker>(hub_, i));
        }
        for (auto& worker : workers_) worker->start();
        while (!hub_.stop.requested()) turn();
        for (auto& worker : workers_) worker->wake();
        for (auto& worker : workers_) worker->join();
        workers_.clear();  // their records must go before the client does
        client_->close();  // which tells Kafka what is finished
        log_->inbox().disconnect();
        const core::Lock lock(hub_.mutex);
        if (hub_.fatal) throw Error(*hub_.fatal);
    }

    Hub& hub() { return hub_; }

  private:
    using Due = std::vector<std::pair<TopicPartition, Partition::Finished>>;

    void turn() {
        // A slow handler keeps its partitions: records wait then, the group does not.
        const bool full = is_full();
        std::optional<Record> record = client_->serve(full ? kFullMs : 0);
        if (!record && !full) record = client_->poll(kPollMs);
        if (record && hub_.options.by_offset) {
            dispatch_proved(*std::move(record));
        } else if (record) {
            dispatch(*std::move(record));
        }
        places_.look_at_ends();
        places_.again();
        pause_where_parked();
        const auto now = hub_.now();
        if (now >= next_commit_) {
            next_commit_ = now + milliseconds(options_.commit_interval_ms);
            commit(false);
        }
        if (now >= next_lag_) {
            next_lag_ = now + kLagInterval;
            if (const auto fatal = client_->fatal()) hub_.fail(*fatal);
            measure_lag();
        }
    }

    // From the limit on, until half of it is finished.
    bool is_full() {
        const auto& options = hub_.options;
        const auto reached = [this](std::size_t amount, std::size_t most) {
            return full_ ? amount > most / 2 : amount >= most;
        };
        const core::Lock lock(hub_.mutex);
        full_ = reached(hub_.in_flight.records, options.max_in_flight) ||
                reached(hub_.in_flight.bytes, options.max_in_flight_bytes);
        return full_;
    }

    // With as many parked as may be in flight the partitions that have their share of it or more
    // wait, no other: so it is less than twice as much at most.
    void pause_where_parked() {
        const auto& options = hub_.options;
        const core::Lock lock(hub_.mutex);
        const auto reaches = [&](const Amount& amount, std::size_t part) {
            return amount.records > 0 && (amount.records >= options.max_in_flight / part ||
                                          amount.bytes >= options.max_in_flight_bytes / part);
        };
        const bool full = reaches(hub_.parked, 1);
        const bool half_full = reaches(hub_.parked, 2);
        const std::size_t partitions = partitions_.size();
        for (const auto& [where, partition] : partitions_) {
            if (partition->held) continue;
            const bool pause = partition->paused
                                   ? half_full && reaches(partition->parked, 2 * partitions)
                                   : full && reaches(partition->parked, partitions);
            if (pause == partition->paused) continue;
            partition->paused = pause;
            if (pause) {
                client_->hold(where);
            } else {
                client_->resume(where);
            }
        }
    }

    bool is_wanted(Partition& partition, std::int64_t offset) {
        const core::Lock lock(hub_.mutex);
        if (partition.taken_away || partition.held) return false;
        partition.begins_at(offset);
        return true;
    }

    void dispatch(Record record) {
        const auto found = partitions_.find(where_is(record));
        if (found == partitions_.end()) return;
        if (!is_wanted(*found->second, record.offset())) return;
        if (!places_.is_next(*found->second, record)) return;
        const core::Lock lock(hub_.mutex);
        if (found->second->taken_away) return;
        std::string name = name_of(record);
        const auto number = found->second->take({record.offset(), name});
        auto delivery = std::make_unique<RecordDelivery>(std::move(record), std::move(name),
                                                         hub_.options.by_offset);
        consumer::push(workers_, {std::move(delivery), found->second, number});
    }

    consumer::kafka::GroupEvents events() {
        return {.given = [this](const auto& given) { return give(given); },
                .taken = [this](const auto& taken, bool lost) { take(taken, lost); },
                .ended = [this](const auto& where, auto offset) { places_.ended(where, offset); },
                .out_of_range = [this](const auto& where) { places_.out_of_range(where); },
                .trouble = [this](const ErrorInfo& error) { hub_.trouble(error); }};
    }

    std::vector<Start> give(const std::vector<TopicPartition>& given) {
        std::vector<Start> starts = places_.begin(given);
        hub_.forget_trouble();
        if (!given.empty()) hub_.say(What::kActive);
        return starts;
    }

    // Offset modes: those that came together are handed over once their log is proved.
    void dispatch_proved(Record first) {
        std::size_t room = 0;
        {
            const core::Lock lock(hub_.mutex);
            const auto most = options_.max_in_flight;
            room = std::min(kMostProvedAtOnce, most - std::min(most, hub_.in_flight.records));
        }
        std::vector<Record> came;
        std::map<TopicPartition, Witness> proofs;
        std::size_t bytes = 0;
        for (std::optional<Record> next = std::move(first); next;
             next = came.size() < room && bytes < options_.max_in_flight_bytes ? client_->poll(0)
                                                                               : std::nullopt) {
            const auto found = partitions_.find(where_is(*next));
            if (found != partitions_.end() && is_wanted(*found->second, next->offset())) {
                proofs.try_emplace(found->first, found->second->proof.value_or(
                                                     Witness{next->offset(), name_of(*next)}));
            }
            bytes += next->bytes();
            came.push_back(*std::move(next));
        }
        places_.prove(proofs);
        for (Record& record : came) dispatch(std::move(record));
    }

    static TopicPartition where_is(const Record& record) {
        return {std::string(record.topic()), record.partition()};
    }

    // What is in a transaction is waited for; what is queued is dropped and comes to the next
    // owner.
    void take(const std::vector<TopicPartition>& taken, bool lost) {
        Due finished;
        {
            core::Lock lock(hub_.mutex);
            std::vector<std::shared_ptr<Partition>> leaving;
            for (const TopicPartition& where : taken) {
                const auto found = partitions_.find(where);
                if (found == partitions_.end()) continue;
                found->second->taken_away = true;
                leaving.push_back(found->second);
            }
            for (auto& worker : workers_) worker->wake();
            if (!lost) {
                hub_.drained.wait_for(hub_.mutex, milliseconds(options_.shutdown_grace_ms), [&] {
                    return std::all_of(leaving.begin(), leaving.end(),
                                       [](const auto& gone) { return gone->in_transaction == 0; });
                });
                for (const auto& gone : leaving) {
                    gone->tell_again();
                    if (auto done = gone->to_commit()) {
                        finished.emplace_back(gone->where, *std::move(done));
                    }
                }
            }
        }
        client_->commit(places_.to_tell(finished), true);
        for (const TopicPartition& where : taken) partitions_.erase(where);
        if (!taken.empty()) hub_.say(What::kStandby);
    }

    void commit(bool wait) {
        Due finished;
        {
            const core::Lock lock(hub_.mutex);
            for (const auto& [where, partition] : partitions_) {
                if (partition->misplaced || partition->held) continue;
                if (auto done = partition->to_commit()) {
                    finished.emplace_back(where, *std::move(done));
                }
            }
        }
        client_->commit(places_.to_tell(finished), wait);
    }

    void measure_lag() {
        std::int64_t lag = 0;
        const core::Lock lock(hub_.mutex);
        for (const auto& [where, partition] : partitions_) {
            const auto extent = client_->extent_of(where);
            const auto next = partition->next();
            if (partition->held) {
                const auto& then = partition->held_extent;
                lag += std::max(then.end, extent ? extent->end : std::int64_t{0}) - then.begin;
            } else if (extent && next) {
                lag += std::max<std::int64_t>(0, extent->end - *next);
            } else {
                lag += static_cast<std::int64_t>(partition->unfinished());
            }
        }
        hub_.lag.store(lag);
    }

    const KafkaConsumerOptions options_;
    std::map<std::string, std::string> settings_;
    Hub hub_;
    std::unique_ptr<consumer::BrokerStore> log_;  // the polling thread's, for offsets
    Partitions partitions_;
    consumer::kafka::Places places_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::unique_ptr<Client> client_;
    bool full_ = false;
    steady_clock::time_point next_commit_;
    steady_clock::time_point next_lag_;
};

KafkaConsumer::KafkaConsumer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KafkaConsumer::KafkaConsumer(KafkaConsumer&& other) noexcept = default;
KafkaConsumer& KafkaConsumer::operator=(KafkaConsumer&& other) noexcept = default;
KafkaConsumer::~KafkaConsumer() = default;

void KafkaConsumer::run() {
    impl_->run();
}

void KafkaConsumer::stop() noexcept {
    impl_->hub().stop.request();
}

ConsumerStats KafkaConsumer::stats() const noexcept {
    return impl_->hub().stats.read();
}

std::int64_t KafkaConsumer::lag() const noexcept {
    return impl_->hub().lag.load();
}

KafkaConsumer consumer::kafka::make_consumer(
    KafkaConsumerOptions options,
    const std::function<MakeApplier(const KafkaConsumerOptions&)>& applier_for, const Env& env) {
    options = consumer::kafka::checked(std::move(options));
    MakeApplier make_applier = applier_for(options);
    return KafkaConsumer(
        std::make_unique<KafkaConsumer::Impl>(std::move(make_applier), std::move(options), env));
}

}  // namespace outbox
