#include <algorithm>
#include <atomic>
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "databases/postgres/replication.h"
#include "databases/postgres/stream/hub.h"
#include "databases/postgres/stream/pgoutput.h"
#include "tests/databases/postgres/stream_support.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_P(Stream, ServesARouteThatHasCaughtUp) {
    pg_.exec(insert("1"));
    Route route(source());
    ASSERT_TRUE(route.joins());
    EXPECT_THAT(route.seen, ElementsAre("1"));
    pg_.exec(insert_and_delete("2"));
    pg_.exec(insert("3"));
    EXPECT_THAT(route.next(2), ElementsAre("2", "3"));
    EXPECT_EQ(slots(), "1");
}

// The server would tell of each flush of its log, whatever it brings.
TEST_P(Stream, IsNotToldOfEachCommitOfOthers) {
    auto stream = value_of(postgres::ReplicationStream::open(url_, 60));
    postgres::Wakeup wakeup;
    const auto slot =
        value_of(stream.create_slot("outbox_of_this_test", wakeup, [] { return false; }));
    require(stream.start(slot, "outbox"));
    int keepalives = 0;
    int asked_for = 0;  // of them, at most
    const auto server_has_sent = [&](postgres::Lsn place) {
        return eventually(60s, "the server has sent all", [&] {
            require(stream.confirm(slot.start, true));
            ++asked_for;
            require(stream.wait(wakeup, 50ms));
            postgres::Lsn sent = 0;
            std::string_view bytes;
            Status status;
            while (stream.next(bytes, status) == postgres::ReplicationStream::Next::kMessage) {
                postgres::pgoutput::Envelope envelope;
                require(postgres::pgoutput::parse_envelope(bytes, envelope));
                if (!envelope.keepalive) continue;
                ++keepalives;
                sent = envelope.end_lsn;
            }
            require(status);
            return sent >= place;
        });
    };
    ASSERT_TRUE(server_has_sent(slot.start));
    pg_.exec("CREATE TABLE others (n int)");
    keepalives = 0;
    asked_for = 0;
    for (int i = 0; i < 300; ++i) pg_.exec("INSERT INTO others VALUES (1)");
    const auto end = postgres::pgoutput::parse_lsn(pg_.value("SELECT pg_current_wal_flush_lsn()"));
    ASSERT_TRUE(server_has_sent(end.value()));
    EXPECT_LT(keepalives - asked_for, 30);
    EXPECT_EQ(pg_.number("SELECT count(*) FROM pg_stat_replication WHERE flush_lsn > sent_lsn OR "
                         "replay_lsn > sent_lsn"),
              0);
}

// More than one fill of libpq's buffer.
TEST_P(Stream, IsReadWholeAsFarAsItHasCome) {
    auto stream = value_of(postgres::ReplicationStream::open(url_, 60));
    postgres::Wakeup wakeup;
    const auto slot =
        value_of(stream.create_slot("outbox_of_this_test", wakeup, [] { return false; }));
    require(stream.start(slot, "outbox"));
    pg_.exec(
        "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k', to_jsonb(repeat('x', "
        "400)) FROM generate_series(1, 100)");
    const std::string end = pg_.value("SELECT pg_current_wal_flush_lsn()");
    ASSERT_TRUE(eventually(60s, "all is sent", [&] {
        return pg_.number(
                   "SELECT count(*) FROM pg_stat_replication WHERE application_name = "
                   "'outbox_stream' AND sent_lsn >= '" +
                   end + "'") == 1;
    }));
    require(stream.wait(wakeup, 50ms));
    std::size_t bytes = 0;
    std::string_view message;
    Status status;
    while (stream.next(message, status) == postgres::ReplicationStream::Next::kMessage) {
        bytes += message.size();
    }
    require(status);
    EXPECT_GE(bytes, 100 * 400U);
}

// As one whose decoding is slower than the writers.
TEST_P(Stream, ThatStaysBehindIsLeftForOneThatBeginsWhereTheWritersAre) {
    Route route(source());
    ASSERT_TRUE(route.joins());
    const auto sender = static_cast<pid_t>(
        pg_.number("SELECT active_pid FROM pg_replication_slots WHERE database = "
                   "current_database()"));
    // At once: after ten seconds of silence the sender would pass for one that is gone.
    std::string much;
    for (int i = 1; i <= 3; ++i) much += insert(std::to_string(i)) + "; SELECT pg_switch_wal(); ";
    ASSERT_EQ(kill(sender, SIGSTOP), 0);
    pg_.exec(much);
    EXPECT_THAT(route.next(3), ElementsAre("1", "2", "3"));
    EXPECT_TRUE(eventually(60s, "the stream is left", [&] {
        static_cast<void>(route.read());
        return route.reason().find("slower than the writers") != std::string::npos;
    }));
    kill(sender, SIGCONT);
    EXPECT_TRUE(route.joins());
}

// By a transaction that stays open, while there is a stream and while one is being made.
TEST_P(Stream, IsLeftBeforeTheServerKeepsMoreOfItsLogForItThanTheLimit) {
    postgres::PostgresSourceConfig config = this->config();
    config.max_kept_log = 64 << 20;
    const auto source = value_of(postgres::make_postgres_source(config));
    const auto write_more = [&] {
        for (int segment = 0; segment < 6; ++segment) {
            pg_.exec("SELECT pg_logical_emit_message(false, 'of this test', '')");
            pg_.exec("SELECT pg_switch_wal()");
            pg_.exec("CHECKPOINT");  // lets a slot keep less, if nothing holds it
        }
    };
    const auto slot = [&] {
        return pg_.value(
            "SELECT coalesce(max(slot_name), '') FROM pg_replication_slots WHERE "
            "database = current_database()");
    };
    Route route(*source);
    ASSERT_TRUE(route.joins());
    Pg other(shared_postgres().url());
    // One that has written nothing does not hold the slot back.
    other.exec("BEGIN; SELECT pg_logical_emit_message(true, 'of this test', '')");
    write_more();
    EXPECT_TRUE(eventually(60s, "the stream is left", [&] {
        static_cast<void>(route.read());
        return route.reason().find("of its log for the stream") != std::string::npos;
    }));
    std::string waits;
    EXPECT_TRUE(eventually(60s, "a slot is being made", [&] {
        static_cast<void>(route.read());
        return !(waits = slot()).empty();
    }));
    EXPECT_EQ(route.path(), "polling");
    write_more();
    EXPECT_TRUE(eventually(60s, "it is given up", [&] { return slot() != waits; }));
    other.exec("COMMIT");
    EXPECT_TRUE(route.joins());
}

// A route whose destination is away reads nothing.
TEST_P(Stream, ThatARouteWantedAndDoesNotJoinIsNotOfferedAgainBeforeItReads) {
    auto connection = value_of(postgres::Connection::open(url_, 60));
    const postgres::Table table = value_of(postgres::resolve_table(connection, config()));
    postgres::Identity identity(table);
    postgres::StreamHub hub(config(), table, identity);
    postgres::StreamHub::Subscription away(hub);
    const auto is_offered = [&](postgres::StreamHub::Subscription& route) {
        return eventually(60s, "it is offered", [&] {
            route.want();
            return route.offer().has_value();
        });
    };
    ASSERT_TRUE(is_offered(away));
    ASSERT_TRUE(eventually(60s, "the offer is over", [&] { return !away.offer(); }));
    // Whoever is offered a stream is at the same moment.
    postgres::StreamHub::Subscription reading(hub);
    ASSERT_TRUE(is_offered(reading));
    EXPECT_FALSE(away.offer());
    static_cast<void>(
        reading.answer(reading.offer().value_or(postgres::StreamHub::Offer()), false));
    EXPECT_TRUE(is_offered(away));
}

// The server's own question would come five seconds after the last answer, the stream's after half
// a second of silence.
TEST_P(Stream, ConfirmsWhatItHasReadAlsoWhileThereIsAlwaysMore) {
    Route route(source());
    ASSERT_TRUE(route.joins());
    pg_.exec(insert("0"));
    const std::string confirmed =
        "SELECT count(*) FROM pg_replication_slots WHERE active AND confirmed_flush_lsn >= '" +
        pg_.value("SELECT pg_current_wal_flush_lsn()") + "'";
    const std::string answered =
        "SELECT coalesce(max(reply_time)::text, '-infinity') FROM pg_stat_replication WHERE pid = "
        "(SELECT active_pid FROM pg_replication_slots WHERE database = current_database())";
    int more = 0;
    std::string last = pg_.value(answered);
    EXPECT_TRUE(eventually(120s, "it confirms before it is asked", [&] {
        pg_.exec(insert(std::to_string(++more)));
        const std::string answer = pg_.value(answered);
        const std::string before = std::exchange(last, answer);
        return answer != before && pg_.number(confirmed) == 1 &&
               pg_.value("SELECT '" + answer + "'::timestamptz < '" + before +
                         "'::timestamptz + interval '4 s'") == "t";
    }));
}

// In containers many relays of a cluster are process 1.
TEST(StreamSlots, HaveNamesThatNoOtherRelayHas) {
    EXPECT_NE(postgres::make_slot_prefix(), postgres::make_slot_prefix());
}

TEST_P(Stream, EndsWithItsLastReader) {
    {
        Route route(source());
        ASSERT_TRUE(route.joins());
        EXPECT_EQ(slots(), "1");
    }
    EXPECT_TRUE(eventually(60s, "the slot is gone", [&] { return slots() == "0"; }));
}

TEST_P(Stream, BringsNothingThatWasRolledBackAndItsPositionsAreProvedEmpty) {
    Route route(source());
    ASSERT_TRUE(route.joins());
    pg_.exec("BEGIN; " + insert("0") + "; ROLLBACK");
    pg_.exec("BEGIN; " + insert("1") + "; SAVEPOINT s; " + insert("0") + "; ROLLBACK TO s; " +
             insert("2") + "; COMMIT");
    EXPECT_THAT(route.next(2), ElementsAre("1", "2"));
    std::set<spi::Position> closed;
    EXPECT_TRUE(eventually(60s, "both holes are closed", [&] {
        spi::EventBatch batch;
        require(route.reader().read(kAll, batch));
        EXPECT_TRUE(batch.empty());
        for (const auto& range : batch.closed) {
            for (auto p = range.first; p <= range.last; ++p) closed.insert(p);
        }
        return closed.contains(1) && closed.contains(3);
    }));
    EXPECT_THAT(closed, ElementsAre(1, 3));
}

// A look at the table is due each second while there are holes, and each 30 s without. A route that
// joined long ago has not read the table since, and the stream alone tells of the hole.
TEST_P(Stream, PositionsThatItShowsToBeMissingAreProvedEmptyWithinSeconds) {
    Route route(source());
    ASSERT_TRUE(route.joins());
    pg_.exec("BEGIN; " + insert("0") + "; ROLLBACK");
    pg_.exec(insert("1"));
    EXPECT_THAT(route.next(1), ElementsAre("1"));
    EXPECT_TRUE(eventually(10s, "the hole is closed", [&] {
        spi::EventBatch batch;
        require(route.reader().read(kAll, batch));
        return std::ranges::any_of(
            batch.closed, [](const auto& range) { return range.first <= 1 && 1 <= range.last; });
    }));
    EXPECT_EQ(route.path(), "stream");
}

TEST_P(Stream, IsWaitedForByReadingTheTableWhileATransactionIsOpen) {
    Route route(source());
    Pg other(shared_postgres().url());
    other.exec("BEGIN; SELECT pg_current_xact_id()");  // in another database, too
    for (int i = 0; i < 50; ++i) {
        pg_.exec(insert(std::to_string(i)));
        EXPECT_THAT(route.next(1), ElementsAre(std::to_string(i)));
        EXPECT_EQ(route.path(), "polling");
    }
    // The slot's making waits by now, and goes on when it need not wait.
    EXPECT_TRUE(begins_to_join(route));
    other.exec("COMMIT");
    EXPECT_TRUE(route.joins());
}

TEST_P(Stream, ThatIsNotMadeYetLeavesNoSlotBehind) {
    Pg other(shared_postgres().url());
    other.exec("BEGIN; SELECT pg_current_xact_id()");
    {
        Route route(source());
        EXPECT_TRUE(begins_to_join(route));
    }
    EXPECT_TRUE(eventually(60s, "the slot is gone", [&] { return slots() == "0"; }));
}

// It is not even kept in memory: what is read in its place must be said.
TEST_P(Stream, ARowLargerThanAQueueIsLeftToTheTable) {
    pg_.exec("ALTER TABLE outbox_events DROP CONSTRAINT outbox_payload_size");
    Route route(source());
    ASSERT_TRUE(route.joins());
    pg_.exec(insert("1") +
             "; INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'k', "
             "to_jsonb(repeat('x', 5000000))); " +
             insert("3"));
    EXPECT_TRUE(eventually(60s, "the route is behind", [&] {
        static_cast<void>(route.reader().wait(10ms));
        const auto now = route.read();
        route.seen.insert(route.seen.end(), now.begin(), now.end());
        return route.path() == "polling";
    }));
    EXPECT_EQ(route.reason(), "the route is behind");
    const auto rest = route.next(3 - route.seen.size());
    route.seen.insert(route.seen.end(), rest.begin(), rest.end());
    ASSERT_EQ(route.seen.size(), 3U);
    EXPECT_EQ(route.seen[0], "1");
    EXPECT_GT(route.seen[1].size(), 5'000'000U);
    EXPECT_EQ(route.seen[2], "3");
}

TEST_P(Stream, TooMuchForARouteLeavesItToTheTable) {
    Route route(source());
    ASSERT_TRUE(route.joins());
    // More than a queue holds, in one transaction.
    pg_.exec(
        "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k', "
        "to_jsonb(i::text || repeat('x', 1000)) FROM generate_series(1, 12000) i");
    EXPECT_TRUE(eventually(60s, "the route is behind", [&] {
        static_cast<void>(route.reader().wait(10ms));
        const auto now = route.read({100, kAll.max_bytes});
        route.seen.insert(route.seen.end(), now.begin(), now.end());
        return route.path() == "polling";
    }));
    EXPECT_EQ(route.reason(), "the route is behind");
    const auto rest = route.next(12000 - route.seen.size());
    route.seen.insert(route.seen.end(), rest.begin(), rest.end());
    ASSERT_EQ(route.seen.size(), 12000U);
    for (std::size_t i = 0; i < route.seen.size(); ++i) {
        ASSERT_TRUE(route.seen[i].starts_with("\"" + std::to_string(i + 1) + "x"))
            << i << ": " << route.seen[i].substr(0, 20);
    }
    ASSERT_TRUE(route.joins());
    pg_.exec(insert_and_delete("1"));
    EXPECT_THAT(route.next(1), ElementsAre("1"));
}

TEST_P(Stream, ThatWasCutIsReplacedAndMeanwhileTheTableIsRead) {
    Route route(source());
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(route.joins());
        pg_.exec(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            "WHERE database = current_database()");
        pg_.exec(insert("1"));
        EXPECT_THAT(route.next(1), ElementsAre("1"));
        EXPECT_TRUE(eventually(60s, "the loss is told", [&] {
            static_cast<void>(route.read());
            return route.path() == "polling";
        }));
        EXPECT_THAT(route.reason(), HasSubstr("terminating connection"));
    }
}

// What was committed meanwhile is in the table alone.
TEST_P(Stream, WhosePublicationShowedLessForAWhileIsLeftBeforeWhatCameBehindThat) {
    Route route(source());
    ASSERT_TRUE(route.joins());
    pg_.exec("ALTER PUBLICATION outbox DROP TABLE outbox_events");
    pg_.exec(insert("1"));
    pg_.exec("ALTER PUBLICATION outbox ADD TABLE outbox_events");
    pg_.exec(insert("2"));
    EXPECT_THAT(route.next(2), ElementsAre("1", "2"));
    EXPECT_THAT(route.paths(), Contains("polling: the publication was changed"));
}

TEST_P(Stream, IsSharedByRoutesAndGoesOnForTheFirstWhenAnotherComes) {
    Route first(source());
    ASSERT_TRUE(first.joins());
    Route second(source());
    const auto both = [&] {
        static_cast<void>(first.read());
        static_cast<void>(second.read());
        return first.path() == "stream" && second.path() == "stream";
    };
    EXPECT_TRUE(eventually(60s, "both are on the stream", both));
    EXPECT_TRUE(eventually(60s, "one slot is left", [&] { return slots() == "1"; }));
    EXPECT_EQ(first.paths(), (std::vector<std::string>{"polling: catching up", "stream: "}));
    pg_.exec(insert_and_delete("1"));
    EXPECT_THAT(first.next(1), ElementsAre("1"));
    EXPECT_THAT(second.next(1), ElementsAre("1"));
}

// The second one's slot waits for the open transaction; what the others bring meanwhile is in its
// queue and, but for what was removed again, in its snapshot as well.
TEST_P(Stream, BringsARouteThatComesLaterEachEventOnceWhateverCameWhileItJoined) {
    Route first(source());
    ASSERT_TRUE(first.joins());
    pg_.exec(insert("1"));
    EXPECT_THAT(first.next(1), ElementsAre("1"));
    Pg other(shared_postgres().url());
    other.exec("BEGIN; SELECT pg_current_xact_id()");
    Route second(source());
    EXPECT_TRUE(eventually(60s, "a slot is being made", [&] {
        const auto now = second.read();
        second.seen.insert(second.seen.end(), now.begin(), now.end());
        return slots() == "2";
    }));
    for (const char* payload : {"2", "3", "4"}) pg_.exec(insert(payload));
    pg_.exec(insert_and_delete("5"));
    other.exec("COMMIT");
    ASSERT_TRUE(second.joins());
    pg_.exec(insert_and_delete("6"));
    EXPECT_TRUE(eventually(60s, "all has come", [&] {
        const auto now = second.read();
        second.seen.insert(second.seen.end(), now.begin(), now.end());
        return second.seen.size() >= 6;
    }));
    EXPECT_THAT(second.seen, ElementsAre("1", "2", "3", "4", "5", "6"));
    EXPECT_THAT(first.next(5), ElementsAre("2", "3", "4", "5", "6"));
    EXPECT_EQ(first.path(), "stream");
}

TEST_P(Stream, IsNotJoinedByARouteThatHasMoreToReadThanItTakesAtOnceWhichIsSaid) {
    Route route(source());
    Pg other(shared_postgres().url());
    other.exec("BEGIN; SELECT pg_current_xact_id()");
    EXPECT_TRUE(begins_to_join(route));
    pg_.exec(
        "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k', '1' "
        "FROM generate_series(1, 1000)");
    other.exec("COMMIT");
    EXPECT_TRUE(eventually(60s, "the reason is told", [&] {
        static_cast<void>(route.read({1, kAll.max_bytes}));
        return route.reason().find("while the route joined") != std::string::npos;
    }));
    EXPECT_TRUE(route.joins());
}

TEST_P(Stream, ThatCannotBeDecodedIsLeftWithTheDecodersOwnReason) {
    Route route(source());
    ASSERT_TRUE(route.joins());
    pg_.exec(
        "DO $$ DECLARE c name; BEGIN FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = "
        "'outbox_events'::regclass AND contype = 'c' LOOP EXECUTE format('ALTER TABLE "
        "outbox_events DROP CONSTRAINT %I', c); END LOOP; END $$");
    pg_.exec("ALTER TABLE outbox_events ALTER routing_key TYPE interval USING NULL");
    pg_.exec(insert("1"));
    route.seen.clear();
    EXPECT_TRUE(eventually(60s, "the event comes and the obstacle is told", [&] {
        const auto now = route.read();
        route.seen.insert(route.seen.end(), now.begin(), now.end());
        return route.seen.size() == 1 &&
               route.reason().find("has type interval") != std::string::npos;
    }));
    for (const std::string& path : route.paths()) {
        EXPECT_TRUE(path == "polling: catching up" || path == "stream: " ||
                    path.find("routing_key") != std::string::npos)
            << path;
    }
}

// Writers of a key serialise on its row before they insert; everything else is free. The stream is
// cut again and again.
TEST_P(Stream, KeepsEachKeysOrderAndReturnsEachEventOnceAcrossJoinsAndLosses) {
    pg_.exec(
        "CREATE TABLE keys (key int PRIMARY KEY, n int NOT NULL); "
        "INSERT INTO keys SELECT i, 0 FROM generate_series(1, 8) i");
    constexpr unsigned kWriters = 4;
    constexpr int kJoins = 3;  // after each cut the next stream is longer in coming
    constexpr std::size_t kEventsOnEach = 200;
    std::atomic<bool> enough{false};
    std::vector<std::thread> writers;
    for (unsigned w = 0; w < kWriters; ++w) {
        writers.emplace_back([&, w] {
            Pg pg(url_);
            std::mt19937 random(w);
            while (!enough) {
                const auto key = std::to_string(random() % 8 + 1);
                pg.exec("BEGIN");
                const auto n =
                    pg.value("UPDATE keys SET n = n + 1 WHERE key = " + key + " RETURNING n");
                pg.exec(insert(n, key));
                std::this_thread::sleep_for(std::chrono::milliseconds(random() % 8));
                pg.exec(random() % 8 == 0 ? "ROLLBACK" : "COMMIT");
            }
        });
    }
    Route route(source());
    std::map<std::string, int> last;
    std::mt19937 random(77);
    int joins = 0;
    bool streaming = false;  // only then is there something to cut; a join is let be
    std::size_t on_stream = 0;
    bool in_order = true;
    const auto take = [&] {
        static_cast<void>(route.reader().wait(1ms));
        spi::EventBatch batch;
        require(route.reader().read({random() % 500 + 200, 1 << 20}, batch));
        for (const spi::EventView& event : batch.events()) {
            int& n = last[std::string(event.key)];
            in_order = in_order && std::stoi(std::string(event.payload)) == n + 1;
            ++n;
        }
        if (const auto path = route.reader().new_path()) {
            streaming = path->path == "stream";
            if (streaming) ++joins;
            on_stream = 0;
        }
        if (streaming) on_stream += batch.size();
    };
    Pg killer(url_);
    EXPECT_TRUE(eventually(180s, "the stream is joined several times", [&] {
        for (int i = 0; i < 50 && in_order; ++i) take();
        if (on_stream > kEventsOnEach) {
            killer.exec(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
                "WHERE database = current_database()");
        }
        return !in_order || (joins >= kJoins && on_stream > kEventsOnEach);
    }));
    enough = true;
    for (std::thread& writer : writers) writer.join();
    EXPECT_TRUE(eventually(60s, "all has come", [&] {
        take();
        for (const auto& row : pg_.query("SELECT key, n FROM keys")) {
            if (last[*row[0]] < std::stoi(*row[1])) return !in_order;
        }
        return true;
    }));
    EXPECT_TRUE(in_order);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Stream, kEachLayout, name_of_layout);

}  // namespace
}  // namespace outbox::test
