// Three routes, of which one or two are down at random, while transactions roll back, tenants mix,
// and routes are added, renamed and retired between one relay and the next. SOAK_EVENTS says how
// many events (50,000 unless set), as `script/test --full` does.

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/full_run.h"
#include "tests/support/http_client.h"
#include "tests/support/pg.h"
#include "tests/support/process.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kDeadline = 600s;
constexpr std::chrono::duration<double> kPhaseAtLeast{4};
constexpr int kKeysOfWriter = 100;
constexpr int kWriters = 2;

long long events_wanted() {
    const char* text = std::getenv("SOAK_EVENTS");
    return text == nullptr ? SOAK_EVENTS_DEFAULT : std::atoll(text);
}

// Writers with keys of their own, so that `n` rises by one within each key. Some rows are of a
// tenant that nobody relays; some transactions and some savepoints leave nothing but positions.
class Writers {
  public:
    explicit Writers(std::string url) : url_(std::move(url)) {}
    ~Writers() { stop(); }
    Writers(const Writers&) = delete;
    Writers& operator=(const Writers&) = delete;

    void start() {
        for (int writer = 0; writer < kWriters; ++writer) {
            threads_.emplace_back([this, writer] { write(writer); });
        }
    }
    // Lets them commit up to this many in all.
    void allow(long long events) { allowed_ = events; }
    long long committed() const { return committed_; }
    void stop() {
        stopping_ = true;
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
    }
    // How many events each key has; after `stop`.
    const std::map<std::string, long long>& keys() const { return keys_; }

  private:
    void write(int writer) {
        std::mt19937 random(static_cast<unsigned>(writer) + 1);
        std::array<long long, kKeysOfWriter> last{};
        Pg pg(url_);
        while (!stopping_) {
            if (committed_ >= allowed_) {
                std::this_thread::sleep_for(1ms);
                continue;
            }
            auto next = last;
            std::string keys;
            std::string numbers;
            std::string tenants;
            long long events = 0;
            for (int i = 0; i < 200; ++i) {
                const bool other = random() % 20 == 0;
                const unsigned key = random() % kKeysOfWriter;
                const std::string comma = i == 0 ? "" : ",";
                keys += comma + name(writer, key);
                numbers += comma + std::to_string(other ? 0 : ++next[key]);
                tenants += comma + (other ? "other" : "main");
                events += other ? 0 : 1;
            }
            const std::string insert =
                "INSERT INTO outbox_events (topic, key, tenant_id, payload) SELECT 'soak', key, "
                "tenant, jsonb_build_object('n', n) FROM unnest('{" +
                keys + "}'::text[], '{" + numbers + "}'::bigint[], '{" + tenants +
                "}'::text[]) WITH ORDINALITY AS e (key, n, tenant, place) ORDER BY place";
            pg.exec("BEGIN");
            if (random() % 5 == 0) {
                pg.exec("SAVEPOINT s");
                pg.exec(insert);
                pg.exec("ROLLBACK TO SAVEPOINT s");
            }
            pg.exec(insert);
            if (random() % 50 == 0) pg.exec("SELECT pg_sleep(0.05)");  // a late commit
            if (random() % 5 == 0) {
                pg.exec("ROLLBACK");
                continue;
            }
            pg.exec("COMMIT");
            last = next;
            committed_ += events;
        }
        const std::scoped_lock lock(mutex_);
        for (unsigned key = 0; key < kKeysOfWriter; ++key) keys_[name(writer, key)] = last[key];
    }
    static std::string name(int writer, unsigned key) {
        return "w" + std::to_string(writer) + "k" + std::to_string(key);
    }

    const std::string url_;
    std::atomic<bool> stopping_{false};
    std::atomic<long long> allowed_{0};
    std::atomic<long long> committed_{0};
    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::map<std::string, long long> keys_;
};

// A mailbox on a volume of its own, which may be away.
class Mailbox {
  public:
    explicit Mailbox(const std::string& name) : folder_(new_folder() / name) {
        std::filesystem::create_directory(folder_);
        const Finished made = run(
            {.command = {OUTBOX, "migrate", "--only", "consumer", "--db", "sqlite://" + file()}});
        if (made.status.code != 0) throw std::runtime_error(made.err);
    }
    std::string url() const { return "mailbox+sqlite://" + file(); }
    void set_up(bool up) {
        if (up == up_) return;
        std::filesystem::rename(up ? away() : folder_, up ? folder_ : away());
        up_ = up;
        since_ = Clock::now();
    }
    bool up() const { return up_; }
    Clock::time_point since() const { return since_; }

    // Of each key the numbers that arrived, in their order.
    std::map<std::string, std::vector<long long>> received() const {
        std::map<std::string, std::vector<long long>> out;
        for (const auto& row : Sqlite(file()).query(
                 "SELECT key, json_extract(CAST(payload AS text), '$.n') FROM outbox_mailbox "
                 "ORDER BY position")) {
            out[*row[0]].push_back(std::stoll(*row[1]));
        }
        return out;
    }

  private:
    static std::filesystem::path new_folder() {
        static const TemporaryFolder folder("soak");
        static int made = 0;
        const std::filesystem::path path = folder / std::to_string(++made);
        std::filesystem::create_directory(path);
        return path;
    }
    std::string file() const { return (folder_ / "mail.db").string(); }
    std::filesystem::path away() const { return folder_.string() + ".away"; }

    const std::filesystem::path folder_;
    bool up_ = true;
    Clock::time_point since_ = Clock::now();
};

class RelaySoak : public testing::TestWithParam<const char*> {
  protected:
    // A route, and since which look it has gone without progress while its destination was there
    // and there was something to send. Counted in looks, of which there are fewer where the machine
    // has no time: at most twenty a second.
    struct Route {
        std::string name;
        Mailbox* mailbox = nullptr;
        double published = -1;
        long long committed_then = 0;
        int progressed = 0;
    };

    RelaySoak() {
        const Finished migrated =
            run({.command = {OUTBOX, "migrate", "--db", url_, "--after-publish", GetParam()}});
        if (migrated.status.code != 0) throw std::runtime_error(migrated.err);
    }
    bool keeps() const { return std::string_view(GetParam()) == "keep"; }
    bool delivered_all() {
        return pg_.number(keeps()
                              ? "SELECT count(*) FROM outbox_status WHERE tenant_id = 'main' AND "
                                "status <> 'PUBLISHED'"
                              : "SELECT count(*) FROM outbox_events WHERE tenant_id = 'main'") == 0;
    }

    Process start_relay() {
        std::vector<std::string> command{
            OUTBOX,     "relay", "--from",  url_,
            "--tenant", "main",  "--admin", "127.0.0.1:" + std::to_string(admin_)};
        for (const Route& route : routes_) {
            command.insert(command.end(), {"--to", route.name + "=" + route.mailbox->url()});
        }
        for (Route& route : routes_) {
            route.published = -1;
            route.progressed = looks_;
        }
        max_rss_kb_.push_back(0);
        leads_ = false;
        // A sanitizer keeps what was freed, which is not what is measured here.
        return Process(
            {.command = command, .environment = {{"ASAN_OPTIONS", "quarantine_size_mb=1"}}});
    }
    void routes_command(std::vector<std::string> words) {
        words.insert(words.begin(), {OUTBOX, "routes"});
        words.insert(words.end(), {"--db", url_});
        const Finished done = run({.command = words});
        ASSERT_EQ(done.status.code, 0) << words[2] << ": " << done.err;
    }
    Route& route(const std::string& name) {
        return *std::find_if(routes_.begin(), routes_.end(),
                             [&](const Route& one) { return one.name == name; });
    }

    void look(Process& relay, const Writers& writers) {
        look_at_progress(writers);
        std::ifstream statm("/proc/" + std::to_string(relay.pid()) + "/statm");
        long long size = 0;
        long long resident = 0;
        statm >> size >> resident;
        max_rss_kb_.back() = std::max(max_rss_kb_.back(), resident * getpagesize() / 1024);
        if (++looks_ % 10 == 0) look_at_ledger();
    }

    void look_at_progress(const Writers& writers) {
        std::string page;
        try {
            page = http(admin_, "GET", "/metrics").body;
        } catch (const std::runtime_error&) {
            return;  // it is starting
        }
        leads_ = leads_ ||
                 page.find("outbox_leader{source=\"public.outbox_events\"} 1") != std::string::npos;
        const auto now = Clock::now();
        for (Route& route : routes_) {
            const double published = figure(page, "outbox_published_total", route.name);
            // One that is back is asked again after 5 s at the latest.
            const bool healthy = route.mailbox->up() && now - route.mailbox->since() > 6s;
            const bool idle = writers.committed() == route.committed_then;
            if (published != route.published || !healthy || idle) {
                route.published = published;
                route.committed_then = writers.committed();
                route.progressed = looks_;
                continue;
            }
            if (looks_ - route.progressed > longest_wait_) {
                longest_wait_ = looks_ - route.progressed;
                waited_ = route.name + ", " +
                          std::to_string(writers.committed() - route.committed_then) +
                          " events committed meanwhile";
            }
        }
    }
    static double figure(const std::string& page, const std::string& name,
                         const std::string& route) {
        for (std::size_t at = page.find(name + "{"); at != std::string::npos;
             at = page.find(name + "{", at + 1)) {
            const std::string line = page.substr(at, page.find('\n', at) - at);
            if (line.find("route=\"" + route + "\"") == std::string::npos) continue;
            return std::stod(line.substr(line.rfind(' ')));
        }
        return -1;
    }

    // What is kept of a lag is a bit for each position in it.
    void look_at_ledger() {
        const auto rows = pg_.query(
            "SELECT count(*), coalesce(max(pg_column_size(done)), 0), (SELECT count(*) FROM "
            "outbox_routes), (SELECT coalesce(max(position) / 65536 - min(position) / 65536, 0) "
            "FROM outbox_events WHERE tenant_id = 'main') FROM outbox_ledger");
        const auto number = [&](std::size_t column) { return std::stoll(*rows[0][column]); };
        EXPECT_LE(number(1), 8'200);
        // Of the segments that the lag spans, and of what is being removed at this moment.
        EXPECT_LE(number(0), number(2) * (number(3) + 4));
        most_ledger_rows_ = std::max(most_ledger_rows_, number(0));
    }

    // The numbers that a route got of a key: one after the other, up to the last where it is one of
    // the relay's now, and from the first where it was from the beginning.
    static void expect_sequence(const std::string& who, const Mailbox& mailbox,
                                const std::map<std::string, long long>& keys, bool from_first,
                                bool to_last) {
        const auto received = mailbox.received();
        int wrong = 0;
        for (const auto& [key, last] : keys) {
            const auto found = received.find(key);
            const std::vector<long long> got =
                found == received.end() ? std::vector<long long>() : found->second;
            for (std::size_t i = 1; i < got.size(); ++i) wrong += got[i] == got[i - 1] + 1 ? 0 : 1;
            if (from_first && !got.empty()) wrong += got.front() == 1 ? 0 : 1;
            if (to_last) wrong += (got.empty() ? 0 : got.back()) == last ? 0 : 1;
        }
        for (const auto& [key, got] : received) wrong += keys.contains(key) ? 0 : 1;
        EXPECT_EQ(wrong, 0) << "of route " << who;
    }

    const std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
    const int admin_ = free_port();
    std::vector<Route> routes_;
    std::vector<long long> max_rss_kb_;  // of each relay
    int longest_wait_ = 0;
    std::string waited_ = "none";
    long long most_ledger_rows_ = 0;
    int looks_ = 0;
    bool leads_ = false;  // the relay that runs now
};

TEST_P(RelaySoak, RoutesThatComeAndGoLoseNothingAndHoldNoOther) {
    constexpr int kPhases = 12;
    const long long wanted = events_wanted();
    std::map<std::string, std::unique_ptr<Mailbox>> mailboxes;
    for (const char* name : {"a", "b", "c", "d"}) mailboxes[name] = std::make_unique<Mailbox>(name);
    for (const char* name : {"a", "b", "c"}) routes_.push_back({name, mailboxes[name].get()});
    Writers writers(url_);
    writers.start();
    std::mt19937 random(7);
    for (int phase = 1; phase <= kPhases; ++phase) {
        Process relay = start_relay();
        const long long before = wanted * (phase - 1) / kPhases;
        const long long after = wanted * phase / kPhases;
        const auto begin = Clock::now();
        auto next_change = begin;
        ASSERT_TRUE(eventually(kDeadline, "the events of the phase are committed", [&] {
            const double part = std::min(1.0, (Clock::now() - begin) / kPhaseAtLeast);
            writers.allow(before +
                          static_cast<long long>(static_cast<double>(after - before) * part));
            if (Clock::now() >= next_change) {
                // One or two are down, and sometimes none.
                next_change = Clock::now() + std::chrono::milliseconds(500 + random() % 10'000);
                const std::size_t down = random() % routes_.size();
                for (std::size_t i = 0; i < routes_.size(); ++i) {
                    routes_[i].mailbox->set_up(i >= down);
                }
                std::shuffle(routes_.begin(), routes_.end(), random);
            }
            look(relay, writers);
            return !relay.running() || (leads_ && writers.committed() >= after);
        }));
        ASSERT_TRUE(relay.running()) << relay.stderr_text();
        if (phase == kPhases) {
            for (Route& route : routes_) route.mailbox->set_up(true);
            ASSERT_TRUE(eventually(kDeadline, "everything is delivered", [&] {
                look(relay, writers);
                return !relay.running() || delivered_all();
            }));
        }
        if (phase % 3 == 0) {
            EXPECT_EQ(relay.stop(60s).code, 0) << relay.stderr_text();
        } else {
            relay.kill(SIGKILL);
            ASSERT_TRUE(relay.wait(60s));
        }
        // The lease of one that was killed is free when the server has noticed.
        ASSERT_TRUE(eventually(60s, "no relay leads", [&] {
            return pg_.number(
                       "SELECT count(*) FROM outbox_lease l JOIN pg_stat_activity a ON a.pid = "
                       "l.backend_pid WHERE a.backend_start = l.backend_start") == 0;
        }));
        if (phase == 2) routes_.push_back({"d", mailboxes["d"].get()});  // added
        if (phase == 4) {
            routes_command({"rename", "c", "c2"});
            route("c").name = "c2";
        }
        if (phase == 6) {
            routes_command({"retire", "b", "--yes"});
            routes_.erase(routes_.begin() + (&route("b") - routes_.data()));
        }
        if (phase == 8) {
            routes_command({"rename", "a", "b"});  // of a name that was there
            route("a").name = "b";
        }
    }
    writers.stop();
    if (!keeps()) EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_ledger"), 0);
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_dead_letters"), 0);
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_delivery"), 0) << "an outage is no attempt";
    for (const auto& [name, mailbox] : mailboxes) mailbox->set_up(true);
    expect_sequence("a", *mailboxes["a"], writers.keys(), true, true);
    expect_sequence("b", *mailboxes["b"], writers.keys(), true, false);
    expect_sequence("c", *mailboxes["c"], writers.keys(), true, true);
    expect_sequence("d", *mailboxes["d"], writers.keys(), false, true);
    std::cout << "events " << writers.committed() << "; longest wait of a healthy route "
              << longest_wait_ << " looks (" << waited_ << "); most ledger rows "
              << most_ledger_rows_ << "; most memory of each relay in MiB:";
    for (const long long kb : max_rss_kb_) std::cout << " " << kb / 1024;
    std::cout << "\n";
    // Of fifteen seconds; it is far below on a machine that has time.
    EXPECT_LT(longest_wait_, 300) << waited_;
    const long long early = *std::max_element(max_rss_kb_.begin(), max_rss_kb_.begin() + 3);
    const long long late = *std::max_element(max_rss_kb_.end() - 3, max_rss_kb_.end());
    EXPECT_LT(late, early + (64 << 10)) << "memory is flat";
}

INSTANTIATE_TEST_SUITE_P(Layouts, RelaySoak,
                         testing::ValuesIn(and_in_full<const char*>({"delete"}, {"keep"})),
                         [](const auto& layout) { return std::string(layout.param); });

}  // namespace
}  // namespace outbox::test
