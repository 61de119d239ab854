// The queue suite against a real RabbitMQ, and what its own queues add. Runs the code of the guide.

#include <outbox/consumer/rabbitmq.h>

#include "tests/brokers/rabbitmq/server.h"
#include "tests/conformance/queue_suite.h"
#include "tests/support/full_run.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

class RabbitmqQueue : public QueueFixture {
  public:
    explicit RabbitmqQueue(std::string kind) : kind_(std::move(kind)) {
        static int queues = 0;
        name_ = "queue-" + std::to_string(++queues);
        shared_rabbitmq().make_exchange(name_);
        RabbitmqQueue::make_queue();
    }
    std::string url() override { return shared_rabbitmq().url() + "?queue=" + name_; }
    Queue queue(const std::string& url) override { return rabbitmq_queue(url); }
    void publish(const std::vector<Letter>& letters) override {
        shared_rabbitmq().publish(name_, letters);
    }
    void publish_under_no_text(const std::vector<Letter>& letters) override {
        shared_rabbitmq().make_queue(name_, name_, "#", R"({"x-queue-type":")" + kind_ + R"("})");
        auto odd = letters;
        for (Letter& letter : odd) letter.topic = std::string("nul\0?", 5);
        publish(odd);
    }
    std::size_t left() override { return shared_rabbitmq().left(name_); }
    void remove_queue() override { shared_rabbitmq().remove_queue(name_); }
    void make_queue() override {
        shared_rabbitmq().make_queue(name_, name_, "orders",
                                     R"({"x-queue-type":")" + kind_ + R"("})");
    }
    // A channel holds back what a quorum queue that has 32 commands of it before it is to hear.
    [[nodiscard]] long long unheard_at_most(std::size_t transaction_size) const override {
        if (kind_ != "quorum") return QueueFixture::unheard_at_most(transaction_size);
        return 34 * static_cast<long long>(transaction_size);
    }
    void go_down() override { shared_rabbitmq().kill(); }
    void come_back() override {
        shared_rabbitmq().start();
        make_queue();  // a broker that is killed may forget what was bound right before
    }

  private:
    std::string name_;
    std::string kind_;
};

QueueParam param(const std::string& kind, Backend database) {
    return {kind + "On" + backend_name(database), database,
            [kind] { return std::make_unique<RabbitmqQueue>(kind); }};
}

// The other brokers' queues are on PostgreSQL in every run.
const auto kAll = testing::ValuesIn(
    and_in_full({param("quorum", Backend::kSqlite)},
                {param("classic", Backend::kPostgres), param("quorum", Backend::kPostgres)}));
INSTANTIATE_TEST_SUITE_P(Rabbitmq, QueueConformance, kAll, queue_param_name);
INSTANTIATE_TEST_SUITE_P(Rabbitmq, QueueTopics, kAll, queue_param_name);
// One node alone elects no leader for a quorum queue after a restart (RabbitMQ 3.10).
INSTANTIATE_TEST_SUITE_P(Rabbitmq, QueueOutage, testing::Values(param("classic", Backend::kSqlite)),
                         queue_param_name);
INSTANTIATE_TEST_SUITE_P(Rabbitmq, QueueDeliveries,
                         testing::Values(param("quorum", Backend::kPostgres)), queue_param_name);

// Queues of RabbitMQ that no other broker has; each test makes its own.
class RabbitmqReceiving : public QueueSuite {
  protected:
    // Another queue than the parameter's, with the effects in the suite's database.
    void take(const std::string& queue, const std::string& arguments) {
        queue_ = queue;
        shared_rabbitmq().make_exchange(queue);
        shared_rabbitmq().make_queue(queue, queue, "orders", arguments);
    }
    QueueConsumer reader(const std::string& url, const QueueConsumerOptions& options) {
        return libpq_queue_consumer(
            database_->url(), rabbitmq_queue(url),
            [](PGconn* transaction, const Message& message) {
                apply([&](const std::string& sql) { Pg::query(transaction, sql); }, message);
            },
            options);
    }
    std::string url(const std::string& user = "relay", const std::string& password = "s3cret") {
        return shared_rabbitmq().url(user, password) + "?queue=" + queue_;
    }
    std::string queue_;
};
INSTANTIATE_TEST_SUITE_P(Rabbitmq, RabbitmqReceiving,
                         testing::Values(param("quorum", Backend::kPostgres)), queue_param_name);

TEST_P(RabbitmqReceiving, AStreamIsRefused) {
    take("a-stream", R"({"x-queue-type":"stream"})");
    Running running(reader(url(), options()));
    const auto refused = [&] {
        if (!running.ended()) shared_rabbitmq().publish(queue_, letters("orders", 1, 1));
        return running.ended();
    };
    ASSERT_TRUE(eventually(60s, "it ends", refused));
    EXPECT_EQ(running.error()->code, ErrorCode::kConfigInvalid);
    EXPECT_NE(running.error()->message.find("bind a quorum queue"), std::string::npos);
    EXPECT_EQ(effects(), 0);
}

// As a shovel brings it from a quorum queue, or a publisher writes it: else each message would be a
// suspect, which goes alone and is written down before.
TEST_P(RabbitmqReceiving, ADeliveryCountOfAPublisherIsNotBelieved) {
    take("counts", R"({"x-queue-type":"classic"})");
    std::string lines;
    for (int i = 0; i < 20; ++i) {
        const std::string n = std::to_string(i);
        lines += R"({"id":"counted-)" + n + R"(","topic":"orders","key":"k)" + n +
                 R"(","value":"","headers":{"x-delivery-count":50}})" + "\n";
    }
    shared_rabbitmq().publish_json(queue_, lines);
    Running running(libpq_queue_consumer(
        database_->url(), rabbitmq_queue(url()),
        [&](PGconn* transaction, const Message& message) {
            apply([&](const std::string& sql) { Pg::query(transaction, sql); }, message);
            Pg::query(transaction,
                      "UPDATE effects SET payload = 'suspect' WHERE EXISTS (SELECT 1 FROM "
                      "outbox_inbox_begun)");
        },
        options()));
    ASSERT_TRUE(all_are_applied(20)) << trouble();
    running.stop();
    EXPECT_EQ(db_->number("SELECT count(*) FROM effects WHERE payload = 'suspect'"), 0);
}

// As an event's own header, and as a shovel brings it from a stream.
TEST_P(RabbitmqReceiving, AnOffsetInAHeaderMakesNoStreamOfAQueue) {
    for (const std::string kind : {"quorum", "classic"}) {
        take("offsets-" + kind, R"({"x-queue-type":")" + kind + R"("})");
        std::string lines;
        for (const std::string offset : {R"("7")", "7", "8"}) {
            lines += R"({"id":")" + kind + offset.substr(0, offset.find('"')) +
                     std::to_string(lines.size()) +
                     R"(","topic":"orders","key":"k","value":"","headers":{"x-stream-offset":)" +
                     offset + "}}\n";
        }
        shared_rabbitmq().publish_json(queue_, lines);
        std::string headers;
        const std::int64_t before = effects();
        Running running(libpq_queue_consumer(
            database_->url(), rabbitmq_queue(url()),
            [&](PGconn* transaction, const Message& message) {
                headers = std::string(message.headers_json);
                apply([&](const std::string& sql) { Pg::query(transaction, sql); }, message);
            },
            options()));
        ASSERT_TRUE(eventually(60s, "all are applied", [&] { return effects() == before + 3; }))
            << trouble();
        running.stop();
        EXPECT_EQ(headers, R"({"x-stream-offset":"8"})");
        EXPECT_EQ(shared_rabbitmq().left(queue_), 0U);
    }
}

TEST_P(RabbitmqReceiving, NeedsTheRightToReadAndNoOther) {
    take("orders", R"({"x-queue-type":"quorum"})");
    shared_rabbitmq().make_user("stock", {"^$", "^$", "^$"});
    shared_rabbitmq().publish(queue_, letters("orders", 100, 5));
    Running running(reader(url("stock", "pw"), options()));
    ASSERT_TRUE(eventually(60s, "it says so", [&] {
        return trouble().find("permission to read the queue") != std::string::npos;
    })) << trouble();
    shared_rabbitmq().make_user("stock", rights_of_page("stock"));
    ASSERT_TRUE(all_are_applied(100)) << trouble();
    ASSERT_TRUE(eventually(60s, "there is no lag", [&] { return running->lag() == 0; }));
    running.stop();
    EXPECT_EQ(shared_rabbitmq().left(queue_), 0U);
}

TEST_P(RabbitmqReceiving, AWrongPasswordIsSaidAndNotPrinted) {
    take("passwords", "{}");
    Running running(reader(url("relay", "wr0ng"), options()));
    ASSERT_TRUE(eventually(60s, "it says so", [&] {
        return trouble().find("check user and password") != std::string::npos;
    })) << trouble();
    EXPECT_EQ(trouble().find("wr0ng"), std::string::npos);
    EXPECT_FALSE(running.ended());
}

TEST_P(RabbitmqReceiving, ASingleActiveConsumerKeepsTheOrderOfKeysAmongMembers) {
    take("single", R"({"x-queue-type":"quorum","x-single-active-consumer":true})");
    const auto sent = letters("orders", 3'000, 10);
    shared_rabbitmq().publish(queue_, sent);
    const auto member = [&](const std::string& name) {
        return Process(
            {.command = {QUEUE_MEMBER, url(), database_->url(), name, "300", "hang_after=1000"}});
    };
    const auto applied_by = [&](const std::string& name) {
        return db_->number("SELECT count(*) FROM effects WHERE member = '" + name + "'");
    };
    Process one = member("one");
    ASSERT_TRUE(eventually(60s, "some are applied", [&] { return effects() > 200; }));
    Process two = member("two");
    Process three = member("three");
    one.kill(SIGKILL);
    ASSERT_TRUE(eventually(60s, "the next takes over", [&] {
        return db_->number("SELECT count(*) FROM effects WHERE member <> 'one'") > 200;
    }));
    EXPECT_LT(effects(), 3'000) << "it was too late";
    const bool by_two = applied_by("two") > 0;
    EXPECT_EQ((by_two ? two : three).stop().code, 0);
    Process& last = by_two ? three : two;
    ASSERT_TRUE(eventually(60s, "the last takes over",
                           [&] { return applied_by(by_two ? "three" : "two") > 0; }));
    last.kill(SIGUSR1);  // it may apply all
    ASSERT_TRUE(all_are_applied(sent.size()));
    EXPECT_EQ(last.stop().code, 0);
    EXPECT_EQ(missing_or_reordered(sent, applied()), "");
    EXPECT_EQ(effects(), 3'000);
}

TEST_P(RabbitmqReceiving, WhatTheBrokerTakesBackForWaitingTooLongIsAppliedOnce) {
    shared_rabbitmq().set("consumer_timeout", "1000");
    shared_rabbitmq().set("channel_tick_interval", "200");
    const auto sent = letters("orders", 200, 5);
    fixture_->publish(sent);
    std::atomic<bool> may_go = false;
    Running running(libpq_queue_consumer(
        database_->url(), rabbitmq_queue(fixture_->url()),
        [&](PGconn* transaction, const Message& message) {
            if (!may_go && message.key == "key-3") {
                throw Error(ErrorCode::kHandlerFailed, Advice::kRetryDestination, "it is away");
            }
            apply([&](const std::string& sql) { Pg::query(transaction, sql); }, message);
        },
        options()));
    ASSERT_TRUE(eventually(60s, "it says so", [&] {
        return trouble().find("consumer_timeout") != std::string::npos;
    })) << trouble();
    shared_rabbitmq().set("consumer_timeout", "1800000");
    shared_rabbitmq().set("channel_tick_interval", "60000");
    may_go = true;
    ASSERT_TRUE(all_are_applied(200)) << trouble();
    running.stop();
    // Where it took back the last ones, too, before it heard of them, they come again.
    const std::size_t unheard = fixture_->left();
    Running rest(consumer(apply, options()));
    ASSERT_TRUE(are_settled(rest, unheard));
    rest.stop();
    EXPECT_EQ(rest->stats().repeats, unheard);
    EXPECT_EQ(fixture_->left(), 0U);
    EXPECT_EQ(missing_or_reordered(sent, applied()), "");
    EXPECT_EQ(effects(), 200);
    EXPECT_EQ(dead(), std::vector<std::string>{});
}

TEST_P(RabbitmqReceiving, HeadersOfOthersBecomeTexts) {
    take("headers", "{}");
    shared_rabbitmq().publish_json(
        queue_,
        R"({"id":"id-1","topic":"orders","key":null,"value":"","type":"Placed",)"
        R"("content_type":"text/plain","headers":{"yes":true,"n":-5,"big":9007199254740993,)"
        R"("none":null,"list":[1],"text":"\u0001 \"q\""}})");
    std::string headers;
    Running running(libpq_queue_consumer(
        database_->url(), rabbitmq_queue(url()),
        [&](PGconn* transaction, const Message& message) {
            headers = std::string(message.headers_json);
            apply([&](const std::string& sql) { Pg::query(transaction, sql); }, message);
        },
        options()));
    ASSERT_TRUE(all_are_applied(1));
    running.stop();
    EXPECT_EQ(headers,
              R"({"yes":"true","n":"-5","big":"9007199254740993",)"
              R"("text":"\u0001 \"q\"","content-type":"text/plain","event_type":"Placed"})");
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
        database, outbox::rabbitmq_queue(queue),  // amqp://stock:s3cret@mq:5672/?queue=orders
        [](PGconn* transaction, const outbox::Message& message) {
            execute(transaction, "UPDATE stock SET reserved = reserved + 1 WHERE product_id = $1",
                    {std::string(message.key)});
        },
        {.consumer = "stock"});
}
// [end]

TEST_P(RabbitmqReceiving, TheGuideShowsThisCode) {
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
