// Journals of any bytes, as `outbox verify` reads them: a line that was taken means the same when
// it is written again; who received all that was produced, in order, is told so, and who did not,
// that. The first byte says what is asked.

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_text.h"
#include "tests/fuzz/bytes.h"
#include "verify/verify.h"

namespace {

using namespace outbox;
using core::JournalLine;
using core::JournalState;
using core::Verdict;
using core::Verifier;
using test::check;

std::string written(const JournalLine& line) {
    std::string out = "{\"id\":";
    append_json_string(line.id, out);
    out += ",\"key\":";
    append_json_string(line.key, out);
    out += ",\"consumer\":";
    append_json_string(line.consumer, out);
    if (line.at) out += ",\"at\":" + std::to_string(*line.at);
    if (line.n) out += ",\"n\":" + std::to_string(*line.n);
    if (line.applied) out += *line.applied ? ",\"applied\":true" : ",\"applied\":false";
    constexpr std::string_view kStates[] = {"intent", "committed", "rolled_back"};
    out += ",\"state\":\"";
    out += kStates[static_cast<std::size_t>(line.state)];
    return out + "\"}";
}

std::vector<JournalLine> read(std::string_view text) {
    std::vector<JournalLine> lines;
    while (!text.empty()) {
        const std::string_view one = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), one.size() + 1));
        auto line = core::parse_journal_line(one);
        if (!line.ok()) {
            check(!line.error().message.empty());
            continue;
        }
        const auto again = core::parse_journal_line(written(*line));
        check(again.ok() && again->id == line->id && again->key == line->key &&
              again->n == line->n && again->applied == line->applied &&
              again->consumer == line->consumer && again->at == line->at &&
              again->state == line->state);
        lines.push_back(std::move(*line));
    }
    return lines;
}

Verdict verdict_of(const std::vector<JournalLine>& produced,
                   const std::vector<JournalLine>& received) {
    Verifier verifier;
    for (const JournalLine& line : produced) check(verifier.produced(line).ok());
    check(verifier.begin_received("r").ok());
    for (const JournalLine& line : received) check(verifier.received(line).ok());
    const auto verdict = verifier.finish();
    check(verdict.ok());
    return *verdict;
}

// As they are, some produced, some given up on, some received.
void judge_anything(const std::vector<JournalLine>& lines) {
    Verifier verifier;
    const std::size_t third = lines.size() / 3;
    for (std::size_t i = 0; i < third; ++i) static_cast<void>(verifier.produced(lines[i]));
    if (third > 0) verifier.dead_letter(lines[third].id, lines[third].key.empty());
    check(verifier.begin_received("r").ok());
    for (std::size_t i = third; i < lines.size(); ++i) {
        static_cast<void>(verifier.received(lines[i]));
    }
    const auto verdict = verifier.finish();
    if (!verdict.ok()) return;
    check(verdict->lost + verdict->excused >= 0 && verdict->lost <= verdict->produced);
    check(verdict->repeats <= verdict->received && verdict->repeats_applied <= verdict->repeats);
    check(verifier.faults().size() <= 5 * Verifier::kMaxFaultsKept);
    check(verdict->ok() == verifier.faults().empty());
}

// Those of them that one producer could have committed, in the order of each key.
std::vector<JournalLine> committed_of(std::vector<JournalLine> lines) {
    std::set<std::string> ids;
    std::erase_if(lines, [&](JournalLine& line) {
        line.state = JournalState::kCommitted;
        line.applied = true;
        line.consumer.clear();
        return !ids.insert(line.id).second;
    });
    std::sort(lines.begin(), lines.end(), [](const JournalLine& a, const JournalLine& b) {
        return a.n.value_or(0) < b.n.value_or(0);
    });
    return lines;
}

// One case of what is known beforehand: a verifier takes some memory, and so a while.
void judge_known(const std::vector<JournalLine>& committed, int which) {
    const auto count = static_cast<std::int64_t>(committed.size());
    const JournalLine& first = committed.front();
    const JournalLine& last = committed.back();
    const std::vector<JournalLine> others(committed.begin() + 1, committed.end());
    std::vector<JournalLine> received = committed;
    switch (which) {
        case 0: {
            const Verdict all = verdict_of(committed, committed);
            check(all.ok() && all.produced == count && all.received == count && all.repeats == 0);
            break;
        }
        case 1: {
            received.push_back(last);
            const Verdict twice = verdict_of(committed, received);
            check(twice.repeats == 1 && twice.repeats_applied == 1 && twice.lost == 0);
            break;
        }
        case 2:
            check(verdict_of(committed, others).lost == 1);
            break;
        case 3:
            check(verdict_of(others, committed).ghosts == 1);
            break;
        default: {
            const bool ordered = first.n && last.n && *first.n < *last.n && !first.key.empty();
            if (!ordered || first.key != last.key) return;
            received = others;
            received.push_back(first);
            const Verdict late = verdict_of(committed, received);
            check(late.out_of_order == 1 && late.lost == 0 && late.repeats == 0);
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const outbox::test::Exactly copy({reinterpret_cast<const char*>(data) + 1, size - 1});
    const std::vector<JournalLine> lines = read(copy);
    if (lines.empty()) return 0;
    const int which = data[0] % 6;
    if (which == 5) {
        judge_anything(lines);
    } else {
        judge_known(committed_of(lines), which);
    }
    return 0;
}
