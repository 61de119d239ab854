// PostgreSQL to Kafka while the relay and the broker are killed and restarted.

#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>
#include <signal.h>
#include <string>

#include "tests/brokers/kafka/admin.h"
#include "tests/chaos/load.h"
#include "tests/support/eventually.h"
#include "tests/support/kafka_client.h"
#include "tests/support/pg.h"
#include "tests/support/process.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kDeadline = 90s;
// Fewer than are sent between two kills, so that more repeats would be seen.
constexpr int kMaxUnrecorded = 40;

class KafkaChaos : public testing::Test {
  protected:
    KafkaChaos() : url_(shared_postgres().create_database()) {
        const Finished migrated = run({.command = {OUTBOX, "migrate", "--db", url_}});
        if (migrated.status.code != 0) throw std::runtime_error(migrated.err);
        create_topic(shared_kafka().bootstrap(), topic_, 12);
    }

    Process relay() {
        return Process({.command = {OUTBOX, "relay", "--from", url_, "--to",
                                    "kafka://" + shared_kafka().bootstrap(), "--admin", "off",
                                    "--topic-template", topic_, "--max-unrecorded",
                                    std::to_string(kMaxUnrecorded)}});
    }
    long long epoch() {
        return Pg(url_).number("SELECT coalesce(max(epoch), 0) FROM outbox_lease");
    }
    bool delivered_all() {
        return Pg(url_).value("SELECT NOT EXISTS (SELECT FROM outbox_events)") == "t";
    }

    long long arrived() {
        return static_cast<long long>(
            KafkaReader(shared_kafka().bootstrap(), topic_).read_to_end().size());
    }

    // Every partition in its order; a key has one partition. `ends`: how often what was under way
    // was lost with a relay or a broker.
    void verify(const Load& load, int ends) {
        core::Verifier verifier;
        const std::vector<core::JournalLine> produced = load.produced();
        for (const core::JournalLine& line : produced) ASSERT_TRUE(verifier.produced(line).ok());
        KafkaReader reader(shared_kafka().bootstrap(), topic_);
        std::vector<KafkaRecord> records = reader.read_to_end();
        std::stable_sort(records.begin(), records.end(), [](const auto& a, const auto& b) {
            return std::pair(a.partition, a.offset) < std::pair(b.partition, b.offset);
        });
        ASSERT_TRUE(verifier.begin_received(topic_).ok());
        for (const KafkaRecord& record : records) {
            core::JournalLine line;
            line.id = record.header("id").value_or("");
            line.key = record.key.value_or("");
            const std::string value = record.value.value_or("");
            line.n = std::stoll(value.substr(value.find("\"n\": ") + 5));
            ASSERT_TRUE(verifier.received(line).ok());
        }
        const Result<core::Verdict> verdict = verifier.finish();
        ASSERT_TRUE(verdict.ok());
        EXPECT_EQ(verdict->lost, 0);
        EXPECT_EQ(verdict->ghosts, 0);
        EXPECT_EQ(verdict->out_of_order, 0);
        EXPECT_LE(verdict->repeats, ends * kMaxUnrecorded);
        EXPECT_GT(verdict->produced, 0);
    }

    std::string url_;
    std::string topic_ = "load-" + url_.substr(url_.rfind('/') + 1);
};

TEST_F(KafkaChaos, KilledAgainAndAgainTheRelayLosesNothingAndKeepsOrder) {
    Load load(url_, 50);
    load.start(4);
    std::mt19937 random(7);
    constexpr int kRounds = 8;
    for (int round = 0; round < kRounds; ++round) {
        const long long before = epoch();
        const long long sent = arrived();
        Process relay = this->relay();
        ASSERT_TRUE(
            eventually(kDeadline, "the relay has the lease", [&] { return epoch() > before; }));
        const long long target = load.committed() + 50 + static_cast<long long>(random() % 200);
        ASSERT_TRUE(eventually(kDeadline, "more events are committed",
                               [&] { return load.committed() >= target; }));
        ASSERT_TRUE(eventually(kDeadline, "more than may be repeated has arrived",
                               [&] { return arrived() > sent + kMaxUnrecorded; }));
        relay.kill(SIGKILL);
        ASSERT_TRUE(relay.wait(kDeadline));
    }
    load.stop();
    Process relay = this->relay();
    ASSERT_TRUE(eventually(kDeadline, "everything is delivered", [&] { return delivered_all(); }))
        << relay.stderr_text();
    EXPECT_EQ(relay.stop().code, 0);
    verify(load, kRounds);
}

TEST_F(KafkaChaos, ABrokerThatIsAwayCostsNoAttemptAndTheBacklogDrains) {
    Load load(url_, 50);
    load.start(3);
    Process relay = this->relay();
    ASSERT_TRUE(eventually(kDeadline, "events flow", [&] {
        return load.committed() > 100 &&
               Pg(url_).number("SELECT count(*) FROM outbox_events") < load.committed();
    }));
    constexpr int kRounds = 2;
    for (int round = 0; round < kRounds; ++round) {
        if (round == 0) {
            shared_kafka().stop();
        } else {
            shared_kafka().kill();
        }
        ASSERT_TRUE(eventually(kDeadline, "the circuit opens", [&] {
            const std::string log = relay.stderr_text();
            const auto open = log.rfind("circuit_open");
            return open != std::string::npos &&
                   log.find("circuit_closed", open) == std::string::npos;
        })) << relay.stderr_text();
        const long long target = load.committed() + 100;
        ASSERT_TRUE(
            eventually(kDeadline, "the backlog grows", [&] { return load.committed() >= target; }));
        // Rows without an attempt may be there: of a topic that the broker was still making.
        EXPECT_EQ(Pg(url_).number("SELECT coalesce(sum(attempts), 0) FROM outbox_delivery"), 0);
        EXPECT_EQ(Pg(url_).number("SELECT count(*) FROM outbox_dead_letters"), 0);
        shared_kafka().start();
        const long long committed = load.committed();
        ASSERT_TRUE(eventually(kDeadline, "the backlog drains", [&] {
            return Pg(url_).number("SELECT count(*) FROM outbox_events") <
                   load.committed() - committed + 50;
        })) << relay.stderr_text();
    }
    load.stop();
    ASSERT_TRUE(eventually(kDeadline, "everything is delivered", [&] { return delivered_all(); }))
        << relay.stderr_text();
    EXPECT_EQ(Pg(url_).number("SELECT count(*) FROM outbox_dead_letters"), 0);
    EXPECT_EQ(relay.stop().code, 0);
    verify(load, kRounds);
}

TEST_F(KafkaChaos, ARecordThatTheBrokerRefusesGoesToDeadLettersAndDelaysNoOther) {
    create_topic(shared_kafka().bootstrap(), topic_ + "-small", 3, {{"max.message.bytes", "2000"}});
    Pg pg(url_);
    pg.exec(
        "INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, topic) "
        "SELECT 'Order', 'k' || (g % 5), 'E', jsonb_build_object('n', g, 'fill', CASE WHEN g = 10 "
        "THEN (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 200) i) ELSE '' END), "
        "'" +
        topic_ + "-small' FROM generate_series(1, 50) g");
    Process relay = this->relay();
    ASSERT_TRUE(eventually(kDeadline, "all is settled", [&] { return delivered_all(); }))
        << relay.stderr_text();
    EXPECT_EQ(pg.number("SELECT count(*) FROM outbox_dead_letters"), 1);
    EXPECT_EQ(pg.value("SELECT convert_from(payload, 'UTF8')::jsonb ->> 'n' FROM "
                       "outbox_dead_letters"),
              "10");
    KafkaReader reader(shared_kafka().bootstrap(), topic_ + "-small");
    EXPECT_EQ(reader.read(49, kDeadline).size(), 49U);
    relay.stop();
}

// A broker where somebody has to make each topic.
class KafkaTopics : public testing::Test {
  protected:
    KafkaTopics() : url_(shared_postgres().create_database()), pg_(url_) {
        const Finished migrated = run({.command = {OUTBOX, "migrate", "--db", url_}});
        if (migrated.status.code != 0) throw std::runtime_error(migrated.err);
    }
    static KafkaServer& strict() {
        static KafkaServer kafka({.auto_create_topics = false,
                                  .properties = "authorizer.class.name=org.apache.kafka.metadata."
                                                "authorizer.StandardAuthorizer\n"
                                                "allow.everyone.if.no.acl.found=true\n"});
        return kafka;
    }
    Process relay(KafkaServer& kafka) {
        return Process(
            {.command = {OUTBOX, "relay", "--from", url_, "--to", "kafka://" + kafka.bootstrap(),
                         "--admin", "off", "--max-attempts", "2", "--retry-base-ms", "10"}});
    }
    // `count` events of 10 keys, which begin with `prefix`.
    void emit(const std::string& topic, const std::string& prefix, int count, int keys = 10) {
        pg_.exec("INSERT INTO outbox_events (topic, key, event_type, payload) SELECT '" + topic +
                 "', '" + prefix + "' || n % " + std::to_string(keys) +
                 ", 'E', jsonb_build_object('n', n) FROM "
                 "generate_series(1, " +
                 std::to_string(count) + ") n");
    }
    long long rows(const std::string& topic) {
        return pg_.number("SELECT count(*) FROM outbox_events WHERE topic = '" + topic + "'");
    }
    // Every event of the topic is there, those of a key in their order.
    static void expect_complete(KafkaServer& kafka, const std::string& topic, int count) {
        KafkaReader reader(kafka.bootstrap(), topic);
        std::map<std::string, int> last;
        std::set<int> seen;
        for (const KafkaRecord& record : reader.read(static_cast<std::size_t>(count), kDeadline)) {
            const std::string value = record.value.value_or("");
            const int n = std::stoi(value.substr(value.find("\"n\": ") + 5));
            if (!seen.insert(n).second) continue;
            EXPECT_GT(n, last[record.key.value_or("")]);
            last[record.key.value_or("")] = n;
        }
        EXPECT_EQ(seen.size(), static_cast<std::size_t>(count));
    }

    std::string url_;
    Pg pg_;
};

TEST_F(KafkaTopics, EventsOfAForgottenTopicWaitForItWithoutAnAttemptAndOthersGoOn) {
    const std::string suffix = url_.substr(url_.rfind('/') + 1);
    const std::string there = "there-" + suffix;
    const std::string forgotten = "forgotten-" + suffix;
    create_topic(strict().bootstrap(), there, 3);
    emit(forgotten, "f", 3'000);
    emit(there, "t", 3'000);
    Process relay = this->relay(strict());
    ASSERT_TRUE(eventually(kDeadline, "the other topic is served", [&] {
        return rows(there) == 0;
    })) << relay.stderr_text();
    ASSERT_TRUE(eventually(kDeadline, "the waiting events are told", [&] {
        return pg_.number(
                   "SELECT count(*) FROM outbox_delivery WHERE error_code = "
                   "'OB_TOPIC_UNKNOWN'") == 10;
    })) << relay.stderr_text();
    EXPECT_EQ(rows(forgotten), 3'000);
    EXPECT_EQ(pg_.number("SELECT max(attempts) FROM outbox_delivery"), 0);
    EXPECT_NE(pg_.value("SELECT error FROM outbox_status WHERE error IS NOT NULL LIMIT 1")
                  .find("create the topic"),
              std::string::npos);
    // Those that come later are no worse off, either.
    emit(there, "f", 100);
    emit(there, "u", 1'000);
    ASSERT_TRUE(eventually(kDeadline, "other keys go on", [&] {
        return pg_.number("SELECT count(*) FROM outbox_events WHERE key LIKE 'u%'") == 0;
    })) << relay.stderr_text();
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_events WHERE key LIKE 'f%'"), 3'100)
        << "a key keeps its order across topics";
    create_topic(strict().bootstrap(), forgotten, 3);
    ASSERT_TRUE(eventually(kDeadline, "all is delivered", [&] {
        return pg_.number("SELECT count(*) FROM outbox_events") == 0;
    })) << relay.stderr_text();
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_dead_letters"), 0);
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_delivery"), 0);
    EXPECT_EQ(relay.stop().code, 0);
    expect_complete(strict(), forgotten, 3'000);
}

TEST_F(KafkaTopics, ATopicThatMayNotBeWrittenHoldsItsOwnKeysAloneWithoutAnAttempt) {
    const std::string suffix = url_.substr(url_.rfind('/') + 1);
    const std::string open = "open-" + suffix;
    const std::string closed = "closed-" + suffix;
    create_topic(strict().bootstrap(), open, 3);
    create_topic(strict().bootstrap(), closed, 3);
    deny_only_write(strict().bootstrap(), closed);
    emit(closed, "c", 300, 100);
    emit(open, "o", 300, 100);
    Process relay = this->relay(strict());
    ASSERT_TRUE(eventually(kDeadline, "the other topic is served", [&] { return rows(open) == 0; }))
        << relay.stderr_text();
    ASSERT_TRUE(eventually(kDeadline, "each waiting key is told", [&] {
        return pg_.number(
                   "SELECT count(*) FROM outbox_delivery WHERE error_code = 'OB_NO_RIGHTS'") == 100;
    })) << relay.stderr_text();
    EXPECT_NE(pg_.value("SELECT error FROM outbox_status WHERE error IS NOT NULL LIMIT 1")
                  .find("topic " + closed),
              std::string::npos);
    emit(open, "p", 1'000);
    ASSERT_TRUE(eventually(kDeadline, "what comes later goes on", [&] { return rows(open) == 0; }))
        << relay.stderr_text();
    EXPECT_EQ(rows(closed), 300);
    EXPECT_EQ(pg_.number("SELECT max(attempts) FROM outbox_delivery"), 0);
    allow_write_again(strict().bootstrap(), closed);
    ASSERT_TRUE(eventually(kDeadline, "all is delivered", [&] {
        return pg_.number("SELECT count(*) FROM outbox_events") == 0;
    })) << relay.stderr_text();
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_dead_letters"), 0);
    EXPECT_EQ(relay.stop().code, 0);
    const std::string log = relay.stderr_text();
    EXPECT_NE(log.find("event=part_down"), std::string::npos) << log;
    EXPECT_NE(log.find("event=part_up"), std::string::npos) << log;
    // At the very first nothing may have passed yet; not again once others go on.
    EXPECT_EQ(log.find("event=circuit_open", log.rfind("event=circuit_closed") + 1),
              std::string::npos)
        << log;
    EXPECT_EQ(log.find("event=circuit_open"), log.rfind("event=circuit_open")) << log;
    expect_complete(strict(), closed, 300);
}

TEST_F(KafkaTopics, APartitionWithoutALeaderHoldsItsOwnKeysAloneWithoutAnAttempt) {
    const std::string topic = "half-" + url_.substr(url_.rfind('/') + 1);
    KafkaServer second({.auto_create_topics = false, .properties = "", .first = &strict()});
    create_topic_on(strict().bootstrap(), topic, {1, 2});
    second.stop();
    wait_for_leader(strict().bootstrap(), topic, 1, false);
    emit(topic, "h", 2'000, 200);
    Process relay = this->relay(strict());
    ASSERT_TRUE(eventually(kDeadline, "the waiting keys are told, the others served", [&] {
        const long long keys = pg_.number("SELECT count(DISTINCT key) FROM outbox_events");
        return keys < 150 && keys == pg_.number("SELECT count(*) FROM outbox_delivery");
    })) << relay.stderr_text();
    EXPECT_NE(pg_.value("SELECT error FROM outbox_status WHERE error IS NOT NULL LIMIT 1")
                  .find("topic " + topic + "[1]"),
              std::string::npos);
    EXPECT_GT(pg_.number("SELECT count(DISTINCT key) FROM outbox_events"), 50);
    EXPECT_EQ(pg_.number("SELECT max(attempts) FROM outbox_delivery"), 0);
    second.start();
    ASSERT_TRUE(eventually(kDeadline, "all is delivered", [&] {
        return pg_.number("SELECT count(*) FROM outbox_events") == 0;
    })) << relay.stderr_text();
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_dead_letters"), 0);
    EXPECT_EQ(relay.stop().code, 0);
    EXPECT_EQ(relay.stderr_text().find("event=circuit_open"), std::string::npos);
    expect_complete(strict(), topic, 2'000);
    remove_topic(strict().bootstrap(), topic);
}

TEST_F(KafkaTopics, ABrokerThatMakesTopicsOnDemandGetsThemMade) {
    const std::string suffix = url_.substr(url_.rfind('/') + 1);
    for (int i = 0; i < 5; ++i) {
        emit("demand-" + std::to_string(i) + "-" + suffix, "k" + std::to_string(i), 200);
    }
    Process relay = this->relay(shared_kafka());
    ASSERT_TRUE(eventually(kDeadline, "all is delivered", [&] {
        return pg_.number("SELECT count(*) FROM outbox_events") == 0;
    })) << relay.stderr_text();
    EXPECT_EQ(pg_.number("SELECT count(*) FROM outbox_dead_letters"), 0);
    EXPECT_EQ(relay.stop().code, 0);
    for (int i = 0; i < 5; ++i) {
        expect_complete(shared_kafka(), "demand-" + std::to_string(i) + "-" + suffix, 200);
    }
}

}  // namespace
}  // namespace outbox::test
