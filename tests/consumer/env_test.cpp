// The receiving side on a clock and a seed that a test gave it: the code of the runners and the
// stores, real databases, time that moves by hand.

#include <array>
#include <cstdio>
#include <deque>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <poll.h>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <outbox/adapters/sqlite_idempotency.h>
#include <outbox/producer/migrate.h>

#include "adapters/appliers.h"
#include "consumer/queue/consumer.h"
#include "consumer/queue/inlet.h"
#include "consumer/queue/link.h"
#include "databases/postgres/receive/broker_store.h"
#include "databases/postgres/receive/mailbox.h"
#include "databases/sqlite/receive/broker_store.h"
#include "databases/sqlite/receive/mailbox.h"
#include "mailbox/loop.h"
#include "tests/consumer/database.h"
#include "tests/support/eventually.h"
#include "tests/support/hand_clock.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using consumer::Env;
using consumer::MailboxLoop;
using consumer::MailboxStore;
using consumer::MakeApplier;
using testing::ElementsAre;

constexpr std::int64_t kSecondUs = 1'000'000;
constexpr std::int64_t kDayUs = 86'400 * kSecondUs;
constexpr std::uint64_t kSeed = 7;

using Handler = std::function<void(std::span<const Message>)>;

// A database whose time, too, is the clock's.
class Side {
  public:
    Side() = default;
    Side(const Side&) = delete;
    Side& operator=(const Side&) = delete;
    virtual ~Side() = default;

    [[nodiscard]] const core::Clock& clock() const { return clock_; }
    virtual void advance_us(std::int64_t us) { clock_.advance_us(us); }
    virtual std::unique_ptr<MailboxStore> open(const MailboxOptions& options) = 0;
    virtual MakeApplier appliers(const std::string& consumer, Handler handler) = 0;
    virtual Database::Connection& db() = 0;
    // Now, as a column of the database has it.
    virtual std::string now() = 0;
    // How many ids of messages went.
    std::int64_t prune(std::int64_t retention_s = 30 * kDayUs / kSecondUs) {
        const auto sql = open(consumer::checked({}))->inbox().opener()().value_or_throw();
        return sql->prune(retention_s, "").value_or_throw().messages;
    }
    // So ids count as old.
    void another_consumer_gets_a_message() {
        db().exec(
            "INSERT INTO outbox_inbox (consumer, message_id, message_time) VALUES ('other', '" +
            std::to_string(clock_.wall_us()) + "', " + now() + ")");
    }

  protected:
    HandClock clock_;
};

// What stands for clock_timestamp() there reads a table.
class PostgresSide final : public Side {
  public:
    PostgresSide() {
        db().exec(
            "CREATE TABLE hand_time (us bigint); INSERT INTO hand_time VALUES (0); "
            "CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "
            "$$ SELECT timestamptz 'epoch' + us * interval '1 microsecond' FROM public.hand_time "
            "$$");
        advance_us(0);
        migrate(url_);
        db().exec(
            "ALTER FUNCTION inbox_accept SET search_path = public, pg_catalog; "
            "ALTER FUNCTION inbox_prune SET search_path = public, pg_catalog; "
            "ALTER TABLE outbox_inbox_stats ALTER updated_at SET DEFAULT public.clock_timestamp()");
    }
    void advance_us(std::int64_t us) override {
        Side::advance_us(us);
        db().exec("UPDATE hand_time SET us = " + std::to_string(clock_.wall_us()));
    }
    std::unique_ptr<MailboxStore> open(const MailboxOptions& options) override {
        return std::make_unique<consumer::LibpqMailbox>(url_, options, clock_);
    }
    MakeApplier appliers(const std::string& consumer, Handler handler) override {
        return consumer::appliers<consumer::LibpqBrokerStore>(
            url_, {.consumer = consumer, .connect_timeout_s = 60},
            [handler = std::move(handler)](PGconn*, std::span<const Message> messages) {
                handler(messages);
            });
    }
    Database::Connection& db() override { return *db_; }
    std::string now() override { return "public.clock_timestamp()"; }

  private:
    PostgresDatabase database_;
    std::string url_ = database_.url() + "?options=-c%20search_path%3Dpublic,pg_catalog";
    std::unique_ptr<Database::Connection> db_ = database_.connect();
};

class SqliteSide final : public Side {
  public:
    SqliteSide() { migrate(database_.url()); }
    std::unique_ptr<MailboxStore> open(const MailboxOptions& options) override {
        return std::make_unique<consumer::SqliteMailbox>(database_.path(), options, clock_);
    }
    MakeApplier appliers(const std::string& consumer, Handler handler) override {
        return consumer::appliers<consumer::SqliteBrokerStore>(
            database_.path(), {.consumer = consumer, .connect_timeout_s = 60},
            [handler = std::move(handler)](sqlite3*, std::span<const Message> messages) {
                handler(messages);
            });
    }
    Database::Connection& db() override { return *db_; }
    std::string now() override { return std::to_string(clock_.wall_us()); }

  private:
    SqliteDatabase database_;
    std::unique_ptr<Database::Connection> db_ = database_.connect();
};

class ConsumerEnv : public testing::TestWithParam<Backend> {
  protected:
    ConsumerEnv() {
        if (GetParam() == Backend::kPostgres) {
            side_ = std::make_unique<PostgresSide>();
        } else {
            side_ = std::make_unique<SqliteSide>();
        }
    }

    static MailboxOptions chosen() {
        MailboxOptions options;
        options.connect_timeout_s = 60;
        options.retry_base_ms = 10'000;
        options.retry_max_ms = 80'000;
        return consumer::checked(options);
    }
    // Each says what it was handed.
    std::unique_ptr<MailboxLoop> loop(const MailboxOptions& options, std::uint64_t seed = kSeed) {
        return std::make_unique<MailboxLoop>(
            side_->open(options),
            [this](std::span<const Message> messages) {
                for (const Message& message : messages) {
                    handed_.emplace_back(message.id);
                    handler_(message);
                }
            },
            options, Env{side_->clock(), seed});
    }
    void put(const std::string& id) {
        side_->db().exec("INSERT INTO outbox_mailbox (id, topic, key) VALUES ('" + id +
                         "', 't', 'k')");
    }
    // A UUIDv7 of so long from now.
    std::string id_from(std::int64_t ahead_us) {
        constexpr int kLowBits = 16;
        const std::int64_t ms = (side_->clock().wall_us() + ahead_us) / 1000;
        std::array<char, 40> id{};
        std::snprintf(id.data(), id.size(), "%08llx-%04llx-7000-8000-%012d",
                      static_cast<unsigned long long>(ms >> kLowBits),
                      static_cast<unsigned long long>(ms & 0xFFFF), ++put_);
        return id.data();
    }
    std::size_t handed(MailboxLoop& member) {
        member.drain();
        return handed_.size();
    }
    // How long after another a message that always fails is handed over, in milliseconds.
    std::vector<std::int64_t> waits(std::uint64_t seed) {
        MailboxOptions options = chosen();
        options.retry_base_ms = 20;
        options.retry_max_ms = 40;
        options.max_attempts = 3;
        handler_ = [](const Message&) { throw std::runtime_error("no stock"); };
        handed_.clear();
        const auto member = loop(options, seed);
        put("seed " + std::to_string(seed) + " " + std::to_string(++put_));
        handed(*member);
        std::vector<std::int64_t> out;
        for (std::int64_t ms = 1;
             out.size() + 1 < options.max_attempts && ms <= options.retry_max_ms; ++ms) {
            side_->advance_us(1'000);
            if (handed(*member) <= out.size() + 1) continue;
            out.push_back(ms);
            ms = 0;
        }
        return out;
    }

    std::unique_ptr<Side> side_;
    std::vector<std::string> handed_;
    std::function<void(const Message&)> handler_ = [](const Message&) {};
    int put_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Databases, ConsumerEnv,
                         testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& backend) { return backend_name(backend.param); });

TEST_P(ConsumerEnv, AFailedMessageWaitsAsLongAsTheSeedSaysByTheClock) {
    handler_ = [this](const Message&) {
        if (handed_.size() < 2) throw std::runtime_error("no stock");
    };
    const core::RetryPolicy policy{chosen().retry_base_ms, chosen().retry_max_ms, 5};
    const std::int64_t wait_us = policy.delay_us(1, std::mt19937_64(kSeed)());
    const auto member = loop(chosen());
    put("a");
    EXPECT_EQ(handed(*member), 1U);
    side_->advance_us(wait_us - 1);
    EXPECT_EQ(handed(*member), 1U);
    side_->advance_us(1);
    EXPECT_EQ(handed(*member), 2U);
    EXPECT_EQ(member->stats().applied, 1U);
}

TEST_P(ConsumerEnv, TheSameSeedHasTheSameWaitsAndAnotherSeedOthers) {
    const std::vector<std::int64_t> one = waits(1);
    ASSERT_EQ(one.size(), 2U);
    EXPECT_EQ(waits(1), one);
    EXPECT_NE(waits(2), one);
}

TEST_P(ConsumerEnv, ALetterWhoseTryDoesNotCountWaitsByTheClock) {
    MailboxOptions once = chosen();
    once.max_attempts = 1;
    handler_ = [](const Message&) { throw std::runtime_error("no stock"); };
    const auto member = loop(once);
    put("a");
    EXPECT_EQ(handed(*member), 1U);
    side_->db().exec("UPDATE outbox_inbox_dead_letters SET retry_requested_at = " + side_->now());
    handler_ = [this](const Message&) {
        if (handed_.size() < 3) {
            throw Error(ErrorCode::kConnectionLost, Advice::kRetryDestination, "stock is away");
        }
    };
    side_->advance_us(kSecondUs);  // between looks at letters
    EXPECT_EQ(handed(*member), 2U);
    side_->advance_us(4 * kSecondUs);  // it waits for five to ten
    EXPECT_EQ(handed(*member), 2U);
    side_->advance_us(7 * kSecondUs);
    EXPECT_EQ(handed(*member), 3U);
    EXPECT_EQ(member->stats().applied, 1U);
}

// What one of these forgot was applied again once the clock was right, and what was sent meanwhile
// was quarantined.
TEST_P(ConsumerEnv, AClockThatIsAheadForgetsNoMessageThatIsYoung) {
    const auto member = loop(chosen());
    const std::string young = id_from(0);
    put(young);
    ASSERT_EQ(handed(*member), 1U);
    side_->advance_us(3'650 * kDayUs);
    side_->prune();
    side_->advance_us(-3'650 * kDayUs);
    put(young);
    EXPECT_EQ(handed(*member), 1U);
    EXPECT_EQ(member->stats().repeats, 1U);
    put(id_from(-7'200 * kSecondUs));
    EXPECT_EQ(handed(*member), 2U);
    EXPECT_EQ(member->stats().dead, 0U);
}

// Where its producers go by that clock, too, as in one cluster: messages of the future come, before
// which nothing is young. What went by them is quarantined, and nothing else.
TEST_P(ConsumerEnv, AFloorIsNoHigherThanTheNewestIdThatWent) {
    const auto member = loop(chosen());
    put(id_from(0));
    ASSERT_EQ(handed(*member), 1U);
    side_->advance_us(3'650 * kDayUs);
    put(id_from(0));
    ASSERT_EQ(handed(*member), 2U);
    EXPECT_EQ(side_->prune(), 1);
    side_->advance_us(-3'650 * kDayUs + 7'200 * kSecondUs);
    put(id_from(-7'201 * kSecondUs));
    EXPECT_EQ(handed(*member), 2U);
    EXPECT_EQ(member->stats().dead, 1U);
    put(id_from(-7'199 * kSecondUs));
    EXPECT_EQ(handed(*member), 3U);
}

// Else it would forget nothing of a consumer that gets few messages.
TEST_P(ConsumerEnv, AnIdGoesWithTheNextMessageOfAnyConsumer) {
    const auto member = loop(chosen());
    put(id_from(0));
    ASSERT_EQ(handed(*member), 1U);
    side_->advance_us(100 * kDayUs);
    EXPECT_EQ(side_->prune(), 0);
    side_->another_consumer_gets_a_message();
    EXPECT_EQ(side_->prune(), 1);
}

TEST_P(ConsumerEnv, TheFiguresOfAMemberAreTakenOverOnceItIsGone) {
    const auto gone = side_->open(chosen());
    const auto there = side_->open(chosen());
    const auto members = [this] {
        return side_->db().value(
            "SELECT count(*) || ' ' || sum(applied) FROM outbox_inbox_stats WHERE member <> ''");
    };
    consumer::MemberStats three;
    three.applied = 3;
    consumer::MemberStats four;
    four.applied = 4;
    ASSERT_TRUE(gone->inbox().report(three).ok());
    side_->advance_us(consumer::kMemberGoneS * kSecondUs);
    ASSERT_TRUE(there->inbox().report(four).ok());
    EXPECT_EQ(members(), "2 7");
    side_->advance_us(1);
    ASSERT_TRUE(there->inbox().report(four).ok());
    EXPECT_EQ(members(), "1 4");
    EXPECT_EQ(side_->db().value("SELECT applied FROM outbox_inbox_stats WHERE member = ''"), "3");
}

TEST_P(ConsumerEnv, AnIdIsKeptForItsRetentionAndNeverTakenForANewOneThen) {
    constexpr std::int64_t kRetentionS = consumer::kLeastRetentionS;
    const std::string id = id_from(0);
    const auto member = loop(chosen());
    put(id);
    EXPECT_EQ(handed(*member), 1U);
    side_->advance_us((kRetentionS - 1) * kSecondUs);
    side_->another_consumer_gets_a_message();
    EXPECT_EQ(side_->prune(kRetentionS), 0);
    // To the minute.
    side_->advance_us(62 * kSecondUs);
    side_->another_consumer_gets_a_message();
    EXPECT_EQ(side_->prune(kRetentionS), 1);
    put(id);
    EXPECT_EQ(handed(*member), 1U);
    EXPECT_EQ(side_->db().value("SELECT error_code FROM outbox_inbox_dead_letters"),
              "OB_QUARANTINED");
}

TEST_P(ConsumerEnv, CallsOfAHandlerHaveItsConsumersClock) {
    const core::Clock* in_handler = nullptr;
    handler_ = [&](const Message&) {
        in_handler = &consumer::callers_clock();
        throw std::runtime_error("no stock");
    };
    const auto member = loop(chosen());
    put("a");
    EXPECT_EQ(handed(*member), 1U);
    EXPECT_EQ(in_handler, &side_->clock());
    EXPECT_EQ(&consumer::callers_clock(), &consumer::machine_clock());
}

// One waits while the time that it took is made up for, and the other is tried meanwhile.
TEST(ConsumerEnvOfPostgres, MessagesThatEndTheirSessionsByTurnsAreGivenUpOn) {
    PostgresSide side;
    MailboxOptions options;
    options.connect_timeout_s = 60;
    options.max_attempts = 2;
    options.retry_base_ms = options.retry_max_ms = 1;
    int handed = 0;
    const Handler handler = [&](std::span<const Message> /*messages*/) {
        side.advance_us(kSecondUs / 10);
        if (++handed == 1) throw std::runtime_error("no stock");
        side.db().exec(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name "
            "= 'outbox consumer' AND datname = current_database()");
    };
    const MailboxOptions chosen = consumer::checked(options);
    MailboxLoop member(side.open(chosen), handler, chosen, Env{side.clock(), kSeed});
    side.db().exec("INSERT INTO outbox_mailbox (id, topic, key) VALUES ('a', 't', 'a')");
    side.db().exec("INSERT INTO outbox_mailbox (id, topic, key) VALUES ('b', 't', 'b')");
    constexpr int kEnough = 40;
    while (handed < kEnough && side.db().value("SELECT count(*) FROM outbox_mailbox") != "0") {
        try {
            member.drain();
        } catch (const Error& error) {
            EXPECT_EQ(error.advice(), Advice::kRetryDestination) << error.what();
        }
        side.advance_us(kSecondUs / 100);
    }
    EXPECT_LT(handed, kEnough);
    EXPECT_EQ(side.db().value("SELECT count(*) FROM outbox_inbox_dead_letters"), "2");
}

// Messages that a test hands over one by one.
class Line {
  public:
    void put(const std::string& id) {
        {
            const std::lock_guard lock(mutex_);
            consumer::Arrival arrival;
            arrival.number = ++last_;
            arrival.where = arrival.id = id;
            arrival.topic = "t";
            arrival.key = id;
            arrivals_.push_back(std::move(arrival));
        }
        news_.ring();
    }
    std::size_t acknowledged() {
        const std::lock_guard lock(mutex_);
        return acknowledged_;
    }
    Queue queue() {
        return {[this](const Queue::Limits&) { return std::make_unique<End>(*this); }};
    }

  private:
    class End final : public consumer::Inlet {
      public:
        explicit End(Line& line) : line_(line) {}
        Status connect() override { return {}; }
        void disconnect() override {}
        Status fetch(consumer::Amount room, std::chrono::milliseconds most, int wake_fd,
                     std::vector<consumer::Arrival>& out) override {
            std::array<pollfd, 2> awaited{pollfd{line_.news_.fd(), POLLIN, 0},
                                          pollfd{wake_fd, POLLIN, 0}};
            ::poll(awaited.data(), awaited.size(), static_cast<int>(most.count()));
            const std::lock_guard lock(line_.mutex_);
            line_.news_.clear();
            for (; !line_.arrivals_.empty() && out.size() < room.records;
                 line_.arrivals_.pop_front()) {
                out.push_back(std::move(line_.arrivals_.front()));
            }
            return {};
        }
        Status acknowledge(std::span<const std::uint64_t> numbers) override {
            const std::lock_guard lock(line_.mutex_);
            line_.acknowledged_ += numbers.size();
            return {};
        }
        [[nodiscard]] std::string queue() const override { return {}; }
        Result<std::optional<std::int64_t>> waiting() override {
            return std::optional<std::int64_t>(0);
        }

      private:
        Line& line_;
    };

    consumer::WakeUp news_;
    std::mutex mutex_;
    std::deque<consumer::Arrival> arrivals_;
    std::uint64_t last_ = 0;
    std::size_t acknowledged_ = 0;
};

TEST_P(ConsumerEnv, AWorkerHandsAFailedMessageOverOnceTheClockSaysSo) {
    constexpr std::int64_t kHourMs = 3'600'000;
    Line line;
    QueueConsumerOptions options;
    options.consumer = "c";
    options.workers = 1;
    options.retry_base_ms = options.retry_max_ms = kHourMs;
    options.max_deliveries = 0;
    options.connect_timeout_s = 60;
    std::mutex mutex;
    std::vector<std::string> handed;
    const Handler handler = [&](std::span<const Message> messages) {
        for (const Message& message : messages) {
            const std::lock_guard lock(mutex);
            handed.emplace_back(message.id);
            EXPECT_EQ(&consumer::callers_clock(), &side_->clock());
            if (handed.size() == 1) throw std::runtime_error("no stock");
        }
    };
    QueueConsumer member = consumer::make_queue_consumer(
        line.queue(), options,
        [&](const QueueConsumerOptions&) { return side_->appliers("c", handler); },
        Env{side_->clock(), kSeed});
    std::thread running([&] { member.run(); });
    const auto wait_for = [&](std::size_t messages) {
        return eventually(60s, std::to_string(messages) + " are acknowledged",
                          [&] { return line.acknowledged() == messages; });
    };
    line.put("a");
    EXPECT_TRUE(eventually(60s, "one failed", [&] { return member.stats().failed == 1; }));
    line.put("b");
    EXPECT_TRUE(wait_for(1));
    side_->advance_us(kHourMs * 1000 / 2 - 1);
    std::size_t acknowledged = 1;
    for (const char* id : {"c", "d", "e"}) {
        line.put(id);
        EXPECT_TRUE(wait_for(++acknowledged));
    }
    side_->advance_us(kHourMs * 1000 / 2 + 1);
    EXPECT_TRUE(wait_for(5));
    member.stop();
    running.join();
    EXPECT_THAT(handed, ElementsAre("a", "b", "c", "d", "e", "a"));
}

// SQLite has no clock of its own that a claim could go by.
TEST(CallersClock, ALeasedClaimIsTakenOverOnceItHasRunOut) {
    constexpr std::int64_t kLeaseMs = 60'000;
    const SqliteDatabase database;
    migrate(database.url());
    Sqlite db(database.path());
    HandClock clock;
    const consumer::CallersClock scope(clock);
    ClaimOptions leased;
    leased.lease_ms = kLeaseMs;
    IdempotentRequest request;
    request.scope = "user";
    request.key = "key";
    const auto claim = [&] {
        db.exec("BEGIN IMMEDIATE");
        IdempotencyClaim made = claim_key(db.handle(), request, leased);
        db.exec("COMMIT");
        return made;
    };
    EXPECT_TRUE(claim().is_new);
    clock.advance_us(kLeaseMs * 1000 - 1);
    EXPECT_EQ(claim().answer.what, IdempotentAnswer::What::kRunning);
    clock.advance_us(1);
    EXPECT_EQ(claim().attempt, 2U);
}

}  // namespace
}  // namespace outbox::test
