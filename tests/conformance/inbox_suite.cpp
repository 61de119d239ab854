#include "tests/conformance/inbox_suite.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using Session = InboxBackend::Session;
using What = ConsumerReport::What;

ErrorCode code_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return ErrorCode::kInternal;
}

// Ends with the test that made it.
class Running {
  public:
    explicit Running(MailboxConsumer& consumer)
        : consumer_(consumer), thread_([&consumer] { consumer.run(); }) {}
    ~Running() { stop(); }
    void stop() {
        consumer_.stop();
        if (thread_.joinable()) thread_.join();
    }

  private:
    MailboxConsumer& consumer_;
    std::thread thread_;
};

// ---- accept ----

TEST_P(InboxSuite, TheFirstMessageIsNewAndARepeatIsNot) {
    db_->exec(backend_->begin());
    EXPECT_TRUE(db_->accept("stock", "id-1"));
    EXPECT_FALSE(db_->accept("stock", "id-1"));
    db_->exec("COMMIT");
    db_->exec(backend_->begin());
    EXPECT_FALSE(db_->accept("stock", "id-1"));
    EXPECT_TRUE(db_->accept("stock", "id-2"));
    db_->exec("COMMIT");
}

TEST_P(InboxSuite, ConsumersOfOneDatabaseRememberApart) {
    db_->exec(backend_->begin());
    EXPECT_TRUE(db_->accept("stock", "id-1"));
    EXPECT_TRUE(db_->accept("mail", "id-1"));
    db_->exec("COMMIT");
}

TEST_P(InboxSuite, ARolledBackTransactionRemembersNothing) {
    db_->exec(backend_->begin());
    EXPECT_TRUE(db_->accept("stock", "id-1"));
    db_->exec("ROLLBACK");
    db_->exec(backend_->begin());
    EXPECT_TRUE(db_->accept("stock", "id-1"));
    db_->exec("COMMIT");
}

TEST_P(InboxSuite, TakesAnyTextAsAnId) {
    const std::vector<std::string> ids = {"it's", "\"quoted\"", "zürich 東京", "; DROP TABLE x",
                                          std::string(255, 'x')};
    db_->exec(backend_->begin());
    for (const auto& id : ids) EXPECT_TRUE(db_->accept("stock", id)) << id;
    for (const auto& id : ids) EXPECT_FALSE(db_->accept("stock", id)) << id;
    db_->exec("COMMIT");
}

TEST_P(InboxSuite, RefusesToRememberOutsideATransactionOrWhatIsNoId) {
    EXPECT_EQ(code_of([&] { db_->accept("stock", "id-1"); }), ErrorCode::kNoTransaction);
    db_->exec(backend_->begin());
    EXPECT_EQ(code_of([&] { db_->accept("stock", ""); }), ErrorCode::kInvalidEvent);
    const std::string too_long(256, 'x');
    const InboxEntry entries[] = {{"good", {}}, {too_long, {}}};
    EXPECT_EQ(code_of([&] { db_->accept("stock", too_long); }), ErrorCode::kInvalidEvent);
    EXPECT_EQ(code_of([&] { db_->accept_batch("stock", entries); }), ErrorCode::kInvalidEvent);
    EXPECT_EQ(code_of([&] { db_->accept(InboxTable{}, "stock", too_long); }),
              ErrorCode::kInvalidEvent);
    db_->exec("ROLLBACK");
    EXPECT_THROW(put(too_long), std::runtime_error);
    put(std::string(255, 'x'));
    EXPECT_EQ(value("SELECT count(*) FROM outbox_inbox"), "0");
}

TEST_P(InboxSuite, ConcurrentRepeatsAreAppliedOnce) {
    constexpr int kThreads = 4;
    constexpr int kMessages = 25;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&] {
            const auto session = backend_->connect();
            for (int n = 0; n < kMessages; ++n) {
                const std::string id = "id-" + std::to_string(n);
                session->exec(backend_->begin());
                if (session->accept("stock", id)) {
                    session->exec("INSERT INTO effects (id) VALUES ('" + id + "')");
                }
                session->exec("COMMIT");
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(value("SELECT count(*) FROM effects"), "25");
    EXPECT_EQ(value("SELECT count(DISTINCT id) FROM effects"), "25");
}

// ---- the mailbox ----

TEST_P(InboxSuite, AppliesWhatWaitsInOrderAndLeavesTheMailboxEmpty) {
    for (const char* id : {"b", "a", "c"}) put(id, "k");
    auto member = consumer();
    EXPECT_EQ(member.drain(), 3U);
    EXPECT_THAT(effects(), ElementsAre("b", "a", "c"));
    EXPECT_EQ(waiting(), "0");
    EXPECT_EQ(member.stats().applied, 3U);
}

TEST_P(InboxSuite, HandsOverEveryFieldOfAMessage) {
    db_->exec(
        "INSERT INTO outbox_mailbox (id, topic, key, headers, payload) VALUES ('id-1', "
        "'order-events', 'order-7', '{\"type\":\"Order\\\"Created\",\"tenant_id\":\"t\"}', "
        "'{\"total\":\"99.99\"}')");
    put("id-2");
    db_->exec("UPDATE outbox_mailbox SET payload = NULL WHERE id = 'id-2'");
    int seen = 0;
    auto member = consumer([&](Session&, const Message& message) {
        if (++seen == 1) {
            EXPECT_EQ(message.id, "id-1");
            EXPECT_EQ(message.topic, "order-events");
            EXPECT_EQ(message.key, "order-7");
            EXPECT_EQ(message.payload, R"({"total":"99.99"})");
            EXPECT_EQ(message.header("type"), "Order\"Created");
            EXPECT_EQ(message.header("absent"), std::nullopt);
            EXPECT_EQ(message.headers().size(), 2U);
            EXPECT_EQ(message.attempt, 1U);
            EXPECT_GT(message.position, 0);
        } else {
            EXPECT_EQ(message.key.data(), nullptr);
            EXPECT_EQ(message.payload.data(), nullptr);
            EXPECT_TRUE(message.headers().empty());
        }
    });
    EXPECT_EQ(member.drain(), 2U);
    EXPECT_EQ(seen, 2);
}

TEST_P(InboxSuite, DropsARepeatThatIsDeliveredAfterTheFirstWasApplied) {
    auto member = consumer();
    put("a", "k");
    EXPECT_EQ(member.drain(), 1U);
    put("a", "k");
    put("b", "k");
    EXPECT_EQ(member.drain(), 2U);
    EXPECT_THAT(effects(), ElementsAre("a", "b"));
    EXPECT_EQ(member.stats().repeats, 1U);
    EXPECT_EQ(waiting(), "0");
}

TEST_P(InboxSuite, ReportsWhatWasAppliedOrDroppedOnceItIsCommitted) {
    MailboxOptions options;
    std::vector<std::string> committed;  // rows of the inbox at the time of each report
    options.on_report = [&](const ConsumerReport& report) {
        done_.push_back({report.what, report.error, std::string(report.message->id)});
        committed.push_back(value("SELECT count(*) FROM outbox_inbox"));
    };
    auto member = consumer(apply, options);
    for (const char* id : {"a", "a", "b"}) {
        put(id, "k");
        EXPECT_EQ(member.drain(), 1U);
    }
    ASSERT_EQ(done_.size(), 3U);
    EXPECT_EQ(done_[0].what, What::kApplied);
    EXPECT_EQ(done_[1].what, What::kRepeat);
    EXPECT_EQ(done_[2].what, What::kApplied);
    EXPECT_EQ(done_[2].id, "b");
    EXPECT_THAT(committed, ElementsAre("1", "1", "2"));
}

TEST_P(InboxSuite, LeavesOtherMailboxesAlone) {
    put("a", "k", "{}", "inventory");
    put("a", "k", "{}", "notification");
    MailboxOptions options;
    options.mailbox = "inventory";
    EXPECT_EQ(consumer(apply, options).drain(), 1U);
    EXPECT_EQ(value("SELECT mailbox FROM outbox_mailbox"), "notification");
    EXPECT_EQ(value("SELECT consumer FROM outbox_inbox"), "inventory");
}

TEST_P(InboxSuite, UndoesTheInboxRowAndTheEffectOfAHandlerThatThrows) {
    put("a", "k");
    bool throws = true;
    auto member = consumer([&](Session& transaction, const Message& message) {
        apply(transaction, message);
        if (throws) throw std::runtime_error("no stock");
    });
    EXPECT_EQ(member.drain(), 0U);
    EXPECT_THAT(effects(), ElementsAre());
    EXPECT_EQ(value("SELECT count(*) FROM outbox_inbox"), "0");
    EXPECT_EQ(waiting(), "1");
    ASSERT_FALSE(reports_.empty());
    EXPECT_EQ(reports_[0].what, What::kRetry);
    EXPECT_EQ(reports_[0].id, "a");
    EXPECT_EQ(describe(reports_[0].error), "OB_HANDLER_FAILED: no stock");

    throws = false;
    ASSERT_TRUE(eventually(60s, "the message is applied", [&] { return member.drain() == 1; }));
    EXPECT_THAT(effects(), ElementsAre("a"));
}

TEST_P(InboxSuite, AFailingMessageDelaysItsOwnKeyOnly) {
    put("poison", "slow");
    put("behind", "slow");
    put("other-1", "quick");
    put("keyless");
    put("other-2", "quick");
    bool fails = true;
    MailboxOptions options;
    options.retry_base_ms = options.retry_max_ms = 20;
    auto member = consumer(
        [&](Session& transaction, const Message& message) {
            if (fails && message.id == "poison") throw std::runtime_error("not yet");
            apply(transaction, message);
        },
        options);
    EXPECT_EQ(member.drain(), 3U);
    EXPECT_THAT(effects(), ElementsAre("other-1", "keyless", "other-2"));
    fails = false;
    ASSERT_TRUE(eventually(60s, "the key goes on", [&] { return member.drain() == 2; }));
    EXPECT_THAT(effects_of("slow"), ElementsAre("poison", "behind"));
}

TEST_P(InboxSuite, AFailingMessageIsNotOvertakenWhenItsWaitEndsWithinTheBatch) {
    put("first", "slow");
    put("busy", "other");
    put("second", "slow");
    bool fails = true;
    const auto options = quick_retries();
    auto member = consumer(
        [&](Session& transaction, const Message& message) {
            if (message.id == "first" && std::exchange(fails, false)) {
                throw std::runtime_error("not yet");
            }
            const auto end = std::chrono::steady_clock::now() +
                             std::chrono::milliseconds(2 * options.retry_max_ms);
            while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
            apply(transaction, message);
        },
        options);
    std::size_t done = 0;
    ASSERT_TRUE(eventually(60s, "all are applied", [&] { return (done += member.drain()) == 3; }));
    EXPECT_THAT(effects_of("slow"), ElementsAre("first", "second"));
}

TEST_P(InboxSuite, ForgetsAFailingMessageThatAnOperatorRemoved) {
    put("poison", "k");
    auto options = quick_retries();
    options.max_failing_keys = 1;
    auto member = consumer(
        [&](Session& transaction, const Message& message) {
            if (message.id == "poison") throw std::runtime_error("no");
            apply(transaction, message);
        },
        options);
    EXPECT_EQ(member.drain(), 0U);
    db_->exec("DELETE FROM outbox_mailbox");
    put("next", "k");
    put("other", "l");
    std::size_t done = 0;
    ASSERT_TRUE(
        eventually(60s, "the rest is applied", [&] { return (done += member.drain()) == 2; }));
    EXPECT_THAT(effects(), ElementsAre("next", "other"));
}

// Positions begin anew where a mailbox is emptied or restored.
TEST_P(InboxSuite, AMessageInThePlaceOfAFailedOneBeginsWithItsFirstAttempt) {
    put("old", "k");
    put("old without a key");
    std::map<std::string, std::uint32_t> first_attempt;
    auto options = quick_retries();
    options.max_attempts = 1000;
    auto member = consumer(
        [&](Session&, const Message& message) {
            first_attempt.emplace(message.id, message.attempt);
            throw std::runtime_error("no stock");
        },
        options);
    const auto drain_until_seen = [&](const std::string& id) {
        return eventually(60s, id, [&] {
            member.drain();
            return first_attempt.contains(id);
        });
    };
    ASSERT_TRUE(drain_until_seen("old"));
    ASSERT_TRUE(drain_until_seen("old without a key"));
    db_->exec("UPDATE outbox_mailbox SET id = replace(id, 'old', 'new')");
    ASSERT_TRUE(drain_until_seen("new"));
    ASSERT_TRUE(drain_until_seen("new without a key"));
    for (const auto& [id, attempt] : first_attempt) EXPECT_EQ(attempt, 1U) << id;
}

TEST_P(InboxSuite, AMessageInThePlaceOfOneThatWasReadIsTakenAsItself) {
    for (const std::size_t together : {1U, 2U}) {
        db_->exec("DELETE FROM effects");
        db_->exec("DELETE FROM outbox_inbox");
        for (const char* id : {"a", "b", "c", "d"}) put(id, "k");
        MailboxOptions options;
        options.transaction_size = together;
        auto member = consumer(
            [&](Session& transaction, const Message& message) {
                apply(transaction, message);
                if (message.id != "b") return;
                transaction.exec("DELETE FROM outbox_mailbox WHERE id = 'd'");
                transaction.exec("UPDATE outbox_mailbox SET id = 'd' WHERE id = 'c'");
            },
            options);
        member.drain();
        put("e", "k");  // SQLite tells of others' changes alone
        member.drain();
        EXPECT_THAT(effects(), ElementsAre("a", "b", "d", "e")) << together;
        EXPECT_EQ(value("SELECT count(*) FROM outbox_inbox WHERE message_id = 'd'"), "1");
        EXPECT_EQ(member.stats().applied, 4U);
        EXPECT_EQ(waiting(), "0");
    }
}

TEST_P(InboxSuite, AMessageInThePlaceOfOneThatIsGivenUpOnIsNotBuried) {
    put("a", "k");
    put("old", "l");
    const std::string event =
        R"({"ce_specversion":"1.0","ce_id":"x","ce_source":"/s","ce_type":"T"})";
    db_->exec("UPDATE outbox_mailbox SET headers = '" + event + "' WHERE id = 'a'");
    MailboxOptions options;
    options.format = MessageFormat::kCloudEvents;
    auto member = consumer(
        [&](Session& transaction, const Message& message) {
            apply(transaction, message);
            transaction.exec("UPDATE outbox_mailbox SET id = 'new', headers = '" + event +
                             "' WHERE id = 'old'");
        },
        options);
    member.drain();
    db_->exec("UPDATE outbox_mailbox SET topic = 'u'");  // SQLite tells of others' changes alone
    member.drain();
    EXPECT_THAT(effects(), ElementsAre("a", "new"));
    EXPECT_EQ(value("SELECT count(*) FROM outbox_inbox_dead_letters"), "0");
    EXPECT_EQ(member.stats().dead, 0U);
}

TEST_P(InboxSuite, AFailingMessageWithoutAKeyDelaysNoOther) {
    put("poison");
    put("next");
    MailboxOptions options;
    options.max_attempts = 2;
    options.retry_base_ms = options.retry_max_ms = 1;
    auto member = consumer(
        [&](Session& transaction, const Message& message) {
            if (message.id == "poison") throw std::runtime_error("never");
            apply(transaction, message);
        },
        options);
    std::size_t done = 0;
    ASSERT_TRUE(eventually(60s, "both are dealt with", [&] {
        done += member.drain();
        return done == 2;
    }));
    EXPECT_THAT(effects(), ElementsAre("next"));
    EXPECT_EQ(member.stats().dead, 1U);
}

TEST_P(InboxSuite, GivesUpAfterTheLastAttemptAndKeepsTheCause) {
    put("poison", "k", "{\"n\":1}");
    put("behind", "k");
    std::vector<std::uint32_t> attempts;
    auto member = consumer(
        [&](Session& transaction, const Message& message) {
            if (message.id == "poison") {
                attempts.push_back(message.attempt);
                throw std::runtime_error("cannot: \xff bytes");
            }
            apply(transaction, message);
        },
        quick_retries());
    std::size_t done = 0;
    ASSERT_TRUE(eventually(60s, "poison and the next are dealt with", [&] {
        done += member.drain();
        return done == 2;
    }));
    EXPECT_THAT(attempts, ElementsAre(1, 2, 3, 4, 5));
    EXPECT_THAT(effects(), ElementsAre("behind"));
    const auto rows = db_->query(
        "SELECT consumer, message_id, topic, key, attempts, error_code, error "
        "FROM outbox_inbox_dead_letters");
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_THAT(rows[0], ElementsAre("default", "poison", "order-events", "k", "5",
                                     "OB_HANDLER_FAILED", "OB_HANDLER_FAILED: cannot: ? bytes"));
    EXPECT_EQ(member.stats().failed, 5U);
    EXPECT_EQ(member.stats().dead, 1U);

    put("poison", "k");
    EXPECT_EQ(member.drain(), 1U);
    EXPECT_EQ(attempts.size(), 5U) << "a repeat of a dead message is a repeat";
}

TEST_P(InboxSuite, FollowsTheAdviceOfTheErrorThatAHandlerThrows) {
    put("hopeless", "a");
    put("outage", "b");
    put("good", "c");
    int outages = 0;
    auto options = quick_retries();
    options.max_attempts = 2;
    auto member = consumer(
        [&](Session& transaction, const Message& message) {
            if (message.id == "hopeless") {
                throw Error(ErrorCode::kInvalidEvent, Advice::kDeadLetter, "unknown version");
            }
            if (message.id == "outage" && ++outages <= 10) {
                throw Error(ErrorCode::kSinkUnavailable, Advice::kRetryDestination, "mail is down");
            }
            apply(transaction, message);
        },
        options);
    std::size_t done = 0;
    ASSERT_TRUE(eventually(60s, "all three are dealt with", [&] {
        done += member.drain();
        return done == 3;
    }));
    EXPECT_THAT(effects(), ElementsAre("good", "outage"));
    EXPECT_EQ(value("SELECT error_code FROM outbox_inbox_dead_letters"), "OB_INVALID_EVENT");
    EXPECT_EQ(value("SELECT attempts FROM outbox_inbox_dead_letters"), "1");
    EXPECT_EQ(member.stats().failed, 1U) << "an outage burns no attempt";
}

TEST_P(InboxSuite, EndsWhenAHandlerSaysStop) {
    put("a", "k");
    auto member = consumer([](Session&, const Message&) {
        throw Error(ErrorCode::kConfigInvalid, Advice::kStop, "no tax table");
    });
    EXPECT_EQ(code_of([&] { member.run(); }), ErrorCode::kConfigInvalid);
    EXPECT_EQ(waiting(), "1");
}

TEST_P(InboxSuite, TriesADeadLetterOnceMoreWhenAsked) {
    put("a", "k");
    bool fails = true;
    MailboxOptions options;
    options.max_attempts = 1;
    auto member = consumer(
        [&](Session& transaction, const Message& message) {
            if (fails) throw std::runtime_error("no");
            apply(transaction, message);
        },
        options);
    EXPECT_EQ(member.drain(), 1U);
    const std::string retry = "UPDATE outbox_inbox_dead_letters SET retry_requested_at = died_at";
    db_->exec(retry);
    ASSERT_TRUE(eventually(60s, "it failed again", [&] {
        member.drain();
        return value("SELECT attempts FROM outbox_inbox_dead_letters") == "2";
    }));
    EXPECT_EQ(value("SELECT retry_requested_at FROM outbox_inbox_dead_letters"), "NULL");
    fails = false;
    db_->exec(retry);
    ASSERT_TRUE(eventually(60s, "it is applied", [&] {
        member.drain();
        return effects().size() == 1;
    }));
    EXPECT_EQ(value("SELECT count(*) FROM outbox_inbox_dead_letters"), "0");
}

TEST_P(InboxSuite, ALetterThatEndsItsProcessIsTriedOncePerRequest) {
    put("a", "k");
    MailboxOptions options;
    options.max_attempts = 1;
    consumer([](Session&, const Message&) { throw std::runtime_error("no"); }, options).drain();
    db_->exec("UPDATE outbox_inbox_dead_letters SET retry_requested_at = died_at");
    const auto exit_code_of_a_member = [&] {
        const pid_t child = fork();
        if (child == 0) {
            backend_->consumer([](Session&, const Message&) { _exit(3); }, {}).drain();
            _exit(0);
        }
        int state = 0;
        waitpid(child, &state, 0);
        return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
    };
    EXPECT_EQ(exit_code_of_a_member(), 3);
    EXPECT_EQ(exit_code_of_a_member(), 0);
    EXPECT_EQ(value("SELECT attempts FROM outbox_inbox_dead_letters"), "2");
    EXPECT_EQ(value("SELECT retry_requested_at FROM outbox_inbox_dead_letters"), "NULL");
}

TEST_P(InboxSuite, ALetterWhoseCommitFailsIsDeadAgain) {
    put("a", "k");
    MailboxOptions options;
    options.max_attempts = 1;
    bool again = false;
    auto member = consumer(
        [&](Session& transaction, const Message&) {
            if (!again) throw std::runtime_error("no");
            transaction.exec("ROLLBACK");
        },
        options);
    EXPECT_EQ(member.drain(), 1U);
    again = true;
    db_->exec("UPDATE outbox_inbox_dead_letters SET retry_requested_at = died_at");
    ASSERT_TRUE(eventually(60s, "it is dead again", [&] {
        member.drain();
        return member.stats().dead == 2;
    }));
    EXPECT_EQ(value("SELECT attempts FROM outbox_inbox_dead_letters"), "2");
    EXPECT_EQ(value("SELECT retry_requested_at FROM outbox_inbox_dead_letters"), "NULL");
    EXPECT_THAT(value("SELECT error FROM outbox_inbox_dead_letters"),
                HasSubstr("must neither commit nor roll back"));
}

TEST_P(InboxSuite, LettersThatWaitHoldUpNoOtherAndAreTriedLaterAndLater) {
    for (int i = 0; i < 12; ++i) put("m" + std::to_string(10 + i), "k" + std::to_string(i));
    MailboxOptions options;
    options.max_attempts = 1;
    options.retry_base_ms = 500;
    options.retry_max_ms = 3'600'000;
    bool again = false;
    auto member = consumer(
        [&](Session& transaction, const Message& message) {
            if (!again) throw std::runtime_error("no");
            if (message.id != "m21") {
                throw Error(ErrorCode::kHandlerFailed, Advice::kRetryDestination, "it is away");
            }
            apply(transaction, message);
        },
        options);
    EXPECT_EQ(member.drain(), 12U);
    again = true;
    db_->exec("UPDATE outbox_inbox_dead_letters SET retry_requested_at = died_at");
    ASSERT_TRUE(eventually(60s, "the last one is applied", [&] {
        member.drain();
        return effects().size() == 1;
    }));
    const std::string latest = "SELECT max(retry_requested_at) FROM outbox_inbox_dead_letters";
    const std::string ahead =
        GetParam().name == "PostgreSQL"
            ? "SELECT extract(epoch FROM (" + latest + ") - clock_timestamp()) > 3"
            : "SELECT ((" + latest + ") / 1000000.0 > strftime('%s', 'now') + 3)";
    ASSERT_TRUE(eventually(60s, "one waits longer", [&] {
        member.drain();
        const std::string found = value(ahead);
        return found == "t" || found == "1";
    }));
    EXPECT_EQ(value("SELECT count(*) FROM outbox_inbox_dead_letters WHERE attempts = 1 "
                    "AND retry_requested_at IS NOT NULL"),
              "11");
    EXPECT_EQ(member.stats().failed, 12U) << "a wait counts no attempt";
}

TEST_P(InboxSuite, AHandlerThatEndsTheTransactionIsAFailure) {
    put("a", "k");
    auto options = quick_retries();
    options.max_attempts = 2;
    auto member = consumer(
        [](Session& transaction, const Message&) { transaction.exec("ROLLBACK"); }, options);
    std::size_t done = 0;
    ASSERT_TRUE(
        eventually(60s, "it is given up on", [&] { return (done += member.drain()) == 1; }));
    EXPECT_THAT(value("SELECT error FROM outbox_inbox_dead_letters"),
                HasSubstr("must neither commit nor roll back"));
}

// What it writes then, the consumer would commit without the entry in the inbox, and for the others
// in the transaction, too.
TEST_P(InboxSuite, ATransactionThatAHandlerBeginsInPlaceOfItsOwnIsNotCommitted) {
    auto options = quick_retries();
    options.max_attempts = 2;
    options.transaction_size = 4;
    int times = 0;
    auto member = consumer(
        [&](Session& transaction, const Message& message) {
            if (message.id == "a" && ++times <= 10) {
                transaction.exec("ROLLBACK");
                transaction.exec("BEGIN");
            }
            if (message.id == "b") {
                transaction.exec("SAVEPOINT mine");
                transaction.exec("ROLLBACK TO mine");
            }
            apply(transaction, message);
        },
        options);
    for (const char* id : {"a", "b", "c"}) put(id, id);
    ASSERT_TRUE(eventually(60s, "all are dealt with", [&] {
        member.drain();
        return value("SELECT count(*) FROM outbox_mailbox") == "0";
    }));
    EXPECT_EQ(value("SELECT count(*) FROM effects"), "2");
    EXPECT_EQ(value("SELECT count(*) FROM effects WHERE id = 'a'"), "0");
    EXPECT_THAT(value("SELECT error FROM outbox_inbox_dead_letters WHERE message_id = 'a'"),
                HasSubstr("must neither commit nor roll back"));
}

TEST_P(InboxSuite, WhatAHandlerPutsIntoItsOwnMailboxIsAppliedThoughNobodyElseWrites) {
    put("a", "k");
    auto member = consumer([&](Session& transaction, const Message& message) {
        if (message.id == "a") {
            transaction.exec(
                "INSERT INTO outbox_mailbox (mailbox, id, topic, payload) VALUES ('default', 'b', "
                "'order-events', '{}')");
        }
        apply(transaction, message);
    });
    for (int looks = 0; looks < 3; ++looks) member.drain();
    EXPECT_EQ(value("SELECT count(*) FROM effects"), "2");
    EXPECT_EQ(value("SELECT count(*) FROM outbox_mailbox"), "0");
}

TEST_P(InboxSuite, NothingOvertakesAFailingMessageInABacklog) {
    constexpr std::size_t kMessages = 60;
    for (std::size_t i = 0; i < kMessages; ++i) {
        put("m" + std::to_string(100 + i), i % 4 == 0 ? "slow" : "k" + std::to_string(i));
    }
    auto options = quick_retries();
    options.batch_size = 3;
    std::vector<std::string> of_slow;
    auto member = consumer(
        [&](Session&, const Message& message) {
            if (message.key != "slow") return;
            if (of_slow.size() % 3 == 0 && message.attempt < 3) throw std::runtime_error("later");
            of_slow.emplace_back(message.id);
        },
        options);
    std::size_t done = 0;
    ASSERT_TRUE(
        eventually(60s, "all are applied", [&] { return (done += member.drain()) == kMessages; }));
    EXPECT_EQ(of_slow.size(), kMessages / 4);
    EXPECT_TRUE(std::is_sorted(of_slow.begin(), of_slow.end())) << testing::PrintToString(of_slow);
}

TEST_P(InboxSuite, ManyFailingKeysAreBoundedAndAllEndInDeadLetters) {
    constexpr int kMessages = 30;
    for (int i = 0; i < kMessages; ++i) put("m" + std::to_string(i), "k" + std::to_string(i));
    auto options = quick_retries();
    options.max_attempts = 2;
    options.max_failing_keys = 5;
    options.batch_size = 3;
    auto member =
        consumer([](Session&, const Message&) { throw std::runtime_error("no"); }, options);
    std::size_t done = 0;
    ASSERT_TRUE(eventually(60s, "all are given up on",
                           [&] { return (done += member.drain()) == kMessages; }));
    EXPECT_EQ(value("SELECT count(*) FROM outbox_inbox_dead_letters"), "30");
}

// Failing ones stand before the healthy, are more than are read at a time, and always due.
TEST_P(InboxSuite, KeysThatFailAgainAndAgainDoNotKeepTheHealthyWaiting) {
    MailboxOptions options;
    options.retry_base_ms = options.retry_max_ms = 1;
    options.batch_size = 10;
    options.on_report = [](const ConsumerReport&) {};
    constexpr int kFailing = 30;
    constexpr int kHealthy = 50;
    for (int i = 0; i < kFailing; ++i) put("bad-" + std::to_string(i), "bad-" + std::to_string(i));
    std::map<std::string, int> tried;
    std::atomic<int> tried_twice = 0;
    auto member = consumer(
        [&](InboxBackend::Session& transaction, const Message& message) {
            if (!message.id.starts_with("bad")) return apply(transaction, message);
            if (++tried[std::string(message.id)] == 2) ++tried_twice;
            std::this_thread::sleep_for(2ms);  // takes long to fail
            throw Error(ErrorCode::kSinkUnavailable, Advice::kRetryDestination, "mail is down");
        },
        options);
    std::thread running([&] { member.run(); });
    EXPECT_TRUE(
        eventually(60s, "each fails again and again", [&] { return tried_twice == kFailing; }));
    for (int i = 0; i < kHealthy; ++i)
        put("good-" + std::to_string(i), "good-" + std::to_string(i));
    EXPECT_TRUE(eventually(60s, "the healthy are applied", [&] {
        return effects().size() == kHealthy;
    })) << effects().size();
    member.stop();
    running.join();
}

// A letter that is tried again is one that failed, however many there are.
TEST_P(InboxSuite, LettersThatFailAgainDoNotKeepTheHealthyWaiting) {
    constexpr int kLetters = 30;
    for (int i = 0; i < kLetters; ++i) {
        db_->exec(
            "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, attempts, "
            "error_code, error, retry_requested_at) VALUES ('default', 'bad-" +
            std::to_string(i) + "', 't', 1, 'x', 'x', CURRENT_TIMESTAMP)");
    }
    put("good", "k");
    int failures = 0;
    int before = -1;
    auto member = consumer([&](InboxBackend::Session& transaction, const Message& message) {
        if (message.id == "good") {
            before = failures;
            return apply(transaction, message);
        }
        ++failures;
        std::this_thread::sleep_for(60ms);  // takes long to fail
        throw std::runtime_error("no stock");
    });
    member.drain();
    EXPECT_GE(before, 0);
    EXPECT_LT(before, 10) << "a tenth of a second's worth";
    EXPECT_EQ(failures, kLetters);
    EXPECT_EQ(value("SELECT count(*) FROM outbox_inbox_dead_letters "
                    "WHERE retry_requested_at IS NOT NULL"),
              "0");
}

TEST_P(InboxSuite, ALetterIsRetriedInTheMailboxThatItCameFrom) {
    put("bad", "k");
    MailboxOptions options;
    options.consumer = "billing";  // the same in both mailboxes
    options.max_attempts = 1;
    bool healed = false;
    const auto handler = [&](InboxBackend::Session& transaction, const Message& message) {
        if (!healed) throw std::runtime_error("no stock");
        apply(transaction, message);
    };
    consumer(handler, options).drain();
    EXPECT_EQ(value("SELECT mailbox FROM outbox_inbox_dead_letters"), "default");
    healed = true;
    db_->exec("UPDATE outbox_inbox_dead_letters SET retry_requested_at = CURRENT_TIMESTAMP");
    auto elsewhere = options;
    elsewhere.mailbox = "elsewhere";
    consumer(handler, elsewhere).drain();
    EXPECT_EQ(value("SELECT count(*) FROM effects"), "0");
    consumer(handler, options).drain();
    EXPECT_EQ(value("SELECT count(*) FROM effects"), "1");
    EXPECT_EQ(value("SELECT count(*) FROM outbox_inbox_dead_letters"), "0");
}

TEST_P(InboxSuite, SaysWhichTablesAreMissing) {
    auto member = backend_->consumer_without_tables();
    EXPECT_EQ(code_of([&] { member.run(); }), ErrorCode::kNoSuchTable);
    EXPECT_EQ(code_of([&] { member.drain(); }), ErrorCode::kNoSuchTable);
}

TEST_P(InboxSuite, RefusesOptionsOutOfRange) {
    MailboxOptions options;
    options.max_attempts = 0;
    EXPECT_EQ(code_of([&] { consumer(apply, options); }), ErrorCode::kConfigInvalid);
}

// ---- running, members, death ----

TEST_P(InboxSuite, RunPicksUpWhatArrivesAndFinishesTheMessageInHandOnStop) {
    std::atomic<int> started{0};
    std::atomic<bool> may_finish{false};
    auto member = consumer([&](Session& transaction, const Message& message) {
        ++started;
        if (message.id == "second") {
            while (!may_finish) std::this_thread::yield();
        }
        apply(transaction, message);
    });
    Running running(member);
    put("first", "k");
    ASSERT_TRUE(eventually(60s, "the first is applied", [&] { return waiting() == "0"; }));
    put("second", "k");
    if (GetParam().name == "PostgreSQL") put("third", "k");
    ASSERT_TRUE(eventually(60s, "the second is in hand", [&] { return started == 2; }));
    member.stop();
    may_finish = true;
    running.stop();
    EXPECT_THAT(effects(), ElementsAre("first", "second"));
}

// Whatever the newer version means by its tables, this one does not know it.
TEST_P(InboxSuite, AnInboxOfANewerVersionEndsAConsumerAtTheStartAndWhileItRuns) {
    const auto migrate_on = [&] {
        db_->exec(
            "INSERT INTO outbox_migrations (side, version, name, checksum) "
            "VALUES ('consumer', 99, 'of_tomorrow', 'x')");
    };
    auto member = consumer();
    std::optional<ErrorInfo> error_seen;
    std::atomic<bool> ended = false;
    std::thread running([&] {
        try {
            member.run();
        } catch (const Error& error) {
            error_seen = error.info();
        }
        ended = true;
    });
    put("before", "k");
    const bool applied =
        bool(eventually(60s, "the message is applied", [&] { return waiting() == "0"; }));
    migrate_on();
    const bool by_itself = bool(eventually(60s, "the consumer ends", [&] { return ended.load(); }));
    member.stop();
    running.join();
    ASSERT_TRUE(applied && by_itself);
    ASSERT_TRUE(error_seen.has_value());
    EXPECT_EQ(error_seen->code, ErrorCode::kMigrationRefused);
    EXPECT_EQ(error_seen->advice, Advice::kStop);
    EXPECT_THAT(error_seen->message, HasSubstr("migration 99"));
    put("after", "k");
    auto late = consumer();
    EXPECT_EQ(code_of([&] { late.run(); }), ErrorCode::kMigrationRefused);
    EXPECT_EQ(code_of([&] { late.drain(); }), ErrorCode::kMigrationRefused);
    EXPECT_EQ(waiting(), "1");
    EXPECT_THAT(effects(), ElementsAre("before"));
}

TEST_P(InboxSuite, TwoMembersApplyEachMessageOnceAndKeepTheOrderOfKeys) {
    constexpr int kMessages = 200;
    constexpr int kKeys = 5;
    MailboxOptions options;
    options.on_report = [](const ConsumerReport&) {};
    auto first = consumer(apply, options);
    auto second = consumer(apply, options);
    std::vector<std::vector<std::string>> expected(kKeys);
    {
        Running one(first);
        Running two(second);
        for (int i = 0; i < kMessages; ++i) {
            const std::string id = "m" + std::to_string(i);
            expected[i % kKeys].push_back(id);
            put(id, "k" + std::to_string(i % kKeys));
            if (i == kMessages / 2) {
                ASSERT_TRUE(eventually(60s, "one member works", [&] {
                    return first.stats().applied + second.stats().applied > 0;
                }));
                (first.stats().applied > 0 ? one : two).stop();
            }
        }
        ASSERT_TRUE(
            eventually(60s, "the other member took over", [&] { return waiting() == "0"; }));
    }
    EXPECT_EQ(effects().size(), 200U);
    for (int k = 0; k < kKeys; ++k) {
        EXPECT_THAT(effects_of("k" + std::to_string(k)), ElementsAreArray(expected[k]));
    }
    EXPECT_GT(first.stats().applied, 0U);
    EXPECT_GT(second.stats().applied, 0U);
}

// Kills a member that runs `handler` once it has written `messages` bytes to `progress`.
void kill_member_after(int messages, const std::function<void(int progress)>& run_member) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run_member(ends[1]);
        _exit(2);
    }
    ::close(ends[1]);
    char byte = 0;
    for (int i = 0; i < messages; ++i) {
        ASSERT_EQ(read(ends[0], &byte, 1), 1) << "the member ended by itself";
    }
    ::kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    ::close(ends[0]);
}

TEST_P(InboxSuite, AMemberKilledInMidBatchLeavesNothingAppliedTwice) {
    constexpr int kRounds = 6;
    constexpr int kMessages = 12;
    constexpr int kUntilDeath = 5;
    std::vector<std::string> expected;
    for (int round = 0; round < kRounds; ++round) {
        for (int i = 0; i < kMessages; ++i) {
            expected.push_back("m" + std::to_string(expected.size()));
            put(expected.back(), "k");
        }
        // Every other one dies with an effect made and not committed, the rest anywhere.
        const bool holds_still = round % 2 == 0;
        kill_member_after(kUntilDeath, [&](int progress) {
            int handled = 0;
            auto member = backend_->consumer(
                [&](Session& transaction, const Message& message) {
                    apply(transaction, message);
                    if (write(progress, "x", 1) != 1) _exit(1);
                    if (holds_still && ++handled == kUntilDeath) pause();
                },
                {});
            member.run();
        });
        if (HasFatalFailure()) return;
    }
    auto member = consumer();
    ASSERT_TRUE(eventually(60s, "the rest is applied", [&] {
        member.drain();
        return waiting() == "0";
    }));
    EXPECT_THAT(effects(), ElementsAreArray(expected));
}

}  // namespace
}  // namespace outbox::test
