#pragma once

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <outbox/adapters/libpq_queue.h>
#include <outbox/adapters/sqlite_queue.h>
#include <outbox/producer/migrate.h>

#include "consumer/queue/inlet.h"
#include "consumer/queue/link.h"
#include "core/utf8.h"
#include "tests/conformance/letters.h"
#include "tests/consumer/database.h"
#include "tests/consumer/operations.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/process.h"

// What every queue must do for a consumer. A broker's test includes this file, writes a
// `QueueFixture`, defines QUEUE_MEMBER (the program of queue_member.cpp with its library), and
// instantiates the suites that its queue allows:
//   QueueConformance   every queue
//   QueueOutage        brokers that can go down and come back
//   QueueDeliveries    queues that count how often a message was handed over
//   QueueTopics        queues whose messages name topics, of any bytes

namespace outbox::test {

/// One queue and how to write to it, without our own code.
class QueueFixture {
  public:
    QueueFixture() = default;
    QueueFixture(const QueueFixture&) = delete;
    QueueFixture& operator=(const QueueFixture&) = delete;
    virtual ~QueueFixture() = default;

    /// A queue that nobody used before, made for this fixture.
    virtual std::string url() = 0;
    virtual Queue queue(const std::string& url) = 0;
    /// What `Message::topic` says of a message that was published to "orders".
    virtual std::string topic() { return "orders"; }
    /// In their order. One without an id has none.
    virtual void publish(const std::vector<Letter>& letters) = 0;
    /// Messages that are there once nobody reads any more, for which it waits.
    virtual std::size_t left() = 0;
    /// Under a topic that PostgreSQL does not take as text.
    virtual void publish_under_no_text(const std::vector<Letter>&) {}
    virtual void remove_queue() = 0;
    virtual void make_queue() = 0;
    virtual void go_down() {}
    virtual void come_back() {}
    /// Called before anything is published: what a member had that is gone is to come again after
    /// so long. Elsewhere it may take much longer, as it stays with a member that says nothing, as
    /// one does that is given no processor.
    virtual void comes_again_after(std::chrono::seconds /*wait*/) {}
    /// How many acknowledged messages the broker may not have heard of when a member has stopped.
    [[nodiscard]] virtual long long unheard_at_most(std::size_t transaction_size) const {
        return 2 * static_cast<long long>(transaction_size);
    }
    /// Whether what members had when they died comes again before what they had not.
    [[nodiscard]] virtual bool keeps_order_across_deaths() const { return true; }
};

struct QueueParam {
    std::string name;
    Backend database;
    std::function<std::unique_ptr<QueueFixture>()> make;
};

class QueueSuite : public testing::TestWithParam<QueueParam> {
  protected:
    // What a handler gets, whatever the database: a way to run SQL in the open transaction.
    using Transaction = std::function<void(const std::string& sql)>;
    using Handler = std::function<void(const Transaction& transaction, const Message& message)>;

    void SetUp() override {
        fixture_ = GetParam().make();
        database_ = make_database(GetParam().database);
        MigrateOptions side;
        side.side = MigrationSide::kConsumer;
        migrate(database_->url(), side);
        db_ = database_->connect();
        const bool postgres = GetParam().database == Backend::kPostgres;
        db_->exec(std::string("CREATE TABLE effects (seq ") +
                  (postgres ? "bigint GENERATED ALWAYS AS IDENTITY" : "INTEGER PRIMARY KEY") +
                  ", id text, key text, payload text, member text)");
    }
    QueueConsumerOptions options() {
        QueueConsumerOptions made;
        made.consumer = "stock";
        // Else what a slow broker has sent comes again.
        made.connect_timeout_s = 60;
        made.retry_base_ms = 1;
        made.retry_max_ms = 5;
        made.on_report = [this](const ConsumerReport& report) {
            const std::lock_guard lock(mutex_);
            ++reports_[report.what];
            if (report.what == ConsumerReport::What::kDisconnected) trouble_ = report.error.message;
        };
        return made;
    }
    QueueConsumer consumer(const Handler& handler, const QueueConsumerOptions& options) {
        return consumer(handler, options, fixture_->url());
    }
    QueueConsumer consumer(const Handler& handler, const QueueConsumerOptions& options,
                           const std::string& queue_url) {
        const std::string url = database_->url();
        const Queue queue = fixture_->queue(queue_url);
        if (GetParam().database == Backend::kPostgres) {
            return libpq_queue_consumer(
                url, queue,
                [handler](PGconn* connection, const Message& message) {
                    handler([&](const std::string& sql) { Pg::query(connection, sql); }, message);
                },
                options);
        }
        return sqlite_queue_consumer(
            url, queue,
            [handler](sqlite3* connection, const Message& message) {
                handler([&](const std::string& sql) { Sqlite::query(connection, sql); }, message);
            },
            options);
    }
    // The effect of a well-behaved handler.
    static void apply(const Transaction& transaction, const Message& message) {
        transaction("INSERT INTO effects (id, key, payload) VALUES ('" + std::string(message.id) +
                    "', '" + std::string(message.key) + "', '" + std::string(message.payload) +
                    "')");
    }
    // Applies so many and then one after the other hangs, in its transaction, until it may go.
    class Gate {
      public:
        explicit Gate(int after) : after_(after) {}
        void pass(const Transaction& transaction, const Message& message) {
            const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
            const bool hangs = ++begun_ > after_;
            while (hangs && !open_ && std::chrono::steady_clock::now() < end) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            apply(transaction, message);
        }
        void open() { open_ = true; }

      private:
        const int after_;
        std::atomic<int> begun_ = 0;
        std::atomic<bool> open_ = false;
    };
    // With SQLite all others would wait for the lock of one that hangs.
    QueueConsumerOptions options_of_gate() {
        auto made = options();
        if (GetParam().database == Backend::kSqlite) made.workers = 1;
        return made;
    }
    long long effects() { return db_->number("SELECT count(*) FROM effects"); }
    long long distinct_effects() { return db_->number("SELECT count(DISTINCT id) FROM effects"); }
    // Empty: all were applied, and in the order of their keys where members that died keep it.
    std::string missing_after_deaths(std::vector<Letter> sent) {
        std::vector<Arrived> all = applied();
        if (!fixture_->keeps_order_across_deaths()) {
            std::ranges::sort(sent, {}, &Letter::id);
            std::ranges::sort(all, {}, &Arrived::id);
        }
        return missing_or_reordered(sent, all);
    }
    std::vector<Arrived> applied() {
        std::vector<Arrived> out;
        for (const auto& row : db_->query("SELECT id, key, payload FROM effects ORDER BY seq")) {
            out.push_back({row[0].value_or(""), row[1], row[2], {}});
        }
        return out;
    }
    std::vector<std::string> dead() {
        std::vector<std::string> out;
        for (const auto& row :
             db_->query("SELECT message_id FROM outbox_inbox_dead_letters ORDER BY message_id")) {
            out.push_back(row[0].value_or(""));
        }
        return out;
    }
    int reported(ConsumerReport::What what) {
        const std::lock_guard lock(mutex_);
        return reports_[what];
    }
    std::string trouble() {
        const std::lock_guard lock(mutex_);
        return trouble_;
    }
    testing::AssertionResult all_are_applied(std::size_t count) {
        return eventually(std::chrono::seconds(120), "all are applied",
                          [&] { return distinct_effects() == static_cast<long long>(count); });
    }
    // So many messages, all of them poison.
    void make_dead(std::size_t count) {
        auto chosen = options();
        chosen.max_attempts = 1;
        Running running(consumer(
            [](const Transaction&, const Message&) { throw std::runtime_error("no"); }, chosen));
        ASSERT_TRUE(are_settled(running, count));
    }
    // A member in a process of its own. A message whose payload is "abort" ends it.
    Process member(const std::string& name, int pause_us = 0,
                   const std::vector<std::string>& more = {}) {
        std::vector<std::string> command = {QUEUE_MEMBER, fixture_->url(), database_->url(), name,
                                            std::to_string(pause_us)};
        command.insert(command.end(), more.begin(), more.end());
        return Process({.command = std::move(command)});
    }

    // Ends with the test.
    class Running {
      public:
        explicit Running(QueueConsumer consumer)
            : consumer_(std::move(consumer)), thread_([this] {
                  try {
                      consumer_.run();
                  } catch (const Error& error) {
                      error_ = error.info();
                      std::cout << "the member ended: " << describe(*error_) << '\n';
                  }
                  ended_ = true;
              }) {}
        ~Running() { stop(); }
        void stop() {
            consumer_.stop();
            if (thread_.joinable()) thread_.join();
        }
        QueueConsumer* operator->() { return &consumer_; }
        // After `ended`.
        [[nodiscard]] const std::optional<ErrorInfo>& error() const { return error_; }
        [[nodiscard]] bool ended() const { return ended_; }

      private:
        QueueConsumer consumer_;
        std::optional<ErrorInfo> error_;
        std::atomic<bool> ended_ = false;
        std::thread thread_;
    };

    // Applied, dropped as repeats, given up.
    testing::AssertionResult are_settled(Running& running, std::size_t count) {
        return eventually(std::chrono::seconds(120), "all are settled", [&] {
            const ConsumerStats stats = running->stats();
            return stats.applied + stats.repeats + stats.dead == count;
        });
    }

    std::unique_ptr<QueueFixture> fixture_;
    std::unique_ptr<Database> database_;
    std::unique_ptr<Database::Connection> db_;
    std::mutex mutex_;
    std::map<ConsumerReport::What, int> reports_;
    std::string trouble_;
};

class QueueConformance : public QueueSuite {};
class QueueOutage : public QueueSuite {};
class QueueDeliveries : public QueueSuite {};
class QueueTopics : public QueueSuite {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(QueueOutage);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(QueueDeliveries);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(QueueTopics);

inline std::string queue_param_name(const testing::TestParamInfo<QueueParam>& info) {
    return info.param.name;
}

TEST_P(QueueConformance, AppliesEachInTheOrderOfItsKeyAndAcknowledgesIt) {
    const auto sent = letters("orders", 3'000, 20);
    fixture_->publish(sent);
    {
        Running running(consumer(apply, options()));
        ASSERT_TRUE(all_are_applied(sent.size()));
        running.stop();
        EXPECT_EQ(running->stats().applied, sent.size());
        EXPECT_EQ(running->stats().repeats, 0U);
    }
    EXPECT_EQ(fixture_->left(), 0U);
    EXPECT_EQ(missing_or_reordered(sent, applied()), "");
    EXPECT_EQ(effects(), 3'000);
}

TEST_P(QueueConformance, DropsRepeats) {
    const auto sent = letters("orders", 200, 10);
    fixture_->publish(sent);
    fixture_->publish(sent);
    Running running(consumer(apply, options()));
    ASSERT_TRUE(are_settled(running, 400));
    running.stop();
    EXPECT_EQ(fixture_->left(), 0U);
    EXPECT_EQ(running->stats().repeats, 200U);
    EXPECT_EQ(effects(), 200);
}

TEST_P(QueueConformance, HandsOverWhatTheMessageSays) {
    auto sent = letters("orders", 3, 1);
    sent[0].headers = {{"tenant_id", "t-1"}, {"quoted", "\"q\" \xE2\x82\xAC"}};
    sent[1].key = std::nullopt;
    sent[1].value = "";
    sent[2].value = std::string(300'000, 'x');
    fixture_->publish(sent);
    std::mutex mutex;
    std::map<std::string, std::string> seen;
    Running running(consumer(
        [&](const Transaction& transaction, const Message& message) {
            const std::lock_guard lock(mutex);
            seen[std::string(message.id)] =
                std::string(message.topic) + "|" +
                (message.key.data() == nullptr ? "none" : std::string(message.key)) + "|" +
                std::to_string(message.payload.size()) + "|" +
                message.header("tenant_id").value_or("none") + "|" +
                message.header("quoted").value_or("none");
            transaction("INSERT INTO effects (id) VALUES ('" + std::string(message.id) + "')");
        },
        options()));
    ASSERT_TRUE(all_are_applied(3));
    running.stop();
    EXPECT_EQ(seen["id-0"], fixture_->topic() + "|key-0|20|t-1|\"q\" \xE2\x82\xAC");
    EXPECT_EQ(seen["id-1"], fixture_->topic() + "|none|0|none|none");
    EXPECT_EQ(seen["id-2"], fixture_->topic() + "|key-0|300000|none|none");
}

TEST_P(QueueConformance, AFailingMessageGoesToTheDeadLettersAndDelaysItsKeyAlone) {
    const auto sent = letters("orders", 500, 10);
    fixture_->publish(sent);
    auto chosen = options();
    chosen.max_attempts = 3;
    Running running(consumer(
        [&](const Transaction& transaction, const Message& message) {
            if (message.id == "id-104") throw std::runtime_error("it is poison");
            apply(transaction, message);
        },
        chosen));
    ASSERT_TRUE(are_settled(running, 500));
    running.stop();
    EXPECT_EQ(fixture_->left(), 0U);
    EXPECT_EQ(dead(), std::vector<std::string>{"id-104"});
    EXPECT_EQ(running->stats().failed, 3U);
    auto rest = sent;
    rest.erase(rest.begin() + 104);
    EXPECT_EQ(missing_or_reordered(rest, applied()), "");
}

TEST_P(QueueConformance, ManyFailingKeysDoNotStopTheOthers) {
    // As many as may be in flight wait for ever behind one.
    auto chosen = options();
    chosen.max_in_flight = 50;
    chosen.max_attempts = 1'000'000;
    auto failing = letters("orders", 50, 5);
    auto good = letters("orders", 500, 20);
    for (auto& letter : good) {
        letter.id += "-good";
        letter.key = *letter.key + "-good";
    }
    fixture_->publish(failing);
    fixture_->publish(good);
    Running running(consumer(
        [&](const Transaction& transaction, const Message& message) {
            if (!message.key.ends_with("-good")) {
                throw Error(ErrorCode::kHandlerFailed, Advice::kRetryDestination, "it is away");
            }
            apply(transaction, message);
        },
        chosen));
    EXPECT_TRUE(all_are_applied(500));
    running.stop();
    EXPECT_EQ(fixture_->left(), 50U);
}

TEST_P(QueueConformance, AMessageWithoutAnIdIsKeptAndDelaysNobody) {
    auto sent = letters("orders", 20, 4);
    sent[5].id = "";
    fixture_->publish(sent);
    Running running(consumer(apply, options()));
    ASSERT_TRUE(are_settled(running, 20));
    running.stop();
    EXPECT_EQ(fixture_->left(), 0U);
    EXPECT_EQ(distinct_effects(), 19);
    ASSERT_EQ(dead().size(), 1U);
    EXPECT_EQ(dead()[0].substr(0, 8), "content-");
}

TEST_P(QueueConformance, AMessageWithoutAnIdIsNotTakenForARepeatOfOneThatWasApplied) {
    auto sent = letters("orders", 1, 1);
    sent[0].id = "";
    fixture_->publish(sent);
    Running running(consumer(apply, options()));
    ASSERT_TRUE(are_settled(running, 1));
    db_->exec("UPDATE outbox_inbox_dead_letters SET retry_requested_at = died_at");
    ASSERT_TRUE(all_are_applied(1));
    fixture_->publish(sent);
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "it is a letter again",
                           [&] { return dead().size() == 1; }));
    running.stop();
    EXPECT_EQ(running->stats().repeats, 0U);
    EXPECT_EQ(fixture_->left(), 0U);
}

TEST_P(QueueConformance, GivesBackWhatItHasNotBegunWhenItStops) {
    const auto sent = letters("orders", 1'000, 20);
    fixture_->comes_again_after(std::chrono::seconds(5));
    fixture_->publish(sent);
    {
        Gate gate(400);
        Running first(consumer([&](const Transaction& transaction,
                                   const Message& message) { gate.pass(transaction, message); },
                               options_of_gate()));
        EXPECT_TRUE(eventually(std::chrono::seconds(60), "some are applied",
                               [&] { return effects() > 100; }));
        first->stop();
        gate.open();
    }
    const auto by_first = effects();
    EXPECT_LT(by_first, 1'000) << "it was too late";
    // The word for the last transactions may be lost with the connection.
    const auto unheard = static_cast<long long>(fixture_->left()) - (1'000 - by_first);
    EXPECT_GE(unheard, 0);
    EXPECT_LE(unheard, fixture_->unheard_at_most(options().transaction_size));
    Running second(consumer(apply, options()));
    ASSERT_TRUE(all_are_applied(sent.size()));
    second.stop();
    EXPECT_EQ(fixture_->left(), 0U);
    EXPECT_EQ(missing_or_reordered(sent, applied()), "");
    EXPECT_EQ(second->stats().repeats, static_cast<std::uint64_t>(unheard));
    EXPECT_EQ(effects(), 1'000);
}

TEST_P(QueueConformance, MembersShareTheQueueAndOneThatIsKilledLosesNothing) {
    // In portions, so that the one that starts first leaves something to the other.
    constexpr std::size_t kPortion = 1'000;
    auto sent = letters("orders", 60 * kPortion, 50);
    fixture_->comes_again_after(std::chrono::seconds(2));
    std::size_t published = 0;
    const auto publish_more = [&] {
        const auto from = sent.begin() + static_cast<std::ptrdiff_t>(published);
        published += kPortion;
        fixture_->publish({from, from + kPortion});
    };
    const std::vector<std::string> few = {"max_in_flight=100"};
    Process one = member("one", 500, few);
    Process two = member("two", 500, few);
    const auto of = [&](const std::string& name) {
        return db_->number("SELECT count(*) FROM effects WHERE member = '" + name + "'");
    };
    const auto publish_where_it_is_dry = [&] {
        const bool dry = effects() + 100 > static_cast<long long>(published);
        if (dry && published < sent.size() - kPortion) publish_more();
    };
    ASSERT_TRUE(eventually(std::chrono::seconds(120), "both apply", [&] {
        publish_where_it_is_dry();
        return of("one") > 100 && of("two") > 100;
    }));
    // Neither applies while the client publishes, which may take it longer than them.
    one.kill(SIGSTOP);
    two.kill(SIGSTOP);
    publish_more();
    one.kill(SIGUSR2);
    one.kill(SIGCONT);
    two.kill(SIGCONT);  // it may hold SQLite's lock
    ASSERT_TRUE(eventually(std::chrono::seconds(120), "it is in the midst of one", [&] {
        publish_where_it_is_dry();
        return one.stderr_text().find("it hangs") != std::string::npos;
    }));
    sent.resize(published);
    one.kill(SIGKILL);
    one.wait(std::chrono::seconds(60));
    EXPECT_LT(effects(), static_cast<long long>(published)) << "it was too late";
    Process three = member("three");
    EXPECT_TRUE(all_are_applied(sent.size())) << two.stderr_text() << three.stderr_text();
    EXPECT_EQ(two.stop().code, 0);
    EXPECT_EQ(three.stop().code, 0);
    EXPECT_EQ(fixture_->left(), 0U);
    EXPECT_EQ(effects(), static_cast<long long>(published));
}

TEST_P(QueueConformance, WaitsForAQueueThatIsNotThere) {
    fixture_->remove_queue();
    Running running(consumer(apply, options()));
    ASSERT_TRUE(eventually(std::chrono::seconds(60), "it says so",
                           [&] { return reported(ConsumerReport::What::kDisconnected) > 0; }));
    EXPECT_NE(trouble(), "");
    fixture_->make_queue();
    const auto sent = letters("orders", 10, 2);
    fixture_->publish(sent);
    EXPECT_TRUE(all_are_applied(10)) << trouble();
    EXPECT_FALSE(running.ended());
}

TEST_P(QueueConformance, WhatWasTakenOfAQueueThatWasMadeAnewSettlesNothingOfTheNewOne) {
    constexpr std::size_t kEach = 10;
    const consumer::WakeUp never;
    const auto make = [&] {
        return fixture_->queue(fixture_->url()).open({kEach, std::chrono::seconds(60)});
    };
    const auto take_all = [&](consumer::Inlet& inlet) {
        fixture_->publish(letters("orders", kEach, 1));
        ASSERT_TRUE(inlet.connect().ok());
        std::vector<consumer::Arrival> arrived;
        while (arrived.size() < kEach) {
            ASSERT_TRUE(inlet
                            .fetch({kEach - arrived.size(), 1'000'000}, std::chrono::seconds(1),
                                   never.fd(), arrived)
                            .ok());
        }
    };
    const auto old = make();
    take_all(*old);
    fixture_->remove_queue();
    fixture_->make_queue();
    const auto other = make();
    take_all(*other);
    std::vector<std::uint64_t> numbers(kEach);
    std::iota(numbers.begin(), numbers.end(), 1);
    static_cast<void>(old->acknowledge(numbers).ok());
    old->disconnect();
    other->disconnect();
    EXPECT_EQ(fixture_->left(), kEach);
}

TEST_P(QueueConformance, EndsWithWhatAHandlerSaysOnlyAPersonCanMend) {
    fixture_->publish(letters("orders", 10, 2));
    Running running(consumer(
        [&](const Transaction&, const Message&) {
            throw Error(ErrorCode::kConfigInvalid, Advice::kStop, "no account is set");
        },
        options()));
    ASSERT_TRUE(eventually(std::chrono::seconds(60), "it ends", [&] { return running.ended(); }));
    ASSERT_TRUE(running.error().has_value());
    EXPECT_EQ(running.error()->message, "no account is set");
    EXPECT_EQ(effects(), 0);
    running.stop();
    EXPECT_EQ(fixture_->left(), 10U);
}

TEST_P(QueueConformance, SaysHowManyWait) {
    fixture_->publish(letters("orders", 300, 10));
    auto chosen = options();
    chosen.max_in_flight = 50;
    std::atomic<bool> may_go = false;
    Running running(consumer(
        [&](const Transaction& transaction, const Message& message) {
            while (!may_go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            apply(transaction, message);
        },
        chosen));
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "the lag is known",
                           [&] { return running->lag() > 0 && running->lag() <= 300; }));
    may_go = true;
    ASSERT_TRUE(all_are_applied(300));
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "there is no lag",
                           [&] { return running->lag() == 0; }));
}

TEST_P(QueueConformance, WhatWaitsInTheQueueCountsOnceForAllMembers) {
    auto chosen = options();
    chosen.max_in_flight = 1;
    chosen.retry_base_ms = chosen.retry_max_ms = 3'600'000;
    const auto wait = [&](const Transaction&, const Message&) {
        throw Error(ErrorCode::kHandlerFailed, Advice::kRetryDestination, "it is away");
    };
    fixture_->publish(letters("orders", 100, 100));
    Running one(consumer(wait, chosen));
    Running two(consumer(wait, chosen));
    ASSERT_TRUE(eventually(std::chrono::seconds(60), "both say what they have", [&] {
        return db_->number(
                   "SELECT count(*) FROM outbox_inbox_stats WHERE member <> '' AND queue_lag > 0 "
                   "AND lag > 0") == 2;
    }));
    const auto consumers = operations_of(database_->url())->consumers();
    ASSERT_TRUE(consumers.ok());
    ASSERT_EQ(consumers->size(), 1U);
    // They do not look at the same time, and have a few each.
    EXPECT_GE(consumers->front().lag, 90);
    EXPECT_LE(consumers->front().lag, 110);
}

TEST_P(QueueConformance, ALetterThatEndsItsProcessIsTriedOncePerRequest) {
    auto sent = letters("orders", 1, 1);
    sent[0].value = "abort";
    fixture_->publish(sent);
    make_dead(1);
    db_->exec("UPDATE outbox_inbox_dead_letters SET retry_requested_at = died_at");
    Process first = member("first");
    ASSERT_TRUE(eventually(std::chrono::seconds(60), "it ends", [&] { return !first.running(); }));
    EXPECT_EQ(first.wait(std::chrono::seconds(1))->signal, SIGABRT) << first.stderr_text();
    Process second = member("second");
    ASSERT_TRUE(eventually(std::chrono::seconds(60), "it has looked at the letters", [&] {
        return !second.running() ||
               db_->number(
                   "SELECT count(*) FROM outbox_inbox_stats WHERE member <> '' "
                   "AND dead = 0") == 1;
    }));
    EXPECT_TRUE(second.running());
    EXPECT_EQ(second.stop().code, 0);
    EXPECT_EQ(db_->number("SELECT attempts FROM outbox_inbox_dead_letters "
                          "WHERE retry_requested_at IS NULL"),
              2);
}

TEST_P(QueueConformance, ALetterWhoseCommitFailsIsDeadAgain) {
    fixture_->publish(letters("orders", 1, 1));
    make_dead(1);
    const bool postgres = GetParam().database == Backend::kPostgres;
    if (postgres) {
        db_->exec("CREATE TABLE parents (id text PRIMARY KEY)");
        db_->exec(
            "CREATE TABLE children (id text REFERENCES parents DEFERRABLE "
            "INITIALLY DEFERRED)");
    }
    db_->exec("UPDATE outbox_inbox_dead_letters SET retry_requested_at = died_at");
    Running running(consumer(
        [&](const Transaction& transaction, const Message&) {
            transaction(postgres ? "INSERT INTO children VALUES ('of nobody')" : "ROLLBACK");
        },
        options()));
    ASSERT_TRUE(eventually(std::chrono::seconds(60), "it is dead again",
                           [&] { return running->stats().failed == 1; }));
    running.stop();
    EXPECT_EQ(db_->number("SELECT attempts FROM outbox_inbox_dead_letters "
                          "WHERE retry_requested_at IS NULL"),
              2);
    EXPECT_EQ(reported(ConsumerReport::What::kDeadLetter), 2);
}

TEST_P(QueueConformance, LettersThatWaitHoldUpNoOther) {
    fixture_->publish(letters("orders", 11, 11));
    make_dead(11);
    // Those that died at one time have no order.
    const bool postgres = GetParam().database == Backend::kPostgres;
    db_->exec(std::string("UPDATE outbox_inbox_dead_letters SET retry_requested_at = died_at - ") +
              (postgres ? "interval '1 hour'" : "3600000000"));
    const std::string last = "id-10";
    db_->exec(
        "UPDATE outbox_inbox_dead_letters SET retry_requested_at = "
        "(SELECT max(died_at) FROM outbox_inbox_dead_letters) WHERE "
        "message_id = 'id-10'");
    auto chosen = options();
    chosen.retry_base_ms = chosen.retry_max_ms = 3'600'000;
    std::atomic<int> tries = 0;
    Running running(consumer(
        [&](const Transaction& transaction, const Message& message) {
            if (message.id == last) return apply(transaction, message);
            ++tries;
            throw Error(ErrorCode::kHandlerFailed, Advice::kRetryDestination, "it is away");
        },
        chosen));
    EXPECT_TRUE(all_are_applied(1));
    running.stop();
    EXPECT_EQ(tries, 10) << "each waits for its time";
}

TEST_P(QueueOutage, LosesAndRepeatsNothingWhenTheBrokerGoesDownAndComesBack) {
    const auto sent = letters("orders", 2'000, 20);
    fixture_->comes_again_after(std::chrono::seconds(2));
    fixture_->publish(sent);
    Gate gate(500);
    Running running(consumer([&](const Transaction& transaction,
                                 const Message& message) { gate.pass(transaction, message); },
                             options_of_gate()));
    EXPECT_TRUE(
        eventually(std::chrono::seconds(60), "some are applied", [&] { return effects() > 200; }));
    EXPECT_LT(effects(), 2'000) << "it was too late";
    fixture_->go_down();
    gate.open();
    ASSERT_TRUE(eventually(std::chrono::seconds(60), "it says so",
                           [&] { return reported(ConsumerReport::What::kDisconnected) > 0; }));
    fixture_->come_back();
    ASSERT_TRUE(all_are_applied(sent.size())) << trouble();
    running.stop();
    EXPECT_EQ(fixture_->left(), 0U);
    EXPECT_EQ(missing_or_reordered(sent, applied()), "");
    EXPECT_EQ(effects(), 2'000);
}

TEST_P(QueueOutage, APasswordFileThatIsEmptyForAMomentIsWaitedFor) {
    const TemporaryFolder folder("password");
    const std::filesystem::path file = folder / "password";
    const auto write = [&](const std::string& text) {
        std::ofstream(file, std::ios::trunc) << text;
        using std::filesystem::perms;
        std::filesystem::permissions(file, perms::owner_read | perms::owner_write);
    };
    std::string url = fixture_->url();
    const std::string password = ":s3cret@";
    ASSERT_NE(url.find(password), std::string::npos);
    url.replace(url.find(password), password.size(), "@");
    url += "&password_file=" + file.string();
    write("");
    try {
        static_cast<void>(fixture_->queue(url));
        FAIL() << "at the start it is refused";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kAuthFailed) << error.what();
    }
    write("s3cret");
    fixture_->publish(letters("orders", 10, 2));
    Running running(consumer(apply, options(), url));
    ASSERT_TRUE(all_are_applied(10)) << trouble();
    fixture_->go_down();
    write("");
    fixture_->come_back();
    ASSERT_TRUE(eventually(std::chrono::seconds(60), "it says so", [&] {
        return running.ended() || trouble().find("it is empty") != std::string::npos;
    })) << trouble();
    ASSERT_FALSE(running.ended());
    write("s3cret");
    auto more = letters("orders", 20, 2);
    more.erase(more.begin(), more.begin() + 10);
    fixture_->publish(more);
    EXPECT_TRUE(all_are_applied(20)) << trouble();
}

TEST_P(QueueDeliveries, AMessageThatEndsItsMembersIsGivenUpAndTakesNoOtherWithIt) {
    auto sent = letters("orders", 300, 10);
    sent[77].value = "abort";
    sent[213].value = "abort";
    fixture_->comes_again_after(std::chrono::seconds(2));
    fixture_->publish(sent);
    int ends = 0;
    while (ends < 40) {
        Process one = member("one", 0, {"max_deliveries=4"});
        const bool done =
            static_cast<bool>(eventually(std::chrono::seconds(60), "it ends, or all is done", [&] {
                return !one.running() || (effects() == 298 && dead().size() == 2);
            }));
        ASSERT_TRUE(done) << one.stderr_text();
        if (one.running()) {
            EXPECT_EQ(one.stop().code, 0);
            break;
        }
        EXPECT_EQ(one.wait(std::chrono::seconds(1))->signal, SIGABRT) << one.stderr_text();
        ++ends;
    }
    EXPECT_GE(ends, 4);
    EXPECT_EQ(dead(), (std::vector<std::string>{"id-213", "id-77"}));
    auto rest = sent;
    rest.erase(rest.begin() + 213);
    rest.erase(rest.begin() + 77);
    EXPECT_EQ(missing_after_deaths(rest), "");
    EXPECT_EQ(effects(), 298);
    EXPECT_EQ(fixture_->left(), 0U);
}

// More often than a message that ends its members is handed over, begun or only waiting.
TEST_P(QueueDeliveries, HandoversOfWhichNoneEndedAMemberGiveNothingUp) {
    const auto sent = letters("orders", 20, 5);
    fixture_->comes_again_after(std::chrono::seconds(2));
    fixture_->publish(sent);
    auto chosen = options();
    chosen.max_deliveries = 4;
    for (int i = 0; i < 8; ++i) {
        Running one(consumer(
            [&](const Transaction&, const Message&) {
                throw Error(ErrorCode::kConfigInvalid, Advice::kStop, "no account is set");
            },
            chosen));
        ASSERT_TRUE(eventually(std::chrono::seconds(60), "it ends", [&] { return one.ended(); }));
        ASSERT_EQ(dead(), std::vector<std::string>{}) << "after " << i << " others";
        EXPECT_EQ(one.error()->message, "no account is set");
    }
    Running last(consumer(apply, chosen));
    ASSERT_TRUE(are_settled(last, 20));
    last.stop();
    EXPECT_EQ(missing_after_deaths(sent), "");
    EXPECT_EQ(dead(), std::vector<std::string>{});
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_begun"), 0);
    EXPECT_EQ(fixture_->left(), 0U);
}

TEST_P(QueueTopics, ATopicThatIsNoTextConcernsItsOwnMessageAlone) {
    auto sent = letters("orders", 4, 1);
    sent[0].value = "poison";
    sent[1].id = "";
    fixture_->publish_under_no_text(sent);
    auto chosen = options();
    chosen.max_attempts = 2;
    std::atomic<bool> is_text = true;
    Running running(consumer(
        [&](const Transaction& transaction, const Message& message) {
            if (!is_utf8(message.topic)) is_text = false;
            if (message.payload == "poison") throw std::runtime_error("it is poison");
            apply(transaction, message);
        },
        chosen));
    ASSERT_TRUE(are_settled(running, 4));
    running.stop();
    EXPECT_TRUE(is_text);
    EXPECT_EQ(fixture_->left(), 0U);
    EXPECT_EQ(effects(), 2);
    EXPECT_EQ(dead().size(), 2U);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_dead_letters WHERE key = 'key-0' "
                          "AND (topic LIKE '%?%' OR topic LIKE '%\xEF\xBF\xBD%')"),
              2);
}

}  // namespace outbox::test
