// From an order over HTTP to its effect at a consumer, through relay and Kafka, while relay and
// consumer are killed again and again.

#include <atomic>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <outbox/producer/migrate.h>

#include "tests/consumer/database.h"
#include "tests/support/eventually.h"
#include "tests/support/full_run.h"
#include "tests/support/http_client.h"
#include "tests/support/kafka_client.h"
#include "tests/support/process.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kDeadline = 90s;
constexpr int kRounds = 4;
constexpr int kClients = 3;
constexpr int kUsers = 8;
constexpr int kEffectsPerStep = 60;

// Orders of a few users, whose events are kept in the order of the user.
class Clients {
  public:
    explicit Clients(int port) {
        for (int client = 0; client < kClients; ++client) {
            threads_.emplace_back([this, port, client] {
                for (int i = client; !stopping_; i += kClients) {
                    const std::string user = "u-" + std::to_string(i % kUsers);
                    const HttpAnswer answer =
                        http(port, "POST", "/api/orders",
                             R"({"user_id":")" + user +
                                 R"(","product_id":"p","quantity":1,"total_amount":9.99})");
                    if (answer.status == 201) ++accepted_;
                }
            });
        }
    }
    ~Clients() { stop(); }
    void stop() {
        stopping_ = true;
        for (auto& thread : threads_) thread.join();
        threads_.clear();
    }
    int accepted() const { return accepted_; }

  private:
    std::atomic<bool> stopping_ = false;
    std::atomic<int> accepted_ = 0;
    std::vector<std::thread> threads_;
};

class KafkaEffects : public testing::TestWithParam<Backend> {
  protected:
    KafkaEffects()
        : orders_(shared_postgres().create_database()), consumer_db_(make_database(GetParam())) {
        create_topic(shared_kafka().bootstrap(), topic_, 4);
        MigrateOptions side;
        side.side = MigrationSide::kConsumer;
        migrate(consumer_db_->url(), side);
        db_ = consumer_db_->connect();
        db_->exec(std::string("CREATE TABLE effects (seq ") +
                  (GetParam() == Backend::kPostgres ? "bigint GENERATED ALWAYS AS IDENTITY"
                                                    : "INTEGER PRIMARY KEY") +
                  ", id text, key text, payload text, member text, n bigint)");
    }
    int start_order_service() {
        service_.emplace(
            ProcessOptions{.command = {ORDER_SERVICE, "--journal", journal_, "--order-by", "user"},
                           .environment = {{"DATABASE_URL", orders_}, {"PORT", "0"}}});
        const std::string sign = "listening on http://127.0.0.1:";
        int port = 0;
        EXPECT_TRUE(eventually(kDeadline, "the order service listens", [&] {
            const std::string out = service_->stdout_text();
            const auto at = out.find(sign);
            if (at == std::string::npos || !out.ends_with('\n')) return false;
            port = std::stoi(out.substr(at + sign.size()));
            return true;
        }));
        return port;
    }
    Process relay() {
        return Process({.command = {OUTBOX, "relay", "--from", orders_, "--to",
                                    "kafka://" + shared_kafka().bootstrap(), "--admin", "off",
                                    "--topic-template", topic_}});
    }
    Process consumer(int number) {
        return Process({.command = {KAFKA_MEMBER, shared_kafka().bootstrap(), "effects", topic_,
                                    consumer_db_->url(), "m" + std::to_string(number), "200"}});
    }
    long long effects() { return db_->number("SELECT count(*) FROM effects"); }
    testing::AssertionResult effects_go_on() {
        const long long before = effects();
        return eventually(kDeadline, "effects go on",
                          [&] { return effects() >= before + kEffectsPerStep; });
    }
    Finished verify() {
        return run({.command = {OUTBOX, "verify", "--produced", journal_, "--db", orders_,
                                "--effect-db", consumer_db_->url(), "--effect-query",
                                "SELECT id, key, n FROM effects ORDER BY seq"}});
    }

    std::string orders_;
    std::unique_ptr<Database> consumer_db_;
    std::unique_ptr<Database::Connection> db_;
    std::string topic_ = "effects-" + orders_.substr(orders_.rfind('/') + 1);
    TemporaryFolder folder_{"kafka-effects"};
    std::string journal_ = (folder_ / "orders.jsonl").string();
    std::optional<Process> service_;
};

INSTANTIATE_TEST_SUITE_P(Consumers, KafkaEffects,
                         testing::ValuesIn(and_in_full({Backend::kPostgres}, {Backend::kSqlite})),
                         [](const auto& test) { return backend_name(test.param); });

TEST_P(KafkaEffects, EveryOrderHasOneEffectInOrderHoweverOftenRelayAndConsumerAreKilled) {
    Clients clients(start_order_service());
    ASSERT_FALSE(HasFailure());
    std::optional<Process> relay(this->relay());
    std::optional<Process> member(consumer(0));
    for (int round = 1; round <= kRounds; ++round) {
        ASSERT_TRUE(effects_go_on()) << relay->stderr_text() << member->stderr_text();
        relay->kill(SIGKILL);
        relay.emplace(this->relay());
        ASSERT_TRUE(effects_go_on()) << relay->stderr_text() << member->stderr_text();
        member->kill(SIGKILL);
        member.emplace(consumer(round));
    }
    clients.stop();
    const long long orders = Pg(orders_).number("SELECT count(*) FROM orders");
    EXPECT_GE(orders, clients.accepted());
    EXPECT_EQ(service_->stop(), (ExitStatus{0, 0})) << service_->stderr_text();
    ASSERT_TRUE(
        eventually(kDeadline, "every order has its effect", [&] { return effects() >= orders; }))
        << relay->stderr_text() << member->stderr_text();
    // What comes once more comes now, and must leave no trace.
    ASSERT_TRUE(eventually(kDeadline, "everything is published", [&] {
        return Pg(orders_).number("SELECT count(*) FROM outbox_events") == 0;
    }));
    EXPECT_EQ(relay->stop(), (ExitStatus{0, 0})) << relay->stderr_text();
    EXPECT_EQ(member->stop(), (ExitStatus{0, 0})) << member->stderr_text();

    const Finished verdict = verify();
    EXPECT_EQ(verdict.status.code, 0) << verdict.out << verdict.err;
    EXPECT_NE(verdict.out.find("lost 0, ghosts 0, out of order 0, repeats applied 0, "
                               "never applied 0, dead letters 0 (" +
                               std::to_string(orders) + " events produced, "),
              std::string::npos)
        << verdict.out;
    // The same command sees a repeat that was applied, and an effect that is missing.
    db_->exec("INSERT INTO effects (id, key, n) SELECT id, key, n FROM effects WHERE seq = 1");
    EXPECT_NE(verify().out.find("repeats applied 1"), std::string::npos);
    db_->exec("DELETE FROM effects WHERE id = (SELECT id FROM effects WHERE seq = 1)");
    EXPECT_NE(verify().out.find("lost 1,"), std::string::npos);
}

}  // namespace
}  // namespace outbox::test
