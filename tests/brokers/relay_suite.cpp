#include "tests/brokers/relay_suite.h"

#include <chrono>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/eventually.h"
#include "tests/support/process.h"
#include "tests/support/sqlite.h"

namespace outbox::test {

using namespace std::chrono_literals;

constexpr int kKeys = 50;

RelaySuite::RelaySuite() {
    const Finished migrated = outbox_.run({"migrate", "--db", url_});
    EXPECT_EQ(migrated.status.code, 0) << migrated.err;
}

std::vector<std::string> RelaySuite::arguments(const std::string& to) const {
    return {"--from", url_, "--to", to, "--admin", "off"};
}

void RelaySuite::write(const std::string& topic, int events) {
    Sqlite(path_).exec(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < " +
        std::to_string(events) +
        ") INSERT INTO outbox_events (topic, aggregate_type, event_type, key, payload) SELECT "
        "nullif('" +
        topic + "', ''), 'A', 'T', 'key-' || (i % " + std::to_string(kKeys) +
        "), json_object('n', i) FROM n");
}

long long RelaySuite::left() {
    return Sqlite(path_).number("SELECT count(*) FROM outbox_events");
}

void RelaySuite::publish_all_through_a_kill(const std::string& to, const std::string& topic) {
    write(topic);
    {
        Process first = outbox_.start_relay(arguments(to));
        ASSERT_TRUE(eventually(60s, "some are published", [&] { return left() < kEvents; }));
        first.kill(SIGKILL);
        first.wait(10s);
    }
    EXPECT_GT(left(), 0) << "it was too late";
    Process second = outbox_.start_relay(arguments(to));
    ASSERT_TRUE(eventually(120s, "all are published", [&] { return left() == 0; }));
    EXPECT_EQ(second.stop().code, 0);
}

void RelaySuite::expect_all(const std::vector<Arrived>& arrived, std::size_t most_repeats) {
    std::set<std::string> seen;
    std::map<std::string, int> last;
    std::size_t repeats = 0;
    for (const Arrived& record : arrived) {
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
    EXPECT_LE(repeats, most_repeats);
}

std::pair<int, std::string> RelaySuite::check(const std::string& to) {
    const Finished done = outbox_.run({"relay", "--check", "--from", url_, "--to", to});
    EXPECT_EQ(done.out.find("s3cret"), std::string::npos);
    EXPECT_EQ(done.err.find("s3cret"), std::string::npos);
    return {done.status.code, done.out + done.err};
}

}  // namespace outbox::test
