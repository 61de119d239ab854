#include "verify/verify.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <nlohmann/json.hpp>

namespace outbox::core {

namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxTextBytes = 1000;

constexpr std::uint64_t bit_of(std::uint32_t consumer) {
    return std::uint64_t{1} << consumer;
}

ErrorInfo bad_line(std::string what) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(what)};
}

Result<std::string> text_field(const nlohmann::json& object, const char* name) {
    const auto found = object.find(name);
    if (found == object.end() || found->is_null()) return std::string();
    if (!found->is_string()) return bad_line(std::string("\"") + name + "\" must be a string");
    auto text = found->get<std::string>();
    if (text.size() > kMaxTextBytes)
        return bad_line(std::string("\"") + name + "\" is longer than 1000 bytes");
    return text;
}

Result<std::optional<std::int64_t>> number_field(const nlohmann::json& object, const char* name) {
    const auto found = object.find(name);
    if (found == object.end() || found->is_null()) return std::optional<std::int64_t>();
    const std::string quoted = std::string("\"") + name + "\"";
    if (!found->is_number_integer() ||
        (found->is_number_unsigned() && found->get<std::uint64_t>() > std::uint64_t{INT64_MAX}))
        return bad_line(quoted + " must be a whole number");
    const auto number = found->get<std::int64_t>();
    if (number < 0) return bad_line(quoted + " must not be negative");
    return std::optional(number);
}

Result<JournalState> state_field(const nlohmann::json& object) {
    auto text = text_field(object, "state");
    if (!text.ok()) return text.error();
    if (text->empty() || *text == "committed") return JournalState::kCommitted;
    if (*text == "intent") return JournalState::kIntent;
    if (*text == "rolled_back") return JournalState::kRolledBack;
    return bad_line("\"state\" must be \"intent\", \"committed\" or \"rolled_back\"");
}

}  // namespace

Result<JournalLine> parse_journal_line(std::string_view line) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (object.is_discarded() || !object.is_object())
        return bad_line("not a JSON object; expected {\"id\":\"...\",\"key\":\"...\",\"n\":1}");
    JournalLine out;
    auto id = text_field(object, "id");
    if (!id.ok()) return id.error();
    if (id->empty()) return bad_line("\"id\" is missing or empty");
    out.id = std::move(*id);
    auto key = text_field(object, "key");
    if (!key.ok()) return key.error();
    out.key = std::move(*key);
    auto consumer = text_field(object, "consumer");
    if (!consumer.ok()) return consumer.error();
    out.consumer = std::move(*consumer);
    const auto n = number_field(object, "n");
    if (!n.ok()) return n.error();
    out.n = *n;
    const auto at = number_field(object, "at");
    if (!at.ok()) return at.error();
    out.at = *at;
    if (const auto applied = object.find("applied");
        applied != object.end() && !applied->is_null()) {
        if (!applied->is_boolean()) return bad_line("\"applied\" must be true or false");
        out.applied = applied->get<bool>();
    }
    auto state = state_field(object);
    if (!state.ok()) return state.error();
    out.state = *state;
    return out;
}

std::uint32_t TextTable::find(std::string_view text) const {
    if (slots_.empty()) return kNone;
    return slots_[slot_of(text, std::hash<std::string_view>{}(text))];
}

std::uint32_t TextTable::add(std::string_view text) {
    if (rows_.size() * 2 >= slots_.size()) grow();
    const std::uint64_t hash = std::hash<std::string_view>{}(text);
    std::uint32_t& slot = slots_[slot_of(text, hash)];
    if (slot != kNone) return slot;
    if (blocks_.empty() || blocks_.back().capacity() - blocks_.back().size() < text.size())
        blocks_.emplace_back().reserve(std::max(kBlockBytes, text.size()));
    std::string& block = blocks_.back();
    const std::size_t start = block.size();
    block.append(text);
    slot = size();
    rows_.push_back({hash, block.data() + start, static_cast<std::uint32_t>(text.size())});
    return slot;
}

std::string_view TextTable::text(std::uint32_t number) const {
    return {rows_[number].data, rows_[number].size};
}

std::size_t TextTable::slot_of(std::string_view text, std::uint64_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = hash & mask;
    while (slots_[slot] != kNone) {
        const Row& row = rows_[slots_[slot]];
        if (row.hash == hash && std::string_view(row.data, row.size) == text) break;
        slot = (slot + 1) & mask;
    }
    return slot;
}

void TextTable::grow() {
    slots_.assign(std::max<std::size_t>(64, slots_.size() * 2), kNone);
    const std::size_t mask = slots_.size() - 1;
    for (std::uint32_t number = 0; number < size(); ++number) {
        std::size_t slot = rows_[number].hash & mask;
        while (slots_[slot] != kNone) slot = (slot + 1) & mask;
        slots_[slot] = number;
    }
}

Verifier::Item& Verifier::item(std::string_view id) {
    const std::uint32_t number = ids_.add(id);
    if (number == items_.size()) items_.emplace_back();
    return items_[number];
}

Status Verifier::produced(const JournalLine& line) {
    Item& event = item(line.id);
    const std::uint32_t key = line.key.empty() ? TextTable::kNone : keys_.add(line.key);
    if (event.produced && (event.key != key || event.n != line.n))
        return bad_line("event " + line.id + " was produced before with another key or n");
    event.produced = true;
    event.key = key;
    event.n = line.n;
    if (line.state == JournalState::kCommitted) event.committed = true;
    if (line.state == JournalState::kRolledBack) event.rolled_back = true;
    return {};
}

void Verifier::dead_letter(std::string_view id, bool unmatched) {
    ++verdict_.dead_letters;
    Item& event = item(id);
    ++event.dead;
    event.unmatched = event.unmatched || unmatched;
}

Result<std::uint32_t> Verifier::consumer_number(std::string_view name) {
    const std::uint32_t known = consumer_names_.find(name);
    if (known != TextTable::kNone) return known;
    if (consumer_names_.size() == kMaxConsumers)
        return bad_line("more than 64 consumers; verify them in several runs");
    consumers_.emplace_back();
    return consumer_names_.add(name);
}

Status Verifier::begin_received(std::string_view file_name) {
    file_ = files_.add(file_name);
    has_lines_.resize(files_.size());
    return {};
}

Status Verifier::received(const JournalLine& line) {
    has_lines_[file_] = true;
    auto consumer = consumer_number(line.consumer.empty() ? files_.text(file_) : line.consumer);
    if (!consumer.ok()) return consumer.status();
    Item& event = item(line.id);
    const std::uint32_t id = ids_.find(line.id);
    note_attempt(id, *consumer, line);
    if (line.state == JournalState::kRolledBack) return {};

    if (!event.produced && !event.ghost) {
        event.key = line.key.empty() ? TextTable::kNone : keys_.add(line.key);
        event.n = line.n;
    }
    const bool may_exist = event.committed || (event.produced && !event.rolled_back);
    if (!may_exist && !event.ghost) {
        event.ghost = true;
        keep_fault(VerifyFault::Kind::kGhost, ++verdict_.ghosts, id, *consumer);
    }
    // A repeat was first received at another place.
    if (line.applied.value_or(true)) check_order(id, *consumer, line.at);
    if (line.state == JournalState::kCommitted) {
        if (!line.applied) event.undecided |= bit_of(*consumer);
        check_repeat(id, *consumer, line.applied.value_or(false));
    }
    return {};
}

// A member may have died behind its commit, and another one have tried in vain after that.
void Verifier::note_attempt(std::uint32_t id, std::uint32_t consumer, const JournalLine& line) {
    Item& event = items_[id];
    const std::uint64_t attempt = std::uint64_t{id} * kMaxConsumers + consumer;
    if (line.state == JournalState::kCommitted) {
        if (line.applied.value_or(false)) open_intents_.erase(attempt);
        return;
    }
    if (line.state == JournalState::kIntent) {
        ++consumers_[consumer].intents;
        ++open_intents_[attempt];
        event.pending |= bit_of(consumer);
        return;
    }
    const auto open = open_intents_.find(attempt);
    if (open == open_intents_.end() || --open->second > 0) return;
    open_intents_.erase(open);
    event.pending &= ~bit_of(consumer);
    // Nothing came of it: the place in the order is that of a later attempt.
    if ((event.received & bit_of(consumer)) == 0) event.placed &= ~bit_of(consumer);
}

void Verifier::check_order(std::uint32_t id, std::uint32_t consumer,
                           std::optional<std::int64_t> at) {
    Item& event = items_[id];
    const bool first = (event.placed & bit_of(consumer)) == 0;
    event.placed |= bit_of(consumer);
    if (!first || event.key == TextTable::kNone || !event.n) return;
    Consumer& here = consumers_[consumer];
    auto& in_file = here.files[file_];
    if (in_file.size() <= event.key) in_file.resize(keys_.size(), kNothing);
    if (here.latest.size() <= event.key) here.latest.resize(keys_.size());
    std::int64_t& highest = in_file[event.key];
    Latest& latest = here.latest[event.key];

    const bool is_elsewhere = latest.n != kNothing && latest.file != file_;
    const bool is_known = !is_elsewhere || (at && latest.at && *at != *latest.at);
    const bool is_late = *event.n < highest || (is_known && *event.n < latest.n);
    if (!is_known) leave_unproved(UnprovedOrder::Why::kSeveralJournals, id, consumer);
    if (*event.n == highest || (is_known && *event.n == latest.n))
        leave_unproved(UnprovedOrder::Why::kSameN, id, consumer);
    if (is_late && !event.late) {
        event.late = true;
        keep_fault(VerifyFault::Kind::kOutOfOrder, ++verdict_.out_of_order, id, consumer);
    }
    highest = std::max(highest, *event.n);
    if (*event.n >= latest.n) latest = {*event.n, at, file_};
}

void Verifier::leave_unproved(UnprovedOrder::Why why, std::uint32_t id, std::uint32_t consumer) {
    const std::uint32_t key = items_[id].key;
    if (is_unordered_.size() <= key) is_unordered_.resize(keys_.size());
    if (is_unordered_[key]) return;
    is_unordered_[key] = true;
    if (++verdict_.unordered_keys > kMaxFaultsKept) return;
    unproved_.push_back({why, std::string(ids_.text(id)), std::string(keys_.text(key)),
                         std::string(consumer_names_.text(consumer))});
}

std::vector<std::string> Verifier::with_intents_alone() const {
    std::vector<std::string> names;
    for (std::uint32_t consumer = 0; consumer < consumers_.size(); ++consumer) {
        const Consumer& one = consumers_[consumer];
        if (one.intents > 0 && one.received == 0)
            names.emplace_back(consumer_names_.text(consumer));
    }
    return names;
}

void Verifier::check_repeat(std::uint32_t id, std::uint32_t consumer, bool applied) {
    Item& event = items_[id];
    const std::uint64_t bit = bit_of(consumer);
    ++verdict_.received;
    ++consumers_[consumer].received;
    if ((event.received & bit) != 0) ++verdict_.repeats;
    event.received |= bit;
    if (!applied) return;
    if ((event.applied & bit) != 0 && !event.applied_twice) {
        event.applied_twice = true;
        keep_fault(VerifyFault::Kind::kRepeatApplied, ++verdict_.repeats_applied, id, consumer);
    }
    event.applied |= bit;
}

Result<Verdict> Verifier::finish() {
    for (std::uint32_t file = 0; file < files_.size(); ++file) {
        if (has_lines_[file]) continue;
        if (auto number = consumer_number(files_.text(file)); !number.ok()) return number.status();
    }
    const std::uint32_t consumers = consumer_names_.size();
    const std::uint64_t all =
        consumers == kMaxConsumers ? UINT64_MAX : (std::uint64_t{1} << consumers) - 1;
    for (std::uint32_t id = 0; id < items_.size(); ++id) {
        const Item& event = items_[id];
        if (exists(event)) {
            ++verdict_.produced;
            check_lost(id, all);
        }
        note_uncertain(id);
    }
    return verdict_;
}

// One of which the writer knows an intent alone was committed where any consumer received it.
bool Verifier::exists(const Item& event) {
    return event.committed || (event.produced && !event.rolled_back && event.received != 0);
}

void Verifier::note_uncertain(std::uint32_t id) {
    const Item& event = items_[id];
    const bool intent_only = event.produced && !exists(event) && !event.rolled_back;
    const std::uint64_t open = event.pending & ~event.received;
    if ((!intent_only && open == 0) || ++verdict_.uncertain > kMaxFaultsKept) return;
    if (open == 0) {
        uncertain_.push_back(fault_of(VerifyFault::Kind::kLost, id, 0));
        uncertain_.back().consumer.clear();
    }
    for (std::uint64_t left = open; left != 0; left &= left - 1) {
        uncertain_.push_back(fault_of(VerifyFault::Kind::kLost, id,
                                      static_cast<std::uint32_t>(std::countr_zero(left))));
    }
}

void Verifier::check_lost(std::uint32_t id, std::uint64_t all_consumers) {
    const Item& event = items_[id];
    if (event.unmatched) return;
    const std::uint64_t missing = all_consumers & ~event.received & ~event.pending;
    const std::uint64_t dropped =
        event.received & ~event.applied & ~event.pending & ~event.undecided;
    // A dead letter says which route gave up, not which consumer that route feeds: each one
    // excuses one consumer.
    const int unexcused = std::popcount(missing) - event.dead;
    const bool nobody_there = all_consumers == 0 && event.dead == 0;
    const bool lost = unexcused > 0 || nobody_there;
    if (lost) {
        const auto consumer = static_cast<std::uint32_t>(std::countr_zero(missing));
        keep_fault(VerifyFault::Kind::kLost, ++verdict_.lost, id, consumer);
    }
    const bool never_applied = std::popcount(dropped) > std::max(0, -unexcused);
    if (never_applied) {
        const auto consumer = static_cast<std::uint32_t>(std::countr_zero(dropped));
        keep_fault(VerifyFault::Kind::kNeverApplied, ++verdict_.never_applied, id, consumer);
    }
    const std::uint64_t excused = (lost ? 0 : missing) | (never_applied ? 0 : dropped);
    if (excused == 0 || ++verdict_.excused > kMaxFaultsKept) return;
    for (std::uint64_t left = excused; left != 0; left &= left - 1) {
        const auto kind = (missing & left & -left) != 0 ? VerifyFault::Kind::kLost
                                                        : VerifyFault::Kind::kNeverApplied;
        excused_.push_back(fault_of(kind, id, static_cast<std::uint32_t>(std::countr_zero(left))));
    }
}

void Verifier::keep_fault(VerifyFault::Kind kind, std::int64_t count, std::uint32_t id,
                          std::uint32_t consumer) {
    if (count <= kMaxFaultsKept) faults_.push_back(fault_of(kind, id, consumer));
}

VerifyFault Verifier::fault_of(VerifyFault::Kind kind, std::uint32_t id,
                               std::uint32_t consumer) const {
    const Item& event = items_[id];
    VerifyFault fault;
    fault.kind = kind;
    fault.id = ids_.text(id);
    if (event.key != TextTable::kNone) fault.key = keys_.text(event.key);
    fault.n = event.n;
    if (consumer < consumer_names_.size()) fault.consumer = consumer_names_.text(consumer);
    return fault;
}

}  // namespace outbox::core
