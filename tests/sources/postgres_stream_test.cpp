#include <algorithm>
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>
#include <thread>

#include <outbox/producer/migrate.h>

#include "sources/postgres/stream.h"
#include "tests/sources/postgres_support.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

// A reader of the source that is turned by the test's thread.
class Route {
  public:
    explicit Route(spi::Source& source) : reader_(value_of(source.open_reader("default"))) {}

    // The payloads of what one read returns.
    std::vector<std::string> read(const spi::ReadLimits& limits = kAll) {
        spi::EventBatch batch;
        require(reader_->read(limits, batch));
        if (auto path = reader_->new_path()) {
            path_ = *path;
            paths_.push_back(path->path + ": " + path->reason);
        }
        std::vector<std::string> payloads;
        for (const spi::EventView& event : batch.events()) payloads.emplace_back(event.payload);
        return payloads;
    }

    // Reads until the stream is joined; what comes meanwhile is kept in `seen`.
    testing::AssertionResult joins(std::chrono::seconds deadline = 20s) {
        return eventually(deadline, "the route is on the stream", [&] {
            const auto now = read();
            seen.insert(seen.end(), now.begin(), now.end());
            return path() == "stream";
        });
    }
    // Reads until `count` more events have come, and returns them.
    std::vector<std::string> next(std::size_t count) {
        std::vector<std::string> out;
        EXPECT_TRUE(eventually(20s, "the events come", [&] {
            static_cast<void>(reader_->wait(1ms));
            const auto now = read();
            out.insert(out.end(), now.begin(), now.end());
            return out.size() >= count;
        }));
        return out;
    }

    [[nodiscard]] const std::string& path() const { return path_.path; }
    [[nodiscard]] const std::string& reason() const { return path_.reason; }
    [[nodiscard]] const std::vector<std::string>& paths() const { return paths_; }
    spi::Reader& reader() { return *reader_; }

    std::vector<std::string> seen;

  private:
    std::unique_ptr<spi::Reader> reader_;
    spi::ReadPath path_;
    std::vector<std::string> paths_;
};

class Stream : public testing::Test {
  protected:
    void SetUp() override { migrate(url_); }

    postgres::PostgresSourceConfig config() const {
        postgres::PostgresSourceConfig config;
        config.url = url_;
        config.mode = postgres::Mode::kStream;
        return config;
    }

    static std::string insert(const std::string& payload, const std::string& key = "k") {
        return "INSERT INTO outbox_events (topic, key, payload) VALUES ('t', '" + key + "', '" +
               payload + "')";
    }
    // Leaves no row; only the stream has the event.
    static std::string insert_and_delete(const std::string& payload) {
        return "BEGIN; " + insert(payload) + "; DELETE FROM outbox_events WHERE payload = '" +
               payload + "'; COMMIT";
    }
    std::string slots() {
        return pg_.value(
            "SELECT count(*) FROM pg_replication_slots WHERE database = "
            "current_database()");
    }

    std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
    std::unique_ptr<spi::Source> source_;

    spi::Source& source() {
        if (!source_) source_ = value_of(postgres::make_postgres_source(config()));
        return *source_;
    }
};

TEST_F(Stream, ServesARouteThatHasCaughtUp) {
    pg_.exec(insert("1"));
    Route route(source());
    ASSERT_TRUE(route.joins());
    EXPECT_THAT(route.seen, ElementsAre("1"));
    pg_.exec(insert_and_delete("2"));
    pg_.exec(insert("3"));
    EXPECT_THAT(route.next(2), ElementsAre("2", "3"));
    EXPECT_EQ(slots(), "1");
}

TEST_F(Stream, EndsWithItsLastReader) {
    {
        Route route(source());
        ASSERT_TRUE(route.joins());
        EXPECT_EQ(slots(), "1");
    }
    EXPECT_TRUE(eventually(10s, "the slot is gone", [&] { return slots() == "0"; }));
}

TEST_F(Stream, BringsNothingThatWasRolledBackAndItsPositionsAreProvedEmpty) {
    Route route(source());
    ASSERT_TRUE(route.joins());
    pg_.exec("BEGIN; " + insert("0") + "; ROLLBACK");
    pg_.exec("BEGIN; " + insert("1") + "; SAVEPOINT s; " + insert("0") + "; ROLLBACK TO s; " +
             insert("2") + "; COMMIT");
    EXPECT_THAT(route.next(2), ElementsAre("1", "2"));
    std::set<spi::Position> closed;
    EXPECT_TRUE(eventually(20s, "both holes are closed", [&] {
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

TEST_F(Stream, IsWaitedForByReadingTheTableWhileATransactionIsOpen) {
    Route route(source());
    Pg other(shared_postgres().url());
    other.exec("BEGIN; SELECT pg_current_xact_id()");  // in another database, too
    for (int i = 0; i < 50; ++i) {
        pg_.exec(insert(std::to_string(i)));
        EXPECT_THAT(route.next(1), ElementsAre(std::to_string(i)));
        EXPECT_EQ(route.path(), "polling");
    }
    // The slot's making waits by now, and goes on when it need not wait.
    EXPECT_TRUE(eventually(10s, "a slot is being made", [&] {
        static_cast<void>(route.read());
        return slots() == "1";
    }));
    other.exec("COMMIT");
    EXPECT_TRUE(route.joins());
}

TEST_F(Stream, ThatIsNotMadeYetLeavesNoSlotBehind) {
    Pg other(shared_postgres().url());
    other.exec("BEGIN; SELECT pg_current_xact_id()");
    {
        Route route(source());
        EXPECT_TRUE(eventually(10s, "a slot is being made", [&] {
            static_cast<void>(route.read());
            return slots() == "1";
        }));
    }
    EXPECT_TRUE(eventually(10s, "the slot is gone", [&] { return slots() == "0"; }));
}

TEST_F(Stream, TooMuchForARouteLeavesItToTheTable) {
    Route route(source());
    ASSERT_TRUE(route.joins());
    // More than a queue holds, in one transaction.
    pg_.exec(
        "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k', "
        "to_jsonb(i::text || repeat('x', 1000)) FROM generate_series(1, 12000) i");
    EXPECT_TRUE(eventually(20s, "the route is behind", [&] {
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

TEST_F(Stream, ThatWasCutIsReplacedAndMeanwhileTheTableIsRead) {
    Route route(source());
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(route.joins());
        pg_.exec(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            "WHERE database = current_database()");
        pg_.exec(insert("1"));
        EXPECT_THAT(route.next(1), ElementsAre("1"));
        EXPECT_TRUE(eventually(10s, "the loss is told", [&] {
            static_cast<void>(route.read());
            return route.path() == "polling";
        }));
        EXPECT_THAT(route.reason(), HasSubstr("terminating connection"));
    }
}

TEST_F(Stream, IsSharedByRoutesAndBeginsAnewForOneThatCameLater) {
    Route first(source());
    ASSERT_TRUE(first.joins());
    Route second(source());
    const auto both = [&] {
        static_cast<void>(first.read());
        static_cast<void>(second.read());
        return first.path() == "stream" && second.path() == "stream";
    };
    EXPECT_TRUE(eventually(30s, "both are on the stream", both));
    EXPECT_EQ(slots(), "1");
    pg_.exec(insert_and_delete("1"));
    EXPECT_THAT(first.next(1), ElementsAre("1"));
    EXPECT_THAT(second.next(1), ElementsAre("1"));
}

class StreamRights : public Stream {
  protected:
    // A role that may do all that polling needs.
    void SetUp() override {
        Stream::SetUp();
        role_ = "relay_" + std::to_string(roles++);
        pg_.exec("DROP ROLE IF EXISTS " + role_ + "; CREATE ROLE " + role_ +
                 " LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO " + role_);
    }
    postgres::PostgresSourceConfig config_of_role(postgres::Mode mode) const {
        postgres::PostgresSourceConfig out = config();
        out.url.replace(out.url.find("postgres@"), 8, role_);
        out.mode = mode;
        return out;
    }
    std::string role_;

  private:
    static inline int roles = 0;
};

TEST_F(StreamRights, AreNamedWithTheStatementsThatGiveThemAndThePathChangesOnceTheyAreGiven) {
    const auto config = config_of_role(postgres::Mode::kAuto);
    const auto source = value_of(postgres::make_postgres_source(config));
    const std::string told = findings(*source);
    EXPECT_THAT(told, HasSubstr("events: by polling; the stream would need"));
    EXPECT_THAT(told, HasSubstr("ALTER ROLE \"" + role_ + "\" REPLICATION"));
    EXPECT_THAT(told, HasSubstr("CREATE PUBLICATION \"outbox\" FOR TABLE "
                                "\"public\".\"outbox_events\" WITH (publish = 'insert')"));
    Route route(*source);
    pg_.exec(insert("1"));
    EXPECT_THAT(route.next(1), ElementsAre("1"));
    EXPECT_TRUE(eventually(10s, "the reason is told", [&] {
        static_cast<void>(route.read());
        return route.reason().find("ALTER ROLE") != std::string::npos;
    }));
    pg_.exec("ALTER ROLE " + role_ +
             " REPLICATION; CREATE PUBLICATION outbox FOR TABLE "
             "outbox_events WITH (publish = 'insert')");
    EXPECT_THAT(findings(*source), HasSubstr("events: by the stream of the log"));
    EXPECT_TRUE(route.joins());
    pg_.exec(insert_and_delete("2"));
    EXPECT_THAT(route.next(1), ElementsAre("2"));
}

TEST_F(StreamRights, MissingMakeModeStreamRefuseToStart) {
    const auto source = postgres::make_postgres_source(config_of_role(postgres::Mode::kStream));
    ASSERT_FALSE(source.ok());
    EXPECT_EQ(source.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(source.error().advice, Advice::kStop);
    EXPECT_THAT(source.error().message, HasSubstr("REPLICATION"));
    EXPECT_THAT(source.error().message, HasSubstr("mode auto"));
}

TEST_F(Stream, LeavesAPublicationOfOthersAloneAndSaysWhatItWouldNeed) {
    pg_.exec("CREATE TABLE other (a int); CREATE PUBLICATION outbox FOR TABLE other");
    auto mode_auto = config();
    mode_auto.mode = postgres::Mode::kAuto;
    const auto source = value_of(postgres::make_postgres_source(mode_auto));
    const std::string add = "ALTER PUBLICATION \"outbox\" ADD TABLE \"public\".\"outbox_events\"";
    EXPECT_THAT(findings(*source), HasSubstr(add));
    Route route(*source);
    EXPECT_TRUE(eventually(20s, "the reason is told", [&] {
        static_cast<void>(route.read());
        return route.reason().find(add) != std::string::npos;
    }));
    pg_.exec(add);
    ASSERT_TRUE(route.joins());
    pg_.exec("INSERT INTO other VALUES (1)");
    pg_.exec(insert_and_delete("1"));
    EXPECT_THAT(route.next(1), ElementsAre("1"));
}

TEST_F(Stream, EndsWhenThePublicationNoLongerShowsTheTable) {
    Route route(source());
    ASSERT_TRUE(route.joins());
    pg_.exec("ALTER PUBLICATION outbox DROP TABLE outbox_events");
    pg_.exec(insert("1"));
    EXPECT_THAT(route.next(1), ElementsAre("1"));
    EXPECT_EQ(route.path(), "polling");
    EXPECT_THAT(route.reason(), HasSubstr("the publication was changed"));
    EXPECT_TRUE(eventually(20s, "what it would need is told", [&] {
        static_cast<void>(route.read());
        return route.reason().find("ADD TABLE") != std::string::npos;
    }));
    pg_.exec("ALTER PUBLICATION outbox ADD TABLE outbox_events");
    EXPECT_TRUE(route.joins(60s));
}

// Writers of a key serialise on its row before they insert; everything else is free. The stream is
// cut again and again.
TEST_F(Stream, KeepsEachKeysOrderAndReturnsEachEventOnceAcrossJoinsAndLosses) {
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
    EXPECT_TRUE(eventually(20s, "all has come", [&] {
        take();
        for (const auto& row : pg_.query("SELECT key, n FROM keys")) {
            if (last[*row[0]] < std::stoi(*row[1])) return !in_order;
        }
        return true;
    }));
    EXPECT_TRUE(in_order);
}

}  // namespace
}  // namespace outbox::test
