// The queue suite against a real Redis, and what its own groups add. Runs the code of the guide.

#include <outbox/consumer/metrics.h>
#include <outbox/consumer/redis.h>

#include "tests/brokers/redis/server.h"
#include "tests/conformance/queue_suite.h"
#include "tests/support/full_run.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

class RedisQueue : public QueueFixture {
  public:
    RedisQueue() {
        static int streams = 0;
        name_ = "queue-" + std::to_string(++streams);
        RedisQueue::make_queue();
    }
    std::string url() override {
        return shared_redis().url() + "?stream=" + name_ + "&group=stock";
    }
    Queue queue(const std::string& url) override { return redis_queue(url); }
    std::string topic() override { return name_; }
    void publish(const std::vector<Letter>& letters) override {
        shared_redis().publish(name_, letters);
    }
    std::size_t left() override { return shared_redis().left(name_, "stock"); }
    void remove_queue() override { shared_redis().ask({"DEL", name_}); }
    void make_queue() override {
        shared_redis().ask({"XGROUP", "CREATE", name_, "stock", "0", "MKSTREAM"});
    }
    void go_down() override { shared_redis().kill(); }
    void come_back() override { shared_redis().start(); }
    [[nodiscard]] const std::string& stream() const { return name_; }

  private:
    std::string name_;
};

QueueParam param(Backend database) {
    return {std::string("On") + backend_name(database), database,
            [] { return std::make_unique<RedisQueue>(); }};
}

const auto kAll =
    testing::ValuesIn(and_in_full({param(Backend::kPostgres)}, {param(Backend::kSqlite)}));
const auto kPostgres = testing::Values(param(Backend::kPostgres));
INSTANTIATE_TEST_SUITE_P(Redis, QueueConformance, kAll, queue_param_name);
INSTANTIATE_TEST_SUITE_P(Redis, QueueOutage, testing::Values(param(Backend::kSqlite)),
                         queue_param_name);
INSTANTIATE_TEST_SUITE_P(Redis, QueueDeliveries, kAll, queue_param_name);

class RedisReceiving : public QueueSuite {
  protected:
    const std::string& stream() { return dynamic_cast<RedisQueue&>(*fixture_).stream(); }
    QueueConsumer reader(const std::string& url, const QueueConsumerOptions& options) {
        return libpq_queue_consumer(
            database_->url(), redis_queue(url),
            [](PGconn* transaction, const Message& message) {
                apply([&](const std::string& sql) { Pg::query(transaction, sql); }, message);
            },
            options);
    }
};
INSTANTIATE_TEST_SUITE_P(Redis, RedisReceiving, kPostgres, queue_param_name);

// What the killed one had taken is older than what its successor reads.
TEST_P(RedisReceiving, OneMemberKeepsTheOrderOfKeysAcrossItsDeaths) {
    const auto sent = letters("orders", 3'000, 10);
    fixture_->publish(sent);
    for (int i = 1; i <= 4; ++i) {
        Process one = member("one", 300, {"hang_after=600"});
        ASSERT_TRUE(eventually(60s, "some are applied", [&] { return effects() > 300 * i; }));
        one.kill(SIGKILL);
        one.wait(60s);
    }
    EXPECT_LT(effects(), 3'000) << "it was too late";
    Process last = member("last");
    ASSERT_TRUE(all_are_applied(sent.size()));
    EXPECT_EQ(last.stop().code, 0);
    EXPECT_EQ(missing_or_reordered(sent, applied()), "");
    EXPECT_EQ(effects(), 3'000);
    EXPECT_EQ(fixture_->left(), 0U);
    const std::string members = shared_redis().ask({"XINFO", "CONSUMERS", stream(), "stock"});
    EXPECT_EQ(members.find("outbox-"), members.rfind("outbox-")) << members;
}

TEST_P(RedisReceiving, WhoeverHasAnotherNameIsLeftAlone) {
    fixture_->publish(letters("orders", 10, 1));
    shared_redis().ask(
        {"XREADGROUP", "GROUP", "stock", "somebody", "COUNT", "4", "STREAMS", stream(), ">"});
    Running running(reader(fixture_->url(), options()));
    ASSERT_TRUE(all_are_applied(6));
    running.stop();
    EXPECT_EQ(fixture_->left(), 4U);
}

// After XGROUP SETID, which docs/receiving.md has for a database that was set back, Redis does not
// know how many entries are left.
TEST_P(RedisReceiving, ALagThatRedisDoesNotKnowIsNotZero) {
    for (int i = 1; i <= 9; ++i) {
        const std::string n = std::to_string(i);
        shared_redis().ask({"XADD", stream(), n + "-0", "id", "e-" + n, "key", "k", "value", "v"});
    }
    auto chosen = options();
    chosen.max_in_flight = 1;
    std::atomic<bool> may_go = false;
    Running running(consumer(
        [&](const Transaction& transaction, const Message& message) {
            for (int i = 0; i < 60'000 && !may_go; ++i) std::this_thread::sleep_for(1ms);
            apply(transaction, message);
        },
        chosen));
    ASSERT_TRUE(eventually(60s, "it is known", [&] { return running->lag() > 0; }));
    shared_redis().ask({"XGROUP", "SETID", stream(), "stock", "5-0"});
    EXPECT_TRUE(eventually(60s, "it is not known", [&] { return !running->lag(); }));
    EXPECT_EQ(consumer_metrics("stock", running->stats(), running->lag()).find("inbox_lag"),
              std::string::npos);
    EXPECT_TRUE(eventually(60s, "it is reported", [&] {
        const auto consumers = operations_of(database_->url())->consumers();
        return consumers.ok() && consumers->size() == 1 && !consumers->front().lag;
    }));
    may_go = true;
    running.stop();
}

// The stream keeps no header `id`, by which other brokers' consumers know them.
TEST_P(RedisReceiving, ReadsDebeziumsRecords) {
    const auto described = [](const std::string& text) {
        return R"({"schema":{"type":"string","optional":true},"payload":")" + text + "\"}";
    };
    for (const std::string id : {"e-1", "e-2"}) {
        shared_redis().ask({"XADD", stream(), "*", "id", id, "key", "k", "value", described("1"),
                            "eventType", described("Placed")});
    }
    Running running(reader(fixture_->url(), options()));
    ASSERT_TRUE(all_are_applied(2)) << trouble();
    running.stop();
    EXPECT_EQ(db_->number("SELECT count(*) FROM effects WHERE id LIKE 'e-_' AND payload = '1'"), 2);
}

// The line of the guide that begins with ACL SETUSER stock.
TEST_P(RedisReceiving, TheDocumentedRightsAreEnough) {
    std::istringstream lines(read_file(GUIDE_PAGE));
    std::vector<std::string> words;
    for (std::string line; words.empty() && std::getline(lines, line);) {
        const std::size_t at = line.find("ACL SETUSER stock");
        if (at == std::string::npos) continue;
        std::istringstream rest(line.substr(at));
        for (std::string word; rest >> word;) words.push_back(word == "~orders" ? "~*" : word);
    }
    ASSERT_GT(words.size(), 5U);
    shared_redis().ask({"ACL", "SETUSER", "stock", "on", ">s3cret", "~*"});
    fixture_->publish(letters("orders", 100, 5));
    Running running(reader(
        shared_redis().url("stock", "s3cret") + "?stream=" + stream() + "&group=stock", options()));
    ASSERT_TRUE(eventually(60s, "it says so", [&] {
        return trouble().find("NOPERM") != std::string::npos;
    })) << trouble();
    shared_redis().ask(words);
    ASSERT_TRUE(all_are_applied(100)) << trouble();
    ASSERT_TRUE(eventually(60s, "there is no lag", [&] { return running->lag() == 0; }));
    running.stop();
    EXPECT_EQ(fixture_->left(), 0U);
}

TEST_P(RedisReceiving, AWrongPasswordIsSaidAndNotPrinted) {
    Running running(reader(shared_redis().url("relay", "wr0ng") + "?stream=s&group=g", options()));
    ASSERT_TRUE(eventually(60s, "it says so", [&] {
        return trouble().find("check user and password") != std::string::npos;
    })) << trouble();
    EXPECT_EQ(trouble().find("wr0ng"), std::string::npos);
    EXPECT_FALSE(running.ended());
}

void execute(PGconn* connection, const char* sql, const std::vector<std::string>& values) {
    std::vector<const char*> pointers;
    for (const std::string& value : values) pointers.push_back(value.c_str());
    PGresult* result = PQexecParams(connection, sql, static_cast<int>(pointers.size()), nullptr,
                                    pointers.data(), nullptr, nullptr, 0);
    const bool ok = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    if (!ok) throw std::runtime_error(PQerrorMessage(connection));
}

// [guide]
outbox::QueueConsumer reservations(const std::string& database, const std::string& queue) {
    return outbox::libpq_queue_consumer(
        database,
        outbox::redis_queue(queue),  // redis://stock:s3cret@redis/0?stream=orders&group=stock
        [](PGconn* transaction, const outbox::Message& message) {
            execute(transaction, "UPDATE stock SET reserved = reserved + 1 WHERE product_id = $1",
                    {std::string(message.key)});
        },
        {.consumer = "stock"});
}
// [end]

TEST_P(RedisReceiving, TheGuideShowsThisCode) {
    db_->exec("CREATE TABLE stock (product_id text, reserved int DEFAULT 0)");
    db_->exec("INSERT INTO stock VALUES ('key-0')");
    const auto sent = letters("orders", 20, 2);
    fixture_->publish(sent);
    fixture_->publish(sent);
    Running running(reservations(database_->url(), fixture_->url()));
    ASSERT_TRUE(are_settled(running, 40));
    running.stop();
    EXPECT_EQ(db_->number("SELECT reserved FROM stock"), 10);
    const std::string source = read_file(GUIDE_SOURCE);
    const auto start = source.find("// [guide]\n") + 11;
    const std::string code = source.substr(start, source.find("// [end]", start) - start);
    EXPECT_NE(read_file(GUIDE_PAGE).find("```cpp\n" + code + "```"), std::string::npos) << code;
}

}  // namespace
}  // namespace outbox::test
