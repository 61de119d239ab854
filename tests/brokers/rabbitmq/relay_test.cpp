// The relay itself in front of a real RabbitMQ.

#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/brokers/rabbitmq/server.h"
#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

constexpr int kEvents = 20'000;
constexpr int kKeys = 50;

class RabbitmqRelay : public testing::Test {
  protected:
    RabbitmqRelay() {
        static int queues = 0;
        queue_ = "relay-" + std::to_string(++queues);
        shared_rabbitmq().make_exchange("events");
        shared_rabbitmq().make_queue(queue_, "events");
        const Finished migrated = outbox_.run({"migrate", "--db", url_});
        EXPECT_EQ(migrated.status.code, 0) << migrated.err;
    }
    [[nodiscard]] std::vector<std::string> arguments() const {
        return {"--from",  url_, "--to", shared_rabbitmq().url() + "?exchange=events",
                "--admin", "off"};
    }
    void write(int events) {
        Sqlite(path_).exec(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < " +
            std::to_string(events) +
            ") INSERT INTO outbox_events (topic, event_type, key, payload) SELECT '" + queue_ +
            "', 'T', 'key-' || (i % " + std::to_string(kKeys) + "), json_object('n', i) FROM n");
    }
    long long left() { return Sqlite(path_).number("SELECT count(*) FROM outbox_events"); }

    OutboxBinary outbox_;
    std::string path_ = outbox_.file("events.db").string();
    std::string url_ = "sqlite://" + path_;
    std::string queue_;
};

TEST_F(RabbitmqRelay, LosesAndReordersNothingWhenItIsKilledInMidFlight) {
    write(kEvents);
    {
        Process first = outbox_.start_relay(arguments());
        ASSERT_TRUE(eventually(60s, "some are published", [&] { return left() < kEvents; }));
        first.kill(SIGKILL);
        first.wait(10s);
    }
    EXPECT_GT(left(), 0) << "it was too late";
    Process second = outbox_.start_relay(arguments());
    ASSERT_TRUE(eventually(120s, "all are published", [&] { return left() == 0; }));
    EXPECT_EQ(second.stop().code, 0);

    std::set<std::string> seen;
    std::map<std::string, int> last;
    std::size_t repeats = 0;
    for (const Arrived& record : shared_rabbitmq().arrived(queue_, kEvents)) {
        if (!seen.insert(record.id).second) {
            ++repeats;
            continue;
        }
        const int n = nlohmann::json::parse(record.value.value())["n"];
        const auto [before, first] = last.emplace(record.key.value(), n);
        EXPECT_TRUE(first || before->second < n) << record.key.value() << ": " << n;
        before->second = n;
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(kEvents));
    EXPECT_LE(repeats, 10'000U);
}

TEST_F(RabbitmqRelay, CheckSaysWhatIsWrong) {
    const auto check = [&](const std::string& to) {
        const Finished done = outbox_.run({"relay", "--check", "--from", url_, "--to", to});
        EXPECT_EQ(done.out.find("s3cret"), std::string::npos);
        EXPECT_EQ(done.err.find("s3cret"), std::string::npos);
        return std::pair(done.status.code, done.out + done.err);
    };
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
