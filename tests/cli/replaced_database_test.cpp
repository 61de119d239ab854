// Databases that are exchanged or away while relays run.
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <initializer_list>

#include "tests/support/adopted_tables.h"
#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kDeadline = 60s;

bool says(const Process& relay, const std::string& what) {
    return relay.stderr_text().find(what) != std::string::npos;
}

// A file takes the place of a database's. Who opened it between the steps would make a log of the
// old file beside the new one, which SQLite would take for the new one's.
void replace_file(const std::string& path, const std::string& by,
                  std::initializer_list<Process*> relays) {
    for (Process* relay : relays) relay->kill(SIGSTOP);
    for (const char* extra : {"-wal", "-shm"}) std::filesystem::remove(path + extra);
    std::filesystem::rename(by, path);
    for (Process* relay : relays) relay->kill(SIGCONT);
}

// The usual way back to a backup: another database is renamed to the name. The numbers of the old
// one's last events come again, and reach past them before the relay sees anything of it.
class SwappedDatabase : public testing::Test {
  protected:
    static std::string at(const std::string& url, const std::string& database) {
        return url.substr(0, url.rfind('/') + 1) + database;
    }
    static std::string name_of(const std::string& url) { return url.substr(url.rfind('/') + 1); }
    void emit(int count) const {
        Pg(source_).exec(
            "SELECT outbox_emit('orders', '{}', key => 'k' || i) FROM "
            "generate_series(1, " +
            std::to_string(count) + ") AS i");
    }
    bool arrived(int count) const {
        return Pg(mailbox_).number("SELECT count(DISTINCT id) FROM outbox_mailbox") == count;
    }
    // The relay has no connection to it, and makes none while it stands still.
    void cut(Process& relay) {
        relay.kill(SIGSTOP);
        end_sessions();
    }
    void end_sessions() {
        server_.exec(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE "
            "datname = '" +
            name_of(source_) + "'");
    }
    // One that was beginning as the relay was stopped is known to nobody yet.
    void exec_alone(const std::string& sql) {
        ASSERT_TRUE(eventually(kDeadline, sql, [&] {
            end_sessions();
            try {
                server_.exec(sql);
                return true;
            } catch (const std::exception& error) {
                const std::string_view what = error.what();
                if (what.find("accessed by other users") == std::string_view::npos) throw;
                return false;
            }
        }));
    }

    OutboxBinary outbox_;
    std::string source_ = shared_postgres().create_database();
    std::string mailbox_ = shared_postgres().create_database();
    Pg server_{at(source_, "postgres")};
};

TEST_F(SwappedDatabase, IsReadAnew) {
    ASSERT_EQ(outbox_.run({"migrate", "--db", source_}).status.code, 0);
    ASSERT_EQ(outbox_.run({"migrate", "--db", mailbox_}).status.code, 0);
    Process relay = outbox_.start_relay({"--from", source_, "--to",
                                         "mailbox+postgresql" + mailbox_.substr(mailbox_.find(':')),
                                         "--mode", "polling", "--admin", "off"});
    emit(100);
    ASSERT_TRUE(eventually(kDeadline, "100 have arrived", [&] { return arrived(100); }));
    ASSERT_TRUE(eventually(kDeadline, "and are removed", [&] {
        return Pg(source_).number("SELECT count(*) FROM outbox_events") == 0;
    }));
    cut(relay);
    const std::string name = name_of(source_);
    exec_alone("CREATE DATABASE " + name + "_copy TEMPLATE " + name);
    relay.kill(SIGCONT);
    emit(50);
    ASSERT_TRUE(eventually(kDeadline, "150 have arrived", [&] { return arrived(150); }));

    cut(relay);
    exec_alone("ALTER DATABASE " + name + " RENAME TO " + name + "_old");
    relay.kill(SIGCONT);
    ASSERT_TRUE(eventually(kDeadline, "it misses the database", [&] {
        return says(relay, "OB_NO_SUCH_DATABASE");
    })) << relay.stderr_text();
    relay.kill(SIGSTOP);
    server_.exec("ALTER DATABASE " + name + "_copy RENAME TO " + name);
    emit(80);
    relay.kill(SIGCONT);
    EXPECT_TRUE(eventually(kDeadline, "all have arrived", [&] { return arrived(230); }))
        << relay.stderr_text();
    EXPECT_TRUE(says(relay, "event=server_changed")) << relay.stderr_text();
    EXPECT_EQ(relay.stop().code, 0) << relay.stderr_text();
}

// pg_restore brings tables first and their keys last.
TEST_F(SwappedDatabase, WhoseTablesComeBackOneByOneIsWaitedFor) {
    ASSERT_EQ(outbox_.run({"migrate", "--db", source_}).status.code, 0);
    ASSERT_EQ(outbox_.run({"migrate", "--db", mailbox_}).status.code, 0);
    Process relay = outbox_.start_relay(
        {"--from", source_, "--to", "mailbox+postgresql" + mailbox_.substr(mailbox_.find(':')),
         "--mode", "polling", "--lease-ttl-ms", "1000", "--admin", "off"});
    emit(10);
    ASSERT_TRUE(eventually(kDeadline, "10 have arrived", [&] { return arrived(10); }));
    Pg database(source_);
    database.exec(
        "ALTER TABLE outbox_lease DROP CONSTRAINT outbox_lease_pkey; "
        "UPDATE outbox_lease SET epoch = epoch + 1, owner = NULL, expires_at = NULL");
    ASSERT_TRUE(eventually(kDeadline, "it misses the key", [&] {
        return says(relay, "lacks its primary key");
    })) << relay.stderr_text();
    database.exec("ALTER TABLE outbox_lease ADD PRIMARY KEY (source)");
    emit(5);
    ASSERT_TRUE(eventually(kDeadline, "it goes on", [&] { return arrived(15); }))
        << relay.stderr_text();
    database.exec("ALTER SCHEMA public RENAME TO away; CREATE SCHEMA public");
    ASSERT_TRUE(eventually(kDeadline, "it misses the tables", [&] {
        return says(relay, "event=database_away error=\"OB_NO_SUCH_TABLE (42P01)");
    })) << relay.stderr_text();
    database.exec("DROP SCHEMA public; ALTER SCHEMA away RENAME TO public");
    emit(5);
    EXPECT_TRUE(eventually(kDeadline, "all have arrived", [&] { return arrived(20); }))
        << relay.stderr_text();
    EXPECT_EQ(relay.stop().code, 0) << relay.stderr_text();
}

class SqliteFile : public testing::Test {
  protected:
    SqliteFile() {
        std::filesystem::create_directory(folder_);
        if (outbox_.run({"migrate", "--db", url_}).status.code != 0 ||
            outbox_.run({"migrate", "--db", "sqlite:" + mailbox_}).status.code != 0) {
            throw std::runtime_error("migrate failed");
        }
    }
    Process relay() {
        return outbox_.start_relay({"--from", url_, "--to", "mailbox+sqlite:" + mailbox_,
                                    "--lease-ttl-ms", "1000", "--admin", "off"});
    }
    void write(const std::string& id) const {
        Sqlite(path_).exec("INSERT INTO outbox_events (id, topic) VALUES ('" + id + "', 'orders')");
    }
    bool arrived(const std::string& id) const {
        return Sqlite(mailbox_).number("SELECT count(*) FROM outbox_mailbox WHERE id = '" + id +
                                       "'") > 0;
    }

    OutboxBinary outbox_;
    std::filesystem::path folder_ = outbox_.file("volume");
    std::string path_ = (folder_ / "shop.db").string();
    std::string mailbox_ = outbox_.file("mailbox.db").string();
    std::string url_ = "sqlite:" + path_;
};

TEST_F(SqliteFile, ThatIsReplacedEndsNeitherLeaderNorStandby) {
    std::filesystem::copy_file(path_, path_ + ".backup");
    Process leader = relay();
    write("a");
    ASSERT_TRUE(eventually(kDeadline, "the leader runs", [&] { return arrived("a"); }));
    Process standby = relay();
    ASSERT_TRUE(eventually(kDeadline, "the other one waits",
                           [&] { return says(standby, "event=standby"); }));
    replace_file(path_, path_ + ".backup", {&leader, &standby});
    for (Process* one : {&leader, &standby}) {
        ASSERT_TRUE(eventually(kDeadline, "both see it", [&] {
            return says(*one, "event=server_changed");
        })) << one->stderr_text();
    }
    write("b");
    EXPECT_TRUE(eventually(kDeadline, "they go on", [&] { return arrived("b"); }));
    EXPECT_EQ(standby.stop().code, 0) << standby.stderr_text();
    EXPECT_EQ(leader.stop().code, 0) << leader.stderr_text();
}

TEST_F(SqliteFile, WhoseVolumeIsAwayIsWaitedFor) {
    Process running = relay();
    write("a");
    ASSERT_TRUE(eventually(kDeadline, "it runs", [&] { return arrived("a"); }));
    const std::filesystem::path elsewhere = outbox_.file("elsewhere");
    std::filesystem::rename(folder_, elsewhere);
    ASSERT_TRUE(eventually(kDeadline, "it misses it", [&] {
        return says(running, "is its volume there?");
    })) << running.stderr_text();
    std::filesystem::rename(elsewhere, folder_);
    write("b");
    EXPECT_TRUE(eventually(kDeadline, "it goes on", [&] { return arrived("b"); }))
        << running.stderr_text();
    EXPECT_EQ(running.stop().code, 0) << running.stderr_text();
}

// A table of the team's own comes back as it was before a relay made our tables beside it.
class AdoptedTableThatComesBack : public testing::Test {
  protected:
    AdoptedTableThatComesBack() {
        if (outbox_.run({"migrate", "--db", "sqlite:" + mailbox_}).status.code != 0) {
            throw std::runtime_error("migrate failed");
        }
    }
    Process relay(const std::string& from) {
        return outbox_.start_relay({"--from", from, "--table", "OutboxMessages", "--to",
                                    "mailbox+sqlite:" + mailbox_, "--lease-ttl-ms", "1000",
                                    "--admin", "off"});
    }
    static std::string row(int id) {
        return "INSERT INTO \"OutboxMessages\" (\"Id\", \"EventType\", \"Payload\") VALUES (" +
               std::to_string(id) + ", 'Made', '{}')";
    }
    bool arrived(int id) const {
        return Sqlite(mailbox_).number(
                   "SELECT count(*) FROM outbox_mailbox WHERE id LIKE "
                   "'%OutboxMessages:" +
                   std::to_string(id) + "'") > 0;
    }
    void expect_both_go_on(Process& leader, Process& standby) {
        EXPECT_TRUE(eventually(kDeadline, "they go on", [&] { return arrived(2); }))
            << leader.stderr_text() << standby.stderr_text();
        EXPECT_EQ(standby.stop().code, 0) << standby.stderr_text();
        EXPECT_EQ(leader.stop().code, 0) << leader.stderr_text();
    }

    OutboxBinary outbox_;
    std::string mailbox_ = outbox_.file("mailbox.db").string();
};

TEST_F(AdoptedTableThatComesBack, InAnotherFileEndsNeitherLeaderNorStandby) {
    const std::string path = outbox_.file("shop.db").string();
    const std::string url = "sqlite:" + path;
    Sqlite(path).exec(
        "CREATE TABLE \"OutboxMessages\" (\"Id\" INTEGER PRIMARY KEY, \"EventType\" TEXT NOT NULL, "
        "\"Payload\" TEXT NOT NULL, \"CreatedAt\" TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, "
        "\"Processed\" INTEGER NOT NULL DEFAULT 0)");
    std::filesystem::copy_file(path, path + ".before");
    Sqlite(path).exec(row(1));
    Process leader = relay(url);
    ASSERT_TRUE(eventually(kDeadline, "the leader runs", [&] { return arrived(1); }));
    Process standby = relay(url);
    ASSERT_TRUE(eventually(kDeadline, "the other one waits",
                           [&] { return says(standby, "event=standby"); }));
    replace_file(path, path + ".before", {&leader, &standby});
    for (Process* one : {&leader, &standby}) {
        ASSERT_TRUE(eventually(kDeadline, "both see it", [&] {
            return says(*one, "event=server_changed");
        })) << one->stderr_text();
    }
    Sqlite(path).exec(row(2));
    expect_both_go_on(leader, standby);
}

TEST_F(AdoptedTableThatComesBack, InANewDatabaseOfTheNameEndsNeitherLeaderNorStandby) {
    const std::string url = shared_postgres().create_database();
    const std::string name = url.substr(url.rfind('/') + 1);
    Pg(url).exec(kCamelCaseTable);
    Pg(url).exec(
        "INSERT INTO \"OutboxMessages\" (\"EventType\", \"Payload\") VALUES ('Made', "
        "'{}')");
    Process leader = relay(url);
    ASSERT_TRUE(eventually(kDeadline, "the leader runs", [&] { return arrived(1); }));
    Process standby = relay(url);
    ASSERT_TRUE(eventually(kDeadline, "the other one waits",
                           [&] { return says(standby, "event=standby"); }));
    Pg server(url.substr(0, url.rfind('/') + 1) + "postgres");
    server.exec("DROP DATABASE " + name + " WITH (FORCE)");
    server.exec("CREATE DATABASE " + name);
    for (Process* one : {&leader, &standby}) {
        ASSERT_TRUE(eventually(kDeadline, "both wait for the table", [&] {
            return says(*one, "OB_NO_SUCH_TABLE");
        })) << one->stderr_text();
    }
    Pg(url).exec(kCamelCaseTable);
    Pg(url).exec(
        "INSERT INTO \"OutboxMessages\" (\"EventType\", \"Payload\") SELECT 'Made', '{}' "
        "FROM generate_series(1, 2)");
    expect_both_go_on(leader, standby);
}

}  // namespace
}  // namespace outbox::test
