#include <algorithm>
#include <gmock/gmock.h>

#include "tests/databases/postgres/stream_support.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

class StreamPublication : public StreamFixture {};

class StreamRights : public StreamFixture {
  protected:
    // A role that may do all that polling needs, where migrate made no publication either.
    void SetUp() override {
        StreamFixture::SetUp();
        pg_.exec("DROP PUBLICATION outbox");
        role_ = "relay_" + std::to_string(roles++);
        pg_.exec("DROP ROLE IF EXISTS " + role_ + "; CREATE ROLE " + role_ +
                 " LOGIN PASSWORD 'test'; GRANT ALL ON ALL TABLES IN SCHEMA public TO " + role_ +
                 "; GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO " + role_);
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
    EXPECT_THAT(told, HasSubstr("events: by polling; the stream, which costs less"));
    EXPECT_THAT(told, HasSubstr("ALTER ROLE \"" + role_ + "\" REPLICATION"));
    EXPECT_THAT(told, HasSubstr("CREATE PUBLICATION \"outbox\" FOR TABLE "
                                "\"public\".\"outbox_events\" WITH (publish = 'insert')"));
    Route second(*source);
    Route third(*source);
    Route route(*source);
    pg_.exec(insert("1"));
    EXPECT_THAT(route.next(1), ElementsAre("1"));
    EXPECT_TRUE(eventually(60s, "the reason is told", [&] {
        static_cast<void>(route.read());
        return route.reason().find("ALTER ROLE") != std::string::npos;
    }));
    pg_.exec("ALTER ROLE " + role_ +
             " REPLICATION; CREATE PUBLICATION outbox FOR TABLE "
             "outbox_events WITH (publish = 'insert')");
    EXPECT_THAT(findings(*source),
                HasSubstr("events: by polling; from three routes on by the stream"));
    EXPECT_TRUE(route.joins());
    pg_.exec(insert_and_delete("2"));
    EXPECT_THAT(route.next(1), ElementsAre("2"));
}

TEST_F(StreamRights, OfModeAutoAreUsedFromThreeRoutesOn) {
    auto config = this->config();
    config.mode = postgres::Mode::kAuto;
    const auto source = value_of(postgres::make_postgres_source(config));
    Route first(*source);
    Route second(*source);
    EXPECT_TRUE(eventually(60s, "it says why it polls", [&] {
        static_cast<void>(first.read());
        return first.reason().find("mode is auto") != std::string::npos;
    }));
    EXPECT_EQ(first.path(), "polling");
    EXPECT_EQ(slots(), "0");
    {
        Route third(*source);
        ASSERT_TRUE(third.joins());
        ASSERT_TRUE(first.joins());
        pg_.exec(insert_and_delete("1"));
        EXPECT_THAT(first.next(1), ElementsAre("1"));
        EXPECT_THAT(third.next(1), ElementsAre("1"));
    }
    // It is there: leaving it would cost more than it.
    pg_.exec(insert_and_delete("2"));
    EXPECT_THAT(first.next(1), ElementsAre("2"));
    EXPECT_EQ(first.path(), "stream");
}

TEST_F(StreamRights, MissingMakeModeStreamRefuseToStart) {
    const auto source = postgres::make_postgres_source(config_of_role(postgres::Mode::kStream));
    ASSERT_FALSE(source.ok());
    EXPECT_EQ(source.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(source.error().advice, Advice::kStop);
    EXPECT_THAT(source.error().message, HasSubstr("REPLICATION"));
    EXPECT_THAT(source.error().message, HasSubstr("mode auto"));
}

TEST_F(StreamPublication, LeavesAPublicationOfOthersAloneAndSaysWhatItWouldNeed) {
    pg_.exec(
        "CREATE TABLE other (a int); DROP PUBLICATION outbox; "
        "CREATE PUBLICATION outbox FOR TABLE other WITH (publish = 'insert')");
    auto mode_auto = config();
    mode_auto.mode = postgres::Mode::kAuto;
    const auto source = value_of(postgres::make_postgres_source(mode_auto));
    const std::string add = "ALTER PUBLICATION \"outbox\" ADD TABLE \"public\".\"outbox_events\"";
    EXPECT_THAT(findings(*source), HasSubstr(add));
    Route second(*source);
    Route third(*source);
    Route route(*source);
    EXPECT_TRUE(eventually(60s, "the reason is told", [&] {
        static_cast<void>(route.read());
        return route.reason().find(add) != std::string::npos;
    }));
    pg_.exec(add);
    ASSERT_TRUE(route.joins());
    pg_.exec("INSERT INTO other VALUES (1)");
    pg_.exec(insert_and_delete("1"));
    EXPECT_THAT(route.next(1), ElementsAre("1"));
}

TEST_F(StreamPublication, MakesThePublicationWhereItIsMissing) {
    pg_.exec("DROP PUBLICATION outbox");
    Route route(source());
    ASSERT_TRUE(route.joins());
    EXPECT_EQ(pg_.value("SELECT concat(pubinsert, pubupdate, pubdelete, pubtruncate) "
                        "FROM pg_publication WHERE pubname = 'outbox'"),
              "tfff");
}

TEST_F(StreamPublication, IsRefusedAPublicationThatShowsMoreThanInserts) {
    const std::string mend = "ALTER PUBLICATION \"outbox\" SET (publish = 'insert')";
    for (const char* more : {"insert, update", "insert, delete", "insert, truncate", "delete"}) {
        pg_.exec("ALTER PUBLICATION outbox SET (publish = '" + std::string(more) + "')");
        const auto refused = postgres::make_postgres_source(config());
        ASSERT_FALSE(refused.ok()) << more;
        EXPECT_THAT(refused.error().message, HasSubstr("have an owner run: " + mend)) << more;
        pg_.exec(mend);
        EXPECT_TRUE(postgres::make_postgres_source(config()).ok()) << more;
    }
}

TEST_F(StreamPublication, IsToldAllThatThePublicationLacks) {
    pg_.exec(
        "ALTER PUBLICATION outbox SET (publish = 'insert, update'); "
        "ALTER PUBLICATION outbox DROP TABLE outbox_events");
    const auto refused = postgres::make_postgres_source(config());
    ASSERT_FALSE(refused.ok());
    const std::string mend =
        "ALTER PUBLICATION \"outbox\" SET (publish = 'insert'); "
        "ALTER PUBLICATION \"outbox\" ADD TABLE \"public\".\"outbox_events\"";
    EXPECT_THAT(refused.error().message, HasSubstr("does not have the table; have an owner run: "));
    EXPECT_THAT(refused.error().message, HasSubstr(mend));
    pg_.exec(mend);
    EXPECT_TRUE(postgres::make_postgres_source(config()).ok());
}

TEST_F(StreamPublication, IsLeftWhenThePublicationShowsMoreThanInsertsFromNowOn) {
    Route route(source());
    ASSERT_TRUE(route.joins());
    pg_.exec("ALTER PUBLICATION outbox SET (publish = 'insert, delete')");
    EXPECT_TRUE(eventually(60s, "the route polls", [&] {
        static_cast<void>(route.read());
        return route.path() == "polling";
    }));
    EXPECT_THAT(route.reason(), HasSubstr("SET (publish = 'insert')"));
}

TEST_F(StreamPublication, IsRefusedAPublicationThatShowsAPartOfTheRowsOrColumns) {
    const bool has_parts = pg_.number("SHOW server_version_num") >= 150000;
    for (const char* part :
         {"outbox_events WHERE (position > 5)", "outbox_events (position, id)"}) {
        const std::string change = "ALTER PUBLICATION outbox SET TABLE " + std::string(part);
        if (!has_parts) {
            EXPECT_THROW(pg_.exec(change), std::runtime_error);
            continue;
        }
        pg_.exec(change);
        const auto refused = postgres::make_postgres_source(config());
        ASSERT_FALSE(refused.ok()) << part;
        const std::string& text = refused.error().message;
        EXPECT_THAT(text, HasSubstr("shows only a part of the table's rows or columns"));
        const std::string table = " TABLE \"public\".\"outbox_events\"";
        const std::string mend = "ALTER PUBLICATION \"outbox\" DROP" + table +
                                 "; ALTER PUBLICATION \"outbox\" ADD" + table;
        EXPECT_THAT(text, HasSubstr(mend));
        pg_.exec(mend);
        EXPECT_TRUE(postgres::make_postgres_source(config()).ok()) << part;
    }
}

TEST_F(StreamPublication, EndsWhenThePublicationNoLongerShowsTheTable) {
    Route route(source());
    ASSERT_TRUE(route.joins());
    pg_.exec("ALTER PUBLICATION outbox DROP TABLE outbox_events");
    pg_.exec(insert("1"));
    EXPECT_THAT(route.next(1), ElementsAre("1"));
    // The table may be read before that is noticed: where the server is silent for a second.
    EXPECT_TRUE(eventually(60s, "the stream is left", [&] {
        static_cast<void>(route.read());
        return std::any_of(route.paths().begin(), route.paths().end(), [](const std::string& path) {
            return path.starts_with("polling: ") &&
                   path.find("the publication was changed") != std::string::npos;
        });
    }));
    EXPECT_TRUE(eventually(60s, "what it would need is told", [&] {
        static_cast<void>(route.read());
        return route.reason().find("ADD TABLE") != std::string::npos;
    }));
    pg_.exec("ALTER PUBLICATION outbox ADD TABLE outbox_events");
    EXPECT_TRUE(route.joins());
}

// To the server a stream of the log is a standby as good as any, where the names let it.
class StreamBesideStandbys : public testing::Test {
  protected:
    void SetUp() override { migrate(url_); }
    void name_standbys(const std::string& names) {
        pg_.exec("ALTER SYSTEM SET synchronous_standby_names = '" + names + "'");
        pg_.exec("SELECT pg_reload_conf()");
        ASSERT_TRUE(eventually(60s, "the names are in force", [&] {
            return Pg(url_).value("SHOW synchronous_standby_names") == names;
        }));
    }
    postgres::PostgresSourceConfig config() const {
        postgres::PostgresSourceConfig config;
        config.url = url_;
        config.mode = postgres::Mode::kStream;
        return config;
    }

    PostgresServer server_;
    std::string url_ = server_.url();
    Pg pg_{url_};
};

TEST_F(StreamBesideStandbys, IsRefusedWhereItWouldPassForOne) {
    for (const char* names :
         {"*", "FIRST 1 (berlin, *)", "outbox_stream", "ANY 1 (Outbox_Stream)"}) {
        name_standbys(names);
        const auto source = postgres::make_postgres_source(config());
        ASSERT_FALSE(source.ok()) << names;
        EXPECT_THAT(source.error().message,
                    HasSubstr("ALTER SYSTEM SET synchronous_standby_names"));
    }
    name_standbys("FIRST 1 (berlin, bonn)");
    EXPECT_TRUE(postgres::make_postgres_source(config()).ok());
}

TEST_F(StreamBesideStandbys, IsLeftWhenItComesToPassForOne) {
    const auto source = value_of(postgres::make_postgres_source(config()));
    Route route(*source);
    ASSERT_TRUE(route.joins());
    name_standbys("*");
    EXPECT_TRUE(eventually(60s, "the route polls", [&] {
        static_cast<void>(route.read());
        return route.path() == "polling";
    }));
    EXPECT_THAT(route.reason(), HasSubstr("synchronous_standby_names"));
    EXPECT_TRUE(eventually(60s, "the server has no standby that is none", [&] {
        return pg_.value("SELECT count(*) FROM pg_stat_replication") == "0";
    }));
}

}  // namespace
}  // namespace outbox::test
