#include <algorithm>
#include <atomic>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <unistd.h>

#include <outbox/producer/migrate.h>

#include "tests/databases/postgres/support.h"
#include "tests/support/counted.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

postgres::PostgresSourceConfig polling(const std::string& url) {
    postgres::PostgresSourceConfig config;
    config.url = url;
    config.mode = postgres::Mode::kPolling;
    return config;
}

class NativeTable : public testing::Test {
  protected:
    void SetUp() override { make(PayloadType::kJsonb); }

    void make(PayloadType payload) {
        MigrateOptions options;
        options.payload = payload;
        migrate(url_, options);
    }

    postgres::PostgresSourceConfig config() const { return polling(url_); }

    std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
};

// AddressSanitizer keeps freed memory back; what it keeps must not count as ours. The name is its.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" const char* __asan_default_options() {
    return "quarantine_size_mb=1:thread_local_quarantine_size_kb=64";
}

std::size_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    std::size_t total = 0;
    std::size_t resident = 0;
    file >> total >> resident;
    return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST_F(NativeTable, IsReadOnWhenAColumnChangesItsType) {
    pg_.exec(
        "DROP VIEW outbox_status; "
        "ALTER TABLE outbox_events DROP CONSTRAINT outbox_payload_size");
    Relay relay(config());
    const auto read = [&] {
        std::vector<std::string> payloads;
        for (const spi::EventView& event : relay.read()) {
            payloads.push_back(std::string(event.key) + std::string(event.payload));
        }
        return payloads;
    };
    const auto insert = [&] {
        pg_.exec("INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'k', '{\"a\": 1}')");
    };
    insert();
    EXPECT_THAT(read(), testing::ElementsAre("k{\"a\": 1}"));
    const char* const to_jsonb = "payload TYPE jsonb USING payload::jsonb";
    for (const char* change : {"key TYPE varchar(100)", "payload TYPE json", "payload TYPE text",
                               to_jsonb, "occurred_at TYPE timestamp"}) {
        SCOPED_TRACE(change);
        pg_.exec(std::string("ALTER TABLE outbox_events ALTER ") + change);
        insert();
        EXPECT_THAT(read(), testing::ElementsAre("k{\"a\": 1}"));
    }
    const auto ends = [&](spi::Reader& reader) {
        return eventually(60s, "the change is told", [&] {
            spi::EventBatch batch;
            const Status status = reader.read(kAll, batch);
            if (status.ok()) return false;
            EXPECT_EQ(status.error().code, ErrorCode::kTableShape);
            EXPECT_EQ(status.error().advice, Advice::kStop);
            EXPECT_THAT(status.error().message, testing::HasSubstr("start the relay again"));
            return true;
        });
    };
    pg_.exec(
        "ALTER TABLE outbox_events ALTER payload TYPE bytea USING convert_to(payload::text, "
        "'UTF8')");
    EXPECT_TRUE(ends(relay.reader()));
    spi::EventBatch batch;
    const auto again = value_of(postgres::make_postgres_source(config()));
    const auto of_bytea = value_of(again->open_reader("default", {}));
    require(of_bytea->read(kAll, batch));
    EXPECT_EQ(batch.size(), 6U);
    // Each text can be read as bytea, and not all as what it says.
    pg_.exec(
        "ALTER TABLE outbox_events ALTER payload TYPE text USING convert_from(payload, 'UTF8')");
    EXPECT_TRUE(ends(*of_bytea));
}

TEST_F(NativeTable, ReadsLargeRowsWithinTheLimitOfBytes) {
    pg_.exec(
        "INSERT INTO outbox_events (topic, payload) SELECT 't', to_jsonb(repeat(md5(n::text), "
        "3200)) FROM generate_series(1, 500) n");
    Relay relay(config());
    const std::size_t before = resident_bytes();
    std::size_t events = 0;
    spi::EventBatch batch;
    do {
        batch.clear();
        require(relay.reader().read(kAll, batch));
        EXPECT_LE(batch.bytes(), kAll.max_bytes + 110'000);
        events += batch.size();
        EXPECT_LT(resident_bytes(), before + (std::size_t{16} << 20));
    } while (!batch.empty());
    EXPECT_EQ(events, 500U);
}

TEST_F(NativeTable, KeepsTheLimitOfBytesWhenRowsGrowFromSmallToLarge) {
    pg_.exec(
        "INSERT INTO outbox_events (topic, payload) SELECT 't', to_jsonb(n) FROM "
        "generate_series(1, 3000) n");
    pg_.exec(
        "INSERT INTO outbox_events (topic, payload) SELECT 't', to_jsonb(repeat('x', 1000000)) "
        "FROM generate_series(1, 40) n");
    pg_.exec(
        "INSERT INTO outbox_events (topic, payload) SELECT 't', to_jsonb(n) FROM "
        "generate_series(1, 1000) n");
    Relay relay(config());
    spi::Position last = 0;
    std::size_t events = 0;
    spi::EventBatch batch;
    do {
        batch.clear();
        require(relay.reader().read(kAll, batch));
        EXPECT_LT(batch.bytes(), kAll.max_bytes + 1'001'000);
        for (const spi::EventView& event : batch.events()) {
            EXPECT_EQ(event.position, last + 1);
            last = event.position;
        }
        events += batch.size();
    } while (!batch.empty());
    EXPECT_EQ(events, 4040U);
}

TEST_F(NativeTable, LeavesRowsOfOtherTenantsAloneAndTakesThemForNoHoles) {
    pg_.exec(
        "INSERT INTO outbox_events (topic, payload, tenant_id) SELECT 't', to_jsonb(n), CASE "
        "WHEN n % 3 = 0 THEN 'acme' ELSE 'beta' END FROM generate_series(1, 3000) n");
    auto acme = config();
    acme.tenants = {"acme"};
    Relay relay(acme);
    std::size_t events = 0;
    spi::EventBatch batch;
    do {
        batch.clear();
        require(relay.reader().read({100, 1U << 20}, batch));
        for (const spi::EventView& event : batch.events()) EXPECT_EQ(event.tenant_id, "acme");
        events += batch.size();
    } while (!batch.empty());
    EXPECT_EQ(events, 1000U);
    EXPECT_EQ(counted_backlog(relay.recorder()), 1000);
}

TEST_F(NativeTable, TakesAnEmptyTenantForTheDefaultOne) {
    pg_.exec(
        "INSERT INTO outbox_events (topic, payload, tenant_id) VALUES ('t', '1', ''), ('t', '2', "
        "'beta'), ('t', '3', 'default')");
    auto ours = config();
    ours.tenants = {"default"};
    Relay relay(ours);
    EXPECT_EQ(relay.read().size(), 2U);
    EXPECT_EQ(counted_backlog(relay.recorder()), 2);
}

class PassedOver : public testing::TestWithParam<TableLayoutKind> {
  protected:
    void SetUp() override { migrate_to(url_, GetParam()); }

    // Of `burst`, with one of `calm` behind each thousand.
    void insert(int rows) {
        pg_.exec(
            "INSERT INTO outbox_events (topic, payload, tenant_id) SELECT 't', to_jsonb(n), CASE "
            "WHEN n % 1000 = 0 THEN 'calm' ELSE 'burst' END FROM generate_series(1, " +
            std::to_string(rows) + ") n");
    }
    struct Read {
        std::vector<spi::Position> aside;
        std::vector<spi::Position> events;
    };
    Read read(Relay& relay, const spi::ReadLimits& limits) {
        spi::EventBatch batch;
        require(relay.reader().read(limits, batch));
        Read out;
        for (const auto& [tenant, positions] : batch.aside) {
            EXPECT_EQ(tenant, "burst");
            out.aside.insert(out.aside.end(), positions.begin(), positions.end());
        }
        for (const spi::EventView& event : batch.events()) out.events.push_back(event.position);
        return out;
    }
    postgres::PostgresSourceConfig config() const { return polling(url_); }

    std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
    const std::vector<std::string> burst_{"burst"};
};

TEST_P(PassedOver, ABurstIsReadByItsPositionsAlone) {
    insert(20'000);
    Relay relay(config());
    EXPECT_THAT(read(relay, {99, 1U << 20, burst_}).aside, testing::IsEmpty())
        << "as long as no read was full";
    const Read rest = read(relay, {99, 1U << 20, burst_});
    EXPECT_EQ(rest.aside.size(), 20'000U - 99 - 20);
    EXPECT_TRUE(std::is_sorted(rest.aside.begin(), rest.aside.end()));
    EXPECT_EQ(rest.events.size(), 20U);
    const Read nothing = read(relay, {99, 1U << 20, burst_});
    EXPECT_EQ(nothing.aside.size() + nothing.events.size(), 0U);
    insert(1'000);
    EXPECT_EQ(read(relay, {5'000, 1U << 20, burst_}).events.size(), 1'000U)
        << "what is not behind a full read comes whole";
}

TEST_P(PassedOver, TheOthersEventsKeepTheirLimits) {
    insert(20'000);
    for (const spi::ReadLimits& limits :
         {spi::ReadLimits{3, 1U << 20, burst_}, spi::ReadLimits{1'000, 40, burst_}}) {
        Relay relay(config());
        Read all;
        for (int reads = 0; all.aside.size() + all.events.size() < 20'000; ++reads) {
            ASSERT_LT(reads, 100);
            const Read some = read(relay, limits);
            EXPECT_LE(some.events.size(), limits.max_events);
            all.aside.insert(all.aside.end(), some.aside.begin(), some.aside.end());
            all.events.insert(all.events.end(), some.events.begin(), some.events.end());
        }
        EXPECT_TRUE(std::is_sorted(all.aside.begin(), all.aside.end()));
        EXPECT_TRUE(std::is_sorted(all.events.begin(), all.events.end()));
        std::set<spi::Position> once(all.aside.begin(), all.aside.end());
        once.insert(all.events.begin(), all.events.end());
        EXPECT_EQ(once.size(), 20'000U);
    }
}

TEST_P(PassedOver, WhatCommitsLateAmongThemIsRead) {
    Pg late(url_);
    late.exec(
        "BEGIN; INSERT INTO outbox_events (topic, payload, tenant_id) VALUES ('t', '0', "
        "'burst'), ('t', '0', 'calm')");
    insert(20'000);
    Relay relay(config());
    std::size_t seen = 0;
    const auto count = [&](const Read& some) {
        return seen += some.aside.size() + some.events.size();
    };
    ASSERT_TRUE(eventually(60s, "the burst is passed over",
                           [&] { return count(read(relay, {500, 1U << 20, burst_})) >= 20'000; }));
    EXPECT_EQ(seen, 20'000U);
    late.exec("COMMIT");
    ASSERT_TRUE(eventually(60s, "the late ones are read",
                           [&] { return count(read(relay, {500, 1U << 20, burst_})) >= 20'002; }));
}

TEST_P(PassedOver, RowsOfAnotherRelaysTenantsAreNone) {
    insert(20'000);
    auto ours = config();
    ours.tenants = {"calm", "small"};
    pg_.exec(
        "INSERT INTO outbox_events (topic, payload, tenant_id) SELECT 't', '1', 'small' FROM "
        "generate_series(1, 2000)");
    Relay relay(ours);
    const std::vector<std::string> aside{"burst", "nobody"};
    std::size_t events = 0;
    ASSERT_TRUE(eventually(60s, "all is read", [&] {
        const Read some = read(relay, {100, 1U << 20, aside});
        EXPECT_THAT(some.aside, testing::IsEmpty());
        return (events += some.events.size()) >= 2'020;
    }));
    EXPECT_EQ(events, 2'020U);
}

INSTANTIATE_TEST_SUITE_P(Layouts, PassedOver, kEachLayout, name_of_layout);

class PayloadTypes : public NativeTable {
    void SetUp() override {}
};

TEST_F(PayloadTypes, JsonIsReadAsItWasWritten) {
    make(PayloadType::kJson);
    pg_.exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '{\"b\" :1,\"a\": 2}')");
    Relay relay(config());
    EXPECT_EQ(relay.read().at(0).payload, "{\"b\" :1,\"a\": 2}");
}

TEST_F(PayloadTypes, TextIsReadAsItWasWritten) {
    make(PayloadType::kText);
    pg_.exec(
        "INSERT INTO outbox_events (topic, payload) VALUES ('t', 'gr\xC3\xBC\xC3\x9F'), ('t', "
        "'')");
    Relay relay(config());
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(events[0].payload, "gr\xC3\xBC\xC3\x9F");
    EXPECT_NE(events[1].payload.data(), nullptr);
    EXPECT_EQ(events[1].payload, "");
}

TEST_F(PayloadTypes, BytesAreReadAsTheyWereWritten) {
    make(PayloadType::kBytea);
    pg_.exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '\\x0001ff')");
    Relay relay(config());
    EXPECT_EQ(relay.read().at(0).payload, std::string_view("\x00\x01\xff", 3));
}

TEST_F(NativeTable, ReadsTimesThatAreNoTimes) {
    pg_.exec(
        "INSERT INTO outbox_events (topic, payload, occurred_at) VALUES ('t', '1', "
        "'infinity'), ('t', '2', '1969-12-31 23:59:59+00')");
    Relay relay(config());
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(events[0].occurred_at_us, 0);
    EXPECT_EQ(events[1].occurred_at_us, -1'000'000);
}

TEST_F(NativeTable, GivesTheLeaseAtOnceWhenTheOwnersBackendIsGone) {
    Relay relay(config());
    const auto standby = value_of(relay.source().open_lease());
    ASSERT_FALSE(value_of(standby->acquire("standby", 1h)));
    pg_.exec("SELECT pg_terminate_backend(backend_pid) FROM outbox_lease");
    EXPECT_TRUE(eventually(60s, "the lease is free",
                           [&] { return value_of(standby->acquire("standby", 1h)).has_value(); }));
}

TEST_F(NativeTable, CountsABackendThatMayNotBeSeenAsAlive) {
    pg_.exec("DROP ROLE IF EXISTS blind_relay");
    pg_.exec(
        "CREATE ROLE blind_relay LOGIN PASSWORD 'test'; GRANT ALL ON ALL TABLES IN SCHEMA public "
        "TO "
        "blind_relay");
    Relay relay(config());
    auto blind = config();
    blind.url = "postgresql://blind_relay@" + url_.substr(url_.find('@') + 1);
    {
        auto source = value_of(postgres::make_postgres_source(blind));
        const auto standby = value_of(source->open_lease());
        EXPECT_FALSE(value_of(standby->acquire("standby", 1h)));
        pg_.exec("SELECT pg_terminate_backend(backend_pid) FROM outbox_lease");
        EXPECT_TRUE(eventually(60s, "the lease is free", [&] {
            return value_of(standby->acquire("standby", 1h)).has_value();
        }));
    }
    pg_.exec("DROP OWNED BY blind_relay; DROP ROLE blind_relay");
}

TEST_F(NativeTable, EstimatesALargeBacklog) {
    pg_.exec(
        "INSERT INTO outbox_events (topic, payload) SELECT 't', '1' FROM "
        "generate_series(1, 60000); ANALYZE outbox_events");
    Relay relay(config());
    const auto stats = value_of(relay.recorder().stats());
    EXPECT_TRUE(stats.estimated);
    EXPECT_GT(stats.backlog, 50'000);
    EXPECT_LT(stats.backlog, 70'000);
}

TEST_F(NativeTable, SaysThatItsBacklogIsAnEstimateWhereCountingTakesTooLong) {
    pg_.exec(
        "INSERT INTO outbox_events (topic, payload) SELECT 't', '1' FROM "
        "generate_series(1, 7)");
    Relay relay(config());
    relay.die(relay.read().front(), 5);
    {
        Pg other(url_);
        other.exec("BEGIN; LOCK TABLE outbox_events IN ACCESS EXCLUSIVE MODE");
        const auto stats = value_of(relay.recorder().stats());
        EXPECT_TRUE(stats.estimated);
        EXPECT_EQ(stats.dead, 1) << "what can be read is";
        other.exec("COMMIT");
    }
    EXPECT_TRUE(eventually(60s, "it is counted", [&] {
        const auto stats = value_of(relay.recorder().stats());
        return !stats.estimated && stats.backlog == 6;
    }));
}

TEST_F(NativeTable, IsReadByItsIndexAlsoWhenItWasEmptyWhileTheStatementWasPlanned) {
    {
        Relay relay(config());
        for (int poll = 0; poll < 10; ++poll) EXPECT_TRUE(relay.read().empty());
        pg_.exec(
            "INSERT INTO outbox_events (topic, payload) SELECT 't', '1' FROM "
            "generate_series(1, 5000)");
        std::vector<spi::Position> positions;
        while (positions.size() < 5000) {
            for (const auto& event : relay.read({500, 1U << 20})) {
                positions.push_back(event.position);
            }
        }
        relay.publish(positions);
    }
    // The counters of a backend arrive when it ends. PostgreSQL 18 counts no scan of an empty
    // index.
    const std::string scans = " FROM pg_stat_user_tables WHERE relname = 'outbox_events'";
    EXPECT_TRUE(eventually(60s, "the scans are counted", [&] {
        return pg_.number("SELECT n_tup_del" + scans) == 5000 &&
               pg_.number("SELECT idx_scan" + scans) >= 10;
    }));
    EXPECT_EQ(pg_.number("SELECT seq_tup_read" + scans), 0);
}

// What a long transaction of many rows leaves between the rows of others is filled all at once.
TEST_F(NativeTable, ManyHolesThatAreFilledAtOnceAreReadOnce) {
    constexpr int kOthers = 3'000;
    constexpr int kRows = 10 * kOthers;
    {
        Relay relay(config());
        Pg late(url_);
        late.exec("BEGIN; INSERT INTO outbox_events (topic, payload) VALUES ('t', '1')");
        pg_.exec("SELECT setval(pg_get_serial_sequence('outbox_events', 'position'), " +
                 std::to_string(kRows) +
                 "); INSERT INTO outbox_events (position, topic, payload) OVERRIDING SYSTEM VALUE "
                 "SELECT 10 * n, 't', '1' FROM generate_series(1, " +
                 std::to_string(kOthers) + ") n");
        std::size_t read = 0;
        while (read < std::size_t{kOthers}) read += relay.read().size();
        late.exec(
            "INSERT INTO outbox_events (position, topic, payload) OVERRIDING SYSTEM VALUE "
            "SELECT n, 't', '1' FROM generate_series(2, " +
            std::to_string(kRows) + ") n WHERE n % 10 <> 0; COMMIT");
        spi::Position before = 0;
        while (read < std::size_t{kRows}) {
            const auto events = relay.read({500, 1U << 20});
            ASSERT_FALSE(events.empty()) << read;
            EXPECT_GT(events.front().position, before);
            before = events.back().position;
            read += events.size();
        }
        EXPECT_EQ(read, std::size_t{kRows});
    }
    EXPECT_TRUE(eventually(60s, "the scans are counted", [&] {
        return pg_.number(
                   "SELECT idx_tup_fetch FROM pg_stat_user_tables WHERE relname = "
                   "'outbox_events'") >= kRows;
    }));
    EXPECT_LT(pg_.number("SELECT idx_tup_fetch FROM pg_stat_user_tables WHERE relname = "
                         "'outbox_events'"),
              4 * kRows);
}

// Another writer that lives on must not have what the first has filled left out of reads.
TEST_F(NativeTable, OfTwoLongTransactionsTheFirstThatEndsComesWholeAndInOrder) {
    constexpr int kOthers = 3'000;
    constexpr int kRows = 10 * kOthers;
    Relay relay(config());
    Pg idle(url_);
    idle.exec("BEGIN; INSERT INTO outbox_events (topic, payload) VALUES ('t', '1')");
    Pg late(url_);
    late.exec("BEGIN; INSERT INTO outbox_events (topic, payload) VALUES ('t', '1')");
    pg_.exec("SELECT setval(pg_get_serial_sequence('outbox_events', 'position'), " +
             std::to_string(kRows) +
             "); INSERT INTO outbox_events (position, topic, payload) OVERRIDING SYSTEM VALUE "
             "SELECT 10 * n, 't', '1' FROM generate_series(1, " +
             std::to_string(kOthers) + ") n");
    std::size_t read = 0;
    while (read < std::size_t{kOthers}) read += relay.read().size();
    // Long enough for its writers to be looked at again and again.
    for (int look = 0; look < 20; ++look) {
        EXPECT_TRUE(relay.read().empty());
        std::this_thread::sleep_for(30ms);
    }
    late.exec(
        "INSERT INTO outbox_events (position, topic, payload) OVERRIDING SYSTEM VALUE "
        "SELECT n, 't', '1' FROM generate_series(3, " +
        std::to_string(kRows) + ") n WHERE n % 10 <> 0; COMMIT");
    pg_.exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '2')");
    spi::Position before = 0;
    while (before <= kRows) {
        const auto events = relay.read({500, 1U << 20});
        ASSERT_FALSE(events.empty()) << read;
        ASSERT_GT(events.front().position, before);
        before = events.back().position;
        read += events.size();
        std::this_thread::sleep_for(30ms);
    }
    EXPECT_EQ(read, std::size_t{kRows}) << "all but the idle one's, and one after them";
}

// The next rows are read while these are published: with less room than they need, with others that
// are fetched meanwhile, and over numbers that were rolled back.
TEST_F(NativeTable, ABacklogThatIsReadAheadComesOnceAndInOrder) {
    constexpr int kRows = 20'000;
    pg_.exec(
        "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k', to_jsonb(n) FROM "
        "generate_series(1, " +
        std::to_string(kRows) + ") n; DELETE FROM outbox_events WHERE position % 4001 = 0");
    const auto left = static_cast<std::size_t>(pg_.number("SELECT count(*) FROM outbox_events"));
    std::minstd_rand random(7);
    for (int round = 0; round < 5; ++round) {
        const auto source = value_of(postgres::make_postgres_source(config()));
        const auto reader = value_of(source->open_reader("default", {}));
        std::vector<spi::Position> read;
        const bool in_one = round == 0;
        ASSERT_TRUE(eventually(60s, "all is read", [&] {
            const std::size_t most = in_one || random() % 2 == 0 ? 1'000 : 1 + random() % 999;
            spi::EventBatch batch;
            require(reader->read({most, std::size_t{1} << 20}, batch));
            EXPECT_LE(batch.size(), most);
            for (const spi::EventView& event : batch.events()) {
                EXPECT_EQ(std::to_string(event.position), event.payload);
                read.push_back(event.position);
            }
            if (!in_one && !read.empty() && random() % 3 == 0) {
                spi::EventBatch again;
                const std::vector<spi::Position> some = {read.front(), read.back()};
                require(reader->fetch(some, again));
                EXPECT_EQ(again.events().back().position, read.back());
            }
            return read.size() >= left;
        }));
        EXPECT_EQ(read.size(), left) << round;
        EXPECT_TRUE(std::is_sorted(read.begin(), read.end())) << round;
        EXPECT_EQ(std::set(read.begin(), read.end()).size(), left) << round;
    }
}

TEST_F(NativeTable, NothingIsReadPastWhatIsReadAheadWhereThereIsNoRoom) {
    pg_.exec(
        "INSERT INTO outbox_events (topic, payload) SELECT 't', '1' FROM generate_series(1, 1000)");
    Relay relay(config());
    EXPECT_EQ(relay.read({200, std::size_t{1} << 20}).size(), 200U);
    spi::EventBatch full;
    static_cast<void>(full.copy(std::string(5'000, 'x')));
    require(relay.reader().read({200, 5'000}, full));
    EXPECT_EQ(full.size(), 0U);
    const auto next = relay.read({200, std::size_t{1} << 20});
    ASSERT_FALSE(next.empty());
    EXPECT_EQ(next.front().position, 201);
}

// A snapshot that stays open keeps the server from cleaning up, for as long as a destination is
// away.
TEST_F(NativeTable, WhatIsReadAheadHoldsNoSnapshotWhereNobodyAsksForIt) {
    pg_.exec(
        "INSERT INTO outbox_events (topic, payload) SELECT 't', to_jsonb(repeat(md5(n::text), "
        "300)) FROM generate_series(1, 2000) n");
    Relay relay(config());
    std::size_t read = relay.read({100, std::size_t{1} << 20}).size();
    EXPECT_EQ(read, 100U);
    EXPECT_TRUE(eventually(60s, "no statement is open", [&] {
        return pg_.number(
                   "SELECT count(*) FROM pg_stat_activity WHERE datname = "
                   "current_database() AND pid <> pg_backend_pid() AND (state <> 'idle' "
                   "OR backend_xmin IS NOT NULL)") == 0;
    }));
    while (read < 2'000) read += relay.read({100, std::size_t{1} << 20}).size();
    EXPECT_EQ(read, 2'000U);
    EXPECT_TRUE(relay.read().empty());
}

// The stream goes on behind a snapshot: what is read ahead of that has to be handed out before.
TEST_F(NativeTable, WhatIsReadAheadComesBeforeAStreamThatIsJoined) {
    postgres::PostgresSourceConfig stream = config();
    stream.mode = postgres::Mode::kStream;
    for (int round = 0; round < 5; ++round) {
        const auto source = value_of(postgres::make_postgres_source(stream));
        const auto reader = value_of(source->open_reader("default", {}));
        const auto last = [&] { return pg_.number("SELECT max(position) FROM outbox_events"); };
        std::vector<spi::Position> read;
        const auto look = [&] {
            spi::EventBatch batch;
            require(reader->read({400, std::size_t{1} << 20}, batch));
            for (const spi::EventView& event : batch.events()) read.push_back(event.position);
            return batch.size();
        };
        pg_.exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '1')");
        // The end is reached, so that a stream is wanted; before it is offered more is written.
        // Nothing tells of either: the pauses make that likely, and whatever they meet, all is to
        // be read.
        while (look() == 400 || read.back() != last()) {
        }
        static_cast<void>(look());
        std::this_thread::sleep_for(120ms);
        static_cast<void>(look());
        pg_.exec(
            "INSERT INTO outbox_events (topic, payload) SELECT 't', '1' FROM generate_series(1, "
            "700)");
        static_cast<void>(look());
        std::this_thread::sleep_for(300ms);
        pg_.exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '2')");
        bool streams = false;
        ASSERT_TRUE(eventually(60s, "all is read, at last by the stream", [&] {
            static_cast<void>(look());
            const auto path = reader->new_path();
            streams = path ? path->path == "stream" : streams;
            return streams && read.back() == last();
        }));
        pg_.exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '3')");
        ASSERT_TRUE(eventually(60s, "the stream goes on", [&] {
            static_cast<void>(look());
            return read.back() == last();
        }));
        EXPECT_TRUE(std::is_sorted(read.begin(), read.end())) << round;
        EXPECT_EQ(static_cast<long long>(read.size()), last()) << round;
    }
}

// Writers take a key's next number under its lock, so that its commits come in the order of these.
struct Reading {
    std::string name;
    postgres::Mode mode;
    bool passes_over = false;  // tenants, by their positions
};
class ReadAhead : public NativeTable, public testing::WithParamInterface<Reading> {};

TEST_P(ReadAhead, BesideWritersLosesNothingAndKeepsTheOrderOfKeys) {
    constexpr int kWriters = 3;
    constexpr int kKeys = 12;
    constexpr int kTransactions = 150;
    pg_.exec("CREATE TABLE counters AS SELECT n AS key, 0 AS last FROM generate_series(1, " +
             std::to_string(kKeys) + ") n; CREATE UNIQUE INDEX ON counters (key)");
    std::vector<std::thread> writers;
    std::atomic<int> writing{kWriters};
    for (unsigned writer = 0; writer < kWriters; ++writer) {
        writers.emplace_back([this, &writing, writer] {
            Pg pg(url_);
            std::minstd_rand random(writer + 1);
            for (int i = 0; i < kTransactions; ++i) {
                const std::string rows = std::to_string(random() % 4 == 0 ? 400 : 1 + random() % 9);
                pg.exec("BEGIN; WITH c AS (UPDATE counters SET last = last + " + rows +
                        " WHERE key = " + std::to_string(1 + random() % kKeys) +
                        " RETURNING key, last) INSERT INTO outbox_events (topic, key, tenant_id, "
                        "payload) SELECT 't', c.key::text, (c.key % 3)::text, to_jsonb(c.last - " +
                        rows + " + n) FROM c, generate_series(1, " + rows + ") n");
                if (random() % 5 == 0) std::this_thread::sleep_for(3ms);
                pg.exec(random() % 6 == 0 ? "ROLLBACK" : "COMMIT");
            }
            --writing;
        });
    }
    postgres::PostgresSourceConfig with_mode = config();
    with_mode.mode = GetParam().mode;
    const auto source = value_of(postgres::make_postgres_source(with_mode));
    const auto reader = value_of(source->open_reader("default", {}));
    std::map<std::string, int> last;
    std::size_t read = 0;
    std::size_t passed_over = 0;
    std::minstd_rand random(99);
    bool ended = false;
    const auto all = [&] {
        return static_cast<std::size_t>(pg_.number("SELECT sum(last) FROM counters"));
    };
    EXPECT_TRUE(eventually(120s, "all is read", [&] {
        // So that a backlog is there now and then.
        if (random() % 20 == 0) std::this_thread::sleep_for(50ms);
        ended = ended || writing == 0;
        std::vector<std::string> aside;
        for (const char* tenant : {"0", "1", "2"}) {
            if (GetParam().passes_over && random() % 2 == 0) aside.emplace_back(tenant);
        }
        spi::EventBatch batch;
        require(
            reader->read({random() % 4 == 0 ? 150U : 400U, std::size_t{1} << 20, aside}, batch));
        // What is passed over is fetched at once, in the tenant's place of this read.
        for (const auto& [tenant, positions] : batch.aside) {
            spi::EventBatch fetched;
            require(reader->fetch(positions, fetched));
            EXPECT_EQ(fetched.size(), positions.size());
            passed_over += positions.size();
            for (const spi::EventView& event : fetched.events()) {
                EXPECT_EQ(event.tenant_id, tenant);
                EXPECT_EQ(++last[std::string(event.key)], std::stoi(std::string(event.payload)));
            }
        }
        for (const spi::EventView& event : batch.events()) {
            EXPECT_EQ(++last[std::string(event.key)], std::stoi(std::string(event.payload)));
        }
        read += batch.size();
        return ended && read + passed_over >= all();
    }));
    for (std::thread& writer : writers) writer.join();
    EXPECT_EQ(read + passed_over, all());
    EXPECT_EQ(passed_over > 0, GetParam().passes_over);
}

INSTANTIATE_TEST_SUITE_P(Modes, ReadAhead,
                         testing::Values(Reading{"Polling", postgres::Mode::kPolling},
                                         Reading{"Stream", postgres::Mode::kStream},
                                         Reading{"PassingOver", postgres::Mode::kPolling, true},
                                         Reading{"StreamPassingOver", postgres::Mode::kStream,
                                                 true}),
                         [](const auto& reading) { return reading.param.name; });

// A relay looks ten times a second: what is not due yet must cost it nothing.
TEST_F(NativeTable, ALookForDueEventsReadsNoneThatAreNotDue) {
    pg_.exec(
        "INSERT INTO outbox_scheduled (id, topic, payload, available_at) "
        "SELECT gen_random_uuid(), 't', '1', now() + n * interval '1 minute' "
        "FROM generate_series(1, 5000) n");
    pg_.exec("ANALYZE outbox_scheduled");
    const std::string read_so_far =
        "SELECT pg_stat_get_tuples_returned('outbox_scheduled'::regclass) + "
        "pg_stat_get_tuples_returned('outbox_scheduled_pkey'::regclass)";
    const long long before = Pg(url_).number(read_so_far);
    {
        Relay relay(config());
        for (int look = 0; look < 10; ++look) {
            EXPECT_EQ(value_of(relay.recorder().move_due(relay.epoch(), 100)), 0U);
        }
        pg_.exec(
            "UPDATE outbox_scheduled SET available_at = now() WHERE available_at < "
            "now() + interval '90 seconds'");
        EXPECT_EQ(value_of(relay.recorder().move_due(relay.epoch(), 100)), 1U);
    }
    // A session tells its counts when it ends; those of the UPDATE are in it, too.
    pg_ = Pg(url_);
    ASSERT_TRUE(eventually(60s, "the sessions have told what they read",
                           [&] { return Pg(url_).number(read_so_far) > before; }));
    EXPECT_LT(Pg(url_).number(read_so_far) - before, 1'000);
}

}  // namespace
}  // namespace outbox::test
