// `outbox wait` while the consumer's database fails over to its standby.
#include <cstdlib>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <outbox/fence.h>

#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

// A primary whose commits wait for its standby; both in the URL.
class WaitDuringFailover : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(
            outbox_.run({"migrate", "--db", primary_.url(), "--only", "consumer"}).status.code, 0);
        primary_.stop();
        const std::string data = (folder_ / "standby").string();
        ASSERT_EQ(std::system(("cp -a " + primary_.data().string() + " " + data + " && cp -a " +
                               data + "/PG_VERSION " + data + "/standby.signal")
                                  .c_str()),
                  0);
        std::ofstream(data + "/postgresql.auto.conf", std::ios::app)
            << "primary_conninfo = 'host=127.0.0.1 user=postgres application_name=standby port="
            << primary_.port() << " passfile=" << data << "/pgpass'\n";
        primary_.start();
        standby_.emplace(folder_ / "standby");
        Pg primary(primary_.url());
        primary.exec("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
        primary.exec("SELECT pg_reload_conf()");
        ASSERT_TRUE(eventually(60s, "the standby is synchronous", [&] {
            return Pg(primary_.url())
                       .number(
                           "SELECT count(*) FROM pg_stat_replication WHERE sync_state = "
                           "'sync'") == 1;
        })) << standby_->log_tail();
    }
    std::string url() const {
        return "postgresql://postgres@127.0.0.1:" + std::to_string(primary_.port()) +
               ",127.0.0.1:" + std::to_string(standby_->port()) +
               "/postgres?target_session_attrs=read-write";
    }
    json wait(const std::vector<std::string>& ids, int code, const std::string& timeout) {
        const Finished ended =
            outbox_.run({"wait", fence_token(ids), "--consumer", "stock", "--consumer-db", url(),
                         "--timeout", timeout, "--json"});
        EXPECT_EQ(ended.status.code, code) << ended.out << ended.err;
        return json::parse(ended.out.empty() ? "null" : ended.out);
    }

    OutboxBinary outbox_;
    PostgresServer primary_;
    TemporaryFolder folder_{"standby"};
    std::optional<PostgresServer> standby_;
};

TEST_F(WaitDuringFailover, ItGoesOnAtTheStandbyThatIsPromotedAndSaysWhatIsAppliedThere) {
    const std::string before = "018f2d3c-0000-7000-8000-000000000001";
    const std::string after = "018f2d3c-0000-7000-8000-000000000002";
    Pg(primary_.url()).exec("SELECT inbox_accept('stock', '" + before + "')");
    auto waiting = std::async(std::launch::async, [&] { return wait({before, after}, 0, "120s"); });
    // The second look there begins when the first has its answer: a database that was never there
    // is not waited for.
    const auto looks_at = [&](PostgresServer& server) {
        std::string first;
        return eventually(60s, "it looks there twice", [&] {
            const std::string last = Pg(server.url())
                                         .value(
                                             "SELECT coalesce(max(query_start)::text, '') FROM "
                                             "pg_stat_activity WHERE query "
                                             "LIKE '%outbox_wait%' AND pid <> pg_backend_pid()");
            if (first.empty()) first = last;
            return last != first;
        });
    };
    EXPECT_TRUE(looks_at(primary_));
    primary_.stop(PostgresServer::Stop::kImmediate);
    Pg(standby_->url()).exec("SELECT pg_promote()");
    EXPECT_TRUE(looks_at(*standby_));
    EXPECT_EQ(wait({before}, 0, "60s")["state"], "applied");
    EXPECT_EQ(wait({after}, 6, "0s")["events"][0]["why"], "not_seen");
    Pg(standby_->url()).exec("SELECT inbox_accept('stock', '" + after + "')");
    EXPECT_EQ(waiting.get()["state"], "applied");
}

}  // namespace
}  // namespace outbox::test
