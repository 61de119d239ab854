// A relay and a consumer that tell a real OpenTelemetry Collector.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <outbox/adapters/libpq_consumer.h>

#include "tests/brokers/broker_server.h"
#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

TEST(Collector, GetsTheSpansOfARelayAndOfAConsumer) {
    BrokerServer collector({.name = "otelcol", .ready = "Everything is ready"});
    collector.start();
    const std::string url = shared_postgres().create_database();
    Pg database(url);
    OutboxBinary outbox;
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    const std::string id = database.value(
        "SELECT outbox_emit(topic => 'orders', payload => '{}', traceparent => '00-" + trace +
        "-00f067aa0ba902b7-01')");
    Process relay = outbox.start_relay({"--from", url, "--to", "shop=mailbox+" + url, "--admin",
                                        "off", "--otlp-endpoint",
                                        "http://127.0.0.1:" + std::to_string(collector.port())});
    const auto log = [&] { return read_file(collector.folder().parent_path() / "stderr"); };
    ASSERT_TRUE(eventually(60s, "a span", [&] { return log().find(id) != std::string::npos; }));
    const std::string told = log();
    EXPECT_THAT(told, testing::ContainsRegex("Trace ID +: " + trace));
    EXPECT_THAT(told, testing::ContainsRegex("Parent ID +: 00f067aa0ba902b7"));
    EXPECT_THAT(told, testing::ContainsRegex("Name +: outbox.publish"));
    EXPECT_THAT(told, testing::ContainsRegex("Kind +: Producer"));
    EXPECT_THAT(told, HasSubstr("service.name: Str(outbox)"));
    EXPECT_EQ(relay.stop().code, 0);
    EXPECT_THAT(told, Not(HasSubstr("outbox.apply")));
    {
        MailboxOptions options;
        options.consumer = "shipping";
        options.spans =
            otlp_spans("http://127.0.0.1:" + std::to_string(collector.port()), "shipping-service");
        auto consumer =
            libpq_mailbox_consumer(url, LibpqHandler([](PGconn*, const Message&) {}), options);
        EXPECT_EQ(consumer.drain(), 1U);
        // Its end sends what there is.
    }
    ASSERT_TRUE(eventually(60s, "the consumer's span", [&] {
        return log().find("outbox.outcome: Str(applied)") != std::string::npos;
    })) << log();
    const std::string applied = log().substr(told.size());
    EXPECT_THAT(applied, testing::ContainsRegex("Trace ID +: " + trace));
    EXPECT_THAT(applied, testing::ContainsRegex("Parent ID +: 00f067aa0ba902b7"));
    EXPECT_THAT(applied, testing::ContainsRegex("Name +: outbox.apply"));
    EXPECT_THAT(applied, testing::ContainsRegex("Kind +: Consumer"));
    EXPECT_THAT(applied, HasSubstr("service.name: Str(shipping-service)"));
    EXPECT_THAT(applied, HasSubstr("messaging.message.id: Str(" + id + ")"));
}

}  // namespace
}  // namespace outbox::test
