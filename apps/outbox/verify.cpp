#include "core/verify.h"

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "print.h"
#include "registry.h"
#include "runtime/exit_codes.h"

namespace outbox::app {
namespace {

using core::JournalLine;
using core::Verdict;
using core::Verifier;
using core::VerifyFault;

constexpr std::size_t kDeadBatch = 1'000;
constexpr std::size_t kDeadShown = 20;
constexpr std::size_t kCauseColumns = 200;

struct Report {
    Verdict verdict;
    std::vector<VerifyFault> faults;
    std::vector<DeadInfo> dead;  // the first ones
};

Status cannot_read(const std::string& path, const std::string& why) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, path + ": " + why};
}

// Feeds every line of a journal to `take`, one at a time. The last line may have been cut off by
// the death of its writer: without its newline, half an object is left out.
template <typename Take>
Status read_journal(const std::string& path, Take take) {
    std::ifstream file(path);
    if (!file) return cannot_read(path, "cannot be opened; check the name and its rights");
    std::string text;
    for (std::size_t number = 1; std::getline(file, text); ++number) {
        if (text.empty() || text == "\r") continue;
        auto line = core::parse_journal_line(text);
        if (!line.ok() && file.eof() && text.front() == '{') break;
        const Status status = line.ok() ? take(*line) : line.status();
        if (!status.ok()) {
            return cannot_read(path + ":" + std::to_string(number), status.error().message);
        }
    }
    if (file.bad()) return cannot_read(path, "cannot be read to its end");
    return {};
}

Status read_produced(const std::vector<std::string>& paths, Verifier& verifier) {
    for (const std::string& path : paths) {
        auto status =
            read_journal(path, [&](const JournalLine& line) { return verifier.produced(line); });
        if (!status.ok()) return status;
    }
    return {};
}

Status read_received(const std::vector<std::string>& paths, Verifier& verifier) {
    for (const std::string& path : paths) {
        auto status = verifier.begin_received(path);
        if (status.ok()) {
            status = read_journal(path,
                                  [&](const JournalLine& line) { return verifier.received(line); });
        }
        if (!status.ok()) return status;
    }
    return {};
}

Status read_dead_letters(const runtime::Invocation& invocation, Verifier& verifier,
                         std::vector<DeadInfo>& shown) {
    const auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return config.status();
    const auto source = make_source(*config);
    if (!source.ok()) return source.status();
    const auto operations = open_operations(*config, (*source)->table_name());
    if (!operations.ok()) return operations.status();
    for (std::int64_t last = 0;;) {
        auto batch = (*operations)->dead({}, last, kDeadBatch, false);
        if (!batch.ok()) return batch.status();
        for (DeadInfo& dead : *batch) {
            verifier.dead_letter(dead.id);
            last = dead.dead_id;
            if (shown.size() < kDeadShown) shown.push_back(std::move(dead));
        }
        if (batch->size() < kDeadBatch) return {};
    }
}

Result<Report> verify(const runtime::Invocation& invocation) {
    Verifier verifier;
    Report report;
    auto status = read_produced(invocation.options.list("produced"), verifier);
    if (status.ok() && invocation.options.given("db")) {
        status = read_dead_letters(invocation, verifier, report.dead);
    }
    if (status.ok()) status = read_received(invocation.options.list("received"), verifier);
    if (!status.ok()) return status;
    const auto verdict = verifier.finish();
    if (!verdict.ok()) return verdict.status();
    report.verdict = *verdict;
    report.faults = verifier.faults();
    return report;
}

std::string_view fault_text(VerifyFault::Kind kind) {
    switch (kind) {
        case VerifyFault::Kind::kLost:
            return "lost";
        case VerifyFault::Kind::kGhost:
            return "ghost";
        case VerifyFault::Kind::kOutOfOrder:
            return "out of order";
        case VerifyFault::Kind::kRepeatApplied:
            return "repeat applied";
    }
    return "";
}

void print_text(const Report& report) {
    for (const DeadInfo& dead : report.dead) {
        std::cout << "dead letter: " << shortened(dead.id, kCauseColumns) << " (route "
                  << dead.route << "): " << dead.error_code << ": "
                  << shortened(dead.error, kCauseColumns) << "\n";
    }
    for (const VerifyFault& fault : report.faults) {
        std::cout << fault_text(fault.kind) << ": " << shortened(fault.id, kCauseColumns);
        if (!fault.key.empty()) {
            std::cout << ", key " << shortened(fault.key, kCauseColumns) << ", n " << fault.n;
        }
        if (!fault.consumer.empty()) std::cout << ", at " << fault.consumer;
        std::cout << "\n";
    }
    const Verdict& verdict = report.verdict;
    std::cout << "lost " << verdict.lost << ", ghosts " << verdict.ghosts << ", out of order "
              << verdict.out_of_order << ", repeats applied " << verdict.repeats_applied
              << ", dead letters " << verdict.dead_letters << " (" << verdict.produced
              << " events produced, " << verdict.received << " lines received, " << verdict.repeats
              << " of them repeats, " << verdict.uncertain << " events uncertain)\n";
}

void print_json(const Report& report) {
    nlohmann::ordered_json faults = nlohmann::ordered_json::array();
    for (const VerifyFault& fault : report.faults) {
        faults.push_back({{"kind", fault_text(fault.kind)},
                          {"id", fault.id},
                          {"key", fault.key},
                          {"n", fault.n},
                          {"consumer", fault.consumer}});
    }
    nlohmann::ordered_json dead_letters = nlohmann::ordered_json::array();
    for (const DeadInfo& dead : report.dead) {
        dead_letters.push_back({{"id", dead.id},
                                {"route", dead.route},
                                {"error_code", dead.error_code},
                                {"error", dead.error}});
    }
    const Verdict& verdict = report.verdict;
    const nlohmann::ordered_json all{{"ok", verdict.ok()},
                                     {"lost", verdict.lost},
                                     {"ghosts", verdict.ghosts},
                                     {"out_of_order", verdict.out_of_order},
                                     {"repeats_applied", verdict.repeats_applied},
                                     {"dead_letters", verdict.dead_letters},
                                     {"repeats", verdict.repeats},
                                     {"produced", verdict.produced},
                                     {"received", verdict.received},
                                     {"uncertain", verdict.uncertain},
                                     {"first_faults", faults},
                                     {"first_dead_letters", dead_letters}};
    std::cout << all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

}  // namespace

int run_verify(const runtime::Invocation& invocation) {
    for (const char* name : {"produced", "received"}) {
        if (!invocation.options.given(name)) {
            return report(runtime::config_error(std::string("--") + name,
                                                "is needed at least once, with a journal's name"));
        }
    }
    const auto result = verify(invocation);
    if (!result.ok()) return report(result.error());
    if (invocation.options.flag("json")) {
        print_json(*result);
    } else {
        print_text(*result);
    }
    return result->verdict.ok() ? runtime::kExitOk : runtime::kExitFailed;
}

}  // namespace outbox::app
