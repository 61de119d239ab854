// What the stream cannot use: cause and remedy are told, and the table goes on wherever nothing can
// be lost by it.

#include <chrono>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "tests/stream/damaging_proxy.h"
#include "tests/stream/stream_relay.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using testing::HasSubstr;

constexpr int kUsage = 2;
// So many that `auto` takes the stream.
const std::vector<std::string> kThreeRoutes{"--to", "second=null:", "--to", "third=null:"};

class StreamBadInput : public StreamRelay {
  protected:
    void SetUp() override {
        use(shared_postgres());
        owner_.emplace(url_);
    }
    void TearDown() override {
        if (role_.empty()) return;
        if (relay().running()) stop_relay();
        owner_->exec("DROP OWNED BY " + role_ + "; DROP ROLE " + role_);
    }

    // From now on the relay is a role that may do what polling needs, and no more.
    void restrict_relay() {
        role_ = "relay_of_" + url_.substr(url_.rfind('/') + 1);
        owner_->exec("CREATE ROLE " + role_ +
                     " LOGIN PASSWORD 'test'; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO " +
                     role_ + "; GRANT ALL ON ALL TABLES IN SCHEMA public TO " + role_);
        url_.replace(url_.find("postgres@"), 8, role_);
    }
    Finished refused() {
        return run({.command = {OUTBOX, "relay", "--from", url_, "--to", "null:", "--mode",
                                "stream", "--admin", "off"}});
    }
    std::string check(const std::string& mode) {
        return run({.command = {OUTBOX, "relay", "--check", "--from", url_, "--to",
                                "null:", "--mode", mode}})
            .out;
    }

    std::optional<Pg> owner_;
    std::string role_;
};

TEST_F(StreamBadInput, WithoutTheRightToReplicateItPollsAndSaysWhichStatementGivesIt) {
    owner_->exec(
        "DROP PUBLICATION IF EXISTS outbox; "
        "CREATE PUBLICATION outbox FOR TABLE outbox_events WITH (publish = 'insert')");
    restrict_relay();
    const std::string grant = "ALTER ROLE \"" + role_ + "\" REPLICATION";
    EXPECT_EQ(refused().status.code, kUsage);
    EXPECT_THAT(refused().err, HasSubstr(grant));
    EXPECT_THAT(check("auto"), HasSubstr(grant));
    start(kThreeRoutes, "auto");
    emit(1, 10);
    ASSERT_TRUE(delivers_all());
    ASSERT_TRUE(tells("may not replicate"));
    owner_->exec("ALTER ROLE " + role_ + " REPLICATION");
    ASSERT_TRUE(joins());
    emit(11, 20);
    ASSERT_TRUE(delivers_all());
    stop_relay();
    expect_numbers(20);
}

TEST_F(StreamBadInput, AMissingPublicationIsMadeByARelayThatMayAndNamedByOneThatMayNot) {
    owner_->exec("DROP PUBLICATION IF EXISTS outbox");
    start(kThreeRoutes, "auto");
    ASSERT_TRUE(joins());
    EXPECT_EQ(owner_->number("SELECT count(*) FROM pg_publication"), 1);
    emit(1, 10);
    ASSERT_TRUE(delivers_all());
    owner_->exec("DROP PUBLICATION outbox");
    emit(11, 20);
    ASSERT_TRUE(delivers_all());
    ASSERT_TRUE(joins());
    stop_relay();

    restrict_relay();
    owner_->exec("ALTER ROLE " + role_ + " REPLICATION; DROP PUBLICATION outbox");
    const std::string create =
        "CREATE PUBLICATION \"outbox\" FOR TABLE \"public\".\"outbox_events\" WITH (publish = "
        "'insert')";
    EXPECT_EQ(refused().status.code, kUsage);
    EXPECT_THAT(refused().err, HasSubstr(create));
    start(kThreeRoutes, "auto");
    emit(21, 30);
    ASSERT_TRUE(delivers_all());
    ASSERT_TRUE(eventually(kDeadline, "the statement is told", [&] {
        return relay().stderr_text().find("CREATE PUBLICATION") != std::string::npos;
    }));
    owner_->exec(create);
    ASSERT_TRUE(joins());
    emit(31, 40);
    ASSERT_TRUE(delivers_all());
    stop_relay();
    expect_numbers(40);
}

TEST_F(StreamBadInput, ATableThatIsTakenOutOfThePublicationIsPolledUntilItIsBack) {
    Load load(url_, 20);
    start();
    ASSERT_TRUE(joins());
    load.start(2);
    ASSERT_TRUE(commits(load, 50));
    owner_->exec("ALTER PUBLICATION outbox DROP TABLE outbox_events");
    ASSERT_TRUE(tells("ADD TABLE"));
    ASSERT_TRUE(commits(load, 50));
    owner_->exec("ALTER PUBLICATION outbox ADD TABLE outbox_events");
    ASSERT_TRUE(joins());
    load.stop();
    ASSERT_TRUE(delivers_all());
    stop_relay();
    expect_promises(load, 0);
}

TEST_F(StreamBadInput, AMappedGeneratedColumnIsPolledWhereTheLogDoesNotHoldIt) {
    owner_->exec(
        "CREATE TABLE box (position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id uuid NOT "
        "NULL DEFAULT gen_random_uuid(), topic text, payload jsonb, "
        "who text GENERATED ALWAYS AS (payload ->> 'who') STORED)");
    const TemporaryFolder folder;
    std::ofstream(folder / "outbox.toml")
        << "[source]\nafter_publish = \"delete\"\n[source.table]\nname = "
           "\"box\"\n[source.table.columns]\nid = \"id\"\nkey = \"who\"\n"
           "payload = \"payload\"\ntopic = \"topic\"\nposition = \"position\"\n";
    std::vector<std::string> config{"--config", (folder / "outbox.toml").string()};
    config.insert(config.end(), kThreeRoutes.begin(), kThreeRoutes.end());
    owner_->exec(
        "INSERT INTO box (topic, payload) SELECT 't', jsonb_build_object('who', 'k', 'n', "
        "n) FROM generate_series(1, 10) n");
    start(config, "auto");
    if (owner_->number("SHOW server_version_num") < 180'000) {
        ASSERT_TRUE(tells("is generated; the log holds such columns from PostgreSQL 18 on only"));
    } else {
        ASSERT_TRUE(tells("publishes no generated columns"));
        owner_->exec(
            "ALTER PUBLICATION outbox SET (publish = 'insert', publish_generated_columns = "
            "stored)");
        ASSERT_TRUE(tells("does not have the table"));
        owner_->exec("ALTER PUBLICATION outbox ADD TABLE box");
        ASSERT_TRUE(joins());
        owner_->exec(
            "INSERT INTO box (topic, payload) VALUES ('t', '{\"who\": \"k\", \"n\": 11}')");
    }
    ASSERT_TRUE(eventually(kDeadline, "all is delivered", [&] {
        return owner_->value("SELECT NOT EXISTS (SELECT FROM box)") == "t";
    }));
    stop_relay();
    const std::vector<int> all = numbers();
    expect_numbers(static_cast<int>(all.size()));
    EXPECT_GE(all.size(), 10U);
}

// The relay's connections go through the proxy, the test's do not.
TEST_F(StreamBadInput, AMessageThatIsDamagedOnItsWayIsToldAndItsEventComesFromTheTable) {
    DamagingProxy proxy(shared_postgres().port());
    const std::string direct = url_;
    const auto at = url_.find(':', url_.find('@'));
    url_ = url_.substr(0, at) + ":" + std::to_string(proxy.port()) + url_.substr(url_.rfind('/')) +
           "?sslmode=disable&gssencmode=disable";
    start();
    url_ = direct;
    const std::vector<std::pair<std::string, std::function<void(std::string&)>>> damages{
        {"cut short", [](std::string& insert) { insert.resize(insert.size() / 2); }},
        {"bytes behind its end", [](std::string& insert) { insert += "more"; }},
        {"too many columns", [](std::string& insert) { insert[6] = '\x7f'; }},
        {"a length beyond its end", [](std::string& insert) { insert[9] = '\x7f'; }},
        {"cut before its table", [](std::string& insert) { insert.resize(3); }},
        {"another kind of message", [](std::string& insert) { insert[0] = '?'; }},
        {"another kind of row", [](std::string& insert) { insert[5] = 'K'; }},
    };
    int emitted = 0;
    int told = 0;
    for (const auto& [what, change] : damages) {
        SCOPED_TRACE(what);
        ASSERT_TRUE(joins());
        proxy.damage_next_insert(change);
        emit(emitted + 1, emitted + 10);
        emitted += 10;
        ASSERT_TRUE(delivers_all());
        // The table may bring the events first, where the sender is slow.
        EXPECT_TRUE(eventually(kDeadline, "the message has come", [&] { return proxy.done(); }));
        ASSERT_TRUE(eventually(kDeadline, "the damage is told", [&] {
            return count_in_log("malformed replication message") > told;
        }));
        told = count_in_log("malformed replication message");
    }
    ASSERT_TRUE(joins());
    stop_relay();
    EXPECT_THAT(relay().stderr_text(), HasSubstr("look for a proxy"));
    expect_numbers(emitted);
}

}  // namespace
}  // namespace outbox::test
