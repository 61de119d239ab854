#include "brokers/kafka/receive/places.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "brokers/kafka/receive/delivery.h"

namespace outbox::consumer::kafka {
namespace {

using What = ConsumerReport::What;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPlacingInterval{200};
constexpr milliseconds kPlacingMost{5'000};
constexpr milliseconds kLookInterval{1'000};
constexpr milliseconds kQuietInterval{10'000};
// For the answers that prove a log: longer where they take long, as large batches on a slow link
// do.
constexpr milliseconds kLeastPatience{2'000};
constexpr milliseconds kMostPatience{30'000};
constexpr milliseconds kMostSilence{10'000};

// Beside the group's offset. In the offset modes it follows the database's, not the other way
// round; what is named is the one that it follows. Else it is the last record that is finished.
constexpr std::string_view kFollows = "outbox: follows the database's offset ";
constexpr std::string_view kLast = "outbox: last applied ";

constexpr const char* kAsk = ". Was the topic made anew, or an offset set by hand?";

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

bool is_called(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

std::string other_than(const Witness& known, const std::string& found) {
    return "at offset " + std::to_string(known.offset) + " it has the record '" + found +
           "', what was applied there is '" + known.id + "'";
}

std::string ends_below(const Client::Extent& extent, std::int64_t next) {
    return "it ends with offset " + std::to_string(extent.end) + ", what comes next was to be " +
           std::to_string(next);
}

std::string text_of(const TopicPartition& where) {
    return where.topic + "/" + std::to_string(where.partition);
}

ErrorInfo no_answer(const TopicPartition& where) {
    return {ErrorCode::kSinkTimeout,
            Advice::kRetryDestination,
            {},
            "reading " + text_of(where) +
                " from Kafka once more, to know its log: no answer in time. Has it a leader?"};
}

}  // namespace

Places::Places(Hub& hub, BrokerStore& log, const Start& first,
               std::map<std::string, std::string> settings, Partitions& partitions)
    : hub_(hub),
      log_(log),
      first_start_(first),
      rereader_(std::move(settings)),
      partitions_(partitions),
      placing_wait_(kPlacingInterval),
      patience_(kLeastPatience) {}

std::vector<Start> Places::begin(const std::vector<TopicPartition>& given) {
    for (const TopicPartition& where : given) {
        auto& partition = partitions_[where];
        auto begun = std::make_shared<Partition>(where);
        begun->first = partition ? partition->first : first_start_;
        begun->log_changed = partition && partition->log_changed;
        partition = std::move(begun);
    }
    std::vector<Start> starts;
    if (!hub_.options.by_offset) starts = begin_by_group(given);
    for (std::size_t i = 0; i < given.size(); ++i) {
        Partition& partition = *partitions_.at(given[i]);
        if (hub_.options.by_offset) starts.push_back(begin_by_offset(partition));
        if (!starts[i].hold) partition.first = starts[i];
    }
    return starts;
}

std::vector<Start> Places::begin_by_group(const std::vector<TopicPartition>& given) {
    const auto committed = client_->committed(given);
    std::map<TopicPartition, PlacedOffset> known;
    Proofs proofs;
    if (committed.ok()) {
        for (const PlacedOffset& one : *committed) {
            known.emplace(one.where, one);
            if (auto last = last_in(one.mark)) proofs.emplace(one.where, *std::move(last));
        }
    }
    const Compared compared = compare(proofs);
    std::vector<Start> starts;
    for (const TopicPartition& where : given) {
        Partition& partition = *partitions_.at(where);
        const auto place = known.find(where);
        const auto proof = proofs.find(where);
        const auto answer = compared.find(where);
        if (std::exchange(partition.log_changed, false)) {
            starts.push_back({});
        } else if (!committed.ok()) {
            starts.push_back(later(partition, committed.error()));
        } else if (place == known.end()) {
            starts.push_back(partition.first);
        } else if (proof == proofs.end()) {
            starts.push_back({.offset = place->second.offset});
        } else if (answer == compared.end()) {
            starts.push_back(later(partition, no_answer(where)));
        } else if (answer->second) {
            say_changed(where, *answer->second + kAsk);
            starts.push_back({});
        } else {
            starts.push_back({.offset = place->second.offset});
            partition.proof = proof->second;
        }
        partition.begin = std::max<std::int64_t>(0, starts.back().offset);
    }
    return starts;
}

// Reading begins with the record before the place: only if that is the one last applied, the
// log is the one that the place belongs to.
Start Places::begin_by_offset(Partition& partition) {
    const TopicPartition& where = partition.where;
    const auto stored = log_.place(where.topic, where.partition);
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
        if (committed->empty()) return partition.first;
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
    const std::int64_t offset = record.offset();
    if (!hub_.options.by_offset) {
        partition.last_read = offset;
        if (!partition.proof) partition.proof = Witness{offset, name_of(record)};
        return true;
    }
    const auto witness = std::exchange(partition.witness, std::nullopt);
    std::string found;
    if (witness && offset == witness->offset) {
        partition.last_read = offset;
        const std::string name = name_of(record);
        if (name == witness->id || is_called(names_of(record), witness->id)) return false;
        found = other_than(*witness, name);
    } else if (offset < partition.begin || offset <= partition.last_read) {
        found = "it goes on with offset " + std::to_string(offset) + ", below what was applied";
    }
    partition.last_read = offset;
    if (found.empty()) {
        partition.proof = {offset, name_of(record)};
        return true;
    }
    stop_reading(partition, found);
    return false;
}

void Places::prove(const Proofs& proofs, bool needed) {
    const Compared compared = compare(proofs);
    for (const auto& [where, proof] : proofs) {
        Partition& partition = *partitions_.at(where);
        {
            const core::Lock lock(hub_.mutex);
            if (partition.taken_away) continue;
        }
        const auto answer = compared.find(where);
        if (answer != compared.end() && answer->second) {
            has_changed(partition, *answer->second);
        } else if (answer == compared.end() && needed) {
            misplace(partition);
        }
    }
}

Places::Compared Places::compare(const Proofs& proofs) {
    Compared compared;
    std::map<TopicPartition, std::int64_t> places;
    const auto began = hub_.now();
    for (const auto& [where, proof] : proofs) {
        const auto silent = silent_.find(where);
        if (silent == silent_.end() || silent->second.until <= began) {
            places.emplace(where, proof.offset);
        }
    }
    if (places.empty()) return compared;
    const auto waited = [&] { return hub_.now() - began; };
    const Rereader::Answers answers = rereader_.read(
        places, [&] { return waited() >= (hub_.stop.requested() ? kLeastPatience : patience_); });
    for (const auto& [where, answer] : answers.found) {
        compared.emplace(where, differs(where, proofs.at(where), answer));
    }
    // Others go on for longer and longer before those that did not answer are asked again.
    for (const auto& [where, offset] : places) {
        if (answers.found.contains(where)) {
            silent_.erase(where);
            continue;
        }
        if (silent_.empty()) hub_.trouble(no_answer(where));
        Silence& silent = silent_[where];
        silent.length = std::max<steady_clock::duration>(
            2 * waited(), std::min<steady_clock::duration>(2 * silent.length, kMostSilence));
        silent.until = hub_.now() + silent.length;
    }
    const bool late = answers.found.size() + answers.leaderless.size() < places.size();
    const auto wanted = late ? 2 * patience_ : 4 * waited();
    patience_ = std::clamp<steady_clock::duration>(wanted, kLeastPatience, kMostPatience);
    return compared;
}

// Why the log is not the one that had this record. Where it is gone, as by retention, nobody knows.
std::optional<std::string> Places::differs(const TopicPartition& where, const Witness& known,
                                           const std::optional<Rereader::Found>& found) const {
    if (found && found->offset == known.offset) {
        if (is_called(found->names, known.id)) return std::nullopt;
        return other_than(known, found->names.front());
    }
    const auto extent = client_->ask_extent_of(where);
    if (!extent || extent->end > known.offset) return std::nullopt;
    return ends_below(*extent, known.offset + 1);
}

// ---- the ends of a log ----

void Places::look_at_ends() {
    for (const PlacedOffset& end : std::exchange(ended_, {})) {
        const auto found = partitions_.find(end.where);
        if (found == partitions_.end() || found->second->held) continue;
        const core::Lock lock(hub_.mutex);
        if (found->second->taken_away) continue;
        found->second->begins_at(end.offset);
        found->second->reached_end(end.offset);
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
        const core::Lock lock(hub_.mutex);
        if (partition.taken_away) return;
        wanted = partition.wanted();
    }
    if (extent->begin > wanted) wanted = std::max(wanted, committed_end(partition));
    if (extent->end < wanted) return has_changed(partition, ends_below(*extent, wanted));
    if (extent->begin <= wanted) {
        partition.witness.reset();
        return read_from(partition, {.offset = wanted});
    }
    const std::string why = "it begins with offset " + std::to_string(extent->begin) +
                            ", what comes next was to be " + std::to_string(wanted) +
                            ": records went by the topic's retention before they were read";
    if (hub_.options.by_offset) return stop_reading(partition, why);
    say_changed(partition.where, why);
    read_from(partition, {});
}

void Places::read_from(Partition& partition, const Start& start) {
    client_->restart(partition.where, start);
    const core::Lock lock(hub_.mutex);
    partition.paused = false;
}

// What is no record, as the end of a transaction, is below the group's offset and not below the
// database's.
std::int64_t Places::committed_end(const Partition& partition) const {
    const auto committed = client_->committed({partition.where});
    if (!committed.ok() || committed->empty()) return 0;
    const PlacedOffset& known = committed->front();
    const bool follows = !hub_.options.by_offset ||
                         known.mark == std::string(kFollows) + std::to_string(partition.begin);
    return follows ? known.offset : 0;
}

// ---- other logs ----

void Places::has_changed(Partition& partition, const std::string& why) {
    if (hub_.options.by_offset) return stop_reading(partition, why);
    say_changed(partition.where, why + kAsk);
    const core::Lock lock(hub_.mutex);
    partition.log_changed = true;
    partition.first = {};
    partition.mark_misplaced();
}

// What is in a worker's hands is of the log before: it fails or is applied there.
void Places::stop_reading(Partition& partition, const std::string& why) {
    client_->hold(partition.where);
    const auto stored = log_.place(partition.where.topic, partition.where.partition);
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
         text_of(where) + " is not read: " + why +
             ". Was the topic made anew, the cluster exchanged, or a database restored? To "
             "begin with offset 0 of this log: " +
             begin_at_zero_sql(hub_.options.consumer, where) + "; reading goes on by itself then"});
    return {.hold = true};
}

void Places::say_changed(const TopicPartition& where, const std::string& what) {
    hub_.say(What::kLogChanged, {ErrorCode::kQuarantined,
                                 Advice::kRetryDestination,
                                 {},
                                 text_of(where) + " is read from its beginning: " + what});
}

Start Places::later(Partition& partition, const ErrorInfo& error) {
    misplace(partition);
    hub_.trouble(error);
    return {.hold = true};
}

void Places::misplace(Partition& partition) {
    const core::Lock lock(hub_.mutex);
    partition.mark_misplaced();
}

void Places::again() {
    const auto now = hub_.now();
    if (now < next_placing_) return;
    const bool look_at_held = now >= next_look_;
    if (look_at_held) next_look_ = now + kLookInterval;
    std::vector<TopicPartition> placed;
    std::vector<std::shared_ptr<Partition>> former;
    for (const auto& [where, partition] : partitions_) {
        bool misplaced = false;
        {
            const core::Lock lock(hub_.mutex);
            if (partition->in_transaction > 0) continue;
            misplaced = partition->misplaced;
        }
        if (!misplaced && partition->held && look_at_held) misplaced = place_changed(*partition);
        if (!misplaced) continue;
        placed.push_back(where);
        former.push_back(partition);
    }
    bool in_vain = false;
    const std::vector<Start> starts = placed.empty() ? std::vector<Start>{} : begin(placed);
    for (std::size_t i = 0; i < placed.size(); ++i) {
        auto& partition = partitions_.at(placed[i]);
        if (partition->misplaced) {
            partition = former[i];
            in_vain = true;
        } else {
            client_->restart(placed[i], starts[i]);
        }
    }
    placing_wait_ = in_vain ? std::min(2 * placing_wait_, kPlacingMost) : kPlacingInterval;
    next_placing_ = hub_.now() + placing_wait_;
    if (now >= next_quiet_) {
        next_quiet_ = now + kQuietInterval;
        look_at_quiet();
    }
}

bool Places::place_changed(const Partition& partition) {
    const auto stored = log_.place(partition.where.topic, partition.where.partition);
    return stored.ok() && partition.held_at != *stored;
}

// The log may be another although nothing comes, the database may have been set back, and Kafka may
// not have heard what it was told.
void Places::look_at_quiet() {
    Proofs proofs;
    for (const auto& [where, partition] : partitions_) {
        if (partition->held) continue;
        {
            const core::Lock lock(hub_.mutex);
            if (partition->misplaced) continue;
            partition->tell_again();
            if (partition->proof) proofs.emplace(where, *partition->proof);
            if (partition->unfinished() > 0 || !partition->expected) continue;
        }
        const auto stored = log_.place(where.topic, where.partition);
        if (!stored.ok()) continue;
        if (!*stored || (*stored)->next < *partition->expected) misplace(*partition);
    }
    prove(proofs, false);
}

// ---- what Kafka is told ----

std::vector<PlacedOffset> Places::to_tell(
    const std::vector<std::pair<TopicPartition, Partition::Finished>>& finished) {
    std::vector<PlacedOffset> out;
    if (hub_.options.by_offset) {
        for (const auto& [where, done] : finished) {
            const auto followed =
                done.last ? std::optional(done.last->offset + 1) : partitions_.at(where)->expected;
            // The database knows nothing of a partition of which nothing was applied.
            out.push_back({where, done.next,
                           followed ? std::string(kFollows) + std::to_string(*followed) : ""});
        }
        return out;
    }
    // What was finished is of the log of what was finished before, or is not to be told.
    Proofs proofs;
    for (const auto& [where, done] : finished) {
        if (const auto& proof = partitions_.at(where)->proof) proofs.emplace(where, *proof);
    }
    const Compared compared = compare(proofs);
    for (const auto& [where, done] : finished) {
        Partition& partition = *partitions_.at(where);
        const auto answer = compared.find(where);
        if (partition.proof && answer == compared.end()) {
            const core::Lock lock(hub_.mutex);
            partition.tell_again();
            continue;
        }
        if (partition.proof && answer->second) {
            has_changed(partition, *answer->second);
            continue;
        }
        if (done.last) partition.proof = done.last;
        out.push_back({where, done.next, partition.proof ? mark_of(*partition.proof) : ""});
    }
    return out;
}

}  // namespace outbox::consumer::kafka
