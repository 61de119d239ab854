#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>

#include <outbox/producer/migrate.h>

#include "tests/databases/postgres/support.h"
#include "tests/support/eventually.h"
#include "tests/support/unfenced_primary.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// What ends a term because positions no longer mean the same, on both paths.
class IdentityOfTheSource : public testing::TestWithParam<postgres::Mode> {
  protected:
    void SetUp() override {
        migrate(server_.url());
        pg().exec(
            "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k', '1' "
            "FROM generate_series(1, 10)");
    }

    Pg pg() const { return Pg(server_.url()); }
    postgres::PostgresSourceConfig config() const {
        postgres::PostgresSourceConfig config;
        config.url = server_.url();
        config.mode = GetParam();
        return config;
    }
    // Reads all there is, on the path of the test.
    static void settle(Relay& relay) {
        bool stream = GetParam() == postgres::Mode::kPolling;
        std::size_t seen = 0;
        ASSERT_TRUE(eventually(60s, "all is read", [&] {
            seen += relay.read().size();
            if (const auto path = relay.reader().new_path()) stream = path->path == "stream";
            return seen >= 10 && (stream || GetParam() == postgres::Mode::kPolling);
        }));
    }
    // What a term's threads meet, which try again where the advice says so.
    static ErrorInfo end_of_term(Relay& relay) {
        ErrorInfo end;
        EXPECT_TRUE(eventually(60s, "the term ends", [&] {
            spi::EventBatch batch;
            const Status status = relay.reader().read(kAll, batch);
            if (status.ok() || status.error().advice != Advice::kStop) return false;
            end = status.error();
            return true;
        }));
        return end;
    }
    static ErrorInfo end_of_recorder(Relay& relay, spi::Position position) {
        ErrorInfo end;
        EXPECT_TRUE(eventually(60s, "the recorder refuses", [&] {
            const std::vector<spi::Position> positions{position};
            const auto removed = relay.recorder().remove(relay.epoch(), positions);
            if (removed.ok() || removed.error().advice != Advice::kStop) return false;
            end = removed.error();
            return true;
        }));
        return end;
    }
    void copy_data(const std::filesystem::path& to) const {
        std::filesystem::remove_all(to);
        ASSERT_EQ(std::system(("cp -a " + server_.data().string() + " " + to.string()).c_str()), 0);
    }
    void replace_data(const std::filesystem::path& from) const {
        std::filesystem::remove_all(server_.data());
        ASSERT_EQ(std::system(("cp -a " + from.string() + " " + server_.data().string()).c_str()),
                  0);
    }

    PostgresServer server_;
    TemporaryFolder folder_{"copy"};
};

TEST_P(IdentityOfTheSource, ATableWhosePositionsBeginAnewStopsTheRelayAndLosesNothing) {
    Relay relay(config());
    settle(relay);
    pg().exec(
        "TRUNCATE outbox_events RESTART IDENTITY; "
        "INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'k', '2')");
    // What was on its way to be removed had the position of the new event.
    EXPECT_EQ(end_of_recorder(relay, 1).code, ErrorCode::kTableReset);
    EXPECT_EQ(pg().number("SELECT count(*) FROM outbox_events"), 1);
    const ErrorInfo end = end_of_term(relay);
    EXPECT_EQ(end.code, ErrorCode::kTableReset) << end.message;
    EXPECT_THAT(end.message, HasSubstr("start the relay again"));
    relay.end();
    Relay next(config());
    EXPECT_EQ(next.read().size(), 1U);
}

// `setval` with false names the number that comes next.
TEST_P(IdentityOfTheSource, ASequenceThatIsSetForwardIsNoneThatBeganAnew) {
    Relay relay(config());
    settle(relay);
    spi::RecordBatch batch = relay.fresh();
    batch.finished.push_back({0, {10}});
    require(relay.recorder().record(batch));
    for (const std::string next : {"11", "1000"}) {
        pg().exec("SELECT setval('outbox_events_position_seq', " + next + ", false)");
        const std::vector<spi::Position> missing{999};  // so that it looks why
        const auto removed = relay.recorder().remove(relay.epoch(), missing);
        EXPECT_TRUE(removed.ok()) << next << ": " << describe(removed.error());
    }
    relay.end();
    Relay again(config());
    EXPECT_THAT(again.notes(), testing::IsEmpty());
    EXPECT_EQ(again.read().size(), 9U);
    pg().exec("INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'k', '1')");
    EXPECT_TRUE(eventually(60s, "the next one comes", [&] {
        const auto events = again.read();
        return !events.empty() && events.back().position == 1000;
    }));
}

TEST_P(IdentityOfTheSource, ARemovalUnderWayDoesNotHitAnEventThatGotItsPositionAnew) {
    Relay relay(config());
    settle(relay);
    relay.publish({1});
    pg().exec(
        "TRUNCATE outbox_events RESTART IDENTITY; "
        "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k', '2' "
        "FROM generate_series(1, 20)");
    spi::RecordBatch batch = relay.fresh();
    batch.finished.push_back({0, {2}});
    require(relay.recorder().record(batch));  // on the connection that is open
    EXPECT_EQ(end_of_recorder(relay, 2).code, ErrorCode::kTableReset);
    EXPECT_EQ(pg().number("SELECT count(*) FROM outbox_events"), 20);
    EXPECT_EQ(end_of_term(relay).code, ErrorCode::kTableReset);
    EXPECT_EQ(pg().number("SELECT count(*) FROM outbox_events"), 20);
}

// Where there are more than before, some lie where the reader goes on.
TEST_P(IdentityOfTheSource, NothingOfATableThatBeganAnewIsTakenForTheOldOnes) {
    Relay relay(config());
    settle(relay);
    pg().exec(
        "BEGIN; TRUNCATE outbox_events RESTART IDENTITY; INSERT INTO outbox_events (topic, key, "
        "payload) SELECT 't', 'k', '2' FROM generate_series(1, 20); COMMIT");
    EXPECT_TRUE(eventually(60s, "it stops", [&] {
        spi::EventBatch batch;
        const Status read = relay.reader().read(kAll, batch);
        EXPECT_EQ(batch.size(), 0U);
        return !read.ok() && read.error().code == ErrorCode::kTableReset;
    }));
}

TEST_P(IdentityOfTheSource, ATableThatWasReplacedStopsTheRelay) {
    Relay relay(config());
    settle(relay);
    pg().exec(
        "BEGIN; ALTER TABLE outbox_events RENAME TO old; "
        "CREATE TABLE outbox_events (LIKE old INCLUDING ALL); COMMIT");
    const ErrorInfo end = end_of_term(relay);
    EXPECT_EQ(end.code, ErrorCode::kTableReset) << end.message;
    EXPECT_THAT(end.message, HasSubstr("replaced"));
}

TEST_P(IdentityOfTheSource, ATableThatWasRewrittenOrEmptiedGoesOn) {
    Relay relay(config());
    settle(relay);
    pg().exec("VACUUM FULL outbox_events");
    relay.publish({1});
    EXPECT_TRUE(eventually(60s, "the row is removed", [&] {
        relay.read();
        relay.remove();
        return pg().number("SELECT count(*) FROM outbox_events") == 9;
    }));
    pg().exec(
        "TRUNCATE outbox_events; "
        "INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'k', '2')");
    EXPECT_TRUE(eventually(60s, "the next event comes", [&] { return relay.read().size() == 1; }));
}

TEST_P(IdentityOfTheSource, APromotedServerEndsTheTermAndNoneOfItsRemovalsIsAppliedThere) {
    server_.stop();
    copy_data(folder_ / "standby");
    std::ofstream(folder_ / "standby/standby.signal").close();
    server_.start();
    Relay relay(config());
    settle(relay);
    server_.stop();
    replace_data(folder_ / "standby");
    ASSERT_EQ(
        std::system(("chown postgres " + (server_.data() / "standby.signal").string()).c_str()), 0);
    server_.start();
    // A standby is waited for.
    spi::EventBatch batch;
    const Status standby = relay.reader().read(kAll, batch);
    ASSERT_FALSE(standby.ok());
    EXPECT_EQ(standby.error().advice, Advice::kRetryDestination);
    pg().exec("SELECT pg_promote()");
    const ErrorInfo end = end_of_term(relay);
    EXPECT_EQ(end.code, ErrorCode::kServerChanged) << end.message;
    EXPECT_EQ(end_of_recorder(relay, 1).code, ErrorCode::kServerChanged);
    EXPECT_EQ(pg().number("SELECT count(*) FROM outbox_events"), 10);
}

TEST_P(IdentityOfTheSource, EventsThatAFailoverLostAfterTheyWerePublishedAreNamed) {
    server_.stop();
    copy_data(folder_ / "standby");
    std::ofstream(folder_ / "standby/standby.signal").close();
    server_.start();
    Relay relay(config());
    settle(relay);
    EXPECT_TRUE(value_of(relay.source().ghosts()).empty());
    pg().exec(
        "INSERT INTO outbox_events (topic, key, payload) SELECT 't', 'k', '2' "
        "FROM generate_series(1, 3)");
    std::vector<spi::Position> lost;
    std::vector<std::string> ids;
    ASSERT_TRUE(eventually(60s, "the next events come", [&] {
        for (const spi::EventView& event : relay.read()) {
            lost.push_back(event.position);
            ids.emplace_back(event.id);
        }
        return lost.size() == 3;
    }));
    relay.publish({1, 2});  // that the standby has, with their rows
    relay.publish(lost);
    server_.stop(PostgresServer::Stop::kImmediate);
    replace_data(folder_ / "standby");
    ASSERT_EQ(
        std::system(("chown postgres " + (server_.data() / "standby.signal").string()).c_str()), 0);
    server_.start();
    pg().exec("SELECT pg_promote()");
    EXPECT_EQ(end_of_term(relay).code, ErrorCode::kServerChanged);
    // Another event has a lost one's position by now.
    pg().exec(
        "SELECT setval(pg_get_serial_sequence('outbox_events', 'position'), 10); "
        "INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'k', '3')");
    const auto next_term = value_of(relay.source().open_recorder());
    const auto ghosts = value_of(relay.source().ghosts());
    ASSERT_EQ(ghosts.size(), 3U);
    for (std::size_t i = 0; i < ghosts.size(); ++i) {
        EXPECT_EQ(ghosts[i].position, lost[i]);
        EXPECT_EQ(ghosts[i].id, ids[i]);
    }
    EXPECT_TRUE(value_of(relay.source().ghosts()).empty());
}

// What was committed with synchronous_commit = off and read may be gone, and its positions others'.
TEST_P(IdentityOfTheSource, ARecoveryFromACrashEndsTheTermAndARestartDoesNot) {
    server_.start();
    Relay relay(config());
    settle(relay);
    server_.stop();
    server_.start();
    pg().exec("SELECT pg_stat_reset_shared('bgwriter')");  // an operator's own beginning
    ASSERT_TRUE(eventually(60s, "it reads again", [&] {
        spi::EventBatch batch;
        const Status read = relay.reader().read(kAll, batch);
        EXPECT_TRUE(read.ok() || read.error().advice != Advice::kStop) << describe(read.error());
        return read.ok();
    }));
    server_.stop(PostgresServer::Stop::kImmediate);
    server_.start();
    const ErrorInfo end = end_of_term(relay);
    EXPECT_EQ(end.code, ErrorCode::kServerChanged) << end.message;
    EXPECT_NE(end.message.find("recovered from a crash"), std::string::npos) << end.message;
    EXPECT_EQ(end_of_recorder(relay, 1).code, ErrorCode::kServerChanged);
    // The next term works on what is there now.
    const auto next_term = value_of(relay.source().open_recorder());
    EXPECT_TRUE(value_of(relay.source().ghosts()).empty());
}

TEST_P(IdentityOfTheSource, AnOlderStateOfTheServerEndsTheTerm) {
    server_.stop();
    copy_data(folder_ / "backup");
    server_.start();
    Relay relay(config());
    settle(relay);
    pg().exec("CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 10000)");
    const std::string filled = pg().value("SELECT pg_current_wal_flush_lsn()");
    pg().exec("ALTER SYSTEM SET log_statement = 'all'");
    pg().exec("SELECT pg_reload_conf()");
    ASSERT_TRUE(eventually(60s, "a read notes how far the log is now", [&] {
        relay.read();
        return server_.log_tail().find("<unnamed>: SELECT to_regclass(") != std::string::npos;
    }));
    server_.stop(PostgresServer::Stop::kImmediate);
    replace_data(folder_ / "backup");
    server_.start();
    const ErrorInfo end = end_of_term(relay);
    EXPECT_EQ(end.code, ErrorCode::kServerChanged) << end.message;
    std::smatch reached;
    ASSERT_TRUE(
        std::regex_search(end.message, reached, std::regex("reached ([0-9A-F]+/[0-9A-F]+)")))
        << end.message;
    EXPECT_EQ(pg().value("SELECT '" + reached[1].str() + "'::pg_lsn >= '" + filled + "'"), "t");
    EXPECT_EQ(end_of_recorder(relay, 1).code, ErrorCode::kServerChanged);
    EXPECT_EQ(pg().number("SELECT count(*) FROM outbox_events"), 10);
}

// Nothing of the server tells that it is a copy: it is of the same timeline, was shut down in
// order, and its log is longer than that of the one in whose place it is.
TEST_P(IdentityOfTheSource, AnOlderStateThatWasWrittenOnEndsTheTermThatStillHoldsItsLease) {
    server_.start();
    Relay relay(config());
    settle(relay);
    server_.stop();
    copy_data(folder_ / "copy");
    server_.start();
    const auto lease = value_of(relay.source().open_lease());
    ASSERT_TRUE(eventually(60s, "the lease is renewed", [&] {
        const auto renewed = lease->renew(relay.epoch(), 1h);
        return renewed.ok() && *renewed;
    }));
    const std::string end = pg().value("SELECT pg_current_wal_lsn()");
    server_.stop();
    replace_data(folder_ / "copy");
    server_.start();
    pg().exec("CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 10000)");
    ASSERT_EQ(pg().value("SELECT pg_current_wal_lsn() > '" + end + "'"), "t");
    const ErrorInfo why = end_of_term(relay);
    EXPECT_EQ(why.code, ErrorCode::kServerChanged) << why.message;
    EXPECT_NE(why.message.find("the lease is as it was before"), std::string::npos) << why.message;
    EXPECT_EQ(end_of_recorder(relay, 1).code, ErrorCode::kServerChanged);
    Result<bool> renewed = ErrorInfo();
    ASSERT_TRUE(eventually(60s, "the lease answers", [&] {
        renewed = lease->renew(relay.epoch(), 1h);
        return renewed.ok();
    }));
    EXPECT_FALSE(*renewed) << "nor is it renewed";
}

// As where a relay stands still while the database is set back and another one takes over, both
// called the same, as containers may be.
TEST_P(IdentityOfTheSource, AnotherOwnersLeaseIsNotTakenForOnesOwnThoughItsEpochIsTheSame) {
    server_.start();
    Relay relay(config());
    settle(relay);
    const auto lease = value_of(relay.source().open_lease());
    ASSERT_TRUE(value_of(lease->renew(relay.epoch(), 1h)));
    pg().exec(
        "UPDATE outbox_lease SET acquired_at = acquired_at + interval '1 second', "
        "expires_at = expires_at + interval '1 hour'");
    pg().exec(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type IN ('client "
        "backend', 'walsender') AND pid <> pg_backend_pid()");
    const ErrorInfo why = end_of_term(relay);
    EXPECT_EQ(why.code, ErrorCode::kLeaseLost) << why.message;
    EXPECT_EQ(end_of_recorder(relay, 1).code, ErrorCode::kLeaseLost);
    ASSERT_TRUE(eventually(60s, "the lease answers", [&] {
        const auto renewed = lease->renew(relay.epoch(), 3h);
        EXPECT_FALSE(renewed.ok() && *renewed);
        return renewed.ok();
    }));
    ASSERT_TRUE(lease->release(relay.epoch()).ok());
    EXPECT_EQ(pg().number("SELECT count(*) FROM outbox_lease WHERE owner IS NOT NULL"), 1);
}

// After a split the next address of the URL may be another cluster's, which has a lease table, too.
TEST(LeaseOfTheSource, IsNeitherRenewedNorTakenOnAnotherServer) {
    PostgresServer first;
    PostgresServer second{PostgresServer::OwnIdentity()};
    migrate(first.url());
    migrate(second.url());
    postgres::PostgresSourceConfig config;
    config.url = "postgresql://postgres@127.0.0.1:" + std::to_string(first.port()) +
                 ",127.0.0.1:" + std::to_string(second.port()) + "/postgres";
    config.mode = postgres::Mode::kPolling;
    Relay relay(config);
    const auto lease = value_of(relay.source().open_lease());
    ASSERT_TRUE(value_of(lease->renew(relay.epoch(), 60s)));
    first.stop(PostgresServer::Stop::kImmediate);
    ErrorInfo refused;
    ASSERT_TRUE(eventually(60s, "the other server is met", [&] {
        const auto renewed = lease->renew(relay.epoch(), 60s);
        if (!renewed.ok()) refused = renewed.error();
        return renewed.ok() || refused.advice == Advice::kStop;
    }));
    EXPECT_EQ(refused.code, ErrorCode::kWrongServer) << refused.message;
    const auto taken = lease->acquire("me", 60s);
    ASSERT_FALSE(taken.ok());
    EXPECT_EQ(taken.error().code, ErrorCode::kWrongServer);
    EXPECT_EQ(Pg(second.url()).number("SELECT count(*) FROM outbox_lease"), 0);
}

// Whose sessions meet an old primary that came back beside the one in its place.
class IdentityBesideAnUnfencedPrimary : public testing::TestWithParam<postgres::Mode> {
  protected:
    IdentityBesideAnUnfencedPrimary() {
        config_.url = servers_.url();
        config_.mode = GetParam();
    }
    // Whether the old one has none of ours: one that was refused goes in a moment.
    bool is_left() {
        return eventually(60s, "no session stays on the old one", [&] {
            return Pg(servers_.old().url())
                       .number(
                           "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE "
                           "'outbox%'") == 0;
        });
    }

    UnfencedPrimary servers_{[](const std::string& url) { migrate(url); }};
    postgres::PostgresSourceConfig config_;
};

TEST_P(IdentityBesideAnUnfencedPrimary, ALeaseIsRenewedOnTheOneInItsPlace) {
    Relay relay(config_);
    const auto lease = value_of(relay.source().open_lease());
    ASSERT_TRUE(value_of(lease->renew(relay.epoch(), 60s)));
    servers_.come_back();
    EXPECT_TRUE(eventually(60s, "the lease is renewed where it was", [&] {
        const auto renewed = lease->renew(relay.epoch(), 60s);
        EXPECT_TRUE(!renewed.ok() || *renewed);
        return renewed.ok() && *renewed;
    }));
    EXPECT_TRUE(is_left());
}

TEST_P(IdentityBesideAnUnfencedPrimary, ATermWhoseOtherSessionsWereLostGoesOn) {
    Relay relay(config_);
    bool stream = GetParam() == postgres::Mode::kPolling;
    ASSERT_TRUE(eventually(60s, "it reads on its path", [&] {
        relay.read();
        if (const auto path = relay.reader().new_path()) stream = path->path == "stream";
        return stream;
    }));
    const auto lease = value_of(relay.source().open_lease());
    ASSERT_TRUE(value_of(lease->renew(relay.epoch(), 60s)));
    servers_.come_back("SELECT backend_pid FROM outbox_lease");
    Pg(servers_.promoted().url())
        .exec("INSERT INTO outbox_events (topic, payload) VALUES ('t', '1')");
    spi::EventBatch batch;
    EXPECT_TRUE(eventually(60s, "the next event comes", [&] {
        const Status status = relay.reader().read(kAll, batch);
        EXPECT_TRUE(status.ok() || status.error().advice != Advice::kStop)
            << status.error().message;
        return !batch.events().empty() || (!status.ok() && status.error().advice == Advice::kStop);
    }));
    EXPECT_TRUE(eventually(60s, "it is recorded", [&] {
        spi::RecordBatch done = relay.fresh();
        done.finished.push_back({0, {1}});
        const Status status = relay.recorder().record(done);
        EXPECT_TRUE(status.ok() || status.error().advice != Advice::kStop)
            << status.error().message;
        return status.ok() || status.error().advice == Advice::kStop;
    }));
    EXPECT_TRUE(is_left());
}

// Nor does a term that begins anew take it for a server that has changed.
TEST_P(IdentityBesideAnUnfencedPrimary, ItIsRefusedByNameWhereNoOtherAnswers) {
    Relay relay(config_);
    servers_.come_back();
    servers_.promoted().stop();
    relay.source().begin_term();
    spi::EventBatch batch;
    ErrorInfo refused;
    EXPECT_TRUE(eventually(60s, "it is refused", [&] {
        const Status status = relay.reader().read(kAll, batch);
        if (!status.ok()) refused = status.error();
        return refused.message.find("an old primary") != std::string::npos;
    })) << refused.message;
    EXPECT_EQ(refused.code, ErrorCode::kConnectFailed);
    EXPECT_EQ(refused.advice, Advice::kRetryDestination);
    EXPECT_THAT(refused.message, HasSubstr("timeline 2 was seen"));
    EXPECT_THAT(refused.message, HasSubstr("start this process again"));
    const auto lease = value_of(relay.source().open_lease());
    const auto taken = lease->acquire("me", 60s);
    ASSERT_FALSE(taken.ok());
    EXPECT_THAT(taken.error().message, HasSubstr("an old primary"));
}

// It was met first, and never broke.
TEST_P(IdentityBesideAnUnfencedPrimary, ASessionThatIsStillThereIsLeftForTheOneInItsPlace) {
    servers_.old().start();
    Relay relay(config_);
    const auto lease = value_of(relay.source().open_lease());
    ASSERT_TRUE(value_of(lease->renew(relay.epoch(), 60s)));
    ASSERT_EQ(Pg(servers_.old().url()).number("SELECT count(*) FROM outbox_lease"), 1);
    Pg(servers_.old().url("template1")).exec("ALTER DATABASE postgres ALLOW_CONNECTIONS false");
    spi::EventBatch batch;
    ErrorInfo end;
    EXPECT_TRUE(eventually(60s, "a reader meets the one in its place", [&] {
        const auto reader = value_of(relay.source().open_reader("other", {}));
        const Status status = reader->read(kAll, batch);
        if (!status.ok()) end = status.error();
        return end.code == ErrorCode::kServerChanged;
    })) << end.message;
    EXPECT_TRUE(eventually(60s, "the lease is asked there", [&] {
        const auto renewed = lease->renew(relay.epoch(), 60s);
        return renewed.ok() && !*renewed;
    }));
    EXPECT_TRUE(value_of(lease->acquire("me", 60s)));
    EXPECT_EQ(Pg(servers_.promoted().url()).number("SELECT count(*) FROM outbox_lease"), 1);
}

INSTANTIATE_TEST_SUITE_P(Postgres, IdentityBesideAnUnfencedPrimary,
                         testing::Values(postgres::Mode::kPolling, postgres::Mode::kStream),
                         [](const auto& mode) {
                             return mode.param == postgres::Mode::kPolling ? "Polling" : "Stream";
                         });

INSTANTIATE_TEST_SUITE_P(Postgres, IdentityOfTheSource,
                         testing::Values(postgres::Mode::kPolling, postgres::Mode::kStream),
                         [](const auto& mode) {
                             return mode.param == postgres::Mode::kPolling ? "Polling" : "Stream";
                         });

// A table whose ids come from a sequence and that has no lasting positions: what is known of a row
// is known by an id that the server may give anew, after it has lost commits.
struct AdoptedTable {
    const char* name;
    const char* id;
    bool marked = false;
};

constexpr const char* kNumbers = "bigint DEFAULT nextval('box_id_seq')";
constexpr const char* kTexts = "text DEFAULT nextval('box_id_seq')::text";

class IdentityOfAnAdoptedSource : public testing::TestWithParam<AdoptedTable> {
  protected:
    void SetUp() override {
        pg().exec("CREATE SEQUENCE box_id_seq; CREATE TABLE box (id " + std::string(GetParam().id) +
                  " PRIMARY KEY, event_type text, payload text" +
                  (GetParam().marked ? ", processed_at timestamptz" : "") +
                  ", created_at timestamptz NOT NULL DEFAULT clock_timestamp()); INSERT INTO box "
                  "(event_type, payload) SELECT 'old', '1' FROM generate_series(1, 3)");
    }

    Pg pg() const { return Pg(server_.url()); }
    postgres::PostgresSourceConfig config() const {
        postgres::PostgresSourceConfig config;
        config.url = server_.url();
        config.table = "box";
        config.after_publish =
            GetParam().marked ? postgres::AfterPublish::kMark : postgres::AfterPublish::kDelete;
        return config;
    }
    std::string unfinished() const {
        const std::string left = GetParam().marked ? "processed_at IS NULL" : "true";
        return pg().value("SELECT string_agg(id || event_type, ',' ORDER BY id) FROM box WHERE " +
                          left);
    }
    // What the server does by itself where it lost the commits of the old ones.
    void give_ids_anew() const {
        pg().exec(
            "DELETE FROM box; SELECT setval('box_id_seq', 1, false); INSERT INTO box (event_type, "
            "payload) SELECT 'new', '2' FROM generate_series(1, 3)");
    }
    static void expect_ended(Relay& relay, const std::vector<spi::EventView>& events,
                             const std::string& why) {
        spi::RecordBatch batch = relay.fresh();
        batch.finished.push_back({0, {}});
        for (const spi::EventView& event : events) {
            batch.finished[0].positions.push_back(event.position);
        }
        EXPECT_TRUE(ends([&] { return relay.recorder().record(batch); }, why));
        EXPECT_TRUE(ends(
            [&] {
                spi::EventBatch read;
                return relay.reader().read(kAll, read);
            },
            why));
    }
    // Connections that broke are tried again.
    template <typename Call>
    static bool ends(const Call& call, const std::string& why) {
        return eventually(60s, "the term ends", [&] {
            const Status status = call();
            if (!status.ok() && status.error().advice != Advice::kStop) return false;
            EXPECT_FALSE(status.ok());
            if (status.ok()) return true;
            EXPECT_EQ(status.error().code, ErrorCode::kServerChanged) << status.error().message;
            EXPECT_THAT(status.error().message, HasSubstr(why));
            return true;
        });
    }
    // The next term of the same process.
    static std::vector<std::string> read_anew(Relay& relay) {
        relay.source().begin_term();
        const std::vector<spi::RouteName> routes{{"default", {}}};
        const auto recorder = value_of(relay.source().open_recorder());
        spi::Beginning beginning = value_of(recorder->begin(relay.epoch(), routes));
        EXPECT_TRUE(value_of(relay.source().ghosts()).empty());
        const auto reader = value_of(
            relay.source().open_reader("default", std::move(beginning.routes[0].finished)));
        spi::EventBatch batch;
        require(reader->read(kAll, batch));
        std::vector<std::string> out;
        for (const spi::EventView& event : batch.events()) out.emplace_back(event.event_type);
        // What destinations remember of the old ones is not of these.
        EXPECT_NE(beginning.routes[0].producer, relay.producers()[0]);
        return out;
    }

    PostgresServer server_;
    TemporaryFolder folder_{"copy"};
};

TEST_P(IdentityOfAnAdoptedSource, ARecoveryFromACrashEndsTheTermAndARestartDoesNot) {
    std::string producer;
    {
        Relay before(config());
        producer = before.producers()[0];
    }
    server_.stop();
    server_.start();
    Relay relay(config());
    EXPECT_EQ(relay.producers()[0], producer);
    const auto events = relay.read();
    ASSERT_EQ(events.size(), 3U);
    server_.stop();
    server_.start();
    ASSERT_TRUE(eventually(60s, "it reads again", [&] {
        spi::EventBatch batch;
        const Status read = relay.reader().read(kAll, batch);
        EXPECT_TRUE(read.ok() || read.error().advice != Advice::kStop) << describe(read.error());
        return read.ok();
    }));
    server_.stop(PostgresServer::Stop::kImmediate);
    server_.start();
    give_ids_anew();
    expect_ended(relay, events, "recovered from a crash");
    EXPECT_EQ(unfinished(), "1new,2new,3new");
    EXPECT_EQ(read_anew(relay), (std::vector<std::string>{"new", "new", "new"}));
}

TEST_P(IdentityOfAnAdoptedSource, APromotedServerEndsTheTermAndNothingOfItIsRecordedThere) {
    Relay relay(config());
    server_.stop();
    const std::string copy = (folder_ / "standby").string();
    const std::string data = server_.data().string();
    ASSERT_EQ(std::system(("cp -a " + data + " " + copy).c_str()), 0);
    server_.start();
    pg().exec("INSERT INTO box (event_type, payload) VALUES ('lost', '1')");
    spi::EventBatch batch;
    ASSERT_TRUE(eventually(60s, "all is read", [&] {
        static_cast<void>(relay.reader().read(kAll, batch));
        return batch.size() == 4;
    }));
    server_.stop();
    ASSERT_EQ(std::system(("rm -rf " + data + " && cp -a " + copy + " " + data + " && touch " +
                           data + "/standby.signal && chown postgres " + data + "/standby.signal")
                              .c_str()),
              0);
    server_.start();
    pg().exec("SELECT pg_promote()");
    pg().exec(
        "SELECT setval('box_id_seq', 3); INSERT INTO box (event_type, payload) VALUES ('new', "
        "'2')");
    expect_ended(relay, batch.events(), "a standby was promoted");
    EXPECT_EQ(unfinished(), "1old,2old,3old,4new");
    EXPECT_EQ(read_anew(relay), (std::vector<std::string>{"old", "old", "old", "new"}));
}

INSTANTIATE_TEST_SUITE_P(Postgres, IdentityOfAnAdoptedSource,
                         testing::Values(AdoptedTable{"Deleted", kNumbers},
                                         AdoptedTable{"Marked", kNumbers, true},
                                         AdoptedTable{"Texts", kTexts}),
                         [](const auto& table) { return table.param.name; });

}  // namespace
}  // namespace outbox::test
