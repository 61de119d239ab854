#include "tests/stream/stream_relay.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>

#include "tests/support/eventually.h"
#include "verify/verify.h"

namespace outbox::test {
namespace {

void shell(const std::string& command) {
    if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
}

// Files may change and vanish meanwhile, which tar tells by its exit code: the pipe's is the other
// one's. Slots are not part of a backup.
void copy_running(const std::filesystem::path& from, const std::filesystem::path& to) {
    shell("mkdir -p " + to.string() + " && tar -C " + from.string() +
          " --warning=no-file-changed --warning=no-file-removed --warning=no-file-shrank"
          " --exclude=./postmaster.pid --exclude='./pg_replslot/*' -cf - . | tar -C " +
          to.string() + " -xpf -");
}

// As the server's own files are.
void give_to_owner(const std::filesystem::path& data, const std::filesystem::path& file) {
    shell("chown --reference=" + (data / "PG_VERSION").string() + " " + file.string());
}

}  // namespace

void base_backup(const PostgresServer& server, const std::filesystem::path& to) {
    Pg pg(server.url());
    const bool old = PQserverVersion(pg.handle()) < 150'000;
    pg.exec(old ? "SELECT pg_start_backup('copy', true, false)"
                : "SELECT pg_backup_start('copy', true)");
    copy_running(server.data(), to);
    const std::string label = pg.value(old ? "SELECT labelfile FROM pg_stop_backup(false, false)"
                                           : "SELECT labelfile FROM pg_backup_stop(false)");
    std::ofstream(to / "backup_label") << label;
    give_to_owner(to, to / "backup_label");
    copy_running(server.data() / "pg_wal", to / "pg_wal");
}

void configure(const std::filesystem::path& data, const std::string& lines) {
    std::ofstream(data / "postgresql.conf", std::ios::app) << lines << '\n';
}

void touch(const std::filesystem::path& data, const std::string& name) {
    std::ofstream(data / name).close();
    give_to_owner(data, data / name);
}

void replace_data(const PostgresServer& server, const std::filesystem::path& from) {
    std::filesystem::remove_all(server.data());
    shell("cp -a " + from.string() + " " + server.data().string());
}

void StreamRelay::use_database(const std::string& url) {
    url_ = url;
    const Finished migrated = run({.command = {OUTBOX, "migrate", "--db", url_}});
    if (migrated.status.code != 0) throw std::runtime_error(migrated.err);
}

void StreamRelay::start(const std::vector<std::string>& more, const std::string& mode) {
    std::vector<std::string> command{
        OUTBOX,    "relay",   "--from",           url_,
        "--to",    "stdout:", "--mode",           mode,
        "--admin", "off",     "--max-unrecorded", std::to_string(kMaxUnrecorded)};
    command.insert(command.end(), more.begin(), more.end());
    relays_.emplace_back(ProcessOptions{.command = command});
    joins_told_ = 0;
}

void StreamRelay::kill_relay() {
    relay().kill(SIGKILL);
    if (!relay().wait(kDeadline)) throw std::runtime_error("SIGKILL did not end the relay");
}

void StreamRelay::stop_relay() {
    EXPECT_EQ(relay().stop(kDeadline), (ExitStatus{0, 0})) << relay().stderr_text();
}

int StreamRelay::count_in_log(const std::string& text) {
    const std::string log = relay().stderr_text();
    int count = 0;
    for (std::size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) {
        ++count;
    }
    return count;
}

testing::AssertionResult StreamRelay::joins() {
    int told = 0;
    const auto result = eventually(kDeadline, "the stream is joined", [&] {
        told = count_in_log("route=stdout path=stream");
        return told > joins_told_;
    });
    joins_told_ = told;
    return result;
}

testing::AssertionResult StreamRelay::tells(const std::string& text) {
    return eventually(kDeadline, "the log tells: " + text, [&] { return count_in_log(text) > 0; });
}

testing::AssertionResult StreamRelay::loses_its_slot() {
    return eventually(kDeadline, "its slot is gone", [&] { return slots() == 0; });
}

ExitStatus StreamRelay::ends() {
    return relay().wait(kDeadline).value_or(ExitStatus{});
}

void StreamRelay::emit(int first, int last) {
    Pg(url_).exec(
        "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k' || n % 5, "
        "jsonb_build_object('n', n) FROM generate_series(" +
        std::to_string(first) + ", " + std::to_string(last) + ") n");
}

testing::AssertionResult StreamRelay::delivers_all() {
    return eventually(kDeadline, "all is delivered", [&] {
        return Pg(url_).value("SELECT NOT EXISTS (SELECT FROM outbox_events)") == "t";
    });
}

testing::AssertionResult StreamRelay::commits(const Load& load, int more) {
    const long long target = load.committed() + more;
    return eventually(kDeadline, "more events are committed",
                      [&] { return load.committed() >= target; });
}

pid_t StreamRelay::walsender() {
    return static_cast<pid_t>(
        Pg(url_).number(std::string(kSlots) + "active_pid" + kOfDatabase + " AND active"));
}

// A killed relay may have left half a line.
std::vector<StreamRelay::Line> StreamRelay::lines() const {
    std::vector<Line> found;
    for (const Process& relay : relays_) {
        std::istringstream text(relay.stdout_text());
        for (std::string line; std::getline(text, line) && !text.eof();) {
            const auto json = nlohmann::json::parse(line);
            found.push_back({json["id"].get<std::string>(), json["key"].get<std::string>(),
                             json["payload"]["n"].get<int>()});
        }
    }
    return found;
}

std::vector<int> StreamRelay::numbers() const {
    std::vector<int> found;
    for (const Line& line : lines()) found.push_back(line.n);
    return found;
}

void StreamRelay::expect_numbers(int last, std::size_t max_repeats) {
    std::set<int> seen;
    std::map<std::string, int> highest;
    const std::vector<Line> all = lines();
    for (const Line& line : all) {
        if (!seen.insert(line.n).second) continue;
        EXPECT_GT(line.n, highest[line.key]) << "key " << line.key;
        highest[line.key] = line.n;
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(last));
    EXPECT_TRUE(seen.empty() || (*seen.begin() == 1 && *seen.rbegin() == last));
    EXPECT_LE(all.size() - seen.size(), max_repeats) << "repeats";
}

void StreamRelay::expect_promises(const Load& load, long long max_repeats) {
    core::Verifier verifier;
    for (const core::JournalLine& line : load.produced()) {
        ASSERT_TRUE(verifier.produced(line).ok());
    }
    ASSERT_TRUE(verifier.begin_received("stdout").ok());
    for (const Line& event : lines()) {
        core::JournalLine line;
        line.id = event.id;
        line.key = event.key;
        line.n = event.n;
        ASSERT_TRUE(verifier.received(line).ok());
    }
    const Result<core::Verdict> verdict = verifier.finish();
    ASSERT_TRUE(verdict.ok());
    EXPECT_EQ(verdict->lost, 0);
    for (const core::VerifyFault& fault : verifier.faults()) {
        ADD_FAILURE() << "fault " << static_cast<int>(fault.kind) << ": event " << fault.id
                      << ", key " << fault.key << ", n " << fault.n.value_or(-1)
                      << "; the database is at n = "
                      << Pg(url_).value("SELECT n FROM load_rows WHERE key = '" + fault.key + "'");
    }
    EXPECT_EQ(verdict->ghosts, 0);
    EXPECT_EQ(verdict->out_of_order, 0);
    EXPECT_LE(verdict->repeats, max_repeats);
    EXPECT_GT(verdict->produced, 0);
}

}  // namespace outbox::test
