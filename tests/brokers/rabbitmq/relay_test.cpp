// The relay itself in front of a real RabbitMQ.

#include "tests/brokers/rabbitmq/server.h"
#include "tests/brokers/relay_suite.h"

namespace outbox::test {
namespace {

class RabbitmqRelay : public RelaySuite {
  protected:
    RabbitmqRelay() { shared_rabbitmq().make_exchange("events"); }
};

TEST_F(RabbitmqRelay, LosesAndReordersNothingWhenItIsKilledInMidFlight) {
    shared_rabbitmq().make_queue("relay", "events");
    publish_all_through_a_kill(shared_rabbitmq().url() + "?exchange=events", "relay");
    expect_all(shared_rabbitmq().arrived("relay", kEvents), 10'000);
}

TEST_F(RabbitmqRelay, CheckSaysWhatIsWrong) {
    const auto right = check(shared_rabbitmq().url() + "?exchange=events");
    EXPECT_EQ(right.first, 0) << right.second;
    const auto exchange = check(shared_rabbitmq().url() + "?exchange=none");
    EXPECT_NE(exchange.first, 0);
    EXPECT_NE(exchange.second.find("declare the exchange"), std::string::npos) << exchange.second;
    const auto password = check(shared_rabbitmq().url("relay", "wrong") + "?exchange=events");
    EXPECT_NE(password.first, 0);
    EXPECT_NE(password.second.find("OB_AUTH_FAILED"), std::string::npos) << password.second;
    const auto option = check(shared_rabbitmq().url() + "?exchnge=events");
    EXPECT_NE(option.first, 0);
    EXPECT_NE(option.second.find("no option 'exchnge'"), std::string::npos) << option.second;
}

}  // namespace
}  // namespace outbox::test
