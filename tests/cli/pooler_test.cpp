// PgBouncer between our sessions and the server.
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <unistd.h>

#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class Pooler {
  public:
    explicit Pooler(const std::string& mode) : port_(free_port()) {
        const std::string server = shared_postgres().with_password(shared_postgres().url());
        const auto begin = server.find("postgres:", server.find("://") + 3) + 9;
        const std::string password = server.substr(begin, server.find('@') - begin);
        std::string text =
            "[databases]\n* = host=127.0.0.1 port=" + std::to_string(shared_postgres().port()) +
            " user=postgres password=" + password +
            "\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = " + std::to_string(port_) +
            "\nunix_socket_dir =\nauth_type = any\npool_mode = " + mode + "\n";
        if (getuid() == 0) text += "user = nobody\n";  // it does not run as root
        std::ofstream(folder_ / "pgbouncer.ini") << text;
        process_.emplace(
            ProcessOptions{.command = {"/usr/sbin/pgbouncer", folder_ / "pgbouncer.ini"}});
        EXPECT_TRUE(eventually(60s, "the pooler listens", [&] {
            try {
                Pg(url("postgres")).exec("SELECT 1");
                return true;
            } catch (const std::exception&) {
                return false;
            }
        })) << process_->stderr_text();
    }

    [[nodiscard]] std::string url(const std::string& database) const {
        return "postgresql://postgres@127.0.0.1:" + std::to_string(port_) + "/" + database;
    }

  private:
    TemporaryFolder folder_{"pooler"};
    int port_;
    std::optional<Process> process_;
};

std::string database_of(const std::string& url) {
    return url.substr(url.rfind('/') + 1);
}

// What ours need of a session would break whatever else gets it.
TEST(PoolerThatGivesEachTransactionAnotherSession, IsRefusedAndGetsNothingOfOurSettings) {
    const std::string direct = shared_postgres().create_database();
    OutboxBinary outbox;
    ASSERT_EQ(outbox.run({"migrate", "--db", direct}).status.code, 0);
    const Pooler pooler("transaction");
    const std::string url = pooler.url(database_of(direct));
    for (const std::vector<std::string>& words :
         std::vector<std::vector<std::string>>{{"status", "--db", url},
                                               {"migrate", "--db", url},
                                               {"dead", "list", "--db", url},
                                               {"dead", "list", "--consumer", "c", "--db", url},
                                               {"prune", "--db", url},
                                               {"doctor", "--from", url, "--to", "stdout:"},
                                               {"relay", "--from", url, "--to", "null:"}}) {
        const Finished ended = outbox.run(words);
        EXPECT_EQ(ended.status.code, 2) << words[0] << ": " << ended.err;
        EXPECT_THAT(ended.err, HasSubstr("PgBouncer in transaction mode")) << words[0];
    }
    Pg other(url);
    EXPECT_EQ(other.value("SHOW search_path"), "\"$user\", public");
    EXPECT_EQ(other.value("SHOW enable_seqscan"), "on");
    EXPECT_EQ(other.value("SHOW statement_timeout"), "0");
    EXPECT_EQ(other.value("SELECT coalesce(current_setting('outbox.session', true), '')"), "");
}

TEST(PoolerThatKeepsSessions, IsWorkedThrough) {
    const std::string direct = shared_postgres().create_database();
    const Pooler pooler("session");
    const std::string url = pooler.url(database_of(direct));
    OutboxBinary outbox;
    const Finished migrated = outbox.run({"migrate", "--db", url});
    ASSERT_EQ(migrated.status.code, 0) << migrated.err;
    Pg database(direct);
    database.exec("SELECT outbox_emit(topic => 't', payload => '{}')");
    Process relay = outbox.start_relay({"--from", url, "--to", "null:", "--admin", "off"});
    EXPECT_TRUE(eventually(60s, "the event is delivered", [&] {
        return database.number("SELECT count(*) FROM outbox_events") == 0;
    })) << relay.stderr_text();
    EXPECT_EQ(outbox.run({"status", "--db", url}).status.code, 0);
    EXPECT_EQ(relay.stop().code, 0);
}

}  // namespace
}  // namespace outbox::test
