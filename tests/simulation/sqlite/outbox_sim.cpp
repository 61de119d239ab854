// Replays one history of the simulation, or runs many and shows the smallest form of what fails.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tests/simulation/sqlite/files.h"
#include "tests/simulation/sqlite/receiving.h"
#include "tests/simulation/sqlite/shrink.h"

namespace outbox::simulation {
namespace {

constexpr int kExitFound = 1;
constexpr int kExitUsage = 2;
constexpr unsigned kMaxJobs = 256;

struct Told {  // by a job, of each history
    std::uint64_t seed = 0;
    std::uint64_t events = 0;
    bool failed = false;
};

struct Totals {
    std::uint64_t histories = 0;
    std::uint64_t events = 0;
    std::vector<std::uint64_t> failed;
};

struct Job {
    pid_t pid = -1;
    int told = -1;
};

void tell(int to, const Told& told) {
    if (::write(to, &told, sizeof told) != sizeof told) ::_exit(kExitUsage);
}

/// Which side a history is of.
enum class Side : std::uint8_t { kRelays, kReceiving };

Told play(Side side, const Case& history) {
    if (side == Side::kReceiving) {
        const auto settings = SqliteReceivingSettings::from_seed(history.seed);
        const auto verdict = SqliteReceiving(settings).run();
        return {history.seed, verdict.events, !verdict.violations.empty()};
    }
    const SqliteVerdict verdict = SqliteHistory(settings_of(history)).run();
    return {history.seed, verdict.events, !verdict.violations.empty()};
}

// Every `step`-th seed from the history's on, until one fails.
[[noreturn]] void work(int to, Side side, Case history, std::uint64_t end, std::uint64_t step) {
    for (; history.seed < end; history.seed += step) {
        const Told told = play(side, history);
        tell(to, told);
        if (told.failed) break;
    }
    std::exit(0);  // with its folder
}

Job begin(Side side, const Case& history, std::uint64_t end, std::uint64_t step) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe for a job");
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("no process for a job");
    if (pid == 0) {
        ::close(ends[0]);
        work(ends[1], side, history, end, step);
    }
    ::close(ends[1]);
    return {pid, ends[0]};
}

std::string with_commas(std::uint64_t number) {
    std::string text = std::to_string(number);
    for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
        text.insert(static_cast<std::size_t>(at), ",");
    }
    return text;
}

class Progress {
  public:
    void show(const Totals& totals, std::uint64_t of, bool is_last = false) {
        const auto now = std::chrono::steady_clock::now();
        if (!is_last && (!is_terminal_ || now - shown_ < std::chrono::seconds(1))) return;
        shown_ = now;
        const std::chrono::duration<double, std::ratio<60>> minutes = now - began_;
        std::fprintf(stderr, "%s%s of %s histories, %s events, %.0f histories a minute%s",
                     is_terminal_ ? "\r" : "", with_commas(totals.histories).c_str(),
                     with_commas(of).c_str(), with_commas(totals.events).c_str(),
                     static_cast<double>(totals.histories) / minutes.count(), is_last ? "\n" : "");
    }

  private:
    const bool is_terminal_ = ::isatty(STDERR_FILENO) != 0;
    const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
    std::chrono::steady_clock::time_point shown_;
};

// What each job tells is shorter than what a pipe takes at once, and is read whole.
Totals run_many(Side side, Case history, std::uint64_t count, unsigned jobs) {
    std::vector<Job> running;
    const std::uint64_t end = history.seed + count;
    for (unsigned i = 0; i < jobs; ++i, ++history.seed) {
        running.push_back(begin(side, history, end, jobs));
    }
    Totals totals;
    Progress progress;
    while (!running.empty()) {
        for (auto job = running.begin(); job != running.end();) {
            Told told;
            if (::read(job->told, &told, sizeof told) == sizeof told) {
                ++totals.histories;
                totals.events += told.events;
                if (told.failed) totals.failed.push_back(told.seed);
                ++job;
                continue;
            }
            int status = 0;
            ::waitpid(job->pid, &status, 0);
            ::close(job->told);
            job = running.erase(job);
            if (status != 0) throw std::runtime_error("a job ended before it was done");
        }
        progress.show(totals, count);
    }
    progress.show(totals, count, true);
    return totals;
}

// Without the name of the folder, which is another one in each process.
void print(const std::vector<std::string>& lines, const char* indent = "") {
    const std::string& folder = HistoryFiles::of_process().folder();
    for (std::string line : lines) {
        for (auto at = line.find(folder); at != std::string::npos; at = line.find(folder, at)) {
            line.replace(at, folder.size(), "FOLDER");
        }
        std::printf("%s%s\n", indent, line.c_str());
    }
}

int show(const Case& history) {
    SqliteSettings settings = settings_of(history);
    settings.settings.tracing = true;
    const SqliteVerdict verdict = SqliteHistory(settings).run();
    print(verdict.trace);
    std::printf("%s: %zu events, %zu repeats, %zu dead letters, %" PRIu64 " terms, %.1f s\n",
                history.text().c_str(), verdict.events, verdict.repeats, verdict.dead,
                verdict.epochs, static_cast<double>(verdict.ended_us) / 1e6);
    print(verdict.violations, "  ");
    return verdict.violations.empty() ? 0 : kExitFound;
}

int show_receiving(std::uint64_t seed) {
    SqliteReceivingSettings settings = SqliteReceivingSettings::from_seed(seed);
    settings.settings.tracing = true;
    const ReceivingVerdict verdict = SqliteReceiving(settings).run();
    print(verdict.trace);
    std::printf("--receiving --seed %" PRIu64
                ": %zu events, %zu effects, %zu repeats, %zu dead letters, %.1f s\n",
                seed, verdict.events, verdict.effects, verdict.repeats, verdict.dead,
                static_cast<double>(verdict.ended_us) / 1e6);
    print(verdict.violations, "  ");
    return verdict.violations.empty() ? 0 : kExitFound;
}

int run(int argc, char** argv) {
    CLI::App app{"Relays over SQLite and a simulated broker, from one seed."};
    app.footer(
        "The timeline of one history:    outbox-sim --seed 7\n"
        "Many, two at a time:            outbox-sim --seeds 100000 --jobs 2\n"
        "What fails is made as small as may be, shown, and replayed by the line that is printed.\n"
        "Consumers, idempotency, sagas:  outbox-sim --receiving --seeds 10000 --jobs 2\n"
        "Exit code: 0 where every promise is kept, 1 where one is not, 2 for bad usage.");
    Case history;
    std::uint64_t count = 0;
    unsigned jobs = 1;
    auto* const one = app.add_option("--seed", history.seed, "Replays this one");
    app.add_option("--seeds", count, "Runs so many")->excludes(one)->check(CLI::PositiveNumber);
    app.add_option("--first", history.seed, "From this one on")->excludes(one);
    app.add_option("--jobs", jobs, "At a time")->excludes(one)->check(CLI::Range(1U, kMaxJobs));
    bool receiving = false;
    auto* const side = app.add_flag(
        "--receiving", receiving, "Histories with the receiving side, which are not made smaller");
    app.add_option("--kind", history.kind,
                   "Has this kind of chaos alone; quiet: none, but events that fail")
        ->excludes(side);
    std::string names;
    for (const std::string_view name : reductions())
        names += (names.empty() ? "" : ", ") + std::string(name);
    app.add_option("--less", history.less, "Of these, in this order: " + names)
        ->delimiter(',')
        ->needs(one)
        ->excludes(side);
    app.add_option("--chance", history.chance, "Another chance in the same settings")
        ->needs(one)
        ->excludes(side);
    try {
        app.parse(argc, argv);
        if (count == 0 && one->empty()) throw CLI::RequiredError("--seed or --seeds");
        if (!receiving) static_cast<void>(settings_of(history));  // throws for bad usage
        if (count == 0) return receiving ? show_receiving(history.seed) : show(history);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : kExitUsage;
    } catch (const std::invalid_argument& error) {
        std::fprintf(stderr, "outbox-sim: %s\n", error.what());
        return kExitUsage;
    }
    Totals totals = run_many(receiving ? Side::kReceiving : Side::kRelays, history, count, jobs);
    if (totals.failed.empty()) return 0;
    std::ranges::sort(totals.failed);
    if (receiving) return show_receiving(totals.failed.front());
    std::fprintf(stderr, "seed %" PRIu64 " fails and is made smaller\n", totals.failed.front());
    history.seed = totals.failed.front();
    return show(shrink(history));
}

}  // namespace
}  // namespace outbox::simulation

int main(int argc, char** argv) {
    try {
        return outbox::simulation::run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "outbox-sim: %s\n", error.what());
        return 3;
    }
}
