// Consumers that tell a receiver of OTLP of what they apply. Runs the code of the guide.

#include <algorithm>
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/libpq_queue.h>
#include <outbox/consumer/redis.h>

#include "tests/brokers/redis/server.h"
#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/tracing/receiver.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kWriter = "00f067aa0ba902b7";
const std::string kParent = "00-" + kTrace + "-" + kWriter + "-01";

class TracingConsumer : public testing::Test {
  protected:
    void SetUp() override {
        url_ = shared_postgres().create_database();
        database_ = std::make_unique<Pg>(url_);
        ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
    }

    void emit(const std::string& key, const std::string& parent = kParent) {
        database_->exec("SELECT outbox_emit(topic => 'orders', key => '" + key +
                        "', payload => '{}', traceparent => '" + parent + "')");
    }
    // Carries all that was emitted to the mailbox of this database, or elsewhere.
    void carry(std::string to = {}) {
        if (to.empty()) to = "mailbox+" + url_;
        Process relay = outbox_.start_relay({"--from", url_, "--to", to, "--admin", "off"});
        EXPECT_TRUE(eventually(60s, "all is carried", [&] {
            return database_->number("SELECT count(*) FROM outbox_events") == 0;
        }));
        EXPECT_EQ(relay.stop().code, 0);
    }
    MailboxOptions options(const SpanReceiver& receiver) const {
        const std::string collector = receiver.url();
        // [guide]
        MailboxOptions options;
        options.consumer = "shipping";
        options.spans = otlp_spans(collector, "shipping-service");
        // [end]
        options.retry_base_ms = 1;
        options.retry_max_ms = 2;
        return options;
    }
    static std::vector<std::string> outcomes(const SpanReceiver& receiver) {
        std::vector<std::string> all;
        for (const SeenSpan& span : receiver.spans()) {
            all.push_back(span.attributes.at("outbox.outcome"));
        }
        std::sort(all.begin(), all.end());
        return all;
    }

    OutboxBinary outbox_;
    std::string url_;
    std::unique_ptr<Pg> database_;
};

TEST_F(TracingConsumer, EachAttemptHasASpanBelowTheWriters) {
    const SpanReceiver receiver;
    emit("a");
    emit("unsampled", "00-" + kTrace + "-" + kWriter + "-00");
    carry();
    int calls = 0;
    {
        auto consumer =
            libpq_mailbox_consumer(url_, LibpqHandler([&](PGconn*, const Message& message) {
                                       if (message.key == "a" && ++calls == 1)
                                           throw std::runtime_error("no stock");
                                   }),
                                   options(receiver));
        ASSERT_TRUE(eventually(60s, "both are applied", [&] {
            consumer.drain();
            return consumer.stats().applied == 2;
        }));
    }
    const auto spans = receiver.spans();
    ASSERT_EQ(spans.size(), 2U) << "the end sends what there is";
    for (const SeenSpan& span : spans) {
        EXPECT_EQ(span.trace, kTrace);
        EXPECT_EQ(span.parent, kWriter);
        EXPECT_EQ(span.name, "outbox.apply");
        EXPECT_EQ(span.kind, 5);
        EXPECT_EQ(span.attributes.at("messaging.consumer.group.name"), "shipping");
        EXPECT_EQ(span.attributes.at("messaging.destination.name"), "orders");
        EXPECT_EQ(span.resource.at("service.name"), "shipping-service");
    }
    EXPECT_EQ(spans[0].attributes.at("outbox.outcome"), "failed");
    EXPECT_EQ(spans[0].attributes.at("outbox.attempt"), "1");
    EXPECT_EQ(spans[0].status, 2);
    EXPECT_THAT(spans[0].error, HasSubstr("no stock"));
    EXPECT_EQ(spans[1].attributes.at("outbox.outcome"), "applied");
    EXPECT_EQ(spans[1].attributes.at("outbox.attempt"), "2");
    EXPECT_EQ(spans[1].status, 0);
}

TEST_F(TracingConsumer, RepeatsAndMessagesOfOneTransactionHaveTheirsEach) {
    const SpanReceiver receiver;
    for (int i = 0; i < 5; ++i) emit("k" + std::to_string(i));
    database_->exec("CREATE TABLE saved AS SELECT * FROM outbox_events LIMIT 2");
    carry();
    const auto apply_all = [&] {
        MailboxOptions chosen = options(receiver);
        chosen.transaction_size = 10;
        auto consumer = libpq_mailbox_consumer(
            url_, LibpqBatchHandler([](PGconn*, std::span<const Message>) {}), chosen);
        consumer.drain();
    };
    apply_all();
    database_->exec(
        "INSERT INTO outbox_events (id, topic, key, payload, headers, occurred_at) "
        "SELECT id, topic, key, payload, headers, occurred_at FROM saved");
    carry();
    apply_all();
    EXPECT_EQ(outcomes(receiver),
              (std::vector<std::string>{"applied", "applied", "applied", "applied", "applied",
                                        "repeat", "repeat"}));
}

TEST_F(TracingConsumer, SoHaveThoseOfABrokersQueue) {
    const SpanReceiver receiver;
    RedisServer& redis = shared_redis();
    redis.ask({"XGROUP", "CREATE", "orders", "stock", "0", "MKSTREAM"});
    for (int i = 0; i < 3; ++i) emit("k" + std::to_string(i));
    carry(redis.url());
    QueueConsumerOptions chosen;
    chosen.consumer = "stock";
    chosen.spans = otlp_spans(receiver.url(), "stock-service");
    {
        auto consumer =
            libpq_queue_consumer(url_, redis_queue(redis.url() + "?stream=orders&group=stock"),
                                 LibpqHandler([](PGconn*, const Message&) {}), chosen);
        std::thread runs([&] { consumer.run(); });
        EXPECT_TRUE(
            eventually(60s, "all are applied", [&] { return consumer.stats().applied == 3; }));
        consumer.stop();
        runs.join();
    }
    chosen.spans = {};
    EXPECT_EQ(outcomes(receiver), (std::vector<std::string>(3, "applied")));
    EXPECT_EQ(receiver.spans().front().parent, kWriter);
}

TEST_F(TracingConsumer, AReceiverThatHangsDelaysNothingAndIsToldOf) {
    SpanReceiver receiver;
    receiver.set_mode("status 503");
    std::atomic<int> told{0};
    for (int i = 0; i < 50; ++i) emit("k" + std::to_string(i));
    carry();
    MailboxOptions chosen = options(receiver);
    chosen.spans = otlp_spans(receiver.url(), "shipping-service",
                              [&](const std::string& error) { told += error.empty() ? 100 : 1; });
    auto consumer =
        libpq_mailbox_consumer(url_, LibpqHandler([](PGconn*, const Message&) {}), chosen);
    EXPECT_EQ(consumer.drain(), 50U);
    EXPECT_TRUE(eventually(60s, "it is said", [&] { return told == 1; }));
    receiver.set_mode("take");
    EXPECT_TRUE(eventually(60s, "they come", [&] { return receiver.spans().size() == 50; }));
    EXPECT_TRUE(eventually(60s, "that is said, too", [&] { return told == 101; }));
}

TEST(TracingGuide, ShowsThisCode) {
    const std::string source = read_file(GUIDE_SOURCE);
    const auto start = source.find("// [guide]\n") + 11;
    std::istringstream lines(source.substr(start, source.find("// [end]", start) - start));
    std::string code;
    for (std::string line; std::getline(lines, line);) {
        const auto indent = line.find_first_not_of(' ');
        if (indent != std::string::npos) code += line.substr(indent) + "\n";
    }
    EXPECT_NE(read_file(GUIDE_PAGE).find("```cpp\n" + code + "```"), std::string::npos) << code;
}

TEST(TracingUrl, AWrongOneIsRefusedAtOnce) {
    try {
        otlp_spans("grpc://collector:4317", "shipping-service");
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.info().code, ErrorCode::kConfigInvalid);
    }
}

}  // namespace
}  // namespace outbox::test
