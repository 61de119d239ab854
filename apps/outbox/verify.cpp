#include "verify/verify.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "consumer/operate.h"
#include "core/metrics_text.h"
#include "core/url.h"
#include "core/utf8.h"
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
    std::vector<VerifyFault> excused;
    std::vector<VerifyFault> uncertain;
    std::vector<core::UnprovedOrder> unproved;
    std::vector<DeadInfo> dead;  // the first ones
};

Status bad_file(const std::string& path, const std::string& why) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, path + ": " + why};
}

/// The lines of a journal, one at a time. The last one may have been cut off by the death of its
/// writer: without its newline, half an object is left out.
class JournalFile {
  public:
    explicit JournalFile(std::string path) : path_(std::move(path)), file_(path_) {}

    /// Reads the next line; at the end there is none.
    Status next() {
        line_.reset();
        if (!file_.is_open())
            return bad_file(path_, "cannot be opened; check the name and its rights");
        for (std::string text; std::getline(file_, text);) {
            ++number_;
            if (text.empty() || text == "\r") continue;
            auto line = core::parse_journal_line(text);
            if (!line.ok() && file_.eof() && text.front() == '{') return {};
            if (!line.ok()) return bad_line(line.error());
            line_ = std::move(*line);
            return {};
        }
        if (file_.bad()) return bad_file(path_, "cannot be read to its end");
        return {};
    }
    [[nodiscard]] const std::optional<JournalLine>& line() const { return line_; }
    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] Status bad_line(const ErrorInfo& error) const {
        return bad_file(path_ + ":" + std::to_string(number_), error.message);
    }

  private:
    std::string path_;
    std::ifstream file_;
    std::size_t number_ = 0;
    std::optional<JournalLine> line_;
};

Status read_produced(const std::vector<std::string>& paths, Verifier& verifier) {
    bool any = false;
    for (const std::string& path : paths) {
        JournalFile file(path);
        Status status = file.next();
        for (; status.ok() && file.line(); status = file.next()) {
            any = true;
            if (const Status taken = verifier.produced(*file.line()); !taken.ok())
                return file.bad_line(taken.error());
        }
        if (!status.ok()) return status;
    }
    // A verdict on nothing would pass for a proof.
    if (any) return {};
    return runtime::config_error("--produced",
                                 "names no event; do writers keep their journals there?");
}

// Journals of one consumer's members are read side by side, by what their lines say of the time.
Status read_received(const std::vector<std::string>& paths, Verifier& verifier) {
    std::vector<JournalFile> files;
    for (const std::string& path : paths) {
        if (Status status = verifier.begin_received(path); !status.ok()) return status;
        files.emplace_back(path);
        if (Status status = files.back().next(); !status.ok()) return status;
    }
    const auto is_before = [](const JournalFile& a, const JournalFile& b) {
        if (!a.line() || !b.line()) return a.line().has_value();
        return a.line()->at < b.line()->at;  // none is the least
    };
    const JournalFile* last = nullptr;
    while (true) {
        const auto file = std::min_element(files.begin(), files.end(), is_before);
        if (file == files.end() || !file->line()) return {};
        Status status = last == &*file ? Status() : verifier.begin_received(file->path());
        last = &*file;
        if (status.ok()) status = verifier.received(*file->line());
        if (!status.ok()) return file->bad_line(status.error());
        if (status = file->next(); !status.ok()) return status;
    }
}

Status read_dead_letters(const runtime::Invocation& invocation, Verifier& verifier,
                         std::vector<DeadInfo>& shown) {
    const auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return config.status();
    const auto outbox = open_outbox(*config);
    if (!outbox.ok()) return outbox.status();
    for (std::int64_t last = 0;;) {
        auto batch = outbox->operations->dead({}, last, kDeadBatch, false);
        if (!batch.ok()) return batch.status();
        for (DeadInfo& dead : *batch) {
            verifier.dead_letter(dead.id, dead.unmatched);
            last = dead.dead_id;
            if (shown.size() < kDeadShown) shown.push_back(std::move(dead));
        }
        if (batch->size() < kDeadBatch) return {};
    }
}

// A verdict without a fault passes for a proof.
Status require_a_proof(const Verifier& verifier, const Verdict& verdict) {
    if (!verdict.ok()) return {};
    if (verdict.produced == 0) {
        return runtime::config_error(
            "--produced",
            "names no event that was committed, so that nothing is proved: writers have to say "
            "what became of what they intended (\"state\":\"committed\")");
    }
    const auto silent = verifier.with_intents_alone();
    if (silent.empty()) return {};
    return runtime::config_error(
        "--received", to_printable(silent.front()) +
                          " holds intents alone, so that nothing is proved of it: consumers have "
                          "to say what became of an event (\"applied\":true)");
}

ErrorInfo bad_effects(const std::string& message) {
    return runtime::config_error("--effect-query", message);
}

ErrorInfo wrong_row(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

/// A row of the effect query: id, then key and n where the query gives them.
Result<JournalLine> effect_of(ConsumerOperations::Cells cells) {
    JournalLine line;
    line.applied = true;
    if (cells.empty() || cells.size() > 3) {
        return wrong_row("must give one to three columns: id, key, n, in the order of the effects");
    }
    line.id = cells[0].value_or("");
    if (line.id.empty()) return wrong_row("gives a row without an id");
    if (cells.size() > 1) line.key = cells[1].value_or("");
    if (cells.size() > 2 && cells[2]) {
        const std::string& text = *cells[2];
        std::int64_t n = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
        if (error != std::errc() || end != text.data() + text.size()) {
            return wrong_row("gives '" + text + "' for n, which is no whole number");
        }
        if (n < 0) return wrong_row("gives '" + text + "' for n, which must not be negative");
        line.n = n;
    }
    return line;
}

/// The consumer's own tables instead of what it says of them.
struct Effects {
    std::string url;
    std::string query;
    std::unique_ptr<ConsumerOperations> database;
};

Result<Effects> open_effects(const runtime::Invocation& invocation) {
    Effects effects;
    const bool db = invocation.options.given("effect-db");
    if (db != invocation.options.given("effect-query")) {
        return bad_effects("and --effect-db belong together: give both or none");
    }
    if (!db) return effects;
    effects.url = invocation.options.text("effect-db");
    effects.query = invocation.options.text("effect-query");
    auto opened = open_consumer_sql(
        effects.url, static_cast<int>(invocation.options.integer("connect-timeout-s")),
        {invocation.options.list("owner")});
    if (!opened.ok()) return opened.error();
    effects.database = consumer::make_operations(std::move(*opened));
    return effects;
}

Status read_effects(const Effects& effects, Verifier& verifier) {
    if (Status status = verifier.begin_received("effects of " + redact(effects.url));
        !status.ok()) {
        return status;
    }
    const Status read = effects.database->read(effects.query, [&](ConsumerOperations::Cells cells) {
        const auto line = effect_of(cells);
        return line.ok() ? verifier.received(*line) : line.status();
    });
    const bool is_wrong_query = !read.ok() && read.error().code == ErrorCode::kConfigInvalid;
    return is_wrong_query ? Status(bad_effects(read.error().message)) : read;
}

Result<Report> verify(const runtime::Invocation& invocation) {
    const auto effects = open_effects(invocation);
    if (!effects.ok()) return effects.error();
    Verifier verifier;
    Report report;
    auto status = read_produced(invocation.options.list("produced"), verifier);
    if (status.ok() && invocation.options.given("db")) {
        status = read_dead_letters(invocation, verifier, report.dead);
    }
    if (status.ok() && effects->database) {
        status =
            effects->database->dead_ids([&](std::string_view id) { verifier.dead_letter(id); });
    }
    if (status.ok()) status = read_received(invocation.options.list("received"), verifier);
    if (status.ok() && effects->database) status = read_effects(*effects, verifier);
    if (!status.ok()) return status;
    const auto verdict = verifier.finish();
    if (!verdict.ok()) return verdict.status();
    if (status = require_a_proof(verifier, *verdict); !status.ok()) return status;
    report.verdict = *verdict;
    report.faults = verifier.faults();
    report.excused = verifier.excused();
    report.uncertain = verifier.uncertain();
    report.unproved = verifier.unproved_orders();
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
        case VerifyFault::Kind::kNeverApplied:
            return "never applied";
    }
    return "";
}

void print_fault(std::string_view what, const VerifyFault& fault) {
    std::cout << what << ": " << shortened(fault.id, kCauseColumns);
    if (!fault.key.empty()) {
        std::cout << ", key " << shortened(fault.key, kCauseColumns);
        if (fault.n) std::cout << ", n " << *fault.n;
    }
    if (!fault.consumer.empty()) std::cout << ", at " << to_printable(fault.consumer);
    std::cout << "\n";
}

nlohmann::ordered_json json_of(std::string_view what, const std::vector<VerifyFault>& faults) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const VerifyFault& fault : faults) {
        list.push_back({{"kind", what.empty() ? fault_text(fault.kind) : what},
                        {"id", fault.id},
                        {"key", fault.key},
                        {"n", fault.n ? nlohmann::ordered_json(*fault.n) : nullptr},
                        {"consumer", fault.consumer}});
    }
    return list;
}

void print_unproved(const core::UnprovedOrder& one) {
    const bool is_same_n = one.why == core::UnprovedOrder::Why::kSameN;
    std::cout << "order not proved: key " << shortened(one.key, kCauseColumns) << ", at "
              << to_printable(one.consumer) << ": "
              << (is_same_n ? "another event of it has the n of "
                            : "another journal, too, has an event of it, and their lines do not "
                              "both say when (\"at\"): ")
              << shortened(one.id, kCauseColumns) << "\n";
}

nlohmann::ordered_json json_of(const std::vector<core::UnprovedOrder>& orders) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const core::UnprovedOrder& one : orders) {
        const bool is_same_n = one.why == core::UnprovedOrder::Why::kSameN;
        list.push_back({{"why", is_same_n ? "same_n" : "several_journals"},
                        {"id", one.id},
                        {"key", one.key},
                        {"consumer", one.consumer}});
    }
    return list;
}

void print_text(const Report& report) {
    for (const DeadInfo& dead : report.dead) {
        std::cout << "dead letter: " << shortened(dead.id, kCauseColumns) << " (route "
                  << to_printable(dead.route) << "): " << to_printable(dead.error_code) << ": "
                  << shortened(dead.error, kCauseColumns) << "\n";
    }
    for (const VerifyFault& fault : report.faults) print_fault(fault_text(fault.kind), fault);
    for (const VerifyFault& one : report.excused) print_fault("excused", one);
    if (report.verdict.excused > 0) {
        std::cout
            << report.verdict.excused
            << " missing or never applied at a consumer and not counted, for dead letters of the "
               "same events. A letter says its route (outbox dead show ID) and not which "
               "consumer that feeds: one of another route hides a loss\n";
    }
    for (const VerifyFault& one : report.uncertain) print_fault("uncertain", one);
    for (const core::UnprovedOrder& one : report.unproved) print_unproved(one);
    const Verdict& verdict = report.verdict;
    std::cout << "lost " << verdict.lost << ", ghosts " << verdict.ghosts << ", out of order "
              << verdict.out_of_order << ", repeats applied " << verdict.repeats_applied
              << ", never applied " << verdict.never_applied << ", dead letters "
              << verdict.dead_letters << " (" << verdict.produced << " events produced, "
              << verdict.received << " lines received, " << verdict.repeats << " of them repeats, "
              << verdict.uncertain << " events uncertain"
              << (verdict.excused > 0 ? ", " + std::to_string(verdict.excused) + " excused" : "")
              << (verdict.unordered_keys > 0
                      ? ", order of " + std::to_string(verdict.unordered_keys) + " keys not proved"
                      : "")
              << ")\n";
}

void print_json(const Report& report) {
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
                                     {"never_applied", verdict.never_applied},
                                     {"dead_letters", verdict.dead_letters},
                                     {"repeats", verdict.repeats},
                                     {"produced", verdict.produced},
                                     {"received", verdict.received},
                                     {"uncertain", verdict.uncertain},
                                     {"excused", verdict.excused},
                                     {"unordered_keys", verdict.unordered_keys},
                                     {"first_faults", json_of({}, report.faults)},
                                     {"first_excused", json_of("excused", report.excused)},
                                     {"first_uncertain", json_of("uncertain", report.uncertain)},
                                     {"first_unordered", json_of(report.unproved)},
                                     {"first_dead_letters", dead_letters}};
    app::print_json(all);
}

// Renamed into its place, so that nobody reads a half of it.
Status write_textfile(const std::string& path, const std::string& produced,
                      const Verdict& verdict) {
    MetricsText page;
    const auto gauge = [&](const std::string& name, std::string_view help, std::int64_t value) {
        page.metric("outbox_verify_" + name, "gauge", help);
        page.sample({{"produced", produced}}, std::to_string(value));
    };
    gauge("lost", "Events that were committed and are neither received nor dead letters.",
          verdict.lost);
    gauge("ghosts", "Events that were received and never committed.", verdict.ghosts);
    gauge("out_of_order", "Events received after a later one of their key.", verdict.out_of_order);
    gauge("repeats_applied", "Events applied more than once.", verdict.repeats_applied);
    gauge("never_applied", "Events dropped as repeats by a consumer that did not apply them.",
          verdict.never_applied);
    gauge("dead_letters", "Events given up on.", verdict.dead_letters);
    gauge("excused",
          "Events missing or never applied at a consumer, for a dead letter of some route.",
          verdict.excused);
    gauge("uncertain",
          "Events of which an intent alone is known at some place: a consumer's that nothing ended "
          "may be a loss.",
          verdict.uncertain);
    gauge("unordered_keys", "Keys, some order of which the journals do not say.",
          verdict.unordered_keys);
    gauge("produced", "Events that were committed.", verdict.produced);
    gauge("time_seconds", "When this was found, since 1970.",
          std::chrono::duration_cast<std::chrono::seconds>(
              std::chrono::system_clock::now().time_since_epoch())
              .count());
    const std::string beside = path + ".tmp";
    errno = 0;
    std::ofstream file(beside, std::ios::binary | std::ios::trunc);
    file << page.text();
    file.close();
    std::error_code error(file ? 0 : errno, std::generic_category());
    if (file) std::filesystem::rename(beside, path, error);
    if (file && !error) return {};
    const std::string why = error ? " (" + error.message() + ")" : "";
    std::filesystem::remove(beside, error);
    return bad_file(path, "cannot be written" + why + "; check folder, rights and free space");
}

}  // namespace

int run_verify(const runtime::Invocation& invocation) {
    for (const char* name : {"produced", "received"}) {
        const bool effects =
            std::string_view(name) == "received" && invocation.options.given("effect-query");
        if (!invocation.options.given(name) && !effects) {
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
    if (invocation.options.given("textfile")) {
        const Status written =
            write_textfile(invocation.options.text("textfile"),
                           invocation.options.list("produced").front(), result->verdict);
        if (!written.ok()) return report(written.error());
    }
    return result->verdict.ok() ? runtime::kExitOk : runtime::kExitFailed;
}

}  // namespace outbox::app
