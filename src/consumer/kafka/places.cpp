#include "consumer/kafka/places.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "consumer/kafka/options.h"
#include "consumer/kafka/task.h"

namespace outbox::consumer::kafka {
namespace {

using What = ConsumerReport::What;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPlacingInterval{200};
constexpr milliseconds kLookInterval{1'000};
constexpr milliseconds kQuietInterval{10'000};
constexpr milliseconds kProofTimeout{2'000};

// Beside the group's offset. In the offset modes it follows the database's, not the other way
// round; what is named is the one that it follows. Else it is the last record that is finished.
constexpr std::string_view kFollows = "outbox: follows the database's offset ";
constexpr std::string_view kLast = "outbox: last applied ";

std::string mark_of(const Witness& last) {
    return std::string(kLast) + std::to_string(last.offset) + " " + last.id;
}

std::optional<Witness> last_in(std::string_view mark) {
    if (!mark.starts_with(kLast)) return std::nullopt;
    mark.remove_prefix(kLast.size());
    Witness last;
    const auto read = std::from_chars(mark.data(), mark.data() + mark.size(), last.offset);
    if (read.ec != std::errc{}) return std::nullopt;
    mark.remove_prefix(static_cast<std::size_t>(read.ptr - mark.data()));
    if (!mark.starts_with(' ')) return std::nullopt;
    last.id = mark.substr(1);
    return last;
}

std::string other_than(const Witness& known, const std::string& found) {
    return "at offset " + std::to_string(known.offset) + " it has the record '" + found +
           "', what was applied there is '" + known.id + "'";
}

std::string name_of(const TopicPartition& where) {
    return where.topic + "/" + std::to_string(where.partition);
}

}  // namespace

Places::Places(Hub& hub, LogStore& inbox, std::map<std::string, std::string> settings,
               Partitions& partitions)
    : hub_(hub),
      inbox_(inbox),
      first_start_(first_start(hub.options)),
      rereader_(std::move(settings)),
      partitions_(partitions) {}

std::vector<Start> Places::begin(const std::vector<TopicPartition>& given) {
    for (const TopicPartition& where : given) {
        partitions_[where] = std::make_shared<Partition>(where);
    }
    if (!hub_.by_offset()) return begin_by_group(given);
    std::vector<Start> starts;
    for (const TopicPartition& where : given) {
        starts.push_back(begin_by_offset(*partitions_.at(where)));
    }
    return starts;
}

std::vector<Start> Places::begin_by_group(const std::vector<TopicPartition>& given) {
    const auto committed = client_->committed(given);
    std::map<TopicPartition, PlacedOffset> known;
    std::map<TopicPartition, std::int64_t> last;
    if (committed.ok()) {
        for (const PlacedOffset& one : *committed) {
            known.emplace(one.where, one);
            if (const auto witness = last_in(one.mark)) last.emplace(one.where, witness->offset);
        }
    }
    const auto found = last.empty() ? decltype(rereader_.read(last, kProofTimeout)){}
                                    : rereader_.read(last, kProofTimeout);
    std::vector<Start> starts;
    for (const TopicPartition& where : given) {
        Partition& partition = *partitions_.at(where);
        if (!committed.ok()) {
            starts.push_back(later(partition, committed.error()));
            continue;
        }
        const auto place = known.find(where);
        if (place == known.end()) {
            starts.push_back(first_start_);
            continue;
        }
        starts.push_back({.offset = place->second.offset});
        partition.proof = last_in(place->second.mark);
        if (partition.proof) {
            const auto answer = found.find(where);
            if (answer == found.end()) {
                starts.back() = later(
                    partition, {ErrorCode::kSinkTimeout,
                                Advice::kRetryDestination,
                                {},
                                "reading " + name_of(where) + " from Kafka: no answer in time"});
                continue;
            }
            if (const auto why = differs(where, *partition.proof, answer->second)) {
                say_changed(where, *why + ": the topic was made anew");
                partition.proof.reset();
                starts.back() = {};
            }
        }
        partition.begin = std::max<std::int64_t>(0, starts.back().offset);
    }
    return starts;
}

// Reading begins with the record before the place: only if that is the one last applied, the
// log is the one that the place belongs to.
Start Places::begin_by_offset(Partition& partition) {
    const TopicPartition& where = partition.where;
    const auto stored = inbox_.place(where.topic, where.partition);
    if (!stored.ok()) return later(partition, stored.error());
    partition.cluster_id = client_->cluster_id();
    if (!*stored) {
        const auto committed = client_->committed({where});
        if (!committed.ok()) return later(partition, committed.error());
        if (!committed->empty() && committed->front().mark.starts_with(kFollows)) {
            return quarantine(partition, *stored,
                              "the database no longer knows where consumer " +
                                  hub_.options.consumer + " is, which has applied records of " +
                                  "it: it was set back to before the first");
        }
        // What the group has read in another mode counts.
        if (committed->empty()) return first_start_;
        partition.begin = committed->front().offset;
        return {.offset = partition.begin};
    }
    const LogPlace& known = **stored;
    if (partition.cluster_id.empty()) partition.cluster_id = known.cluster_id;
    if (!known.cluster_id.empty() && !partition.cluster_id.empty() &&
        known.cluster_id != partition.cluster_id) {
        return quarantine(partition, *stored,
                          "it is in the Kafka cluster " + partition.cluster_id +
                              ", what was applied is of the cluster " + known.cluster_id);
    }
    partition.expected = partition.begin = known.next;
    // Of nothing applied: the beginning that there is, as a person has said.
    if (known.next == 0) return {.offset = kBeginning};
    if (!known.last_id) return {.offset = known.next};
    partition.witness = partition.proof = {known.next - 1, *known.last_id};
    return {.offset = known.next - 1};
}

bool Places::is_next(Partition& partition, const Record& record) {
    if (partition.held) return false;
    const std::int64_t offset = record.offset();
    if (!hub_.by_offset()) {
        partition.last_read = offset;
        if (!partition.proof) partition.proof = Witness{offset, kafka::name_of(record)};
        return true;
    }
    const auto witness = std::exchange(partition.witness, std::nullopt);
    std::string found;
    if (witness && offset == witness->offset) {
        partition.last_read = offset;
        const std::string name = kafka::name_of(record);
        if (name == witness->id) return false;
        found = other_than(*witness, name);
    } else if (offset < partition.begin || offset <= partition.last_read) {
        found = "it goes on with offset " + std::to_string(offset) + ", below what was applied";
    }
    partition.last_read = offset;
    if (found.empty()) {
        partition.proof = {offset, kafka::name_of(record)};
        return true;
    }
    stop_reading(partition, found);
    return false;
}

void Places::prove(const std::map<TopicPartition, Witness>& proofs) {
    prove(proofs, true);
}

// `needed`: a partition whose proof cannot be had now is read again later.
void Places::prove(const std::map<TopicPartition, Witness>& proofs, bool needed) {
    if (proofs.empty()) return;
    std::map<TopicPartition, std::int64_t> places;
    for (const auto& [where, proof] : proofs) places[where] = proof.offset;
    const auto found = rereader_.read(places, kProofTimeout);
    for (const auto& [where, proof] : proofs) {
        Partition& partition = *partitions_.at(where);
        const auto answer = found.find(where);
        if (answer == found.end()) {
            if (needed) misplace(partition);
        } else if (const auto why = differs(where, proof, answer->second)) {
            if (hub_.by_offset()) {
                stop_reading(partition, *why);
            } else {
                misplace(partition);  // which finds the same
            }
        }
    }
}

// Why the log is not the one that had this record. Where it is gone, as by retention, nobody knows.
std::optional<std::string> Places::differs(const TopicPartition& where, const Witness& known,
                                           const std::optional<Witness>& found) const {
    if (found && found->offset == known.offset) {
        if (found->id == known.id) return std::nullopt;
        return other_than(known, found->id);
    }
    const auto extent = client_->ask_extent_of(where);
    if (!extent || extent->end > known.offset) return std::nullopt;
    return "it ends with offset " + std::to_string(extent->end) + ", below what was applied";
}

// ---- the ends of a log ----

void Places::look_at_ends() {
    for (const PlacedOffset& end : std::exchange(ended_, {})) {
        const auto found = partitions_.find(end.where);
        if (found == partitions_.end() || found->second->held) continue;
        const std::lock_guard lock(hub_.mutex);
        if (!found->second->taken_away) found->second->reached_end(end.offset);
    }
    for (const TopicPartition& where : std::exchange(out_of_range_, {})) {
        const auto found = partitions_.find(where);
        if (found != partitions_.end() && !found->second->held) beyond(*found->second);
    }
}

// The log does not have what comes next. What was applied last goes by retention, as is usual
// where all was applied; nothing more may.
void Places::beyond(Partition& partition) {
    const auto extent = client_->ask_extent_of(partition.where);
    if (!extent) return misplace(partition);
    std::int64_t wanted = 0;
    {
        const std::lock_guard lock(hub_.mutex);
        wanted = partition.wanted();
    }
    if (extent->begin > wanted) wanted = std::max(wanted, committed_end(partition));
    const bool gone = extent->begin > wanted;
    if (!gone && extent->end >= wanted) {
        partition.witness.reset();
        return read_from(partition, {.offset = wanted});
    }
    const std::string why =
        gone ? "it begins with offset " + std::to_string(extent->begin) +
                   ", what comes next was to be " + std::to_string(wanted) +
                   ": records went by the topic's retention before they were read"
             : "it ends with offset " + std::to_string(extent->end) + ", below what was applied";
    if (hub_.by_offset()) return stop_reading(partition, why);
    say_changed(partition.where, why);
    if (!gone) {
        partition.proof.reset();
        return misplace(partition);
    }
    read_from(partition, {});
}

void Places::read_from(Partition& partition, const Start& start) {
    client_->restart(partition.where, start);
    const std::lock_guard lock(hub_.mutex);
    partition.paused = false;
}

// What is no record, as the end of a transaction, is below the group's offset and not below the
// database's.
std::int64_t Places::committed_end(const Partition& partition) const {
    const auto committed = client_->committed({partition.where});
    if (!committed.ok() || committed->empty()) return 0;
    const PlacedOffset& known = committed->front();
    const bool follows =
        !hub_.by_offset() || known.mark == std::string(kFollows) + std::to_string(partition.begin);
    return follows ? known.offset : 0;
}

// ---- other logs ----

// What is in a worker's hands is of the log before: it fails or is applied there.
void Places::stop_reading(Partition& partition, const std::string& why) {
    client_->hold(partition.where);
    const auto stored = inbox_.place(partition.where.topic, partition.where.partition);
    quarantine(partition, stored.ok() ? *stored : LogPlace{-1, {}, {}}, why);
}

// The log is not the one that the place belongs to: nothing of it is applied or dropped until a
// person has said where to begin.
Start Places::quarantine(Partition& partition, std::optional<LogPlace> known,
                         const std::string& why) {
    const TopicPartition& where = partition.where;
    partition.held_extent = client_->ask_extent_of(where).value_or(Client::Extent{});
    partition.held = true;
    partition.held_at = std::move(known);
    hub_.say(
        What::kQuarantined,
        {ErrorCode::kQuarantined,
         Advice::kStop,
         {},
         name_of(where) + " is not read: " + why +
             ". Was the topic made anew, the cluster exchanged, or a database restored? To "
             "begin with offset 0 of this log: " +
             begin_at_zero_sql(hub_.options.consumer, where) + "; reading goes on by itself then"});
    return {.hold = true};
}

void Places::say_changed(const TopicPartition& where, const std::string& what) {
    hub_.say(What::kLogChanged, {ErrorCode::kQuarantined,
                                 Advice::kRetryDestination,
                                 {},
                                 name_of(where) + " is read from its beginning: " + what});
}

Start Places::later(Partition& partition, const ErrorInfo& error) {
    partition.misplaced = true;
    hub_.trouble(error);
    return {.hold = true};
}

void Places::misplace(Partition& partition) {
    const std::lock_guard lock(hub_.mutex);
    partition.mark_misplaced();
}

void Places::again() {
    const auto now = steady_clock::now();
    if (now < next_placing_) return;
    next_placing_ = now + kPlacingInterval;
    const bool look_at_held = now >= next_look_;
    if (look_at_held) next_look_ = now + kLookInterval;
    for (auto& [where, partition] : partitions_) {
        bool misplaced = false;
        {
            const std::lock_guard lock(hub_.mutex);
            if (partition->in_transaction > 0) continue;
            misplaced = partition->misplaced;
        }
        if (!misplaced && partition->held && look_at_held) misplaced = has_changed(*partition);
        if (!misplaced) continue;
        const auto before = partition;
        const std::vector<Start> start = begin({where});
        if (partition->misplaced) {
            partition = before;
            continue;
        }
        client_->restart(where, start.front());
    }
    if (now >= next_quiet_) {
        next_quiet_ = now + kQuietInterval;
        look_at_quiet();
    }
}

bool Places::has_changed(const Partition& partition) {
    const auto stored = inbox_.place(partition.where.topic, partition.where.partition);
    return stored.ok() && partition.held_at != *stored;
}

// The log may be another although nothing comes, the database may have been set back, and Kafka may
// not have heard what it was told.
void Places::look_at_quiet() {
    std::map<TopicPartition, Witness> proofs;
    for (const auto& [where, partition] : partitions_) {
        if (partition->held) continue;
        if (partition->proof) proofs.emplace(where, *partition->proof);
        {
            const std::lock_guard lock(hub_.mutex);
            partition->tell_again();
            if (partition->misplaced || partition->unfinished() > 0 || !partition->expected) {
                continue;
            }
        }
        const auto stored = inbox_.place(where.topic, where.partition);
        if (!stored.ok()) continue;
        if (!*stored || (*stored)->next < *partition->expected) misplace(*partition);
    }
    prove(proofs, false);
}

// ---- what Kafka is told ----

std::vector<PlacedOffset> Places::to_tell(
    const std::vector<std::pair<TopicPartition, Partition::Finished>>& finished) {
    std::vector<PlacedOffset> out;
    if (hub_.by_offset()) {
        for (const auto& [where, done] : finished) {
            const auto followed =
                done.last ? std::optional(done.last->offset + 1) : partitions_.at(where)->expected;
            if (!followed) continue;  // an empty partition, of which the database knows nothing
            out.push_back({where, done.next, std::string(kFollows) + std::to_string(*followed)});
        }
        return out;
    }
    // What was finished is of the log of what was finished before, or is not to be told.
    std::map<TopicPartition, Witness> proofs;
    for (const auto& [where, done] : finished) {
        if (const auto& proof = partitions_.at(where)->proof) proofs.emplace(where, *proof);
    }
    std::map<TopicPartition, std::int64_t> places;
    for (const auto& [where, proof] : proofs) places[where] = proof.offset;
    const auto found = places.empty() ? decltype(rereader_.read(places, kProofTimeout)){}
                                      : rereader_.read(places, kProofTimeout);
    for (const auto& [where, done] : finished) {
        Partition& partition = *partitions_.at(where);
        if (const auto proof = proofs.find(where); proof != proofs.end()) {
            const auto answer = found.find(where);
            if (answer == found.end()) {
                const std::lock_guard lock(hub_.mutex);
                partition.tell_again();
                continue;
            }
            if (differs(where, proof->second, answer->second)) {
                misplace(partition);
                continue;
            }
        }
        if (done.last) partition.proof = done.last;
        out.push_back({where, done.next, partition.proof ? mark_of(*partition.proof) : ""});
    }
    return out;
}

}  // namespace outbox::consumer::kafka
