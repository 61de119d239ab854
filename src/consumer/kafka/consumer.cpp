#include "consumer/kafka/consumer.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "consumer/kafka/options.h"
#include "consumer/kafka/rereader.h"
#include "consumer/kafka/worker.h"

namespace outbox {

using consumer::kafka::Client;
using consumer::kafka::Hub;
using consumer::kafka::name_of;
using consumer::kafka::Partition;
using consumer::kafka::PlacedOffset;
using consumer::kafka::Record;
using consumer::kafka::Rereader;
using consumer::kafka::Start;
using consumer::kafka::Task;
using consumer::kafka::TopicPartition;
using consumer::kafka::Witness;
using consumer::kafka::Worker;
using What = ConsumerReport::What;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr int kPollMs = 50;
constexpr int kFullMs = 2;
constexpr milliseconds kLagInterval{1'000};
constexpr milliseconds kPlacingInterval{200};
constexpr milliseconds kProofTimeout{2'000};
constexpr milliseconds kProofInterval{30'000};
constexpr std::size_t kMostProvedAtOnce = 1'000;

// With the offsets that an offset mode commits: they follow the database's, not the other way
// round.
constexpr const char* kMark = "outbox: the offset is in the consumer's database";

}  // namespace

class KafkaConsumer::Impl {
  public:
    Impl(std::string url, consumer::kafka::MakeApplier make_applier, KafkaConsumerOptions options)
        : settings_(consumer::kafka::settings_of(options)),
          hub_(std::move(options), std::move(url), std::move(make_applier)),
          inbox_(hub_.make_applier().store),
          rereader_(settings_) {
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
        inbox_->connect().or_throw();
        if (!hub_.by_offset()) inbox_->disconnect();
        client_ = Client::open(settings_, events()).value_or_throw();
        client_->subscribe(hub_.options.topics).or_throw();
        for (std::size_t i = 0; i < hub_.options.workers; ++i) {
            workers_.push_back(std::make_unique<Worker>(hub_, i == 0));
        }
        for (auto& worker : workers_) worker->start();
        while (!hub_.stop.requested()) turn();
        for (auto& worker : workers_) worker->wake();
        for (auto& worker : workers_) worker->join();
        workers_.clear();  // their records must go before the client does
        commit(true);
        client_->close();
        inbox_->disconnect();
        if (hub_.fatal) throw Error(*hub_.fatal);
    }

    Hub& hub() { return hub_; }

  private:
    // shared_ptr: records under way keep their partition while it is taken away.
    using Partitions = std::map<TopicPartition, std::shared_ptr<Partition>>;

    void turn() {
        // A slow handler keeps its partitions: records wait then, the group does not.
        const bool full = is_full();
        std::optional<Record> record = client_->serve(full ? kFullMs : 0);
        if (!record && !full) record = client_->poll(kPollMs);
        if (record && hub_.by_offset()) {
            dispatch_proved(*std::move(record));
        } else if (record) {
            dispatch(*std::move(record));
        }
        if (hub_.by_offset()) place_again();
        pause_where_parked();
        const auto now = steady_clock::now();
        if (now >= next_commit_) {
            next_commit_ = now + milliseconds(hub_.options.commit_interval_ms);
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
        const std::lock_guard lock(hub_.mutex);
        full_ = reached(hub_.in_flight.records, options.max_in_flight) ||
                reached(hub_.in_flight.bytes, options.max_in_flight_bytes);
        return full_;
    }

    // With as many parked as may be in flight the partitions that have their share of it or more
    // wait, no other: so it is less than twice as much at most.
    void pause_where_parked() {
        const auto& options = hub_.options;
        const std::lock_guard lock(hub_.mutex);
        const auto reaches = [&](const consumer::kafka::Amount& amount, std::size_t part) {
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

    void dispatch(Record record) {
        const auto found = partitions_.find(where_is(record));
        if (found == partitions_.end()) return;
        if (hub_.by_offset() && !is_next(*found->second, record)) return;
        const std::lock_guard lock(hub_.mutex);
        if (found->second->taken_away) return;
        Task task(std::move(record), found->second, hub_.by_offset());
        Worker& worker = *workers_[std::hash<std::string>{}(task.lane) % workers_.size()];
        worker.push(std::move(task));
    }

    consumer::kafka::GroupEvents events() {
        return {.given = [this](const auto& given) { return give(given); },
                .taken = [this](const auto& taken, bool lost) { take(taken, lost); },
                .trouble = [this](const ErrorInfo& error) { trouble(error); }};
    }

    std::vector<Start> give(const std::vector<TopicPartition>& given) {
        std::vector<Start> starts;
        for (const TopicPartition& where : given) {
            auto partition = std::make_shared<Partition>(where);
            starts.push_back(hub_.by_offset() ? place(*partition) : Start{});
            partitions_[where] = std::move(partition);
        }
        last_trouble_.clear();
        if (!given.empty()) hub_.say(What::kActive);
        return starts;
    }

    // ---- offset modes: the place in the database, not Kafka's, says where to go on ----

    // Reading begins with the record before the place: only if that is the one last applied, the
    // log is the one that the place belongs to.
    Start place(Partition& partition) {
        const TopicPartition& where = partition.where;
        const auto stored = inbox_->place(where.topic, where.partition);
        partition.cluster_id = client_->cluster_id();
        partition.misplaced = true;
        if (!stored.ok()) return later(stored.error());
        if (!*stored) {
            const auto marked = client_->has_marked(where, kMark);
            if (!marked.ok()) return later(marked.error());
            partition.misplaced = false;
            if (*marked) {
                return quarantine(partition, *stored,
                                  "the database no longer knows where consumer " +
                                      hub_.options.consumer + " is, which has applied records of " +
                                      "it: it was set back to before the first");
            }
            return {};
        }
        partition.misplaced = false;
        const consumer::LogPlace& known = **stored;
        if (partition.cluster_id.empty()) partition.cluster_id = known.cluster_id;
        if (!known.cluster_id.empty() && !partition.cluster_id.empty() &&
            known.cluster_id != partition.cluster_id) {
            return quarantine(partition, *stored,
                              "it is in the Kafka cluster " + partition.cluster_id +
                                  ", what was applied is of the cluster " + known.cluster_id);
        }
        partition.expected = partition.begin = known.next;
        if (!known.last_id || known.next == 0) return {.offset = known.next, .hold = false};
        partition.witness = partition.proof = {known.next - 1, *known.last_id};
        return {.offset = known.next - 1, .hold = false};
    }

    Start later(const ErrorInfo& error) {
        trouble(error);
        return {.offset = {}, .hold = true};
    }

    static TopicPartition where_is(const Record& record) {
        return {std::string(record.topic()), record.partition()};
    }

    // A topic that is made anew has the name, the partitions and the offsets of the old one, and a
    // fetch does not tell them apart. But the old one never comes back: where the record before
    // those that came is still what it was after they came, they are of its log.
    void dispatch_proved(Record first) {
        std::size_t room = 0;
        {
            const std::lock_guard lock(hub_.mutex);
            const auto most = hub_.options.max_in_flight;
            room = std::min(kMostProvedAtOnce, most - std::min(most, hub_.in_flight.records));
        }
        std::vector<Record> came;
        std::map<TopicPartition, Witness> proofs;
        std::size_t bytes = 0;
        for (std::optional<Record> next = std::move(first); next;
             next = came.size() < room && bytes < hub_.options.max_in_flight_bytes
                        ? client_->poll(0)
                        : std::nullopt) {
            const auto found = partitions_.find(where_is(*next));
            if (found != partitions_.end() && !found->second->held) {
                proofs.try_emplace(found->first, found->second->proof.value_or(
                                                     Witness{next->offset(), name_of(*next)}));
            }
            bytes += next->bytes();
            came.push_back(*std::move(next));
        }
        prove(proofs, true);
        for (Record& record : came) dispatch(std::move(record));
    }

    // `needed`: a partition whose proof cannot be had now is read again later.
    void prove(const std::map<TopicPartition, Witness>& proofs, bool needed) {
        if (proofs.empty()) return;
        std::map<TopicPartition, std::int64_t> places;
        for (const auto& [where, proof] : proofs) places[where] = proof.offset;
        const auto found = rereader_.read(places, kProofTimeout);
        for (const auto& [where, proof] : proofs) {
            Partition& partition = *partitions_.at(where);
            const auto answer = found.find(where);
            if (answer == found.end()) {
                if (!needed) continue;
                const std::lock_guard lock(hub_.mutex);
                partition.mark_misplaced();
            } else if (answer->second && answer->second->offset == proof.offset) {
                if (answer->second->id != proof.id) {
                    stop_reading(partition, other_than(proof, answer->second->id));
                }
            } else if (const auto extent = client_->ask_extent_of(where);
                       extent && extent->end <= proof.offset) {
                stop_reading(partition, "it ends with offset " + std::to_string(extent->end) +
                                            ", below what was applied");
            }
        }
    }

    static std::string other_than(const Witness& known, const std::string& found) {
        return "at offset " + std::to_string(known.offset) + " it has the record '" + found +
               "', what was applied there is '" + known.id + "'";
    }

    // What is in a worker's hands is of the log before: it fails or is applied there.
    void stop_reading(Partition& partition, const std::string& why) {
        client_->hold(partition.where);
        const auto stored = inbox_->place(partition.where.topic, partition.where.partition);
        quarantine(partition, stored.ok() ? *stored : consumer::LogPlace{-1, {}, {}}, why);
    }

    // Whether a record is of the log that the place belongs to, and not the witness.
    bool is_next(Partition& partition, const Record& record) {
        if (partition.held) return false;
        const std::int64_t offset = record.offset();
        const auto witness = std::exchange(partition.witness, std::nullopt);
        std::string found;
        if (witness && offset == witness->offset) {
            partition.last_read = offset;
            const std::string name = name_of(record);
            if (name == witness->id) return false;
            found = other_than(*witness, name);
        } else if (offset < partition.begin || offset <= partition.last_read) {
            found = "it goes on with offset " + std::to_string(offset) + ", below what was applied";
        } else if (witness) {
            // What was applied last is gone, as is usual where all was applied; nothing more may
            // be.
            const auto extent = client_->ask_extent_of(partition.where);
            if (!extent) {
                const std::lock_guard lock(hub_.mutex);
                partition.mark_misplaced();
                return false;
            }
            if (extent->begin > partition.begin) {
                found = "it begins with offset " + std::to_string(extent->begin) +
                        ", what comes next was to be " + std::to_string(partition.begin) +
                        ": records went by the topic's retention before they were read";
            }
        }
        partition.last_read = offset;
        if (found.empty()) {
            partition.proof = {offset, name_of(record)};
            return true;
        }
        stop_reading(partition, found);
        return false;
    }

    // The log is not the one that the place belongs to: nothing of it is applied or dropped until a
    // person has said where to begin.
    Start quarantine(Partition& partition, std::optional<consumer::LogPlace> known,
                     const std::string& why) {
        const TopicPartition& where = partition.where;
        const std::string number = std::to_string(where.partition);
        partition.held_extent = client_->ask_extent_of(where).value_or(Client::Extent{});
        partition.held = true;
        partition.held_at = std::move(known);
        hub_.say(
            What::kQuarantined,
            {ErrorCode::kQuarantined,
             Advice::kStop,
             {},
             where.topic + "/" + number + " is not read: " + why +
                 ". Was the topic made anew, the cluster exchanged, or a database restored? To "
                 "begin with offset 0 of this log: " +
                 consumer::kafka::begin_at_zero_sql(hub_.options.consumer, where) +
                 "; reading goes on by itself then"});
        return {.offset = {}, .hold = true};
    }

    // Those whose place is not known, and those that are held, once a person has changed it.
    void place_again() {
        const auto now = steady_clock::now();
        if (now < next_placing_) return;
        next_placing_ = now + kPlacingInterval;
        const bool look_at_held = now >= next_look_;
        if (look_at_held) next_look_ = now + kLagInterval;
        for (auto& [where, partition] : partitions_) {
            bool misplaced = false;
            {
                const std::lock_guard lock(hub_.mutex);
                if (partition->in_transaction > 0) continue;
                misplaced = partition->misplaced;
            }
            if (!misplaced && partition->held && look_at_held) {
                misplaced = has_changed(*partition);
            }
            if (!misplaced) continue;
            auto fresh = std::make_shared<Partition>(where);
            const Start start = place(*fresh);
            if (fresh->misplaced) continue;
            client_->restart(where, start);
            partition = std::move(fresh);
        }
        if (now >= next_proof_) {
            next_proof_ = now + kProofInterval;
            std::map<TopicPartition, Witness> proofs;
            for (const auto& [where, partition] : partitions_) {
                if (partition->proof && !partition->held) proofs.emplace(where, *partition->proof);
            }
            prove(proofs, false);
        }
    }

    bool has_changed(const Partition& partition) {
        const auto stored = inbox_->place(partition.where.topic, partition.where.partition);
        return stored.ok() && partition.held_at != *stored;
    }

    // What is in a transaction is waited for; what is queued is dropped and comes to the next
    // owner.
    void take(const std::vector<TopicPartition>& taken, bool lost) {
        std::vector<PlacedOffset> finished;
        {
            std::unique_lock lock(hub_.mutex);
            std::vector<std::shared_ptr<Partition>> leaving;
            for (const TopicPartition& where : taken) {
                const auto found = partitions_.find(where);
                if (found == partitions_.end()) continue;
                found->second->taken_away = true;
                leaving.push_back(found->second);
            }
            for (auto& worker : workers_) worker->wake();
            if (!lost) {
                hub_.drained.wait_for(lock, milliseconds(hub_.options.shutdown_grace_ms), [&] {
                    return std::all_of(leaving.begin(), leaving.end(),
                                       [](const auto& gone) { return gone->in_transaction == 0; });
                });
                for (const auto& gone : leaving) {
                    if (const auto next = gone->to_commit())
                        finished.push_back({gone->where, *next});
                }
            }
        }
        client_->commit(finished, true, mark());
        for (const TopicPartition& where : taken) partitions_.erase(where);
        if (!taken.empty()) hub_.say(What::kStandby);
    }

    void trouble(const ErrorInfo& error) {
        if (error.advice == Advice::kStop) return hub_.fail(error);
        const std::string text = describe(error);
        if (text == std::exchange(last_trouble_, text)) return;
        hub_.say(What::kDisconnected, error);
    }

    [[nodiscard]] const char* mark() const { return hub_.by_offset() ? kMark : nullptr; }

    void commit(bool wait) {
        std::vector<PlacedOffset> finished;
        {
            const std::lock_guard lock(hub_.mutex);
            for (const auto& [where, partition] : partitions_) {
                if (const auto next = partition->to_commit()) finished.push_back({where, *next});
            }
        }
        client_->commit(finished, wait, mark());
    }

    void measure_lag() {
        std::int64_t lag = 0;
        const std::lock_guard lock(hub_.mutex);
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

    std::map<std::string, std::string> settings_;
    Hub hub_;
    std::unique_ptr<consumer::LogStore> inbox_;  // the polling thread's, for offsets
    Rereader rereader_;
    std::vector<std::unique_ptr<Worker>> workers_;
    Partitions partitions_;
    std::unique_ptr<Client> client_;
    bool full_ = false;
    steady_clock::time_point next_proof_;
    steady_clock::time_point next_placing_;
    steady_clock::time_point next_look_;
    std::string last_trouble_;
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

ConsumerCounters KafkaConsumer::counters() const noexcept {
    return impl_->hub().tally.read();
}

std::int64_t KafkaConsumer::lag() const noexcept {
    return impl_->hub().lag.load();
}

KafkaConsumer consumer::kafka::make_consumer(
    const std::string& url, KafkaConsumerOptions options,
    const std::function<MakeApplier(const KafkaConsumerOptions&)>& applier_for) {
    options = consumer::kafka::checked(std::move(options));
    MakeApplier make_applier = applier_for(options);
    return KafkaConsumer(
        std::make_unique<KafkaConsumer::Impl>(url, std::move(make_applier), std::move(options)));
}

}  // namespace outbox
