// The relay itself in front of a real Redis.

#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/brokers/redis/server.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/process.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

constexpr int kEvents = 20'000;
constexpr int kKeys = 50;

class RedisRelay : public testing::Test {
  protected:
    RedisRelay() {
        static int streams = 0;
        stream_ = "relay-" + std::to_string(++streams);
        const Finished migrated = outbox_.run({"migrate", "--db", url_});
        EXPECT_EQ(migrated.status.code, 0) << migrated.err;
    }
    [[nodiscard]] std::vector<std::string> arguments() const {
        return {"--from", url_, "--to", shared_redis().url(), "--admin", "off"};
    }
    void write(int events) {
        Sqlite(path_).exec(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < " +
            std::to_string(events) +
            ") INSERT INTO outbox_events (topic, event_type, key, payload) SELECT '" + stream_ +
            "', 'T', 'key-' || (i % " + std::to_string(kKeys) + "), json_object('n', i) FROM n");
    }
    long long left() { return Sqlite(path_).number("SELECT count(*) FROM outbox_events"); }

    OutboxBinary outbox_;
    std::string path_ = outbox_.file("events.db").string();
    std::string url_ = "sqlite://" + path_;
    std::string stream_;
};

TEST_F(RedisRelay, LosesAndReordersNothingWhenItIsKilledInMidFlight) {
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
    for (const Arrived& record : shared_redis().arrived(stream_, kEvents)) {
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
    EXPECT_EQ(repeats, 0U) << "the server knows the ids of what was not recorded";
}

TEST_F(RedisRelay, CheckSaysWhatIsWrong) {
    const auto check = [&](const std::string& to) {
        const Finished done = outbox_.run({"relay", "--check", "--from", url_, "--to", to});
        EXPECT_EQ(done.out.find("s3cret"), std::string::npos);
        EXPECT_EQ(done.err.find("s3cret"), std::string::npos);
        return std::pair(done.status.code, done.out + done.err);
    };
    const auto right = check(shared_redis().url());
    EXPECT_EQ(right.first, 0) << right.second;
    const auto password = check(shared_redis().url("relay", "wrong"));
    EXPECT_NE(password.first, 0);
    EXPECT_NE(password.second.find("OB_AUTH_FAILED"), std::string::npos) << password.second;
    const auto option = check(shared_redis().url() + "?maxlen=5");
    EXPECT_NE(option.first, 0);
    EXPECT_NE(option.second.find("no option 'maxlen'"), std::string::npos) << option.second;
    const auto window = check(shared_redis().url() + "?dedup_window=5");
    EXPECT_NE(window.first, 0);
    EXPECT_NE(window.second.find("OB_GUARANTEE_REFUSED"), std::string::npos) << window.second;
}

class RedisDemo : public testing::Test {
  protected:
    Finished demo(const std::string& to) {
        return run({.command = {"/usr/bin/python3", "-B", DEMO, PROGRAMS, "--to", to},
                    .environment = {{"TMPDIR", folder_.path().string()}}},
                   240s);
    }
    TemporaryFolder folder_{"demo"};
};

// The relay of these events is killed again and again, and events that were delivered come again.
TEST_F(RedisDemo, TheOrdersEventsGoToABrokerOfTheUsers) {
    const Finished done = demo(shared_redis().url());
    EXPECT_EQ(done.status, (ExitStatus{0, 0})) << done.out << done.err;
    EXPECT_NE(done.out.find("went to your broker, 127.0.0.1:"), std::string::npos) << done.out;
    EXPECT_EQ(done.out.find("s3cret"), std::string::npos);
    const auto arrived = shared_redis().arrived("order-events", 1);
    std::set<std::string> ids;
    for (const Arrived& entry : arrived) ids.insert(entry.id);
    EXPECT_GT(ids.size(), 500U);
    EXPECT_EQ(arrived.size(), ids.size());
}

TEST_F(RedisDemo, SaysAtOnceThatTheBrokerIsNotThere) {
    const Finished done = demo("redis://127.0.0.1:1");
    EXPECT_EQ(done.status, (ExitStatus{1, 0}));
    EXPECT_NE((done.out + done.err).find("check that Redis runs"), std::string::npos)
        << done.out << done.err;
}

}  // namespace
}  // namespace outbox::test
