#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <outbox/producer/migrate.h>

#include "databases/postgres/connection.h"
#include "tests/databases/postgres/support.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

ErrorInfo error_of(const postgres::PostgresSourceConfig& config) {
    auto source = postgres::make_postgres_source(config);
    return source.ok() ? ErrorInfo{ErrorCode::kInternal, Advice::kStop, {}, "no error"}
                       : source.error();
}

postgres::PostgresSourceConfig at(const std::string& url, const std::string& table = {}) {
    postgres::PostgresSourceConfig config;
    config.url = url;
    if (!table.empty()) config.table = table;
    return config;
}

// The server's address with other credentials or another database.
std::string address(const std::string& user_info, const std::string& database) {
    return "postgresql://" + user_info + "@127.0.0.1:" + std::to_string(shared_postgres().port()) +
           "/" + database;
}

std::string database_of(const std::string& url) {
    return url.substr(url.rfind('/') + 1);
}

TEST(PostgresErrors, MalformedUrlIsRefusedWithoutShowingThePassword) {
    for (const char* url : {"postgresql://me:s3cret@[::1/shop", "postgresql://me:s3cret@h:x/shop",
                            "postgresql://me:s3cret@h/shop?sslmode=maybe",
                            "postgresql://me:s3cret@h/shop?no_such_option=1"}) {
        const ErrorInfo error = error_of(at(url));
        EXPECT_EQ(error.code, ErrorCode::kConfigInvalid) << url;
        EXPECT_THAT(error.message, AllOf(HasSubstr("postgresql://USER@HOST:PORT/DATABASE"),
                                         Not(HasSubstr("s3cret"))));
    }
}

TEST(PostgresErrors, UnreachableServerIsNamed) {
    const int port = free_port();
    const ErrorInfo error =
        error_of(at("postgresql://me:s3cret@127.0.0.1:" + std::to_string(port) + "/shop"));
    EXPECT_EQ(error.code, ErrorCode::kConnectFailed);
    EXPECT_EQ(error.advice, Advice::kRetryDestination);
    EXPECT_THAT(error.message,
                AllOf(HasSubstr("127.0.0.1:" + std::to_string(port)), Not(HasSubstr("s3cret"))));
}

TEST(PostgresErrors, WrongPasswordSaysWhereToPutTheRightOne) {
    const std::string url = shared_postgres().create_database();
    Pg pg(url);
    pg.exec("DROP ROLE IF EXISTS wrong_password_user");
    pg.exec("CREATE ROLE wrong_password_user LOGIN PASSWORD 'right'");
    const ErrorInfo error = error_of(at(address("wrong_password_user:s3cret", database_of(url))));
    EXPECT_EQ(error.code, ErrorCode::kAuthFailed);
    EXPECT_EQ(error.backend_code, "28P01");
    EXPECT_THAT(error.message, AllOf(HasSubstr("check the password of user wrong_password_user"),
                                     Not(HasSubstr("s3cret"))));
}

TEST(PostgresErrors, MissingDatabaseIsNamed) {
    const ErrorInfo error = error_of(at(address("postgres", "no_such_shop")));
    EXPECT_EQ(error.code, ErrorCode::kNoSuchDatabase);
    EXPECT_EQ(error.advice, Advice::kStop);
    EXPECT_THAT(error.message, HasSubstr("createdb no_such_shop"));
}

TEST(PostgresErrors, ASessionThatTheServerEndedInMidTransactionIsMadeAgain) {
    const std::string url = shared_postgres().create_database();
    auto connection = value_of(postgres::Connection::open(url, 60));
    // A relay that is stopped in a transaction would keep the one that stands by waiting.
    EXPECT_EQ(value_of(connection.query("SHOW idle_in_transaction_session_timeout")).text(0, 0),
              "5s");
    const auto pid = value_of(connection.query("SELECT pg_backend_pid()::text")).string(0, 0);
    value_of(connection.query("SET idle_in_transaction_session_timeout = 50"));
    value_of(connection.query("BEGIN"));
    Pg pg(url);
    ASSERT_TRUE(eventually(std::chrono::seconds(60), "the session is ended", [&] {
        return pg.number("SELECT count(*) FROM pg_stat_activity WHERE pid = " + pid) == 0;
    }));
    const ErrorInfo error = connection.query("COMMIT").error();
    EXPECT_EQ(error.code, ErrorCode::kConnectionLost) << error.message;
    EXPECT_EQ(error.advice, Advice::kRetryDestination);
}

TEST(PostgresErrors, MissingTableSaysHowToCreateIt) {
    const std::string url = shared_postgres().create_database();
    EXPECT_EQ(error_of(at(url)).code, ErrorCode::kNoSuchTable);
    EXPECT_THAT(error_of(at(url)).message, HasSubstr("outbox migrate --db"));
    Pg(url).exec("CREATE TABLE \"Outbox_Events\" (id int)");
    EXPECT_EQ(error_of(at(url)).code, ErrorCode::kNoSuchTable) << "names are exact";
}

TEST(PostgresErrors, UnknownShapeIsRefusedWithItsColumns) {
    const std::string url = shared_postgres().create_database();
    Pg pg(url);
    pg.exec("CREATE TABLE box (nr int, stuff text)");
    const ErrorInfo error = error_of(at(url, "box"));
    EXPECT_EQ(error.code, ErrorCode::kTableShape);
    EXPECT_THAT(error.message, AllOf(HasSubstr("nr, stuff"), HasSubstr("[source.table]"),
                                     HasSubstr("pending-published")));

    auto mapped = at(url, "box");
    mapped.mapping.columns = {{"id", "nr"}, {"payload", "staff"}};
    EXPECT_THAT(error_of(mapped).message, HasSubstr("maps payload to column 'staff'"));
    mapped.mapping.columns = {{"id", "nr"}, {"paylod", "stuff"}};
    EXPECT_THAT(error_of(mapped).message, HasSubstr("unknown field 'paylod'"));
    mapped.mapping.columns = {{"id", "nr"}};
    EXPECT_THAT(error_of(mapped).message, HasSubstr("no column for payload"));
    mapped.mapping.columns = {{"id", "nr"}, {"payload", "stuff"}, {"occurred_at", "stuff"}};
    EXPECT_THAT(error_of(mapped).message,
                HasSubstr("has type text; occurred_at needs timestamptz"));
    mapped.mapping.columns = {{"id", "nr"}, {"payload", "stuff"}, {"status", "stuff"}};
    EXPECT_THAT(error_of(mapped).message, HasSubstr("pending is needed"));
    mapped.mapping.pending_values = {"NEW"};
    EXPECT_THAT(error_of(mapped).message, HasSubstr("sent and dead are needed"));
    mapped.mapping.preset = "pending-publish";
    EXPECT_THAT(error_of(mapped).message, HasSubstr("unknown preset 'pending-publish'"));
    EXPECT_EQ(pg.number("SELECT count(*) FROM pg_class WHERE relname LIKE 'outbox%'"), 0)
        << "a refused table gets no side tables";
}

TEST(PostgresErrors, MarkIsRefusedWhereNothingCouldBeMarked) {
    const std::string url = shared_postgres().create_database();
    migrate(url);
    auto config = at(url);
    config.after_publish = postgres::AfterPublish::kMark;
    EXPECT_EQ(error_of(config).code, ErrorCode::kConfigInvalid);
    EXPECT_THAT(error_of(config).message, HasSubstr("use after_publish = delete"));
}

TEST(PostgresErrors, MissingRightsAreNamedWithTheGrantThatMendsThem) {
    const std::string url = shared_postgres().create_database();
    migrate(url);
    Pg pg(url);
    pg.exec("DROP ROLE IF EXISTS poor_relay");
    pg.exec("CREATE ROLE poor_relay LOGIN PASSWORD 'test'");
    auto source =
        value_of(postgres::make_postgres_source(at(address("poor_relay", database_of(url)))));
    EXPECT_THAT(
        findings(*source, true),
        AllOf(HasSubstr("GRANT SELECT, INSERT, UPDATE, DELETE ON \"public\".\"outbox_events\" TO "
                        "\"poor_relay\""),
              HasSubstr(
                  "GRANT SELECT, INSERT, UPDATE ON \"public\".outbox_lease TO \"poor_relay\"")));
    const std::vector<spi::RouteName> routes{{"default", {}}};
    for (const auto& refused :
         {value_of(source->open_recorder())->begin(1, routes), source->preview(routes)}) {
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().code, ErrorCode::kNoRights);
        EXPECT_EQ(refused.error().advice, Advice::kStop);
        EXPECT_THAT(refused.error().message, HasSubstr("GRANT SELECT, INSERT, UPDATE, DELETE ON"));
    }

    // Each GRANT that was printed is run; then there is no problem left.
    for (const spi::Finding& finding : value_of(source->check())) {
        const auto grant = finding.text.find("GRANT ");
        if (finding.grade == spi::Finding::Grade::kFail && grant != std::string::npos)
            pg.exec(finding.text.substr(grant));
    }
    EXPECT_THAT(findings(*source, true), IsEmpty());
    auto reader = value_of(source->open_reader("default", {}));
    spi::EventBatch batch;
    EXPECT_TRUE(reader->read(kAll, batch).ok());
    auto recorder = value_of(source->open_recorder());
    EXPECT_TRUE(recorder->stats().ok());
    auto lease = value_of(source->open_lease());
    EXPECT_TRUE(value_of(lease->acquire("poor", std::chrono::seconds(5))));
    reader.reset();
    recorder.reset();
    lease.reset();
    source.reset();
    pg.exec("DROP OWNED BY poor_relay; DROP ROLE poor_relay");
}

TEST(PostgresErrors, SideTablesThatMayNotBeCreatedArePrinted) {
    const std::string url = shared_postgres().create_database();
    Pg pg(url);
    pg.exec(
        "CREATE TABLE outbox (id uuid PRIMARY KEY, event_type text, payload text, created_at "
        "timestamptz)");
    pg.exec("DROP ROLE IF EXISTS no_creator");
    pg.exec("CREATE ROLE no_creator LOGIN PASSWORD 'test'");
    const ErrorInfo error = error_of(at(address("no_creator", database_of(url)), "outbox"));
    EXPECT_EQ(error.code, ErrorCode::kNoRights);
    EXPECT_THAT(error.message, HasSubstr("(outbox_lease, "));
    // To be run as it is, whatever the owner's path.
    const auto sql = error.message.find("BEGIN;");
    ASSERT_NE(sql, std::string::npos) << error.message;
    pg.exec("SET search_path = pg_catalog; " + error.message.substr(sql) + "; RESET search_path");
    EXPECT_EQ(pg.value("SELECT to_regclass('public.outbox_dead_letters')"), "outbox_dead_letters");
    EXPECT_EQ(pg.value("SELECT has_table_privilege('no_creator', 'outbox_routes', 'DELETE')"), "t");
    pg.exec("DROP OWNED BY no_creator; DROP ROLE no_creator");
}

TEST(PostgresErrors, LostConnectionIsMadeAgainAndNothingIsSkipped) {
    const std::string url = shared_postgres().create_database();
    migrate(url);
    Pg pg(url);
    Relay relay(at(url));
    require(relay.recorder().stats().status());  // connects
    pg.exec(
        "INSERT INTO outbox_events (topic, payload) SELECT 't', to_jsonb(n) FROM "
        "generate_series(1, 3) n");
    EXPECT_EQ(relay.read({2, 1U << 20}).size(), 2U);
    pg.exec(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = "
        "'outbox' AND datname = current_database()");
    spi::EventBatch batch;
    const Status lost = relay.reader().read(kAll, batch);
    ASSERT_FALSE(lost.ok());
    EXPECT_EQ(lost.error().code, ErrorCode::kConnectionLost);
    EXPECT_EQ(lost.error().advice, Advice::kRetryDestination);
    EXPECT_TRUE(batch.empty());
    const auto rest = relay.read();
    ASSERT_EQ(rest.size(), 1U);
    EXPECT_EQ(rest[0].payload, "3");
    spi::RecordBatch done = relay.fresh();
    done.finished.push_back({0, {rest[0].position}});
    const Status unrecorded = relay.recorder().record(done);
    ASSERT_FALSE(unrecorded.ok());
    EXPECT_EQ(unrecorded.error().code, ErrorCode::kConnectionLost);
    EXPECT_EQ(pg.number("SELECT count(*) FROM outbox_events"), 3);
    require(relay.recorder().record(done));
    relay.remove(done.finished[0].positions);
    EXPECT_EQ(pg.number("SELECT count(*) FROM outbox_events"), 2);
}

}  // namespace
}  // namespace outbox::test
