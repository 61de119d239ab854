// The steps of docs/operating.md: secrets from files, schemas, two relays, moving, upgrading,
// removing.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using std::filesystem::perms;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr ExitStatus kStopped{0, 0};

class Guide : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(outbox_.run({"migrate", "--db", box(), "--only", "consumer"}).status.code, 0);
    }
    std::string box() { return "sqlite://" + outbox_.file("box.db").string(); }
    Process relay(const std::string& from, std::vector<std::string> more = {}) {
        more.insert(more.begin(), {"--from", from, "--to", "mailbox+" + box(), "--admin", "off"});
        return outbox_.start_relay(more);
    }
    json status(const std::string& url, std::vector<std::string> more = {}) {
        more.insert(more.begin(), {"status", "--db", url, "--json"});
        const Finished ended = outbox_.run(more);
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return json::parse(ended.out.empty() ? "null" : ended.out);
    }
    std::string secret(const std::string& text,
                       perms mode = perms::owner_read | perms::owner_write) {
        const auto file = outbox_.write("secret", text);
        std::filesystem::permissions(file, mode);
        return file;
    }

    OutboxBinary outbox_;
};

class GuideWithPassword : public Guide {
  protected:
    void SetUp() override {
        Guide::SetUp();
        url_ = server_.create_database();
        db_.emplace(url_);
        db_->exec("CREATE ROLE clerk LOGIN SUPERUSER PASSWORD 'o l&d'");
        from_ = "postgresql://clerk@127.0.0.1:" + std::to_string(server_.port()) +
                url_.substr(url_.rfind('/'));
    }
    PostgresServer server_;
    std::string url_;
    std::string from_;
    std::optional<Pg> db_;
};

TEST_F(GuideWithPassword, APasswordFileIsReadAnewAtEachConnection) {
    const std::string file = secret("o l&d\n");
    const Finished made = outbox_.run({"migrate", "--db", from_, "--password-file", file});
    ASSERT_EQ(made.status.code, 0) << made.err;
    Process leader = relay(from_, {"--password-file", file});
    ASSERT_TRUE(eventually(60s, "it leads", [&] {
        return db_->number("SELECT count(*) FROM outbox_lease WHERE owner IS NOT NULL") == 1;
    }));
    secret("new");
    db_->exec("ALTER ROLE clerk PASSWORD 'new'");
    db_->exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'clerk'");
    db_->exec("SELECT outbox_emit('orders', '1')");
    EXPECT_TRUE(eventually(60s, "it goes on",
                           [&] { return db_->number("SELECT count(*) FROM outbox_events") == 0; }));
    EXPECT_EQ(status(from_, {"--password-file", file})["backlog"], 0);
    // A mailbox's URL names its own.
    ASSERT_EQ(outbox_.run({"migrate", "--db", box()}).status.code, 0);
    const Finished checked = outbox_.run({"relay", "--check", "--from", box(), "--to",
                                          "mailbox+" + from_ + "?password_file=" + file});
    EXPECT_EQ(checked.status.code, 0) << checked.out << checked.err;
    EXPECT_EQ(leader.stop(), kStopped);
    EXPECT_THAT(leader.stderr_text(), Not(HasSubstr("o l&d")));
}

TEST_F(GuideWithPassword, APasswordFileThatOthersMayReadIsRefused) {
    const auto run = [&](const std::string& file, const std::string& url) {
        return outbox_.run({"status", "--db", url, "--password-file", file});
    };
    const Finished open =
        run(secret("o l&d", perms::owner_read | perms::owner_write | perms::others_read), from_);
    EXPECT_EQ(open.status.code, 3) << open.err;
    EXPECT_THAT(open.err, AllOf(HasSubstr("other users may read"), HasSubstr("chmod o=")));
    EXPECT_THAT(run("/nowhere", from_).err, HasSubstr("password file /nowhere: No such file"));
    EXPECT_THAT(run(secret(""), from_).err, HasSubstr("it is empty"));
    EXPECT_THAT(run(secret(std::string("a\0b", 3)), from_).err, HasSubstr("it has a NUL byte"));
    std::string both = from_;
    both.insert(both.find('@'), ":x");
    EXPECT_THAT(run(secret("y"), both).err, HasSubstr("leave one of them out"));
    EXPECT_THAT(run(secret("y"), box()).err, HasSubstr("it is for postgresql://"));
}

TEST_F(Guide, ASchemaHasTheTablesAndAllCommandsFindThem) {
    const std::string url = shared_postgres().create_database();
    Pg db(url);
    db.exec("CREATE SCHEMA \"Out box\"");
    const auto run = [&](std::vector<std::string> words) {
        words.insert(words.end(), {"--db", url, "--schema", "Out box"});
        const Finished ended = outbox_.run(words);
        EXPECT_EQ(ended.status.code, 0) << words[0] << ": " << ended.err;
        return ended.out;
    };
    run({"migrate"});
    EXPECT_EQ(db.value("SELECT string_agg(DISTINCT schemaname, ' ') FROM pg_tables WHERE tablename "
                       "LIKE 'outbox%'"),
              "Out box");
    EXPECT_THAT(run({"migrate", "--print"}), HasSubstr("CREATE TABLE IF NOT EXISTS \"Out box\"."));
    EXPECT_THAT(outbox_.run({"roles", "--print", "--schema", "Out box"}).out,
                HasSubstr("GRANT USAGE ON SCHEMA \"Out box\" TO"));
    db.exec("INSERT INTO \"Out box\".outbox_events (topic, payload) VALUES ('orders', '1')");
    Process running = relay(url, {"--schema", "Out box"});
    ASSERT_TRUE(eventually(60s, "it is relayed", [&] {
        return db.number("SELECT count(*) FROM \"Out box\".outbox_events") == 0;
    }));
    EXPECT_EQ(status(url, {"--schema", "Out box"})["source"], "Out box.outbox_events");
    run({"dead", "list"});
    run({"saga", "list"});
    run({"prune"});
    EXPECT_EQ(running.stop(), kStopped);
    // Side tables beside a table of another schema.
    db.exec(
        "CREATE TABLE mine (id bigint PRIMARY KEY, event_type text, payload text, created_at "
        "timestamptz, processed_at timestamptz); INSERT INTO mine VALUES (1, 'A', 'x', now())");
    Process adopted = relay(url, {"--schema", "Out box", "--table", "public.mine"});
    ASSERT_TRUE(eventually(60s, "it is marked", [&] {
        return db.number("SELECT count(*) FROM mine WHERE processed_at IS NOT NULL") == 1;
    }));
    const auto refused = [&](const std::string& how) {
        const Finished ended = outbox_.run({"relay", "--from", url, "--table", "public.mine",
                                            "--to", "stdout:", "--admin", "off"});
        EXPECT_EQ(ended.status.code, 4);
        EXPECT_THAT(ended.err, HasSubstr(how + " public.mine by tables in schema \"Out box\""));
    };
    refused("a relay leads");
    EXPECT_EQ(adopted.stop(), kStopped);
    refused("relays led");
    EXPECT_EQ(db.value("SELECT to_regclass('public.outbox_lease')"), "");
    run({"migrate", "--uninstall"});
    EXPECT_EQ(db.number("SELECT count(*) FROM pg_tables WHERE schemaname = 'Out box'"), 0);

    EXPECT_THAT(outbox_.run({"status", "--db", box(), "--schema", "x"}).err,
                HasSubstr("it is for postgresql://"));
    EXPECT_EQ(outbox_.run({"status", "--db", url + "?options=-cwork_mem%3D1MB", "--schema", "x"})
                  .status.code,
              2);
}

TEST_F(Guide, TwoRelaysAMoveAnUpgradeAndTheRemovalLoseNothing) {
    const std::string url = shared_postgres().create_database();
    Pg db(url);
    ASSERT_EQ(outbox_.run({"migrate", "--db", url}).status.code, 0);
    const auto emit = [&] { db.exec("SELECT outbox_emit('orders', '1')"); };
    const auto leads = [&](const Process& one) {
        const std::string owner = status(url)["lease"]["owner"];
        return owner.ends_with(":" + std::to_string(one.pid()));
    };
    emit();
    Process first = relay(url);
    // With its routes, which it writes down when it has the lease.
    ASSERT_TRUE(eventually(60s, "the first leads",
                           [&] { return leads(first) && !status(url)["routes"].empty(); }));
    Process second = relay(url);
    json standbys;
    ASSERT_TRUE(eventually(60s, "the second stands by", [&] {
        standbys = status(url)["standbys"];
        return standbys.size() == 1;
    }));
    EXPECT_EQ(standbys[0]["other_routes"], false);
    emit();
    EXPECT_EQ(first.stop(), kStopped);
    ASSERT_TRUE(eventually(60s, "the second leads", [&] { return leads(second); }));
    emit();
    // While a relay runs the tables are migrated, and the next one takes over.
    ASSERT_EQ(outbox_.run({"migrate", "--db", url}).status.code, 0);
    Process third = relay(url);
    ASSERT_TRUE(eventually(60s, "the third stands by",
                           [&] { return status(url)["standbys"].size() == 1; }));
    EXPECT_EQ(outbox_.run({"migrate", "--db", url, "--uninstall"}).status.code, 4);
    EXPECT_EQ(second.stop(), kStopped);
    ASSERT_TRUE(eventually(60s, "all is relayed", [&] {
        return leads(third) && db.number("SELECT count(*) FROM outbox_events") == 0;
    }));
    EXPECT_EQ(third.stop(), kStopped);
    EXPECT_EQ(outbox_.run({"migrate", "--db", url, "--uninstall"}).status.code, 0);
    const json boxes = status(box());
    EXPECT_EQ(boxes["mailboxes"][0]["waiting"], 3);
}

// The blocks of SQL of docs/cookbook.md.
std::vector<std::string> recipes() {
    const std::string page = read_file(COOKBOOK_PAGE);
    const std::string open = "```sql\n";
    std::vector<std::string> found;
    for (std::size_t at = page.find(open); at != std::string::npos; at = page.find(open, at + 1)) {
        const std::size_t begin = at + open.size();
        found.push_back(page.substr(begin, page.find("```", begin) - begin));
    }
    return found;
}

TEST(Cookbook, TheRecipesInSqlDoWhatTheySay) {
    const auto recipe = recipes();
    ASSERT_EQ(recipe.size(), 4U);
    const std::string url = shared_postgres().create_database();
    OutboxBinary outbox;
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    Pg db(url);
    db.exec(recipe[0]);
    db.exec(recipe[1]);
    EXPECT_EQ(db.value("SELECT count(*) FROM outbox_scheduled WHERE available_at > now() + "
                       "interval '29 minutes'"),
              "1");

    db.exec(
        "CREATE ROLE relay LOGIN PASSWORD 'test'; CREATE ROLE "
        "acme LOGIN PASSWORD 'test'; GRANT INSERT, SELECT ON outbox_events TO acme");
    db.exec(recipe[2]);
    const auto as = [&](const std::string& role) {
        return "postgresql://" + role + url.substr(url.find('@'));
    };
    {
        Pg tenant(as("acme"));
        tenant.exec(recipe[3]);
        EXPECT_EQ(tenant.value("SELECT string_agg(aggregate_id, ' ') FROM outbox_events"), "o-7");
        EXPECT_THROW(tenant.exec("INSERT INTO outbox_events (tenant_id, aggregate_type, "
                                 "aggregate_id, event_type, payload) VALUES ('other', 'Order', "
                                 "'o-8', 'OrderCreated', '{}')"),
                     std::runtime_error);
    }
    const Finished roles =
        outbox.run({"roles", "--print", "--only", "producer", "--relay", "relay"});
    ASSERT_EQ(roles.status.code, 0) << roles.err;
    db.exec(roles.out);
    Process relay =
        outbox.start_relay({"--from", as("relay"), "--to", "stdout:", "--admin", "off"});
    EXPECT_TRUE(eventually(60s, "what it may see is sent",
                           [&] { return db.value("SELECT count(*) FROM outbox_events") == "0"; }));
    EXPECT_EQ(relay.stop(), kStopped);
    EXPECT_THAT(relay.stdout_text(),
                AllOf(HasSubstr("\"schema_version\":\"2\""), HasSubstr("o-7")));

    // Without that right rows would be hidden from it, which is said.
    db.exec("ALTER ROLE relay NOBYPASSRLS");
    const Finished doctor = outbox.run({"doctor", "--from", as("relay"), "--to", "stdout:"});
    EXPECT_THAT(doctor.out, HasSubstr("row security")) << doctor.err;
    db.exec("REASSIGN OWNED BY relay, acme TO postgres; DROP OWNED BY relay, acme");
}

}  // namespace
}  // namespace outbox::test
