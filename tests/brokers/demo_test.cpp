// `script/demo --to` and the brokers that its help names; Redis is in ../redis/relay_test.cpp.

#include "tests/brokers/demo.h"

#include <gtest/gtest.h>

#include "tests/brokers/nats/server.h"
#include "tests/brokers/rabbitmq/server.h"
#include "tests/support/kafka_client.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

TEST(DemoOfABroker, NatsGetsTheOrdersEventsOnce) {
    shared_nats().make_stream("DEMO", "order-events");
    const std::size_t events = events_of_demo(shared_nats().url());
    const auto arrived = shared_nats().arrived("order-events", events);
    EXPECT_EQ(ids_of(arrived).size(), events);
    EXPECT_EQ(arrived.size(), events);
}

TEST(DemoOfABroker, RabbitmqGetsTheOrdersEvents) {
    shared_rabbitmq().make_exchange("orders");
    shared_rabbitmq().make_queue("order-events", "orders");
    const std::size_t events = events_of_demo(shared_rabbitmq().url() + "?exchange=orders");
    EXPECT_EQ(ids_of(shared_rabbitmq().arrived("order-events", events)).size(), events);
}

TEST(DemoOfABroker, KafkaGetsTheOrdersEvents) {
    const std::size_t events = events_of_demo("kafka://" + shared_kafka().bootstrap());
    KafkaReader reader(shared_kafka().bootstrap(), "order-events");
    std::set<std::string> ids;
    for (const KafkaRecord& record : reader.read_to_end()) ids.insert(*record.header("id"));
    EXPECT_EQ(ids.size(), events);
}

}  // namespace
}  // namespace outbox::test
