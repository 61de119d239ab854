// The queue suite against a real NATS, and what its own consumers add. Runs the code of the guide.

#include <sys/eventfd.h>
#include <unistd.h>

#include <outbox/consumer/nats.h>

#include "consumer/queue/inlet.h"
#include "tests/brokers/nats/server.h"
#include "tests/conformance/queue_suite.h"
#include "tests/support/full_run.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

class NatsQueue : public QueueFixture {
  public:
    NatsQueue() {
        static int streams = 0;
        name_ = "queue-" + std::to_string(++streams);
        NatsQueue::make_queue();
    }
    std::string url() override {
        return shared_nats().url() + "?stream=" + name_ + "&consumer=stock";
    }
    Queue queue(const std::string& url) override { return nats_queue(url); }
    std::string topic() override { return name_ + ".orders"; }
    void publish(const std::vector<Letter>& letters) override {
        shared_nats().publish(topic(), letters);
    }
    void publish_under_no_text(const std::vector<Letter>& letters) override {
        shared_nats().publish(name_ + ".\xff\xfe", letters);
    }
    std::size_t left() override { return shared_nats().left(name_, "stock"); }
    void remove_queue() override { shared_nats().ask({"remove", name_}); }
    void make_queue() override {
        shared_nats().make_stream(name_, name_ + ".>");
        shared_nats().make_consumer(name_, "stock",
                                    {"ack_wait=" + std::to_string(ack_wait_.count())});
    }
    void comes_again_after(std::chrono::seconds wait) override {
        ack_wait_ = wait;
        remove_queue();
        make_queue();
    }
    void go_down() override { shared_nats().kill(); }
    void come_back() override { shared_nats().start(); }
    // docs/guarantees.md, of NATS 2.9.
    [[nodiscard]] bool keeps_order_across_deaths() const override { return false; }
    [[nodiscard]] const std::string& stream() const { return name_; }

  private:
    std::string name_;
    std::chrono::seconds ack_wait_{30};
};

QueueParam param(Backend database) {
    return {std::string("On") + backend_name(database), database,
            [] { return std::make_unique<NatsQueue>(); }};
}

const auto kAll =
    testing::ValuesIn(and_in_full({param(Backend::kPostgres)}, {param(Backend::kSqlite)}));
const auto kPostgres = testing::Values(param(Backend::kPostgres));
INSTANTIATE_TEST_SUITE_P(Nats, QueueConformance, kAll, queue_param_name);
INSTANTIATE_TEST_SUITE_P(Nats, QueueOutage, testing::Values(param(Backend::kSqlite)),
                         queue_param_name);
INSTANTIATE_TEST_SUITE_P(Nats, QueueDeliveries, kPostgres, queue_param_name);
INSTANTIATE_TEST_SUITE_P(Nats, QueueTopics, kAll, queue_param_name);

class NatsReceiving : public QueueSuite {
  protected:
    const std::string& stream() { return dynamic_cast<NatsQueue&>(*fixture_).stream(); }
    QueueConsumer reader(const std::string& url, const QueueConsumerOptions& options) {
        return libpq_queue_consumer(
            database_->url(), nats_queue(url),
            [](PGconn* transaction, const Message& message) {
                apply([&](const std::string& sql) { Pg::query(transaction, sql); }, message);
            },
            options);
    }
};
INSTANTIATE_TEST_SUITE_P(Nats, NatsReceiving, kPostgres, queue_param_name);

// What the killed one had taken is older than what its successor reads. Each lives until the server
// has sent that again: before, NATS 2.9 appends to it what the successor has (docs/guarantees.md).
TEST_P(NatsReceiving, OneMemberKeepsTheOrderOfKeysAcrossItsDeaths) {
    const auto sent = letters("orders", 3'000, 10);
    fixture_->comes_again_after(5s);
    fixture_->publish(sent);
    for (int i = 0; i < 2; ++i) {
        const long long before = effects();
        Process one = member("one", 300, {"max_in_flight=50", "hang_after=1000"});
        ASSERT_TRUE(eventually(60s, "some are applied", [&] { return effects() > before + 300; }));
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
}

// Its hands are full, so no request of its is answered with the end of the consumer.
TEST_P(NatsReceiving, WordsOfAStreamThatWasMadeAnewAcknowledgeNothingOfTheNewOne) {
    fixture_->comes_again_after(2s);
    fixture_->publish(letters("orders", 20, 5));
    auto chosen = options();
    chosen.max_in_flight = 10;
    std::atomic<bool> has_begun = false;
    std::atomic<bool> may_go = false;
    Running running(consumer(
        [&](const Transaction& transaction, const Message& message) {
            has_begun = true;
            while (!may_go) std::this_thread::sleep_for(1ms);
            apply(transaction, message);
        },
        chosen));
    ASSERT_TRUE(eventually(60s, "it has taken some", [&] { return has_begun.load(); }));
    EXPECT_EQ(fixture_->left(), 20U);  // waits until it asks for no more
    fixture_->remove_queue();
    fixture_->make_queue();
    auto sent = letters("orders", 10, 5);
    for (Letter& letter : sent) letter.id = "new-" + letter.id;
    fixture_->publish(sent);
    shared_nats().ask({"take", stream(), "stock", "10"});  // and dies: they are to come again
    may_go = true;
    EXPECT_TRUE(eventually(60s, "the new ones are applied", [&] {
        return db_->number("SELECT count(*) FROM effects WHERE id LIKE 'new-%'") == 10;
    })) << fixture_->left();
    running.stop();
    EXPECT_EQ(fixture_->left(), 0U);
}

TEST_P(NatsReceiving, WhatIsTakenOfAConsumerThatWasMadeAnewIsNotTakenForTheOldOnes) {
    const auto inlet = nats_queue(fixture_->url()).open({100, 60s});
    std::vector<consumer::Arrival> arrived;
    const int never = ::eventfd(0, 0);
    const auto take_two = [&] {
        Status status;
        const std::size_t until = arrived.size() + 2;
        while (status.ok() && arrived.size() < until) {
            status = inlet->fetch({until - arrived.size(), 1'000'000}, 1s, never, arrived);
        }
        return status;
    };
    fixture_->publish(letters("orders", 2, 1));
    ASSERT_TRUE(inlet->connect().ok());
    ASSERT_TRUE(take_two().ok());
    fixture_->remove_queue();
    fixture_->make_queue();
    fixture_->publish(letters("orders", 2, 1));
    const Status status = take_two();
    ::close(never);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("made anew"), std::string::npos);
    EXPECT_EQ(arrived.size(), 2U);
    inlet->disconnect();
    EXPECT_EQ(fixture_->left(), 2U);
}

// More than twice as long as the server leaves a message to a member that says nothing.
TEST_P(NatsReceiving, AHandlerThatTakesLongKeepsItsMessages) {
    fixture_->comes_again_after(5s);
    fixture_->publish(letters("orders", 20, 1));
    std::atomic<int> calls = 0;
    Running running(consumer(
        [&](const Transaction& transaction, const Message& message) {
            if (calls++ == 0) std::this_thread::sleep_for(11s);
            apply(transaction, message);
        },
        options()));
    ASSERT_TRUE(are_settled(running, 20));
    running.stop();
    EXPECT_EQ(running->stats().repeats, 0U);
    EXPECT_EQ(calls, 20);
    EXPECT_EQ(fixture_->left(), 0U);
}

TEST_P(NatsReceiving, AConsumerThatWouldLoseMessagesIsRefusedWithTheReason) {
    const auto trouble_with = [&](const std::string& consumer) {
        Running running(reader(
            shared_nats().url() + "?stream=" + stream() + "&consumer=" + consumer, options()));
        EXPECT_TRUE(eventually(60s, "it says so", [&] { return !trouble().empty(); }));
        running.stop();
        EXPECT_EQ(effects(), 0);
        const std::lock_guard lock(mutex_);
        return std::exchange(trouble_, "");
    };
    fixture_->publish(letters("orders", 10, 1));
    shared_nats().make_consumer(stream(), "none", {"ack_policy=\"none\""});
    EXPECT_NE(trouble_with("none").find("--ack explicit"), std::string::npos);
    shared_nats().make_consumer(stream(), "all", {"ack_policy=\"all\""});
    EXPECT_NE(trouble_with("all").find("--ack explicit"), std::string::npos);
    shared_nats().make_consumer(stream(), "push", {"deliver_subject=\"somewhere\""});
    EXPECT_NE(trouble_with("push").find("--pull"), std::string::npos);
    EXPECT_NE(trouble_with("missing").find("nats consumer add"), std::string::npos);
}

// The lines of the guide, between ```conf and ```, with their users.
TEST_P(NatsReceiving, TheDocumentedRightsAreEnough) {
    const std::string page = read_file(GUIDE_PAGE);
    const std::size_t begin = page.find("```conf\n") + 8;
    NatsServer limited({}, page.substr(begin, page.find("```", begin) - begin));
    const std::string admin = limited.url("admin", "s3cret");
    limited.client({admin, "stream", "ORDERS", "orders.>"});
    limited.client({admin, "consumer", "ORDERS", "stock"});
    limited.client({admin, "consumer", "ORDERS", "other"});
    std::string lines;
    for (int i = 0; i < 100; ++i) {
        lines +=
            R"({"id":"id-)" + std::to_string(i) + R"(","key":"k","value":"v","headers":[]})" + "\n";
    }
    limited.client({admin, "publish", "orders.new"}, lines);
    {
        Running other(
            reader(limited.url("stock", "s3cret") + "?stream=ORDERS&consumer=other", options()));
        ASSERT_TRUE(eventually(60s, "it says so", [&] {
            return trouble().find("PERMISSIONS") != std::string::npos ||
                   trouble().find("Permissions") != std::string::npos;
        })) << trouble();
    }
    Running running(
        reader(limited.url("stock", "s3cret") + "?stream=ORDERS&consumer=stock", options()));
    ASSERT_TRUE(all_are_applied(100)) << trouble();
    ASSERT_TRUE(eventually(60s, "there is no lag", [&] { return running->lag() == 0; }));
    running.stop();
    EXPECT_EQ(limited.client({admin, "left", "ORDERS", "stock"}), "0\n");
}

TEST_P(NatsReceiving, AWrongPasswordIsSaidAndNotPrinted) {
    Running running(
        reader(shared_nats().url("relay", "wr0ng") + "?stream=s&consumer=c", options()));
    ASSERT_TRUE(eventually(60s, "it says so", [&] {
        return trouble().find("check user, password") != std::string::npos;
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
        outbox::nats_queue(queue),  // nats://stock:s3cret@nats?stream=ORDERS&consumer=stock
        [](PGconn* transaction, const outbox::Message& message) {
            execute(transaction, "UPDATE stock SET reserved = reserved + 1 WHERE product_id = $1",
                    {std::string(message.key)});
        },
        {.consumer = "stock"});
}
// [end]

TEST_P(NatsReceiving, TheGuideShowsThisCode) {
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
