#include <algorithm>
#include <array>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <vector>

#include "databases/postgres/connection.h"
#include "databases/postgres/source/history.h"
#include "relay/read_ahead.h"
#include "tests/databases/postgres/support.h"
#include "tests/support/adopted_tables.h"
#include "tests/support/eventually.h"
#include "tests/support/silent_proxy.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using postgres::Connection;

// A statement that brings more than who reads it may take.
class CutStatement : public testing::Test {
  protected:
    // Of 20 kB each, of which the first is taken.
    static std::string rows(int count, const std::string& last = "''") {
        return "SELECT i, repeat('x', 20000) || CASE WHEN i = " + std::to_string(count) + " THEN " +
               last + " ELSE '' END FROM generate_series(1, " + std::to_string(count) + ") i";
    }
    static void take_one(Connection& connection) {
        std::array<postgres::Field, 2> row;
        Status status;
        ASSERT_TRUE(connection.next(row, status)) << describe(status.error());
    }
    static void start_rows(Connection& connection, const std::string& sql) {
        require(connection.prepare("rows", sql, {}));
        require(connection.start_prepared("rows", {}));
        take_one(connection);
    }
    static void start_copy(Connection& connection, const std::string& sql) {
        require(connection.start_copy(sql));
        take_one(connection);
    }
    static bool answers(Connection& connection) {
        if (!connection.usable()) return false;
        const auto rows = connection.query("SELECT 7");
        return rows.ok() && rows->integer(0, 0) == 7;
    }
};

TEST_F(CutStatement, NeedsNoOtherConnectionForItsEnd) {
    PostgresServer server;
    Connection connection = value_of(Connection::open(server.url(), 60));
    server.pause_postmaster();
    start_copy(connection, rows(50));
    connection.stop();
    EXPECT_TRUE(answers(connection));
    start_rows(connection, rows(50));
    connection.stop();
    EXPECT_TRUE(answers(connection));
}

TEST_F(CutStatement, ThatIsLongGoesWithItsConnection) {
    Pg look(shared_postgres().url());
    for (const bool copy : {true, false}) {
        Connection connection = value_of(Connection::open(shared_postgres().url(), 60));
        const std::string pid = std::to_string(connection.client_backend_pid());
        (copy ? start_copy : start_rows)(connection, rows(5'000'000));
        connection.stop();
        EXPECT_FALSE(connection.usable());
        EXPECT_TRUE(eventually(60s, "the server has ended it", [&] {
            return look.number("SELECT count(*) FROM pg_stat_activity WHERE pid = " + pid) == 0;
        }));
    }
}

TEST_F(CutStatement, ThatBringsNothingMoreGoesWithItsConnection) {
    Connection connection = value_of(Connection::open(shared_postgres().url(), 60));
    start_copy(connection, rows(1'000, "pg_sleep(20)::text"));
    connection.stop();
    EXPECT_FALSE(connection.usable());
}

TEST_F(CutStatement, MayFailBehindTheCut) {
    Connection connection = value_of(Connection::open(shared_postgres().url(), 60));
    start_copy(connection, rows(1'000, "(1 / (i - 1000))::text"));
    connection.stop();
    EXPECT_TRUE(answers(connection));
}

// Rows of which one read takes a part: small ones first, so that it asks for many large ones.
class CutRead : public testing::Test {
  protected:
    static constexpr int kSmall = 1'000;
    static constexpr int kLarge = 1'000;
    static constexpr std::size_t kLargeBytes = 20'000;
    // More than a read takes, and less than the statement brings.
    static constexpr std::size_t kRation = std::size_t{3} << 20;

    void SetUp() override { migrate_to(url_, layout()); }
    [[nodiscard]] virtual TableLayoutKind layout() const { return TableLayoutKind::kDelete; }

    // Every third of one key. A payload is its number, and more.
    static std::string insert(int first, int count, std::size_t bytes) {
        return "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k' || n % 3, "
               "to_jsonb(n || repeat('x', " +
               std::to_string(bytes) + ")) FROM generate_series(" + std::to_string(first) + ", " +
               std::to_string(first + count - 1) + ") n";
    }
    void insert_all() {
        pg_.exec(insert(1, kSmall, 100));
        pg_.exec(insert(kSmall + 1, kLarge, kLargeBytes));
    }
    postgres::PostgresSourceConfig config(const std::string& url) const {
        postgres::PostgresSourceConfig config;
        config.url = url;
        config.mode = postgres::Mode::kPolling;
        return config;
    }
    void take(const std::vector<spi::EventView>& events) {
        for (const spi::EventView& event : events) {
            numbers_.push_back(std::stoi(std::string(event.payload.substr(1))));
        }
    }
    // Each once, in the order in which they were written.
    void expect_numbers(int count) {
        ASSERT_EQ(numbers_.size(), static_cast<std::size_t>(count));
        for (int n = 1; n <= count; ++n) {
            ASSERT_EQ(numbers_[static_cast<std::size_t>(n - 1)], n);
        }
    }
    void read_all(Relay& relay, int count) {
        ASSERT_TRUE(eventually(60s, "all are read", [&] {
            take(relay.read());
            return numbers_.size() >= static_cast<std::size_t>(count);
        }));
        expect_numbers(count);
    }
    static bool closed(const Relay& relay, spi::Position position) {
        return std::any_of(relay.closed().begin(), relay.closed().end(), [&](const auto& range) {
            return range.first <= position && position <= range.last;
        });
    }

    std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
    SilentProxy proxy_{shared_postgres().port()};
    std::string through_ = proxy_.through(url_) + "?sslmode=disable";
    std::vector<int> numbers_;
};

std::size_t count_entries(const char* folder) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// As where it is short of memory, or a proxy before it lets them wait.
TEST_F(CutRead, GoesOnWhereTheServerTakesNoNewConnectionAndLeavesNothingBehind) {
    PostgresServer server;
    const std::string url = server.create_database();
    migrate(url);
    Pg pg(url);
    // Each round begins with rows that are smaller than those behind them.
    constexpr int kRounds = 10;
    constexpr int kRound = 300;
    for (int round = 0; round < kRounds; ++round) {
        pg.exec(insert(1 + round * kRound, kRound / 3, 10));
        pg.exec(insert(1 + round * kRound + kRound / 3, 2 * kRound / 3, 5'000));
    }
    Relay relay(config(url));
    constexpr spi::ReadLimits kFew{50, 60'000};
    take(relay.read(kFew));
    const std::size_t threads = count_entries("/proc/self/task");
    const std::size_t files = count_entries("/proc/self/fd");
    server.pause_postmaster();
    while (numbers_.size() < kRounds * kRound) {
        const std::size_t before = numbers_.size();
        ASSERT_NO_THROW(take(relay.read(kFew)));
        ASSERT_GT(numbers_.size(), before);
    }
    expect_numbers(kRounds * kRound);
    EXPECT_EQ(count_entries("/proc/self/task"), threads);
    EXPECT_EQ(count_entries("/proc/self/fd"), files);
    server.resume();
}

TEST_F(CutRead, KeepsWhatItHasWhereItsConnectionDoesNotOutliveIt) {
    Relay relay(config(through_));
    ASSERT_TRUE(relay.read().empty());  // with the connection of the reader
    insert_all();
    proxy_.bring_at_most(kRation);
    const int before = proxy_.accepted();
    read_all(relay, kSmall + kLarge);
    EXPECT_EQ(proxy_.accepted(), before + 1);
}

TEST_F(CutRead, KeepsWhatItHasOfATableWithoutNumbers) {
    pg_.exec(kProcessedAtTable);
    auto adopted = config(through_);
    adopted.table = "outbox_messages";
    Relay relay(adopted);
    ASSERT_TRUE(relay.read().empty());
    const auto insert = [&](int first, int count, std::size_t bytes) {
        pg_.exec(
            "INSERT INTO outbox_messages (aggregate_id, event_type, payload) SELECT 'k', 'e', "
            "to_json(n || repeat('x', " +
            std::to_string(bytes) + ")) FROM generate_series(" + std::to_string(first) + ", " +
            std::to_string(first + count - 1) + ") n");
    };
    insert(1, kSmall, 100);
    insert(kSmall + 1, kLarge, kLargeBytes);
    proxy_.bring_at_most(2 * relay::ReadAhead::kLimits.max_bytes);
    const int before = proxy_.accepted();
    read_all(relay, kSmall + kLarge);
    EXPECT_EQ(proxy_.accepted(), before + 1);
}

TEST_F(CutRead, KeepsTheOthersEventsBehindABurst) {
    Relay relay(config(through_));
    ASSERT_TRUE(relay.read().empty());
    insert_all();
    pg_.exec("UPDATE outbox_events SET tenant_id = 'burst' WHERE position % 4 = 0");
    const std::vector<std::string> burst{"burst"};
    proxy_.bring_at_most(kRation);
    const int before = proxy_.accepted();
    std::size_t aside = 0;
    ASSERT_TRUE(eventually(60s, "all are read", [&] {
        spi::EventBatch batch;
        require(relay.reader().read({1'000, std::size_t{1} << 20, burst}, batch));
        take(batch.events());
        for (const auto& one : batch.aside) aside += one.positions.size();
        return numbers_.size() + aside >= kSmall + kLarge;
    }));
    EXPECT_EQ(numbers_.size() + aside, kSmall + kLarge);
    EXPECT_TRUE(std::is_sorted(numbers_.begin(), numbers_.end()));
    EXPECT_EQ(std::adjacent_find(numbers_.begin(), numbers_.end()), numbers_.end());
    EXPECT_EQ(proxy_.accepted(), before + 1);
}

// What is known of its writers is of the connection that it began with.
TEST_F(CutRead, ClosesNoHoleWhereItsConnectionDoesNotOutliveIt) {
    Relay relay(config(through_));
    ASSERT_TRUE(relay.read().empty());
    Pg gone(url_);
    Pg late(url_);
    for (Pg* writer : {&gone, &late}) {
        writer->exec("BEGIN");
        writer->exec(insert(1, 1, 10));
        pg_.exec(insert(2, 1, 10));
        ASSERT_EQ(relay.read().size(), 1U);
        // For so long that its writers are known.
        const auto until = std::chrono::steady_clock::now() + 150ms;
        while (std::chrono::steady_clock::now() < until) ASSERT_TRUE(relay.read().empty());
    }
    pg_.exec(insert(3, kLarge, kLargeBytes));
    proxy_.bring_at_most(kRation);
    const int before = proxy_.accepted();
    ASSERT_FALSE(relay.read().empty());
    gone.exec("ROLLBACK");
    ASSERT_FALSE(relay.read().empty()) << "by another connection";
    ASSERT_EQ(proxy_.accepted(), before + 1);
    EXPECT_FALSE(closed(relay, 1));
    late.exec("COMMIT");
    std::size_t late_ones = 0;
    EXPECT_TRUE(eventually(60s, "the late one comes, and the other hole is closed", [&] {
        for (const spi::EventView& event : relay.read()) late_ones += event.position == 3 ? 1 : 0;
        return late_ones > 0 && closed(relay, 1);
    }));
    EXPECT_EQ(late_ones, 1U);
    EXPECT_FALSE(closed(relay, 3));
}

// A transaction of many rows that ran long leaves holes, of which reads leave some out; it ends,
// and another one writes what follows for the same key: that is not read first.
TEST_F(CutRead, BringsNothingBeforeWhatCommittedLateInAHoleThatWasLeftOut) {
    constexpr int kHoles = 1'500;
    Pg late(url_);
    late.exec("BEGIN");
    for (int i = 0; i < kHoles; ++i) {
        late.exec("INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'late', '1')");
        pg_.exec("INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'other', '1')");
    }
    Relay relay(config(through_));
    std::size_t others = 0;
    while (others < kHoles) others += relay.read().size();
    Pg behind(url_);
    behind.exec(
        "BEGIN; INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'late', to_jsonb(2 || "
        "repeat('x', 20000)) FROM generate_series(1, 100)");
    // Until the holes are left out; the last of these reads asks for the writers.
    const auto until = std::chrono::steady_clock::now() + 400ms;
    while (std::chrono::steady_clock::now() < until) ASSERT_TRUE(relay.read().empty());
    proxy_.bring_at_most(kRation / 3);
    pg_.exec("SELECT pg_sleep(0.025)");
    ASSERT_TRUE(relay.read().empty());
    late.exec("COMMIT");
    behind.exec("COMMIT");
    std::vector<spi::Position> got;
    EXPECT_TRUE(eventually(60s, "all of the key is read", [&] {
        for (const spi::EventView& event : relay.read({1'000, 200'000})) {
            got.push_back(event.position);
        }
        return got.size() >= kHoles + 100;
    }));
    EXPECT_EQ(got.size(), kHoles + 100U);
    EXPECT_TRUE(std::is_sorted(got.begin(), got.end()));
}

// Within the snapshot in which a route joins a stream.
TEST_F(CutRead, KeepsWhatItHasOfASnapshotThatIsOver) {
    auto streaming = config(through_);
    streaming.mode = postgres::Mode::kStream;
    Relay relay(streaming);
    Pg open(url_);
    open.exec("BEGIN");
    open.exec("SELECT pg_current_xact_id()");  // for which the slot waits
    ASSERT_TRUE(eventually(60s, "a slot is made", [&] {
        EXPECT_TRUE(relay.read().empty());
        return pg_.number(
                   "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = "
                   "'transactionid'") > 0;
    }));
    insert_all();
    pg_.exec("DELETE FROM outbox_events WHERE position <= " + std::to_string(kSmall - 1));
    proxy_.bring_at_most(kRation);
    const int before = proxy_.accepted();
    open.exec("COMMIT");
    ASSERT_TRUE(eventually(60s, "its snapshot is offered", [&] {
        return pg_.number("SELECT count(*) FROM pg_ls_dir('pg_snapshots')") > 0;
    }));
    take(relay.read());
    EXPECT_FALSE(numbers_.empty());
    ASSERT_TRUE(eventually(60s, "all are read", [&] {
        take(relay.read());
        return numbers_.size() >= kLarge + 1;
    }));
    ASSERT_EQ(numbers_.size(), kLarge + 1U);
    EXPECT_TRUE(std::is_sorted(numbers_.begin(), numbers_.end()));
    EXPECT_EQ(numbers_.back(), kSmall + kLarge);
    EXPECT_GT(proxy_.accepted(), before);
}

class CutHistory : public CutRead {
    [[nodiscard]] TableLayoutKind layout() const override { return TableLayoutKind::kKeep; }
};

TEST_F(CutHistory, KeepsWhatItHasWhereItsConnectionDoesNotOutliveIt) {
    insert_all();
    {
        Relay relay(config(url_));
        std::vector<spi::Position> published;
        while (published.size() < kSmall + kLarge) {
            for (const spi::EventView& event : relay.read()) published.push_back(event.position);
        }
        relay.publish(published);
        relay.settle(published.back());
    }
    const auto history = value_of(postgres::open_history(config(through_)));
    replay::Selection selection;
    selection.route = "default";
    require(history->select(selection, {}).status());
    const auto estimate = value_of(history->estimate({}, [](std::int64_t) {}));
    const auto reader = value_of(history->open_reader({}, estimate.end));
    spi::EventBatch first;
    require(reader->read(kAll, first));
    take(first.events());
    proxy_.bring_at_most(kRation);
    const int before = proxy_.accepted();
    while (!reader->at_end()) {
        spi::EventBatch batch;
        require(reader->read(kAll, batch));
        take(batch.events());
    }
    expect_numbers(kSmall + kLarge);
    EXPECT_EQ(proxy_.accepted(), before + 1);
}

}  // namespace
}  // namespace outbox::test
