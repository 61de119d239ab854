// Records of a real broker, each exactly once in effect.

#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <thread>

#include "tests/consumer/kafka_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/full_run.h"
#include "tests/support/process.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using What = ConsumerReport::What;
using Mode = KafkaConsumerOptions::Mode;
using Writer = KafkaWriter;

INSTANTIATE_TEST_SUITE_P(Databases, KafkaConsumerTest,
                         testing::ValuesIn(and_in_full({Backend::kPostgres}, {Backend::kSqlite})),
                         [](const auto& test) { return backend_name(test.param); });

class KafkaConsumerOnPostgres : public KafkaConsumerTest {};
INSTANTIATE_TEST_SUITE_P(Database, KafkaConsumerOnPostgres, testing::Values(Backend::kPostgres),
                         [](const auto& test) { return backend_name(test.param); });

TEST_P(KafkaConsumerTest, AppliesEveryRecordOnceInTheOrderOfItsKeyAndCommitsItsOffsets) {
    constexpr int kKeys = 7;
    constexpr int kRecords = 350;
    for (int i = 0; i < kRecords; ++i) {
        const std::string id = "id-" + std::to_string(i);
        writer_.write(topic_, id, "k-" + std::to_string(i % kKeys), std::to_string(i));
        if (i % 5 == 0) writer_.write(topic_, id, "k-" + std::to_string(i % kKeys));  // a repeat
    }
    writer_.flush();
    {
        Running member(consumer(apply, options()));
        ASSERT_TRUE(eventually(60s, "all are applied or dropped", [&] {
            return member->stats().applied + member->stats().repeats == kRecords * 6 / 5;
        }));
        EXPECT_EQ(member->stats().repeats, kRecords / 5U);
    }
    EXPECT_EQ(effects(), kRecords);
    EXPECT_EQ(out_of_order(), 0);
    // A second start finds nothing to do: the offsets are the group's.
    writer_.write(topic_, "last", "k-0");
    writer_.flush();
    Running again(consumer(apply, options()));
    ASSERT_TRUE(
        eventually(60s, "the last is applied", [&] { return again->stats().applied == 1; }));
    EXPECT_EQ(again->stats().repeats, 0U);
}

TEST_P(KafkaConsumerTest, HandsOverIdKeyPayloadAndHeaders) {
    writer_.write(topic_, "id-1", "k", "payload");
    writer_.flush();
    std::atomic<bool> seen = false;
    Running member(consumer(
        [&](const Transaction&, const Message& message) {
            EXPECT_EQ(message.id, "id-1");
            EXPECT_EQ(message.key, "k");
            EXPECT_EQ(message.topic, topic_);
            EXPECT_EQ(message.payload, "payload");
            EXPECT_EQ(message.header("type"), "OrderCreated");
            EXPECT_EQ(message.position, 0);
            seen = true;
        },
        options()));
    EXPECT_TRUE(eventually(60s, "it is handed over", [&] { return seen.load(); }));
}

TEST_P(KafkaConsumerTest, APoisonedRecordDelaysItsKeyOnlyAndEndsInTheDeadLetters) {
    for (const char* id : {"poison", "behind"}) writer_.write(topic_, id, "slow");
    writer_.write(topic_, "", "no-id");
    for (int i = 0; i < 20; ++i) {
        writer_.write(topic_, "id-" + std::to_string(i), "k-" + std::to_string(i));
    }
    writer_.flush();
    std::atomic<bool> healed = false;
    Running member(consumer(
        [&](const Transaction& transaction, const Message& message) {
            apply(transaction, message);
            if (message.id == "poison" && !healed) throw std::runtime_error("no stock");
        },
        options()));
    ASSERT_TRUE(eventually(60s, "all are dealt with", [&] {
        return member->stats().applied == 21 && member->stats().dead == 2;
    }));
    EXPECT_THAT(ids_of("slow"), ElementsAre("behind"));
    EXPECT_EQ(db_->value("SELECT attempts || ' ' || error FROM outbox_inbox_dead_letters "
                         "WHERE message_id = 'poison'"),
              "5 OB_HANDLER_FAILED: no stock");
    EXPECT_THAT(db_->value("SELECT message_id || ' ' || error FROM outbox_inbox_dead_letters "
                           "WHERE key = 'no-id'"),
                testing::AllOf(HasSubstr(topic_ + "/"), HasSubstr("OB_INVALID_EVENT"),
                               HasSubstr("has no id")));
    healed = true;
    db_->exec(
        "UPDATE outbox_inbox_dead_letters SET retry_requested_at = CURRENT_TIMESTAMP "
        "WHERE message_id = 'poison'");
    ASSERT_TRUE(eventually(60s, "the dead letter is applied", [&] { return effects() == 22; }));
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_dead_letters"), 1);
}

TEST_P(KafkaConsumerTest, TwoMembersOfWhichOneIsKilledInMidBatchApplyNothingTwice) {
    constexpr int kKeys = 50;
    int records = 0;
    const auto write_more = [&](int count) {
        for (const int end = records + count; records < end; ++records) {
            writer_.write(topic_, "id-" + std::to_string(records),
                          "k-" + std::to_string(records % kKeys), std::to_string(records));
        }
        writer_.flush();
    };
    write_more(4'000);
    const auto start = [&](const std::string& name) {
        return std::make_unique<Process>(
            ProcessOptions{.command = {KAFKA_MEMBER, shared_kafka().bootstrap(), "stock", topic_,
                                       database_->url(), name, "500"}});
    };
    const auto by = [&](const std::string& member) {
        return db_->number("SELECT count(*) FROM effects WHERE member = '" + member + "'");
    };
    auto doomed = start("a");
    auto survivor = start("b");
    // The one that comes first may be through before the other has its partitions.
    ASSERT_TRUE(eventually(60s, "both apply records", [&] {
        write_more(10);
        return by("a") > 50 && by("b") > 50;
    }));
    if (GetParam() == Backend::kPostgres) {
        ASSERT_TRUE(eventually(60s, "a transaction of the doomed one is under way", [&] {
            write_more(10);  // both may be through with what there was
            return db_->number(
                       "SELECT count(*) FROM pg_stat_activity WHERE datname = "
                       "current_database() AND state = 'idle in transaction'") > 0;
        }));
    }
    doomed->kill(SIGKILL);
    ASSERT_TRUE(
        eventually(120s, "the survivor applies the rest", [&] { return effects() >= records; }));
    EXPECT_EQ(survivor->stop(), (ExitStatus{0, 0})) << survivor->stderr_text();
    EXPECT_EQ(effects(), records);
    EXPECT_EQ(distinct_effects(), records);
    EXPECT_EQ(out_of_order(), 0);
}

TEST_P(KafkaConsumerTest, AMemberThatStopsHandsItsPartitionsOverAndNothingIsAppliedTwice) {
    constexpr int kRecords = 2'000;
    for (int i = 0; i < kRecords; ++i) {
        writer_.write(topic_, "id-" + std::to_string(i), "k-" + std::to_string(i % 20));
    }
    writer_.flush();
    Running first(consumer(apply, options()));
    ASSERT_TRUE(eventually(60s, "it began", [&] { return first->stats().applied > 100; }));
    Running second(consumer(apply, options()));
    ASSERT_TRUE(
        eventually(60s, "the second got partitions", [&] { return reported(What::kActive) >= 2; }));
    first.stop();
    ASSERT_TRUE(eventually(60s, "all are applied", [&] { return effects() == kRecords; }));
    second.stop();
    EXPECT_EQ(effects(), kRecords);
    EXPECT_EQ(distinct_effects(), kRecords);
    EXPECT_EQ(first->stats().applied + second->stats().applied, kRecords);
}

TEST_P(KafkaConsumerTest, LosesAndRepeatsNothingWhenTheBrokerGoesDownAndComesBack) {
    constexpr int kRecords = 2'000;
    const auto write = [&](int from, int to) {
        for (int i = from; i < to; ++i) {
            writer_.write(topic_, "id-" + std::to_string(i), "k-" + std::to_string(i % 20),
                          std::to_string(i));
        }
        writer_.flush();
    };
    write(0, kRecords / 2);
    auto small = options();
    small.transaction_size = 50;
    std::atomic<int> begun = 0;
    std::atomic<bool> open = false;
    Running member(consumer(
        [&](const Transaction& transaction, const Message& message) {
            if (++begun > kRecords / 4) open.wait(false);
            apply(transaction, message);
        },
        small));
    EXPECT_TRUE(eventually(60s, "some are applied", [&] { return effects() > kRecords / 8; }));
    EXPECT_LT(effects(), kRecords / 2) << "it was too late";
    shared_kafka().kill();
    open = true;
    open.notify_all();
    EXPECT_TRUE(eventually(60s, "it says so", [&] { return reported(What::kDisconnected) > 0; }));
    shared_kafka().start();
    // The member may have had all the others when the broker went.
    write(kRecords / 2, kRecords);
    ASSERT_TRUE(eventually(60s, "all are applied", [&] { return effects() >= kRecords; }));
    member.stop();
    EXPECT_EQ(effects(), kRecords);
    EXPECT_EQ(distinct_effects(), kRecords);
    EXPECT_EQ(out_of_order(), 0);
}

TEST_P(KafkaConsumerTest, WaitsForATopicThatIsNotThere) {
    auto later = options();
    later.topics = {topic_ + "-later"};
    later.kafka = {{"topic.metadata.refresh.interval.ms", "500"}};
    Running member(consumer(apply, later));
    EXPECT_TRUE(eventually(60s, "it says so", [&] { return reported(What::kDisconnected) > 0; }));
    create_topic(shared_kafka().bootstrap(), later.topics[0], 2);
    writer_.write(later.topics[0], "id", "k");
    writer_.flush();
    EXPECT_TRUE(eventually(120s, "it is applied", [&] { return effects() == 1; }));
    EXPECT_FALSE(member.ended());
}

TEST_P(KafkaConsumerOnPostgres, ASlowHandlerKeepsItsPartitions) {
    auto slow = options();
    slow.kafka = {{"session.timeout.ms", "6000"}, {"max.poll.interval.ms", "6000"}};
    slow.max_in_flight = 2;
    slow.transaction_size = 1;
    for (int i = 0; i < 6; ++i) writer_.write(topic_, "id-" + std::to_string(i), "k");
    writer_.flush();
    Running member(consumer(
        [&](const Transaction& transaction, const Message& message) {
            if (message.id == "id-0") transaction("SELECT pg_sleep(8)");
            apply(transaction, message);
        },
        slow));
    ASSERT_TRUE(eventually(60s, "all are applied", [&] { return effects() == 6; }));
    EXPECT_EQ(member->stats().repeats, 0U);
    EXPECT_EQ(reported(What::kStandby), 0);
}

TEST_P(KafkaConsumerOnPostgres, ManyFailingKeysLeaveTheOthersTheirShare) {
    constexpr int kFailing = 30;
    constexpr int kHealthy = 300;
    for (int i = 0; i < kFailing; ++i) {
        writer_.write(topic_, "bad-" + std::to_string(i), "bad-" + std::to_string(i));
    }
    writer_.flush();
    auto chosen = options();
    chosen.retry_base_ms = chosen.retry_max_ms = 1;
    chosen.workers = 1;
    chosen.transaction_size = 10;
    std::atomic<int> failures = 0;
    Running member(consumer(
        [&](const Transaction& transaction, const Message& message) {
            if (message.id.starts_with("bad")) {
                ++failures;
                // What it needs is down: it never counts, and is due again before the next has
                // failed.
                transaction("SELECT pg_sleep(0.02)");
                throw Error(ErrorCode::kSinkUnavailable, Advice::kRetryDestination, "mail is down");
            }
            apply(transaction, message);
        },
        chosen));
    ASSERT_TRUE(eventually(60s, "all fail", [&] { return failures > 2 * kFailing; }));
    for (int i = 0; i < kHealthy; ++i) {
        writer_.write(topic_, "good-" + std::to_string(i), "good-" + std::to_string(i));
    }
    writer_.flush();
    ASSERT_TRUE(eventually(60s, "the healthy are applied", [&] { return effects() == kHealthy; }));
    const int seen = failures;
    EXPECT_TRUE(eventually(60s, "the others are tried", [&] { return failures > seen; }));
}

// However long each takes to fail: an attempt is followed by as much time for the healthy.
TEST_P(KafkaConsumerOnPostgres, KeysThatFailSlowlyDoNotKeepTheHealthyWaiting) {
    constexpr int kFailing = 30;
    constexpr int kHealthy = 1'000;
    auto chosen = options();
    chosen.workers = 1;
    chosen.transaction_size = 1;
    std::atomic<int> failures = 0;
    std::mutex mutex;
    std::map<std::string, int> tried;
    Running member(consumer(
        [&](const Transaction& transaction, const Message& message) {
            if (message.id.starts_with("bad")) {
                ++failures;
                {
                    const std::lock_guard lock(mutex);
                    ++tried[std::string(message.id)];
                }
                transaction("SELECT pg_sleep(0.1)");
                throw Error(ErrorCode::kSinkUnavailable, Advice::kRetryDestination, "mail is down");
            }
            apply(transaction, message);
        },
        chosen));
    for (int i = 0; i < kFailing; ++i) {
        writer_.write(topic_, "bad-" + std::to_string(i), "bad-" + std::to_string(i));
    }
    writer_.flush();
    ASSERT_TRUE(eventually(60s, "each fails again and again", [&] {
        const std::lock_guard lock(mutex);
        return tried.size() == kFailing &&
               std::all_of(tried.begin(), tried.end(), [](const auto& t) { return t.second > 1; });
    }));
    for (int i = 0; i < kHealthy; ++i) {
        writer_.write(topic_, "good-" + std::to_string(i), "good-" + std::to_string(i));
    }
    writer_.flush();
    const int before = failures;
    ASSERT_TRUE(eventually(120s, "the healthy are applied", [&] { return effects() == kHealthy; }));
    EXPECT_LT(failures - before, kHealthy / 2) << "one for each would be a tenth of a second each";
}

// A letter that is tried again is one that failed, however many there are.
TEST_P(KafkaConsumerOnPostgres, LettersThatFailSlowlyDoNotKeepTheHealthyWaiting) {
    constexpr int kLetters = 300;
    constexpr int kHealthy = 200;
    auto chosen = options();
    chosen.workers = 1;
    chosen.transaction_size = 1;
    std::atomic<int> failures = 0;
    Running member(consumer(
        [&](const Transaction& transaction, const Message& message) {
            if (message.id.starts_with("bad")) {
                ++failures;
                transaction("SELECT pg_sleep(0.05)");
                throw std::runtime_error("no stock");
            }
            apply(transaction, message);
        },
        chosen));
    writer_.write(topic_, "first", "k");
    writer_.flush();
    ASSERT_TRUE(eventually(60s, "it has its partitions", [&] { return effects() == 1; }));
    db_->exec(
        "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, attempts, error_code, "
        "error, retry_requested_at) SELECT 'stock', 'bad-' || i, 't', 1, 'x', 'x', now() "
        "FROM generate_series(1, " +
        std::to_string(kLetters) + ") i");
    ASSERT_TRUE(eventually(60s, "they are tried", [&] { return failures > 2; }));
    for (int i = 1; i < kHealthy; ++i) {
        writer_.write(topic_, "good-" + std::to_string(i), "good-" + std::to_string(i));
    }
    writer_.flush();
    ASSERT_TRUE(eventually(120s, "the healthy are applied", [&] { return effects() == kHealthy; }));
    EXPECT_LT(failures, kLetters);
    EXPECT_TRUE(eventually(120s, "the letters are tried", [&] {
        return db_->number(
                   "SELECT count(*) FROM outbox_inbox_dead_letters "
                   "WHERE retry_requested_at IS NOT NULL") == 0;
    }));
}

// Nor does it stop those of a partition where a few others wait.
TEST_P(KafkaConsumerOnPostgres, WhatWaitsBehindOneKeyStopsNoOther) {
    auto chosen = options();
    chosen.max_in_flight = 20;
    chosen.transaction_size = 1'000;
    // Few behind it, so that its own partition goes on; then so many that it waits alone.
    for (const int behind : {15, 400}) {
        for (int i = 0; i < behind; ++i) {
            writer_.write(topic_, "behind-" + std::to_string(behind) + "-" + std::to_string(i),
                          "stuck");
        }
    }
    constexpr int kStuck = 415;
    constexpr int kFew = 3;
    for (int i = 0; i < kFew; ++i) {
        writer_.write(topic_, "few-" + std::to_string(i), "few-" + std::to_string(i));
    }
    writer_.flush();
    constexpr int kHealthy = 400;
    for (int i = 0; i < kHealthy; ++i) {
        writer_.write(topic_, "good-" + std::to_string(i), "good-" + std::to_string(i));
    }
    writer_.flush();
    std::atomic<bool> healed = false;
    std::atomic<std::size_t> most = 0;
    Running member(libpq_kafka_consumer(
        database_->url(),
        LibpqBatchHandler([&](PGconn* connection, std::span<const Message> messages) {
            for (const Message& message : messages) {
                if (message.key.starts_with("good") || healed) continue;
                throw Error(ErrorCode::kSinkUnavailable, Advice::kRetryDestination, "mail is down");
            }
            if (messages.size() > most) most = messages.size();
            for (const Message& message : messages) {
                apply([&](const std::string& sql) { Pg::query(connection, sql); }, message);
            }
        }),
        chosen));
    KafkaReader reader(shared_kafka().bootstrap(), topic_);
    int stuck = -1;
    int elsewhere = 0;
    int few_elsewhere = 0;
    std::string keys;
    for (const auto& record : reader.read(kStuck + kFew + kHealthy, 90s)) {
        if (record.key == "stuck") stuck = record.partition;
    }
    for (const auto& record : reader.records()) {
        if (record.partition == stuck) continue;
        if (record.key->starts_with("few")) {
            ++few_elsewhere;
        } else {
            ++elsewhere;
            keys += (keys.empty() ? "'" : ", '") + *record.key + "'";
        }
    }
    ASSERT_GT(elsewhere, 100);
    ASSERT_GT(few_elsewhere, 0);
    const auto through = [&] {
        return db_->number("SELECT count(*) FROM effects WHERE key IN (" + keys + ")");
    };
    EXPECT_TRUE(
        eventually(60s, "the other partitions are through", [&] { return through() == elsewhere; }))
        << through() << " of " << elsewhere;
    healed = true;
    EXPECT_TRUE(eventually(60s, "all are", [&] { return effects() == kStuck + kFew + kHealthy; }))
        << effects();
    EXPECT_EQ(ids_of("stuck").size(), std::size_t{kStuck});
    // What waited is applied together.
    EXPECT_LE(most, 5 * chosen.max_in_flight) << "the rest waits with the broker";
    EXPECT_EQ(distinct_effects(), effects());
}

TEST_P(KafkaConsumerOnPostgres, AMemberThatKafkaFencedEndsWithTheCause) {
    auto chosen = options();
    chosen.group = "static";
    chosen.kafka = {{"group.instance.id", "stock-1"}};
    Running first(consumer(apply, chosen));
    ASSERT_TRUE(eventually(60s, "it has partitions", [&] { return reported(What::kActive) >= 1; }));
    Running second(consumer(apply, chosen));
    ASSERT_TRUE(eventually(60s, "the first ended", [&] { return first.ended(); }));
    ASSERT_TRUE(first.error().has_value());
    EXPECT_EQ(first.error()->code, ErrorCode::kSinkClosed);
    EXPECT_THAT(first.error()->message, HasSubstr("group.instance.id"));
    writer_.write(topic_, "id-1", "k");
    writer_.flush();
    EXPECT_TRUE(eventually(60s, "the second applies", [&] { return effects() == 1; }));
}

// What came while the first was in hand makes the next transactions: no more than may be in flight.
TEST_P(KafkaConsumerOnPostgres, TakesNoMoreThanMayBeInFlight) {
    auto narrow = options();
    narrow.max_in_flight = 4;
    narrow.transaction_size = 50;
    for (int i = 0; i < 60; ++i) writer_.write(topic_, "id-" + std::to_string(i), "k");
    writer_.flush();
    std::size_t most = 0;
    Running member(libpq_kafka_consumer(
        database_->url(),
        LibpqBatchHandler([&](PGconn* connection, std::span<const Message> messages) {
            most = std::max(most, messages.size());
            if (messages.front().id == "id-0") Pg::query(connection, "SELECT pg_sleep(2)");
            for (const Message& message : messages) {
                apply([&](const std::string& sql) { Pg::query(connection, sql); }, message);
            }
        }),
        narrow));
    ASSERT_TRUE(eventually(60s, "all are applied", [&] { return effects() == 60; }));
    member.stop();
    EXPECT_LE(most, 4U);
}

TEST_P(KafkaConsumerOnPostgres, GoesOnWhenTheDatabaseComesBackAndCountsNothing) {
    PostgresServer server;
    const PostgresDatabase database(server);
    prepare(database);
    writer_.write(topic_, "before", "k");
    writer_.flush();
    Running member(consumer(database, apply, options()));
    ASSERT_TRUE(
        eventually(60s, "the first is applied", [&] { return member->stats().applied == 1; }));
    server.stop(PostgresServer::Stop::kImmediate);
    for (int i = 0; i < 50; ++i) writer_.write(topic_, "id-" + std::to_string(i), "k");
    writer_.flush();
    ASSERT_TRUE(eventually(60s, "it says that the database is away",
                           [&] { return reported(What::kDisconnected) > 0; }));
    server.start();
    ASSERT_TRUE(eventually(60s, "all are applied", [&] { return member->stats().applied == 51; }));
    EXPECT_EQ(member->stats().failed, 0U);
    EXPECT_EQ(Pg(database.url()).number("SELECT count(DISTINCT id) FROM effects"), 51);
}

TEST_P(KafkaConsumerOnPostgres, LeavesTheGroupThoughItsDatabaseAnswersNothing) {
    PostgresServer server;
    const PostgresDatabase database(server);
    prepare(database);
    auto chosen = options();
    chosen.mode = Mode::kInboxAndOffset;
    chosen.connect_timeout_s = 1;
    writer_.write(topic_, "id-1", "k");
    writer_.flush();
    std::atomic<bool> hangs = true;
    std::optional<Running> member;
    const bool hung = bool(eventually(60s, "it hangs", [&] {
        // A run whose first connection takes longer than that second ends.
        if (!member || member->ended()) {
            member.emplace(consumer(
                database,
                [&](const Transaction& transaction, const Message& message) {
                    if (hangs.exchange(false)) server.pause();
                    apply(transaction, message);
                },
                chosen));
        }
        return !hangs;
    }));
    (*member)->stop();
    const bool left = bool(eventually(60s, "it ended", [&] { return member->ended(); }));
    server.resume();
    ASSERT_TRUE(hung);
    EXPECT_TRUE(left);
    Running next(consumer(database, apply, chosen));
    ASSERT_TRUE(
        eventually(60s, "the next one applies it", [&] { return next->stats().applied == 1; }));
}

TEST_P(KafkaConsumerTest, InOffsetModeTheDatabaseKnowsWhereToGoOn) {
    auto by_offset = options();
    by_offset.mode = Mode::kOffset;
    by_offset.exactly_once_wire = true;
    for (int i = 0; i < 100; ++i) {
        writer_.write(topic_, "id-" + std::to_string(i), "k-" + std::to_string(i % 9));
    }
    writer_.flush();
    const auto run_until = [&](const std::string& group, long long count) {
        auto chosen = by_offset;
        chosen.group = group;
        chosen.consumer = "stock";
        Running member(consumer(apply, chosen));
        EXPECT_TRUE(eventually(60s, "all are applied", [&] { return effects() >= count; }));
    };
    run_until("first", 100);
    writer_.write(topic_, "last", "k-0");
    writer_.flush();
    // Kafka knows nothing of this group: it would begin with the first record.
    run_until("second", 101);
    EXPECT_EQ(effects(), 101);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox"), 0);
    EXPECT_EQ(db_->number("SELECT sum(next_offset) FROM outbox_inbox_offsets"), 101);
}

TEST_P(KafkaConsumerTest, WithInboxAndOffsetARepeatAtAnotherOffsetIsDroppedToo) {
    auto both = options();
    both.mode = Mode::kInboxAndOffset;
    for (const char* id : {"a", "b", "a", "c", "b"}) writer_.write(topic_, id, "k");
    writer_.flush();
    Running member(consumer(apply, both));
    ASSERT_TRUE(eventually(60s, "all are dealt with",
                           [&] { return member->stats().applied + member->stats().repeats == 5; }));
    EXPECT_THAT(ids_of("k"), ElementsAre("a", "b", "c"));
}

TEST_P(KafkaConsumerTest, AHandlerThatSaysStopEndsTheRunWithItsError) {
    writer_.write(topic_, "id-1", "k");
    writer_.flush();
    Running member(consumer(
        [](const Transaction&, const Message&) {
            throw Error(ErrorCode::kTableShape, Advice::kStop, "unknown schema version 9");
        },
        options()));
    ASSERT_TRUE(eventually(60s, "it stopped", [&] { return member.ended(); }));
    ASSERT_TRUE(member.error().has_value());
    EXPECT_THAT(member.error()->message, HasSubstr("unknown schema version 9"));
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox"), 0);
}

// ---- bad input ----

TEST_P(KafkaConsumerTest, WhatCannotBeReadGoesToTheDeadLettersAtOnceAndDelaysNoOther) {
    writer_.write(topic_, "newer", "k", R"({"schema_version":9})");
    writer_.write(topic_, "broken", "k", "{");
    writer_.write(topic_, "behind", "k", "{}");
    writer_.write(topic_, "other", "o", "{}");
    writer_.flush();
    Running member(consumer(
        [&](const Transaction& transaction, const Message& message) {
            const auto refuse = [](const std::string& why) {
                throw Error(ErrorCode::kHandlerFailed, Advice::kDeadLetter, why);
            };
            if (message.payload == "{") refuse("the payload is not JSON");
            if (message.payload != "{}") refuse("unknown schema version 9");
            apply(transaction, message);
        },
        options()));
    ASSERT_TRUE(eventually(60s, "all are dealt with", [&] {
        return member->stats().applied == 2 && member->stats().dead == 2;
    }));
    EXPECT_THAT(ids_of("k"), ElementsAre("behind"));
    EXPECT_EQ(member->stats().failed, 2U) << "one attempt each";
    const auto cause = [&](const std::string& id) {
        return db_->value("SELECT error FROM outbox_inbox_dead_letters WHERE message_id = '" + id +
                          "'");
    };
    EXPECT_THAT(cause("newer"), HasSubstr("unknown schema version 9"));
    EXPECT_THAT(cause("broken"), HasSubstr("not JSON"));
}

TEST_P(KafkaConsumerTest, AKeyOfTenKilobytesIsAKeyAndAnIdOfTenKilobytesIsADeadLetter) {
    const std::string key(10'240, 'k');
    for (const char* id : {"a", "b"}) writer_.write(topic_, id, key);
    writer_.write(topic_, std::string(10'240, 'i'), "long-id");
    writer_.write(topic_, "poison", key);
    writer_.flush();
    Running member(consumer(
        [&](const Transaction& transaction, const Message& message) {
            if (message.id == "poison") {
                throw Error(ErrorCode::kHandlerFailed, Advice::kDeadLetter, "no");
            }
            apply(transaction, message);
        },
        options()));
    ASSERT_TRUE(eventually(60s, "all are dealt with", [&] {
        return member->stats().applied == 2 && member->stats().dead == 2;
    }));
    EXPECT_THAT(ids_of(key), ElementsAre("a", "b"));
    EXPECT_EQ(db_->value("SELECT key FROM outbox_inbox_dead_letters WHERE message_id = 'poison'"),
              key);
    EXPECT_THAT(db_->value("SELECT error FROM outbox_inbox_dead_letters WHERE key = 'long-id'"),
                testing::AllOf(HasSubstr("OB_INVALID_EVENT"), HasSubstr("10240 bytes"),
                               HasSubstr("at most 255")));
}

// Cut or mended to something storable, two of them might be one, or that of another record.
TEST_P(KafkaConsumerTest, RecordsWhoseIdsCannotBeKeptAreNotTakenForEachOther) {
    const std::vector<std::string> bad{std::string(300, 'i') + "1",
                                       std::string(300, 'i') + "2",
                                       std::string("a\0b", 3),
                                       std::string("a\xff") + "b",
                                       "",
                                       ""};
    for (const Mode mode : {Mode::kInbox, Mode::kInboxAndOffset}) {
        writer_.write(topic_, "a?b", "k");
        for (const std::string& id : bad) writer_.write(topic_, id, "k");
        writer_.write(topic_, "after", "k");
        writer_.flush();
        auto chosen = options();
        chosen.mode = mode;
        Running member(consumer(apply, chosen));
        ASSERT_TRUE(eventually(60s, "all are dealt with", [&] {
            return member->stats().applied == 2 && member->stats().dead == bad.size();
        })) << member->stats().dead;
        EXPECT_THAT(ids_of("k"), ElementsAre("a?b", "after"));
        EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_dead_letters"),
                  static_cast<long long>(bad.size()));
        EXPECT_EQ(member->stats().failed, bad.size()) << "one attempt each";
        for (const char* table : {"effects", "outbox_inbox", "outbox_inbox_dead_letters"}) {
            db_->exec(std::string("DELETE FROM ") + table);
        }
        topic_ += "-both";
        create_topic(shared_kafka().bootstrap(), topic_, 4);
    }
}

TEST_P(KafkaConsumerTest, AMemberThatStoppedCountsOnButItsLagDoesNot) {
    writer_.write(topic_, "a", "k");
    writer_.write(topic_, "b", "k");
    writer_.flush();
    auto chosen = options();
    chosen.retry_base_ms = chosen.retry_max_ms = 60'000;
    Running member(consumer(
        [](const Transaction& transaction, const Message& message) {
            if (message.id == "b") throw std::runtime_error("no stock");
            apply(transaction, message);
        },
        chosen));
    ASSERT_TRUE(eventually(60s, "the first is applied and its lag told", [&] {
        return effects() == 1 &&
               db_->number("SELECT count(*) FROM outbox_inbox_stats WHERE lag > 0") == 1;
    }));
    member.stop();
    EXPECT_EQ(db_->value("SELECT member || '-' || applied || '-' || coalesce(lag, 0) FROM "
                         "outbox_inbox_stats"),
              "-1-0");
}

TEST_P(KafkaConsumerTest, TwoConsumersWithOneNameInDifferentGroupsApplyEachRecordOnceTogether) {
    constexpr int kRecords = 300;
    for (int i = 0; i < kRecords; ++i) {
        writer_.write(topic_, "id-" + std::to_string(i), "k-" + std::to_string(i % 9));
    }
    writer_.flush();
    auto first_options = options();
    auto second_options = options();
    first_options.consumer = second_options.consumer = "stock";
    second_options.group = "of the same name";
    Running first(consumer(apply, first_options));
    Running second(consumer(apply, second_options));
    const auto done = [](Running& member) {
        return member->stats().applied + member->stats().repeats;
    };
    ASSERT_TRUE(eventually(90s, "both have read all",
                           [&] { return done(first) == kRecords && done(second) == kRecords; }));
    EXPECT_EQ(first->stats().applied + second->stats().applied, kRecords);
    EXPECT_EQ(effects(), kRecords);
    EXPECT_EQ(distinct_effects(), kRecords);
}

// One group gives up on what the other applies: each record ends as one of both, also after a
// retry.
TEST_P(KafkaConsumerTest, WhatOneGroupAppliedTheOtherDoesNotBury) {
    constexpr int kRecords = 40;
    for (int i = 0; i < kRecords; ++i) {
        writer_.write(topic_, "id-" + std::to_string(i), "k-" + std::to_string(i));
    }
    writer_.flush();
    std::atomic<bool> healed = false;
    std::atomic<int> failures = 0;
    std::atomic<bool> met = false;
    auto failing_options = options();
    auto healthy_options = options();
    failing_options.consumer = healthy_options.consumer = "stock";
    failing_options.group = "fails";
    failing_options.retry_base_ms = failing_options.retry_max_ms = 50;
    failing_options.max_attempts = 2;
    healthy_options.transaction_size = 1;
    Running failing(consumer(
        [&](const Transaction& transaction, const Message& message) {
            if (!healed) {
                ++failures;
                if (message.attempt == 2 && GetParam() == Backend::kPostgres) {
                    // The other one comes to it and waits for this transaction.
                    Pg look(database_->url());
                    const auto patience = met ? 300ms : 30'000ms;
                    if (eventually(patience, "it waits", [&] {
                            return look.number("SELECT count(*) FROM pg_locks WHERE NOT granted") >
                                   0;
                        })) {
                        met = true;
                    }
                }
                throw std::runtime_error("no stock");
            }
            apply(transaction, message);
        },
        failing_options));
    ASSERT_TRUE(eventually(60s, "the one fails", [&] { return failures >= 10; }));
    Running healthy(consumer(apply, healthy_options));
    const auto through = [](Running& member) {
        const auto counters = member->stats();
        return counters.applied + counters.repeats + counters.dead >= kRecords;
    };
    ASSERT_TRUE(eventually(90s, "both have read all",
                           [&] { return through(failing) && through(healthy); }));
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_dead_letters d "
                          "JOIN effects e ON e.id = d.message_id"),
              0);
    EXPECT_EQ(effects() + db_->number("SELECT count(*) FROM outbox_inbox_dead_letters"), kRecords);
    healed = true;
    db_->exec("UPDATE outbox_inbox_dead_letters SET retry_requested_at = died_at");
    ASSERT_TRUE(eventually(60s, "none is dead", [&] {
        return db_->number("SELECT count(*) FROM outbox_inbox_dead_letters") == 0;
    }));
    EXPECT_EQ(effects(), kRecords);
    EXPECT_EQ(distinct_effects(), kRecords);
}

// As above, in SQLite to the point: after the last failure and before the burial.
TEST(KafkaConsumerOnSqlite, WhatWasAppliedMeanwhileIsNotBuried) {
    SqliteDatabase database;
    migrate(database.url());
    const std::string topic = "applied-meanwhile-" + std::to_string(::getpid());
    create_topic(shared_kafka().bootstrap(), topic, 1);
    Writer writer;
    for (const char* id : {"a", "b"}) writer.write(topic, id, "k");
    writer.flush();
    AppliedElsewhere elsewhere(database.path(), "stock", "a");
    KafkaConsumerOptions options;
    options.brokers = shared_kafka().bootstrap();
    options.group = "stock";
    options.topics = {topic};
    options.max_attempts = 1;
    options.transaction_size = 1;
    options.workers = 1;
    auto member = sqlite_kafka_consumer(
        database.url(), SqliteHandler([&](sqlite3* connection, const Message& message) {
            if (message.id == "a") elsewhere.after_this(connection);
            throw std::runtime_error("no stock");
        }),
        options);
    std::thread running([&] { member.run(); });
    const bool both = bool(eventually(60s, "both are dealt with", [&] {
        return member.stats().dead + member.stats().repeats == 2;
    }));
    member.stop();
    running.join();
    ASSERT_TRUE(both);
    EXPECT_TRUE(elsewhere.done());
    EXPECT_EQ(Sqlite(database.path())
                  .value("SELECT group_concat(message_id) FROM outbox_inbox_dead_letters"),
              "b");
}

TEST_P(KafkaConsumerTest, AnInboxOfANewerVersionEndsAConsumerAtTheStartAndWhileItRuns) {
    Running member(consumer(apply, options()));
    writer_.write(topic_, "before", "k");
    writer_.flush();
    ASSERT_TRUE(eventually(60s, "it is applied", [&] { return effects() == 1; }));
    db_->exec(
        "INSERT INTO outbox_migrations (side, version, name, checksum) "
        "VALUES ('consumer', 99, 'of_tomorrow', 'x')");
    ASSERT_TRUE(eventually(60s, "it ended", [&] { return member.ended(); }));
    ASSERT_TRUE(member.error().has_value());
    EXPECT_EQ(member.error()->code, ErrorCode::kMigrationRefused);
    EXPECT_THAT(member.error()->message, HasSubstr("migration 99"));
    Running late(consumer(apply, options()));
    ASSERT_TRUE(eventually(60s, "it ended", [&] { return late.ended(); }));
    ASSERT_TRUE(late.error().has_value());
    EXPECT_EQ(late.error()->code, ErrorCode::kMigrationRefused);
}

// A commit that a crash of the server, or a failover to its synchronous standby, undoes must not
// have moved Kafka's offset.
TEST_P(KafkaConsumerOnPostgres, CommitsDurablyWhateverTheDatabasesDefault) {
    int applied = 0;
    for (const std::string setting : {"off", "local"}) {
        db_->exec("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = " +
                  setting + "', current_database()); END $$");
        writer_.write(topic_, "id-" + setting, "k");
        writer_.flush();
        Running member(consumer(
            [&](const Transaction& transaction, const Message&) {
                transaction(
                    "INSERT INTO effects (payload) SELECT current_setting('synchronous_commit')");
            },
            options()));
        ++applied;
        ASSERT_TRUE(eventually(60s, "it is applied", [&] { return effects() == applied; }));
    }
    EXPECT_EQ(db_->value("SELECT string_agg(payload, ' ') FROM effects"), "on on");
}

TEST_P(KafkaConsumerOnPostgres, UnderSerializableAConflictRunsTheTransactionAgain) {
    db_->exec("CREATE TABLE counted (n int); INSERT INTO counted VALUES (0)");
    db_->exec(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = "
        "serializable', current_database()); END $$");
    constexpr int kRecords = 60;
    for (int i = 0; i < kRecords; ++i) {
        writer_.write(topic_, "id-" + std::to_string(i), "k-" + std::to_string(i));
    }
    writer_.flush();
    auto singly = options();
    singly.transaction_size = 1;
    singly.workers = 4;
    Running member(consumer(
        [&](const Transaction& transaction, const Message& message) {
            transaction("SELECT n FROM counted");
            transaction("UPDATE counted SET n = n + 1");
            apply(transaction, message);
        },
        singly));
    ASSERT_TRUE(eventually(90s, "all are applied", [&] { return effects() == kRecords; }));
    EXPECT_EQ(db_->number("SELECT n FROM counted"), kRecords);
    EXPECT_EQ(member->stats().dead, 0U);
}

TEST(KafkaConsumerOptions, RefusesWhatWouldBreakExactlyOnceAndNamesWhatIsWrong) {
    const auto error_of = [](const std::function<void(KafkaConsumerOptions&)>& change) {
        KafkaConsumerOptions options;
        options.brokers = "127.0.0.1:1";
        options.group = "g";
        options.topics = {"t"};
        change(options);
        try {
            libpq_kafka_consumer("postgresql://h/d", [](PGconn*, const Message&) {}, options);
        } catch (const Error& error) {
            return error.info();
        }
        return ErrorInfo{};
    };
    EXPECT_EQ(error_of([](auto& o) { o.mode = Mode::kOffset; }).code, ErrorCode::kGuaranteeRefused);
    for (const char* name : {"enable.auto.commit", "group.id", "isolation.level"}) {
        const ErrorInfo error = error_of([&](auto& o) { o.kafka[name] = "x"; });
        EXPECT_EQ(error.code, ErrorCode::kGuaranteeRefused);
        EXPECT_THAT(error.message, HasSubstr(name));
    }
    EXPECT_THAT(error_of([](auto& o) { o.kafka["no.such"] = "x"; }).message, HasSubstr("no.such"));
    const ErrorInfo secret = error_of([](auto& o) { o.kafka["sasl.password.x"] = "hidden"; });
    EXPECT_THAT(describe(secret), testing::Not(HasSubstr("hidden")));
    EXPECT_THAT(error_of([](auto& o) { o.topics.clear(); }).message, HasSubstr("topics"));
    EXPECT_THAT(error_of([](auto& o) { o.workers = 0; }).message, HasSubstr("workers"));
}

}  // namespace
}  // namespace outbox::test
