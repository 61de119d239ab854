// The modes beside one by one: batch, sequence, offset; existing tables; the floor.

#include <thread>

#include <outbox/consumer/metrics.h>

#include "tests/conformance/inbox_suite.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using What = ConsumerReport::What;
using Sequence = SequenceResult::What;

ErrorInfo error_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.info();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
}

// ---- batch ----

TEST_P(InboxSuite, ABatchSaysOfEachMessageWhetherItIsNew) {
    db_->exec(backend_->begin());
    EXPECT_TRUE(db_->accept("stock", "b"));
    const std::vector<InboxEntry> batch{{"c", {}}, {"b", {}}, {"a\"\\{,}'", {}}, {"c", {}}};
    EXPECT_THAT(db_->accept_batch("stock", batch), ElementsAre(true, false, true, false));
    EXPECT_THAT(db_->accept_batch("stock", batch), ElementsAre(false, false, false, false));
    EXPECT_TRUE(db_->accept_batch("stock", {}).empty());
    db_->exec("COMMIT");
    EXPECT_EQ(value("SELECT count(*) FROM outbox_inbox"), "3");
}

TEST_P(InboxSuite, ABatchIsOneTransactionAndOneCallOfTheHandler) {
    for (const char* id : {"a", "b", "c", "d", "e"}) put(id, "k");
    db_->exec(backend_->begin());
    EXPECT_TRUE(db_->accept("default", "c"));
    db_->exec("COMMIT");
    MailboxOptions options;
    options.transaction_size = 4;
    std::vector<std::size_t> calls;
    auto member = backend_->batch_consumer(
        [&](InboxBackend::Session& transaction, std::span<const Message> messages) {
            calls.push_back(messages.size());
            for (const Message& message : messages) apply(transaction, message);
        },
        options);
    EXPECT_EQ(member.drain(), 5U);
    EXPECT_THAT(calls, ElementsAre(3U, 1U));
    EXPECT_THAT(effects(), ElementsAre("a", "b", "d", "e"));
    EXPECT_EQ(member.stats().applied, 4U);
    EXPECT_EQ(member.stats().repeats, 1U);
    EXPECT_EQ(waiting(), "0");
}

TEST_P(InboxSuite, InABatchThatFailsOnlyTheGuiltyMessageWaits) {
    for (int i = 0; i < 10; ++i) put("id-" + std::to_string(i), "k-" + std::to_string(i % 3));
    put("behind", "k-1");
    MailboxOptions options;
    options.transaction_size = 100;
    options.retry_base_ms = options.retry_max_ms = 60'000;
    auto member = consumer(
        [&](InboxBackend::Session& transaction, const Message& message) {
            apply(transaction, message);
            if (message.id == "id-4") throw std::runtime_error("no stock");
        },
        options);
    EXPECT_EQ(member.drain(), 8U);
    EXPECT_THAT(effects_of("k-0"), ElementsAre("id-0", "id-3", "id-6", "id-9"));
    EXPECT_THAT(effects_of("k-1"), ElementsAre("id-1"));
    EXPECT_THAT(effects_of("k-2"), ElementsAre("id-2", "id-5", "id-8"));
    EXPECT_EQ(member.stats().failed, 1U);
    EXPECT_EQ(waiting(), "3");
}

TEST_P(InboxSuite, TellsItsFiguresInPrometheusFormat) {
    for (const char* id : {"a", "b"}) put(id, "k");
    auto member = consumer();
    EXPECT_EQ(member.drain(), 2U);
    const std::string page = consumer_metrics("the \"stock\"", member.stats(), 7);
    EXPECT_THAT(
        page, testing::HasSubstr("# TYPE outbox_inbox_applied_total counter\n"
                                 "outbox_inbox_applied_total{consumer=\"the \\\"stock\\\"\"} 2\n"));
    EXPECT_THAT(page, testing::HasSubstr("\noutbox_inbox_lag{consumer=\"the \\\"stock\\\"\"} 7\n"));
    EXPECT_THAT(consumer_metrics("stock", {}),
                testing::Not(testing::HasSubstr("outbox_inbox_lag")));
}

TEST_P(InboxSuite, TellsHowManyMessagesWait) {
    for (const char* id : {"a", "b", "c"}) put(id, "k");
    MailboxOptions options;
    options.retry_base_ms = options.retry_max_ms = 60'000;
    auto member = consumer(
        [](InboxBackend::Session&, const Message&) { throw std::runtime_error("no stock"); },
        options);
    std::thread running([&] { member.run(); });
    EXPECT_TRUE(eventually(60s, "all are counted", [&] { return member.lag() == 3; }));
    EXPECT_TRUE(eventually(60s, "the figures are reported",
                           [&] { return value("SELECT lag FROM outbox_inbox_stats") == "3"; }));
    member.stop();
    running.join();
}

TEST_P(InboxSuite, AMemberThatEndedCountsOnButItsLagDoesNot) {
    const auto figures = [&](const char* what) {
        return value(std::string("SELECT sum(") + what + ") FROM outbox_inbox_stats");
    };
    // One that was killed long ago, and one of another consumer.
    db_->exec(
        "INSERT INTO outbox_inbox_stats (consumer, member, applied, repeats, failed, dead, lag) "
        "VALUES ('default', 'killed', 5, 0, 0, 0, 900), ('other', 'killed', 7, 0, 0, 0, 800)");
    db_->exec(backend_->age_figures());
    for (const char* id : {"a", "b"}) {
        put(id, "k");
        MailboxOptions options;
        options.retry_base_ms = options.retry_max_ms = 60'000;
        options.on_report = [](const ConsumerReport&) {};
        auto member = consumer(
            [](InboxBackend::Session& transaction, const Message& message) {
                if (message.id == "b") throw std::runtime_error("no stock");
                apply(transaction, message);
            },
            options);
        std::thread running([&] { member.run(); });
        EXPECT_TRUE(eventually(60s, "it has reported", [&] {
            return value(
                       "SELECT count(*) FROM outbox_inbox_stats WHERE consumer = 'default' AND "
                       "member <> '' AND member <> 'killed'") == "1";
        }));
        EXPECT_TRUE(eventually(60s, "the killed one is folded", [&] {
            return value(
                       "SELECT count(*) FROM outbox_inbox_stats WHERE consumer = 'default' AND "
                       "member = 'killed'") == "0";
        }));
        member.stop();
        running.join();
    }
    EXPECT_EQ(value("SELECT member || '-' || applied FROM outbox_inbox_stats "
                    "WHERE consumer = 'default'"),
              "-6");
    EXPECT_EQ(value("SELECT coalesce(sum(lag), 0) FROM outbox_inbox_stats "
                    "WHERE consumer = 'default'"),
              "0");
    EXPECT_EQ(figures("applied"), "13");
}

// ---- sequence ----

TEST_P(InboxSuite, ASequenceTakesTheNextNumberDropsRepeatsAndNamesGaps) {
    const auto take = [&](const char* key, std::int64_t number) {
        db_->exec(backend_->begin());
        const auto result = db_->accept_sequence("stock", key, number);
        db_->exec("COMMIT");
        return std::pair(result.what, result.expected);
    };
    EXPECT_EQ(take("k", 2), std::pair(Sequence::kGap, std::int64_t{1}));
    EXPECT_EQ(take("k", 1), std::pair(Sequence::kNew, std::int64_t{2}));
    EXPECT_EQ(take("k", 1), std::pair(Sequence::kRepeat, std::int64_t{2}));
    EXPECT_EQ(take("k", 2), std::pair(Sequence::kNew, std::int64_t{3}));
    EXPECT_EQ(take("k", 7), std::pair(Sequence::kGap, std::int64_t{3}));
    EXPECT_EQ(take("k", 1), std::pair(Sequence::kRepeat, std::int64_t{3}));
    EXPECT_EQ(take("other", 1), std::pair(Sequence::kNew, std::int64_t{2}));
    EXPECT_EQ(value("SELECT count(*) FROM outbox_inbox_sequences"), "2");
}

TEST_P(InboxSuite, ConcurrentRepeatsOfASequenceAreAppliedOnce) {
    constexpr int kNumbers = 30;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&] {
            const auto session = backend_->connect();
            for (int number = 1; number <= kNumbers; ++number) {
                session->exec(backend_->begin());
                const auto result = session->accept_sequence("stock", "k", number);
                EXPECT_NE(result.what, Sequence::kGap);
                if (result.what == Sequence::kNew) {
                    session->exec("INSERT INTO effects (id) VALUES ('" + std::to_string(number) +
                                  "')");
                }
                session->exec("COMMIT");
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(value("SELECT count(*) FROM effects"), "30");
    EXPECT_EQ(value("SELECT count(DISTINCT id) FROM effects"), "30");
}

// ---- offset ----

TEST_P(InboxSuite, AnOffsetMovesByCompareAndSetAndRefusesAStaleMember) {
    EXPECT_EQ(db_->next_offset("stock"), std::nullopt);
    const auto move = [&](std::optional<std::int64_t> expected, std::int64_t next) {
        db_->exec(backend_->begin());
        const bool moved = db_->accept_offset("stock", expected, next);
        db_->exec(moved ? "COMMIT" : "ROLLBACK");
        return moved;
    };
    EXPECT_TRUE(move(std::nullopt, 100));
    EXPECT_FALSE(move(std::nullopt, 100));
    EXPECT_TRUE(move(100, 205));
    EXPECT_FALSE(move(100, 150));
    EXPECT_EQ(db_->next_offset("stock"), 205);
    EXPECT_EQ(value("SELECT count(*) FROM outbox_inbox_offsets"), "1");
}

// ---- existing tables ----

TEST_P(InboxSuite, AnExistingTableOfProcessedEventsWorksAsItIs) {
    db_->exec(
        "CREATE TABLE processed_events (event_id text PRIMARY KEY, "
        "processed_at timestamp NOT NULL)");
    db_->exec("INSERT INTO processed_events VALUES ('old', CURRENT_TIMESTAMP)");
    db_->exec(backend_->begin());
    EXPECT_FALSE(db_->accept(InboxTable{}, "any", "old"));
    EXPECT_TRUE(db_->accept(InboxTable{}, "any", "new"));
    EXPECT_FALSE(db_->accept(InboxTable{}, "any", "new"));
    db_->exec("COMMIT");
    EXPECT_EQ(value("SELECT count(*) FROM processed_events WHERE processed_at IS NOT NULL"), "2");
}

TEST_P(InboxSuite, AnExistingInboxWithAConsumerColumnWorksAsItIs) {
    db_->exec(
        "CREATE TABLE inbox (message_id text, handler text, status text DEFAULT 'DONE', "
        "UNIQUE (message_id, handler))");
    const InboxTable table{"inbox", "message_id", "handler", ""};
    db_->exec(backend_->begin());
    EXPECT_TRUE(db_->accept(table, "stock", "id-1"));
    EXPECT_TRUE(db_->accept(table, "mail", "id-1"));
    EXPECT_FALSE(db_->accept(table, "stock", "id-1"));
    EXPECT_EQ(error_of([&] { db_->accept(table, "stock", ""); }).code, ErrorCode::kInvalidEvent);
    db_->exec("COMMIT");
}

// ---- the floor ----

TEST_P(InboxSuite, AMessageFromBeforeTheFloorIsQuarantinedNeverAppliedAsNew) {
    const auto now = std::chrono::system_clock::now();
    const std::vector<InboxEntry> applied{{"applied", now - 49h}};
    db_->exec(backend_->begin());
    EXPECT_TRUE(db_->accept("stock", "applied", now - 49h));
    db_->exec("COMMIT");
    db_->exec(backend_->raise_floor("stock", 48h));
    const auto outcome = [&](const char* consumer, std::string_view id, MessageTime time) {
        db_->exec(backend_->begin());
        std::string text = "new";
        try {
            if (!db_->accept(consumer, id, time)) text = "repeat";
            db_->exec("COMMIT");
        } catch (const Error& error) {
            db_->exec("ROLLBACK");
            EXPECT_EQ(error.advice(), Advice::kDeadLetter);
            text = error_code_name(error.code());
        }
        return text;
    };
    EXPECT_EQ(outcome("stock", "old", now - 49h), "OB_QUARANTINED");
    EXPECT_EQ(outcome("stock", "applied", now - 49h), "repeat") << "the inbox still knows it";
    db_->exec(backend_->begin());
    EXPECT_THAT(db_->accept_batch("stock", applied), ElementsAre(false));
    db_->exec("COMMIT");
    EXPECT_EQ(outcome("stock", "younger", now - 47h), "new");
    EXPECT_EQ(outcome("stock", "younger", now - 47h), "repeat");
    EXPECT_EQ(outcome("stock", "recent", now), "new");
    EXPECT_EQ(outcome("stock", "without a time", {}), "new");
    EXPECT_EQ(outcome("stock", "ahead", now + 25h), "OB_QUARANTINED");
    EXPECT_EQ(outcome("stock", "a little ahead", now + 1h), "new");
    EXPECT_EQ(outcome("mail", "old", now - 49h), "new");
}

TEST_P(InboxSuite, ARunningConsumerPrunesItsInboxAndRaisesItsFloor) {
    const auto now = std::chrono::system_clock::now();
    db_->exec(backend_->begin());
    EXPECT_TRUE(db_->accept("default", "old", now - 4h));
    EXPECT_TRUE(db_->accept("default", "young", now - 2h));
    EXPECT_TRUE(db_->accept("other", "newest", now));
    EXPECT_TRUE(db_->accept("default", "without a time"));
    db_->exec("COMMIT");
    MailboxOptions options;
    options.inbox_retention_s = 3 * 3600;
    auto member = consumer(apply, options);
    std::thread running([&] { member.run(); });
    const bool pruned = bool(eventually(60s, "the old id is gone", [&] {
        return value("SELECT count(*) FROM outbox_inbox") == "3";
    }));
    member.stop();
    running.join();
    EXPECT_TRUE(pruned);
    EXPECT_THAT(column("SELECT message_id FROM outbox_inbox ORDER BY 1"),
                ElementsAre("newest", "without a time", "young"));
    db_->exec(backend_->begin());
    EXPECT_EQ(error_of([&] { db_->accept("default", "old", now - 4h); }).code,
              ErrorCode::kQuarantined);
    db_->exec("ROLLBACK");
    options.inbox_retention_s = 60;
    EXPECT_EQ(error_of([&] { consumer(apply, options); }).code, ErrorCode::kConfigInvalid);
}

TEST_P(InboxSuite, PruningIsEachConsumersOwnAndAsFastAsWhatComes) {
    const auto old = std::chrono::system_clock::now() - 4h;
    db_->exec(backend_->begin());
    EXPECT_TRUE(db_->accept("default", "old", old));
    EXPECT_TRUE(db_->accept("other", "old", old));
    EXPECT_TRUE(db_->accept("third", "newest", old + 4h));
    db_->exec("COMMIT");
    db_->exec(
        "INSERT INTO outbox_inbox (consumer, message_id, message_time) "
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 35000) "
        "SELECT 'default', 'old-' || i, (SELECT message_time FROM outbox_inbox "
        "WHERE consumer = 'default') FROM n");
    db_->exec(
        "INSERT INTO outbox_saga_steps (leader, saga_id, step, state, updated_at) "
        "SELECT 'l', 's', 'pay', 'done', message_time FROM outbox_inbox "
        "WHERE consumer = 'other'");
    MailboxOptions options;
    options.inbox_retention_s = 2 * 3600;
    auto member = consumer(apply, options);
    std::thread running([&] { member.run(); });
    const bool pruned = bool(eventually(40s, "the old ids are gone", [&] {
        return value("SELECT count(*) FROM outbox_inbox WHERE consumer = 'default'") == "0";
    }));
    member.stop();
    running.join();
    EXPECT_TRUE(pruned);
    EXPECT_THAT(column("SELECT consumer FROM outbox_inbox ORDER BY 1"),
                ElementsAre("other", "third"));
    EXPECT_THAT(column("SELECT consumer FROM outbox_inbox_floor"), ElementsAre("default"));
    EXPECT_EQ(value("SELECT count(*) FROM outbox_saga_steps"), "1") << "its undo is to come";
}

TEST_P(InboxSuite, ARepeatFromBeforeTheFloorThatTheInboxStillKnowsIsDropped) {
    const std::string ancient = "01700000-0000-7000-8000-000000000001";  // a UUIDv7 of 2020
    for (const std::size_t together : {1U, 10U}) {
        MailboxOptions options;
        options.consumer = "c" + std::to_string(together);
        options.transaction_size = together;
        auto member = consumer(apply, options);
        put(ancient, "k");
        EXPECT_EQ(member.drain(), 1U);
        db_->exec(backend_->raise_floor(options.consumer, 48h));
        put(ancient, "k");
        EXPECT_EQ(member.drain(), 1U);
        EXPECT_EQ(member.stats().repeats, 1U);
        EXPECT_EQ(member.stats().failed, 0U);
        db_->exec(backend_->begin());
        EXPECT_FALSE(
            db_->accept(options.consumer, ancient, std::chrono::system_clock::now() - 99h));
        db_->exec("ROLLBACK");
    }
    EXPECT_EQ(value("SELECT count(*) FROM outbox_inbox_dead_letters"), "0");
    EXPECT_THAT(effects(), ElementsAre(ancient, ancient)) << "once for each consumer";
}

TEST_P(InboxSuite, AQuarantinedMessageGoesToTheDeadLettersAndDelaysNoOther) {
    const std::string ancient = "01700000-0000-7000-8000-000000000001";  // a UUIDv7 of 2020
    db_->exec(backend_->raise_floor("default", 48h));
    put(ancient, "k");
    put("by-header", "k");
    db_->exec(
        "UPDATE outbox_mailbox SET headers = "
        "'{\"occurred_at\":\"2020-01-31T12:00:00.123456Z\"}' WHERE id = 'by-header'");
    put("after", "k");
    MailboxOptions options;
    options.transaction_size = 10;
    auto member = consumer(apply, options);
    EXPECT_EQ(member.drain(), 3U);
    EXPECT_THAT(effects(), ElementsAre("after"));
    EXPECT_THAT(column("SELECT message_id FROM outbox_inbox_dead_letters WHERE error_code = "
                       "'OB_QUARANTINED' ORDER BY message_id"),
                ElementsAre(ancient, "by-header"));
    EXPECT_EQ(waiting(), "0");
    // An operator who knows better has it applied.
    db_->exec(
        "UPDATE outbox_inbox_dead_letters SET retry_requested_at = CURRENT_TIMESTAMP "
        "WHERE message_id = 'by-header'");
    ASSERT_TRUE(eventually(60s, "the message is applied", [&] { return member.drain() == 1; }));
    EXPECT_THAT(effects(), ElementsAre("after", "by-header"));
}

}  // namespace
}  // namespace outbox::test
