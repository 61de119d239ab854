#include "tests/polyglot/suite.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "tests/support/eventually.h"
#include "tests/support/kafka_client.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

// Starting a runtime, joining a group and reading, on a busy machine.
constexpr auto kDeadline = 120s;

std::vector<int> one_to(int last) {
    std::vector<int> numbers(static_cast<std::size_t>(last));
    std::iota(numbers.begin(), numbers.end(), 1);
    return numbers;
}

}  // namespace

void Polyglot::SetUp() {
    program_ = std::make_unique<Program>(GetParam());
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    prefix_ = GetParam() + "-" + name.substr(0, name.find('/')) + "-";
}

void Polyglot::place(const std::string& lines, int exit_code) {
    const Finished done = run(program_->emit(shop->url(), lines));
    ASSERT_EQ(done.status, (ExitStatus{exit_code, 0})) << done.err;
}

TEST_P(Polyglot, EventsOfAKeyArriveInTheOrderOfItsTransactions) {
    constexpr int kOrders = 3;
    constexpr int kEach = 30;
    const std::string lines = order_lines(prefix_, kOrders, kEach);
    Process one(program_->emit(shop->url(), lines));
    Process other(program_->emit(shop->url(), lines));
    ASSERT_EQ(one.wait(kDeadline), (ExitStatus{0, 0})) << one.stderr_text();
    ASSERT_EQ(other.wait(kDeadline), (ExitStatus{0, 0})) << other.stderr_text();

    KafkaReader reader(shared_kafka().bootstrap(), shop->topic());
    std::map<std::string, std::vector<int>> versions;
    std::set<std::string> ids;
    std::size_t seen = 0;
    EXPECT_TRUE(eventually(kDeadline, "all events arrive", [&] {
        const auto& records = reader.read(seen + 1, 100ms);
        for (; seen < records.size(); ++seen) {
            const KafkaRecord& record = records[seen];
            if (!record.key->starts_with(prefix_)) continue;
            if (!ids.insert(record.header("id").value()).second) continue;
            EXPECT_EQ(record.header("type"), "OrderPlaced");
            versions[*record.key].push_back(json::parse(*record.value)["version"].get<int>());
        }
        return ids.size() == std::size_t{kOrders} * kEach * 2;
    }));
    for (int i = 1; i <= kOrders; ++i) {
        EXPECT_EQ(versions[order(std::to_string(i))], one_to(kEach * 2)) << i;
    }
}

TEST_P(Polyglot, WhatFailsLeavesNeitherOrderNorEvent) {
    Pg database(shop->url());
    database.exec("ALTER TABLE outbox_events ADD CONSTRAINT " + GetParam() +
                  "_refused CHECK (aggregate_id <> " + literal(order("event-refused")) +
                  ") NOT VALID");
    const Finished done = run(program_->emit(
        shop->url(), order("commit-fails") + " nobody 5\n" + order("event-refused") + " alice 5\n" +
                         order("negative") + " alice -5\n" + order("good") + " alice 5\n"));
    EXPECT_EQ(done.status, (ExitStatus{1, 0}));
    EXPECT_EQ(done.out, "placed " + order("good") + " 1\n");
    for (const std::string name : {"commit-fails", "event-refused", "negative"}) {
        EXPECT_THAT(done.err, HasSubstr("refused " + order(name)));
        EXPECT_THAT(shop->events_of(order(name)), IsEmpty()) << name;
    }
    const auto left = database.query("SELECT id, version, cents FROM orders WHERE id LIKE " +
                                     literal(prefix_ + "%"));
    EXPECT_THAT(left, ElementsAre(Pg::Row{order("good"), "1", "5"}));
    EXPECT_EQ(shop->events_of(order("good")).size(), 1U);
}

TEST_P(Polyglot, BillsAMailboxOnceInOrderAndGoesOnBesideWhatFails) {
    const std::string billing = shop->new_billing();
    Pg database(billing);
    database.exec("ALTER TABLE invoices ADD CHECK (cents < 1000)");
    const auto arrive = [&](const std::string& id, const std::string& key,
                            const std::string& payload) {
        database.exec("INSERT INTO outbox_mailbox (id, topic, key, headers, payload) VALUES ('" +
                      id + "', 'order-events', '" + key + "', '{}', convert_to('" + payload +
                      "', 'UTF8'))");
    };
    const auto placed = [&](const std::string& key, int version, int cents) {
        return R"({"order_id": ")" + key + R"(", "version": )" + std::to_string(version) +
               R"(, "cents": )" + std::to_string(cents) + "}";
    };
    const std::string keys[] = {order("1"), order("2"), order("no-json"), order("refused")};
    constexpr int kEach = 10;
    arrive("no-json", keys[2], "no json");
    arrive("refused", keys[3], placed(keys[3], 1, 5000));
    for (int version = 1; version <= kEach; ++version) {
        for (const std::string& key : keys) {
            arrive(key + std::to_string(version), key, placed(key, version, version));
        }
    }
    Process program(program_->receive(billing));
    const auto billed = [&](int orders) {
        return database.number("SELECT count(*) FROM invoices WHERE version = 10 AND cents = 55") ==
               orders;
    };
    ASSERT_TRUE(eventually(kDeadline, "those beside it are billed", [&] { return billed(2); }))
        << program.stderr_text();
    EXPECT_EQ(database.number("SELECT count(*) FROM invoices"), 2) << "none behind what fails";
    // The relay's repeat of one that is done.
    arrive(keys[0] + "1", keys[0], placed(keys[0], 1, 1));
    ASSERT_TRUE(eventually(kDeadline, "it is given up and its key goes on", [&] {
        database.exec("UPDATE outbox_mailbox_tries SET not_before = '-infinity'");
        return billed(4);
    })) << program.stderr_text();
    ASSERT_TRUE(eventually(kDeadline, "nothing is left, and all is told", [&] {
        Told seen = told(program, prefix_);
        return database.number("SELECT count(*) FROM outbox_mailbox") == 0 &&
               std::all_of(std::begin(keys), std::end(keys),
                           [&](const auto& key) { return seen.applied[key].size() >= kEach; });
    })) << program.stdout_text();
    EXPECT_TRUE(ends_in_order(program)) << program.stderr_text();
    EXPECT_EQ(database.value("SELECT string_agg(message_id || ' ' || attempts, ', ' ORDER BY "
                             "message_id) FROM outbox_inbox_dead_letters"),
              "no-json 5, refused 5");
    EXPECT_EQ(database.number("SELECT count(*) FROM outbox_inbox_dead_letters WHERE error = ''"),
              0);
    for (const std::string& key : keys) {
        EXPECT_EQ(told(program, prefix_).applied[key], one_to(kEach)) << key;
    }
}

TEST_P(Polyglot, AppliesEachEventOnceHoweverOftenItComes) {
    constexpr int kEach = 10;
    place(order_lines(prefix_, 2, kEach));
    const std::string billing = shop->new_billing();
    const std::string invoices =
        "SELECT count(*) || ' ' || sum(version) || ' ' || sum(cents) FROM invoices WHERE "
        "order_id LIKE " +
        literal(prefix_ + "%");
    const std::string expected = "2 20 110";
    {
        Process consumer(program_->consume(billing, shop->topic(), prefix_ + "group"));
        // It tells after the commit, and may be ended between the two.
        ASSERT_TRUE(eventually(kDeadline, "all events are billed, and told", [&] {
            Told seen = told(consumer, prefix_);
            return Pg(billing).value(invoices) == expected &&
                   seen.applied[order("1")].size() + seen.applied[order("2")].size() >= 2 * kEach;
        })) << consumer.stdout_text();
        EXPECT_TRUE(ends_in_order(consumer)) << consumer.stderr_text();
        EXPECT_EQ(told(consumer, prefix_).applied[order("1")], one_to(kEach));
        EXPECT_EQ(told(consumer, prefix_).applied[order("2")], one_to(kEach));
    }
    // Another group gets everything again.
    const std::string again = prefix_ + "again";
    {
        Process consumer(program_->consume(billing, shop->topic(), again));
        ASSERT_TRUE(eventually(kDeadline, "all events come again", [&] {
            Told seen = told(consumer, prefix_);
            return seen.repeats[order("1")] == one_to(kEach) &&
                   seen.repeats[order("2")] == one_to(kEach);
        })) << consumer.stdout_text();
        EXPECT_TRUE(ends_in_order(consumer)) << consumer.stderr_text();
        EXPECT_THAT(told(consumer, prefix_).applied, IsEmpty());
        EXPECT_EQ(Pg(billing).value(invoices), expected);
    }
    // Its offsets are committed: what it has had does not come a third time.
    place(order("new") + " alice 1\n");
    Process consumer(program_->consume(billing, shop->topic(), again));
    ASSERT_TRUE(eventually(kDeadline, "the new event is billed", [&] {
        return told(consumer, prefix_).applied[order("new")] == one_to(1);
    })) << consumer.stdout_text();
    EXPECT_THAT(told(consumer, prefix_).repeats, IsEmpty());
}

TEST_P(Polyglot, AnEffectThatFailsIsRolledBackWithItsInboxRowAndTriedAgain) {
    const std::string poison = order("poison");
    place(poison + " alice 7\n");
    const std::string id = shop->events_of(poison).at(0);
    const std::string billing = shop->new_billing();
    Pg database(billing);
    database.exec("ALTER TABLE invoices ADD CONSTRAINT refused CHECK (order_id <> " +
                  literal(poison) + ")");
    const std::string group = prefix_ + "group";
    {
        Process consumer(program_->consume(billing, shop->topic(), group));
        const auto ended = consumer.wait(kDeadline);
        ASSERT_TRUE(ended) << "it goes on past a message that it could not apply";
        EXPECT_NE(*ended, (ExitStatus{0, 0}));
        EXPECT_THAT(consumer.stderr_text(), HasSubstr("refused"));
    }
    EXPECT_EQ(
        database.number("SELECT count(*) FROM outbox_inbox WHERE message_id = " + literal(id)), 0);
    database.exec("ALTER TABLE invoices DROP CONSTRAINT refused");
    Process consumer(program_->consume(billing, shop->topic(), group));
    ASSERT_TRUE(eventually(kDeadline, "the message is applied", [&] {
        return told(consumer, prefix_).applied[poison] == one_to(1);
    })) << consumer.stdout_text();
    EXPECT_EQ(database.value("SELECT cents FROM invoices WHERE order_id = " + literal(poison)),
              "7");
}

TEST_P(Polyglot, AConsumerThatIsKilledLosesNothingAndAppliesNothingTwice) {
    constexpr int kEach = 50;
    place(order_lines(prefix_, 1, kEach));
    const std::string billing = shop->new_billing();
    const std::string version =
        "SELECT coalesce(max(version), 0) FROM invoices WHERE order_id = " + literal(order("1"));
    const std::string group = prefix_ + "group";
    Process killed(program_->consume(billing, shop->topic(), group));
    ASSERT_TRUE(
        eventually(kDeadline, "it is under way", [&] { return Pg(billing).number(version) > 0; }));
    killed.kill(SIGKILL);
    ASSERT_TRUE(killed.wait(kDeadline));
    Process consumer(program_->consume(billing, shop->topic(), group));
    ASSERT_TRUE(eventually(kDeadline, "all events are billed", [&] {
        return Pg(billing).number(version) == kEach;
    })) << consumer.stdout_text();
    EXPECT_EQ(
        Pg(billing).number("SELECT cents FROM invoices WHERE order_id = " + literal(order("1"))),
        kEach * (kEach + 1) / 2);
}

}  // namespace outbox::test
