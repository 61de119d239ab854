// What only PostgreSQL can show: isolation levels, lost sessions, late commits.

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <utility>

#include <outbox/adapters/libpq_consumer.h>
#include <outbox/producer/migrate.h>

#include "claim/claim.h"
#include "claim/object_store.h"
#include "databases/postgres/receive/operator_sql.h"
#include "net/sha256.h"
#include "tests/consumer/database.h"
#include "tests/consumer/operations.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/silent_proxy.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using What = ConsumerReport::What;

constexpr const char* kUuidV7 = "01940000-0000-7000-8000-000000000001";

void apply(PGconn* transaction, const Message& message) {
    Pg::query(transaction, "INSERT INTO effects (id) VALUES ('" + std::string(message.id) + "')");
}

class LibpqConsumer : public testing::Test {
  protected:
    LibpqConsumer() : LibpqConsumer(shared_postgres()) {}
    explicit LibpqConsumer(PostgresServer& server)
        : url_((migrate(database_url(server)), url_being_made_)), db_(url_) {
        db_.exec("CREATE TABLE effects (seq bigint GENERATED ALWAYS AS IDENTITY, id text)");
    }
    const std::string& database_url(PostgresServer& server) {
        return url_being_made_ = server.create_database();
    }

    void put(const std::string& id, const std::string& key = "k") {
        db_.exec("INSERT INTO outbox_mailbox (id, topic, key) VALUES ('" + id + "', 't', '" + key +
                 "')");
    }
    std::vector<std::string> effects() {
        std::vector<std::string> out;
        for (const auto& row : db_.query("SELECT id FROM effects ORDER BY seq")) {
            out.push_back(row[0].value_or(""));
        }
        return out;
    }
    MailboxOptions options() {
        MailboxOptions made;
        made.retry_base_ms = 1;
        made.retry_max_ms = 2;
        made.connect_timeout_s = 60;
        made.on_report = [this](const ConsumerReport& report) {
            reports_.push_back({report.what, describe(report.error)});
        };
        return made;
    }
    bool reported(What what) const {
        for (const auto& [seen, text] : reports_) {
            if (seen == what) return true;
        }
        return false;
    }

    std::thread later_;
    std::string url_being_made_;
    std::string url_;
    Pg db_;
    std::vector<std::pair<What, std::string>> reports_;
};

// The form that many inboxes use. After DO NOTHING no row comes back for a repeat, so "xmax is not
// 0" never says so, and the repeat is applied.
TEST_F(LibpqConsumer, TheWidespreadXmaxFormAppliesARepeatAndAcceptDoesNot) {
    db_.exec("CREATE TABLE processed_events (event_id text PRIMARY KEY)");
    int applied_by_xmax = 0;
    int applied_by_accept = 0;
    for (int delivery = 0; delivery < 2; ++delivery) {
        db_.exec("BEGIN");
        const auto rows = db_.query(
            "INSERT INTO processed_events VALUES ('id-1') ON CONFLICT DO NOTHING "
            "RETURNING (xmax = 0) AS is_new");
        const bool is_repeat = !rows.empty() && rows[0][0] == "f";
        if (!is_repeat) ++applied_by_xmax;
        if (accept(db_.handle(), "stock", "id-1")) ++applied_by_accept;
        db_.exec("COMMIT");
    }
    EXPECT_EQ(applied_by_xmax, 2);
    EXPECT_EQ(applied_by_accept, 1);
}

TEST_F(LibpqConsumer, TheSqlFunctionAndTheLibraryShareOneInbox) {
    db_.exec("BEGIN");
    EXPECT_EQ(db_.value("SELECT inbox_accept('stock', 'id-1')"), "t");
    EXPECT_FALSE(accept(db_.handle(), "stock", "id-1"));
    EXPECT_TRUE(accept(db_.handle(), "stock", "id-2"));
    EXPECT_EQ(db_.value("SELECT inbox_accept('stock', 'id-2', now())"), "f");
    db_.exec("COMMIT");
}

TEST_F(LibpqConsumer, BeginsAndAcceptsInOneTrip) {
    const auto take = [&](const std::string& id, MessageTime time = {}) {
        const bool is_new = begin_and_accept(db_.handle(), "stock", id, time);
        db_.exec("COMMIT");
        return is_new;
    };
    EXPECT_TRUE(take("id-1"));
    EXPECT_FALSE(take("id-1"));
    const auto old = std::chrono::system_clock::now() - 100h;
    EXPECT_TRUE(take("old", old));
    EXPECT_FALSE(take("old", old));
    EXPECT_TRUE(begin_and_accept(db_.handle(), "stock", "rolled back"));
    db_.exec("ROLLBACK");
    EXPECT_TRUE(take("rolled back"));
}

TEST_F(LibpqConsumer, BeginAndAcceptLeavesNoTransactionAfterAnError) {
    const auto code_of = [&](const std::string& id, MessageTime time = {}) {
        try {
            begin_and_accept(db_.handle(), "stock", id, time);
        } catch (const Error& error) {
            return error.code();
        }
        return ErrorCode::kInternal;
    };
    const auto is_idle = [&] { return PQtransactionStatus(db_.handle()) == PQTRANS_IDLE; };
    EXPECT_EQ(code_of(""), ErrorCode::kInvalidEvent);
    EXPECT_TRUE(is_idle());
    EXPECT_EQ(code_of("ahead", std::chrono::system_clock::now() + 100h), ErrorCode::kQuarantined);
    EXPECT_TRUE(is_idle());
    EXPECT_EQ(code_of(std::string(10'000, 'x')), ErrorCode::kInvalidEvent);
    EXPECT_TRUE(is_idle());
    db_.exec("BEGIN");
    EXPECT_EQ(code_of("id-1"), ErrorCode::kConflict);
    db_.exec("ROLLBACK");
    PQenterPipelineMode(db_.handle());
    EXPECT_EQ(code_of("id-1"), ErrorCode::kConflict);
    PQexitPipelineMode(db_.handle());
    db_.exec("DROP TABLE outbox_inbox");
    EXPECT_EQ(code_of("id-1"), ErrorCode::kNoSuchTable);
    EXPECT_TRUE(is_idle());
}

TEST_F(LibpqConsumer, KeepsTheTimeOfAMessageForRetention) {
    db_.exec("BEGIN");
    const auto time = std::chrono::system_clock::from_time_t(1'700'000'000) + 123'456us;
    EXPECT_TRUE(accept(db_.handle(), "stock", "id-1", time));
    EXPECT_TRUE(accept(db_.handle(), "stock", "id-2"));
    db_.exec("COMMIT");
    EXPECT_EQ(db_.value("SELECT extract(epoch FROM message_time) FROM outbox_inbox "
                        "WHERE message_id = 'id-1'"),
              "1700000000.123456");
    EXPECT_EQ(db_.value("SELECT message_time FROM outbox_inbox WHERE message_id = 'id-2'"),
              "-infinity");
    put(kUuidV7);
    auto member = libpq_mailbox_consumer(url_, apply, options());
    EXPECT_EQ(member.drain(), 1U);
    EXPECT_EQ(db_.value("SELECT floor(extract(epoch FROM message_time) * 1000) FROM outbox_inbox "
                        "WHERE consumer = 'default'"),
              std::to_string(0x019400000000));
}

TEST_F(LibpqConsumer, AcceptWaitsForTheTransactionThatHasTheSameMessage) {
    for (const bool commits : {true, false}) {
        const std::string id = commits ? "committed" : "rolled-back";
        Pg first(url_);
        first.exec("BEGIN");
        ASSERT_TRUE(accept(first.handle(), "stock", id));
        std::optional<bool> is_new;
        std::thread other([&] {
            Pg second(url_);
            second.exec("BEGIN");
            is_new = accept(second.handle(), "stock", id);
            second.exec("COMMIT");
        });
        const bool waited = bool(eventually(60s, "the second one waits", [&] {
            return db_.number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1;
        }));
        first.exec(commits ? "COMMIT" : "ROLLBACK");
        other.join();
        EXPECT_TRUE(waited);
        EXPECT_EQ(is_new, !commits);
    }
}

// The first number is committed between the two looks at a key that nobody had seen.
TEST_F(LibpqConsumer, TheNumberThatIsExpectedIsNeverAGap) {
    constexpr const char* kLock = "4711";
    db_.exec(std::string("CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                         "IF current_setting('application_name') = 'pauses' THEN "
                         "PERFORM pg_advisory_xact_lock_shared(") +
             kLock +
             "); END IF; RETURN NULL; END $$; CREATE TRIGGER pause AFTER INSERT ON "
             "outbox_inbox_sequences FOR EACH STATEMENT EXECUTE FUNCTION pause()");
    db_.exec("BEGIN; SELECT pg_advisory_xact_lock(" + std::string(kLock) + ")");
    SequenceResult second;
    std::thread other([&] {
        Pg pauses(url_);
        pauses.exec("SET application_name = 'pauses'; BEGIN");
        second = accept_sequence(pauses.handle(), "stock", "k", 2);
        pauses.exec("COMMIT");
    });
    const bool waited = bool(eventually(60s, "the second one has looked", [&] {
        return db_.number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1;
    }));
    const SequenceResult first = accept_sequence(db_.handle(), "stock", "k", 1);
    db_.exec("COMMIT");
    other.join();
    ASSERT_TRUE(waited);
    EXPECT_EQ(first.what, SequenceResult::What::kNew);
    EXPECT_EQ(second.what, SequenceResult::What::kNew);
    EXPECT_EQ(second.expected, 3);
}

// Its id was removed after the snapshot was taken: neither new nor, by that snapshot, before the
// floor.
TEST_F(LibpqConsumer, AnIdPrunedDuringATransactionIsNotNewToIt) {
    const auto old = std::chrono::system_clock::now() - 5h;
    db_.exec("BEGIN");
    ASSERT_TRUE(accept(db_.handle(), "stock", "old", old));
    ASSERT_TRUE(accept(db_.handle(), "stock", "young", std::chrono::system_clock::now()));
    db_.exec("COMMIT");
    const auto try_under = [&](const char* isolation, bool has_floor) {
        db_.exec("DELETE FROM outbox_inbox_floor");
        if (has_floor) db_.exec("INSERT INTO outbox_inbox_floor (consumer) VALUES ('stock')");
        Pg reader(url_);
        reader.exec(std::string("BEGIN ISOLATION LEVEL ") + isolation + "; SELECT 1");
        db_.exec("SELECT inbox_prune(interval '3 hours')");
        try {
            accept(reader.handle(), "stock", "old", old);
            ADD_FAILURE() << "new under " << isolation << has_floor;
        } catch (const Error& error) {
            EXPECT_TRUE(error.code() == ErrorCode::kConflict ||
                        error.code() == ErrorCode::kQuarantined)
                << isolation << ": " << error.what();
        }
        db_.exec(
            "INSERT INTO outbox_inbox (consumer, message_id, message_time) "
            "VALUES ('stock', 'old', now() - interval '5 hours')");
    };
    for (const char* isolation : {"REPEATABLE READ", "SERIALIZABLE", "READ COMMITTED"}) {
        for (const bool has_floor : {false, true}) try_under(isolation, has_floor);
    }
}

TEST_F(LibpqConsumer, AcceptReportsAConflictUnderRepeatableRead) {
    Pg second(url_);
    second.exec("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM outbox_inbox");
    db_.exec("BEGIN");
    ASSERT_TRUE(accept(db_.handle(), "stock", "id-1"));
    db_.exec("COMMIT");
    try {
        accept(second.handle(), "stock", "id-1");
        FAIL() << "no conflict";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kConflict);
        EXPECT_EQ(error.advice(), Advice::kRetryEvent);
        EXPECT_EQ(error.info().backend_code, "40001");
    }
    try {
        accept(second.handle(), "stock", "id-2");
        FAIL() << "accepted in a failed transaction";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kNoTransaction);
    }
}

TEST_F(LibpqConsumer, RunsATransactionAgainAfterASerializationFailure) {
    db_.exec("CREATE TABLE stock (n int); INSERT INTO stock VALUES (10)");
    put("a");
    int calls = 0;
    // The handler throws what it likes: the session knows that it was a conflict.
    auto member = libpq_mailbox_consumer(
        url_ + "?options=-c%20default_transaction_isolation%3Dserializable",
        [&](PGconn* transaction, const Message& message) {
            Pg::query(transaction, "SELECT n FROM stock");
            if (++calls == 1) db_.exec("UPDATE stock SET n = n - 1");
            Pg::query(transaction, "UPDATE stock SET n = n - 1");
            apply(transaction, message);
        },
        options());
    EXPECT_EQ(member.drain(), 1U);
    EXPECT_EQ(calls, 2);
    EXPECT_EQ(db_.number("SELECT n FROM stock"), 8);
    EXPECT_EQ(member.stats().failed, 0U);
    EXPECT_EQ(member.stats().conflicts, 1U);
}

TEST_F(LibpqConsumer, AFullDiskIsNotTheMessagesFault) {
    put("a");
    auto once = options();
    once.max_attempts = 1;
    once.retry_base_ms = once.retry_max_ms = 1;
    int calls = 0;
    auto member = libpq_mailbox_consumer(
        url_,
        [&](PGconn* transaction, const Message& message) {
            if (++calls <= 3) {
                Pg::query(transaction,
                          "DO $$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; "
                          "END $$");
            }
            apply(transaction, message);
        },
        once);
    EXPECT_TRUE(eventually(60s, "it is dealt with", [&] {
        member.drain();
        return db_.number("SELECT count(*) FROM outbox_mailbox") == 0;
    }));
    EXPECT_EQ(calls, 4);
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_inbox_dead_letters"), 0);
}

TEST_F(LibpqConsumer, AFullDiskAtTheCommitIsNotTheMessagesFaultHoweverOften) {
    db_.exec(
        "CREATE TABLE disk (room boolean); INSERT INTO disk VALUES (false); "
        "CREATE FUNCTION needs_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NOT (SELECT "
        "room FROM disk) THEN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END IF; "
        "RETURN NULL; END $$; "
        "CREATE CONSTRAINT TRIGGER needs_room AFTER INSERT ON effects DEFERRABLE INITIALLY "
        "DEFERRED FOR EACH ROW EXECUTE FUNCTION needs_room()");
    put("a");
    auto once = options();
    once.max_attempts = 1;
    once.retry_base_ms = once.retry_max_ms = 1;
    db_.exec("CREATE SEQUENCE tries");
    auto member = libpq_mailbox_consumer(
        url_,
        [](PGconn* transaction, const Message& message) {
            Pg::query(transaction, "SELECT nextval('tries')");
            apply(transaction, message);
        },
        once);
    std::thread runs([&] { member.run(); });
    EXPECT_TRUE(eventually(60s, "it is tried more often than a lost session would be",
                           [&] { return db_.number("SELECT last_value FROM tries") > 12; }));
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_inbox_dead_letters"), 0);
    db_.exec("UPDATE disk SET room = true");
    EXPECT_TRUE(eventually(60s, "it is applied",
                           [&] { return db_.number("SELECT count(*) FROM effects") == 1; }));
    member.stop();
    runs.join();
    EXPECT_EQ(member.stats().failed, 0U);
}

TEST_F(LibpqConsumer, AStatementThatFailedUnnoticedIsAFailureOfTheHandler) {
    put("a");
    auto once = options();
    once.max_attempts = 1;
    auto member = libpq_mailbox_consumer(
        url_,
        [](PGconn* transaction, const Message&) {
            PQclear(PQexec(transaction, "INSERT INTO no_such_table VALUES (1)"));
        },
        once);
    EXPECT_EQ(member.drain(), 1U);
    EXPECT_THAT(db_.value("SELECT error FROM outbox_inbox_dead_letters"),
                HasSubstr("relation \"no_such_table\" does not exist"));
}

TEST_F(LibpqConsumer, AConstraintCheckedAtCommitIsAFailureOfTheMessage) {
    db_.exec(
        "ALTER TABLE effects ADD UNIQUE (id) DEFERRABLE INITIALLY DEFERRED; "
        "INSERT INTO effects (id) VALUES ('a')");
    put("a");
    put("b");
    auto once = options();
    once.max_attempts = 1;
    auto member = libpq_mailbox_consumer(url_, apply, once);
    EXPECT_EQ(member.drain(), 2U);
    EXPECT_EQ(db_.value("SELECT message_id FROM outbox_inbox_dead_letters"), "a");
    EXPECT_THAT(effects(), ElementsAre("a", "b"));
}

TEST_F(LibpqConsumer, AHandlerThatLeavesTheConnectionBusyIsGivenUpOn) {
    put("a");
    put("b");
    auto twice = options();
    twice.max_attempts = 2;
    auto member = libpq_mailbox_consumer(
        url_,
        [](PGconn* transaction, const Message& message) {
            if (message.id == "a") {
                PQclear(PQexec(transaction, "COPY effects (id) FROM STDIN"));
                return;
            }
            apply(transaction, message);
        },
        twice);
    std::size_t done = 0;
    ASSERT_TRUE(eventually(60s, "both are dealt with", [&] {
        try {
            done += member.drain();
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::kConnectionLost);
        }
        return db_.number("SELECT count(*) FROM outbox_mailbox") == 0;
    }));
    EXPECT_THAT(effects(), ElementsAre("b"));
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_inbox_dead_letters"), 1);
}

TEST_F(LibpqConsumer, AMessageThatEndsItsSessionAgainAndAgainIsGivenUpOn) {
    put("killer");
    put("next");
    auto once = options();
    once.max_attempts = 1;
    auto member = libpq_mailbox_consumer(
        url_,
        [](PGconn* transaction, const Message& message) {
            if (message.id == "killer") {
                Pg::query(transaction, "SELECT pg_terminate_backend(pg_backend_pid())");
            }
            apply(transaction, message);
        },
        once);
    std::thread running([&] { member.run(); });
    const bool done = bool(eventually(60s, "both are dealt with", [&] {
        return db_.number("SELECT count(*) FROM outbox_mailbox") == 0;
    }));
    member.stop();
    running.join();
    ASSERT_TRUE(done);
    EXPECT_THAT(effects(), ElementsAre("next"));
    EXPECT_EQ(db_.value("SELECT message_id FROM outbox_inbox_dead_letters"), "killer");
}

// The transaction that it shares with others fails whole.
TEST_F(LibpqConsumer, AMessageThatEndsItsSessionIsGivenUpOnAmongOthersToo) {
    auto often = options();
    often.transaction_size = 10;
    often.retry_base_ms = often.retry_max_ms = 1;
    auto member = libpq_mailbox_consumer(
        url_,
        [](PGconn* transaction, const Message& message) {
            if (message.id == "killer") {
                Pg::query(transaction, "SELECT pg_terminate_backend(pg_backend_pid())");
            }
            apply(transaction, message);
        },
        often);
    for (const char* id : {"before", "killer", "next"}) put(id, id);
    EXPECT_TRUE(eventually(60s, "all are dealt with", [&] {
        try {
            member.drain();
        } catch (const Error& error) {
            EXPECT_EQ(error.advice(), Advice::kRetryDestination) << error.what();
        }
        return db_.number("SELECT count(*) FROM outbox_mailbox") == 0;
    }));
    EXPECT_THAT(effects(), ElementsAre("before", "next"));
    EXPECT_EQ(db_.value("SELECT message_id FROM outbox_inbox_dead_letters"), "killer");
}

// The commit of one message and the beginning of the next go together: what becomes of the one must
// not become of the other.
TEST_F(LibpqConsumer, AMessageThatCannotBeTakenDoesNotUndoTheOneBefore) {
    db_.exec(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF NEW.message_id = 'refused' THEN RAISE EXCEPTION 'not this one'; END IF; "
        "RETURN NEW; END $$; "
        "CREATE TRIGGER refuse BEFORE INSERT ON outbox_inbox FOR EACH ROW EXECUTE FUNCTION "
        "refuse()");
    for (const char* id : {"a", "refused", "b"}) put(id, id);
    auto patient = options();
    patient.retry_base_ms = patient.retry_max_ms = 60'000;
    auto member = libpq_mailbox_consumer(url_, apply, patient);
    EXPECT_EQ(member.drain(), 2U);
    EXPECT_THAT(effects(), ElementsAre("a", "b"));
    EXPECT_EQ(db_.value("SELECT id FROM outbox_mailbox"), "refused");
    EXPECT_EQ(member.stats().applied, 2U);
    EXPECT_EQ(member.stats().failed, 1U);
}

TEST_F(LibpqConsumer, AMessageWhoseTransactionWasBegunIsFreeAgainWhenTheConsumerStops) {
    put("a");
    put("b");
    MailboxConsumer* running = nullptr;
    auto stops = options();
    stops.on_report = [&](const ConsumerReport& report) {
        if (report.what == What::kApplied) running->stop();
    };
    auto member = libpq_mailbox_consumer(url_, apply, stops);
    running = &member;
    EXPECT_EQ(member.drain(), 1U);
    EXPECT_THAT(effects(), ElementsAre("a"));
    EXPECT_EQ(db_.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                         "AND state LIKE 'idle in transaction%'"),
              0);
    EXPECT_EQ(db_.value("SELECT id FROM outbox_mailbox FOR UPDATE NOWAIT"), "b");
}

TEST_F(LibpqConsumer, AppliesAMessageThatBecomesVisibleBehindALaterPosition) {
    Pg slow_writer(url_);
    slow_writer.exec("BEGIN");
    slow_writer.exec("INSERT INTO outbox_mailbox (id, topic, key) VALUES ('late', 't', 'x')");
    put("early");
    auto member = libpq_mailbox_consumer(url_, apply, options());
    EXPECT_EQ(member.drain(), 1U);
    slow_writer.exec("COMMIT");
    EXPECT_EQ(member.drain(), 1U);
    EXPECT_THAT(effects(), ElementsAre("early", "late"));
}

TEST_F(LibpqConsumer, AMessageThatBecomesVisibleBelowABacklogIsAppliedWhileItIsWorkedOff) {
    Pg slow_writer(url_);
    slow_writer.exec("BEGIN");
    slow_writer.exec("INSERT INTO outbox_mailbox (id, topic, key) VALUES ('late', 't', 'x')");
    for (int i = 0; i < 10; ++i) put("m" + std::to_string(i));
    auto a_few_at_a_time = options();
    a_few_at_a_time.batch_size = 2;
    auto member = libpq_mailbox_consumer(
        url_,
        [&](PGconn* transaction, const Message& message) {
            apply(transaction, message);
            if (message.id == "m5") slow_writer.exec("COMMIT");
        },
        a_few_at_a_time);
    EXPECT_EQ(member.drain(), 11U);
}

TEST_F(LibpqConsumer, AStandbyTakesOverWhenTheHoldersSessionEnds) {
    auto holder = libpq_mailbox_consumer(url_, apply, options());
    auto standby = libpq_mailbox_consumer(url_, apply, options());
    put("a");
    EXPECT_EQ(holder.drain(), 1U);
    put("b");
    EXPECT_EQ(standby.drain(), 0U);
    db_.exec(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'outbox consumer' AND datname = current_database() "
        "AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)");
    ASSERT_TRUE(
        eventually(60s, "the standby has taken over", [&] { return standby.drain() == 1; }));
    EXPECT_THROW(holder.drain(), Error) << "its session is gone";
    EXPECT_EQ(holder.drain(), 0U) << "and the mailbox is the other's now";
    EXPECT_THAT(effects(), ElementsAre("a", "b"));
}

// What it did not read again as holder may have changed while another was, or nobody.
TEST_F(LibpqConsumer, AMemberThatHoldsTheMailboxAnewReadsItFromItsBeginning) {
    Pg slow_writer(url_);
    slow_writer.exec("BEGIN");
    slow_writer.exec("INSERT INTO outbox_mailbox (id, topic, key) VALUES ('late', 't', 'k')");
    put("first", "a");
    put("behind", "k");
    auto one_at_a_time = options();
    one_at_a_time.batch_size = 1;
    bool held = true;
    one_at_a_time.on_report = [&](const ConsumerReport& report) {
        if (report.what != What::kApplied || !held) return;
        held = false;
        db_.exec(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
            "WHERE application_name = 'outbox consumer' AND datname = current_database()");
        slow_writer.exec("COMMIT");
    };
    auto member = libpq_mailbox_consumer(url_, apply, one_at_a_time);
    EXPECT_THROW(member.drain(), Error) << "its session is gone";
    EXPECT_EQ(member.drain(), 2U);
    EXPECT_THAT(effects(), ElementsAre("first", "late", "behind"));
}

TEST_F(LibpqConsumer, DifferentMailboxesAreHeldByDifferentMembers) {
    auto other = options();
    other.mailbox = "other";
    auto first = libpq_mailbox_consumer(url_, apply, options());
    auto second = libpq_mailbox_consumer(url_, apply, other);
    put("a");
    db_.exec("INSERT INTO outbox_mailbox (mailbox, id, topic) VALUES ('other', 'b', 't')");
    EXPECT_EQ(first.drain(), 1U);
    EXPECT_EQ(second.drain(), 1U);
}

TEST_F(LibpqConsumer, ReadsLargeMessagesAFewAtATime) {
    db_.exec(
        "INSERT INTO outbox_mailbox (id, topic, payload) "
        "SELECT 'm' || n, 't', decode(repeat('00', 400000), 'hex') "
        "FROM generate_series(1, 10) n");
    std::size_t bytes = 0;
    auto member = libpq_mailbox_consumer(
        url_, [&](PGconn*, const Message& message) { bytes += message.payload.size(); }, options());
    EXPECT_EQ(member.drain(), 10U);
    EXPECT_EQ(bytes, 4'000'000U);
}

// Somebody else has applied it while this one failed: in another group, or before a restore.
TEST_F(LibpqConsumer, AMessageThatWasAppliedElsewhereIsNotGivenUpOn) {
    put("a");
    put("b");
    auto twice = options();
    twice.max_attempts = 2;
    bool applied = false;  // elsewhere, before the member gave it up
    auto member = libpq_mailbox_consumer(
        url_,
        [&](PGconn*, const Message& message) {
            if (message.attempt == 2 && message.id == "a") {
                // Behind the handler's transaction, which is going to be rolled back.
                later_ = std::thread([this, &applied] {
                    Pg other(url_);
                    applied = other.number(
                                  "WITH i AS (INSERT INTO outbox_inbox (consumer, message_id) "
                                  "VALUES ('default', 'a') ON CONFLICT DO NOTHING RETURNING 1) "
                                  "SELECT count(*) FROM i") == 1;
                });
                EXPECT_TRUE(eventually(60s, "it waits", [&] {
                    return db_.number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1;
                }));
            }
            throw std::runtime_error("no stock");
        },
        twice);
    std::size_t done = 0;
    const bool both = bool(eventually(60s, "both are dealt with", [&] {
        done += member.drain();
        return done == 2;
    }));
    later_.join();
    ASSERT_TRUE(both);
    // Whoever comes first after the rollback: it is applied or dead, never both.
    EXPECT_EQ(db_.value("SELECT string_agg(message_id, ' ' ORDER BY message_id) FROM "
                        "outbox_inbox_dead_letters"),
              applied ? "b" : "a b");
    EXPECT_EQ(member.stats().repeats, applied ? 1U : 0U);
    EXPECT_EQ(member.stats().dead, applied ? 1U : 2U);
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_mailbox"), 0);
}

// A transaction elsewhere looks at the floors, or is about to raise them.
TEST_F(LibpqConsumer, PruningWaitsForNobodyAndNobodyForIt) {
    db_.exec("INSERT INTO outbox_inbox_floor (consumer) VALUES ('default'), ('other')");
    db_.exec(
        "INSERT INTO outbox_inbox (consumer, message_id, message_time) SELECT c, 'old', "
        "now() - interval '5 hours' FROM unnest('{a,default}'::text[]) c "
        "UNION ALL SELECT 'default', 'young', now()");
    Pg other(url_);
    other.exec("BEGIN; SELECT FROM outbox_inbox_floor WHERE consumer = 'other' FOR UPDATE");
    db_.exec("SET lock_timeout = '10s'");
    EXPECT_EQ(db_.number("SELECT inbox_prune(interval '3 hours')"), 2);
    db_.exec("UPDATE outbox_inbox_floor SET floor = '-infinity'  WHERE consumer = 'default'");
    // Messages do not wait for one that has to.
    other.exec("SELECT FROM outbox_inbox_floor FOR UPDATE; LOCK TABLE outbox_idempotency");
    auto chosen = options();
    chosen.inbox_retention_s = 7'200;
    auto member = libpq_mailbox_consumer(url_, apply, chosen);
    std::thread running([&] { member.run(); });
    EXPECT_TRUE(eventually(60s, "pruning has to wait", [&] {
        return db_.number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1;
    }));
    put("a");
    const bool applied =
        bool(eventually(60s, "it is applied", [&] { return member.stats().applied == 1; }));
    other.exec("COMMIT");
    member.stop();
    running.join();
    EXPECT_TRUE(applied);
}

TEST_F(LibpqConsumer, PruningThatWaitsForALockDoesNotKeepTheConsumerFromStopping) {
    Pg other(url_);
    other.exec("BEGIN; LOCK TABLE outbox_idempotency");
    auto chosen = options();
    chosen.inbox_retention_s = 7'200;
    auto member = libpq_mailbox_consumer(url_, apply, chosen);
    std::atomic<bool> ended = false;
    std::thread running([&] {
        member.run();
        ended = true;
    });
    const char* waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    EXPECT_TRUE(eventually(60s, "it waits", [&] { return db_.number(waiting) == 1; }));
    member.stop();
    EXPECT_TRUE(eventually(60s, "it stopped", [&] { return ended.load(); }));
    EXPECT_TRUE(eventually(60s, "no session waits", [&] { return db_.number(waiting) == 0; }));
    other.exec("COMMIT");
    running.join();
}

TEST_F(LibpqConsumer, ADeadLetterThatAnotherMemberHasInHandDelaysNobody) {
    db_.exec(
        "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, attempts, error_code, "
        "error, retry_requested_at) VALUES ('default', 'in hand', 't', 1, 'x', 'x', now()), "
        "('default', 'free', 't', 1, 'x', 'x', now())");
    put("a");
    Pg other(url_);
    other.exec("BEGIN; DELETE FROM outbox_inbox_dead_letters WHERE message_id = 'in hand'");
    auto member =
        libpq_mailbox_consumer(url_ + "?options=-c%20lock_timeout%3D10s", apply, options());
    EXPECT_EQ(member.drain(), 2U);
    EXPECT_THAT(effects(), ElementsAre("free", "a"));
}

// A store that does something before it gives the payload, which is "whole".
class BusyStore final : public claim::ObjectStore {
  public:
    explicit BusyStore(std::function<void()> busy) : busy_(std::move(busy)) {}
    const std::string& url() const override { return url_; }
    Status put(std::string_view, std::string_view, const std::stop_token&) override { return {}; }
    Result<std::string> get(std::string_view, std::size_t, const std::stop_token&) override {
        busy_();
        return std::string("whole");
    }

  private:
    std::function<void()> busy_;
    std::string url_ = "busy://store";
};

// Its request is taken, and committed, before its payload is fetched.
TEST_F(LibpqConsumer, ALetterThatSomebodyHoldsOnceItsRequestIsTakenIsTriedWhenItIsFree) {
    const std::string hash = net::sha256_hex("whole");
    db_.exec(
        "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, attempts, error_code, "
        "error, retry_requested_at, headers) VALUES ('default', 'held', 't', 1, 'x', 'x', now(), "
        "'{\"claim-check\":\"busy://store/" +
        claim::object_name("t", "held", hash) +
        "\",\"claim-check-size\":\"5\",\"claim-check-sha256\":\"" + hash + "\"}')");
    Pg other(url_);
    bool holds = false;
    auto chosen = options();
    chosen.claims.open = [&] {
        return std::make_unique<BusyStore>([&] {
            if (std::exchange(holds, true)) return;
            other.exec("BEGIN; SELECT FROM outbox_inbox_dead_letters FOR UPDATE");
        });
    };
    put("a");
    auto member =
        libpq_mailbox_consumer(url_ + "?options=-c%20lock_timeout%3D10s", apply, std::move(chosen));
    EXPECT_EQ(member.drain(), 1U);
    EXPECT_THAT(effects(), ElementsAre("a")) << "who holds a letter delays nobody";
    EXPECT_TRUE(reported(What::kRetry));
    EXPECT_FALSE(reported(What::kDeadLetter));
    other.exec("ROLLBACK");
    ASSERT_TRUE(eventually(60s, "it is applied",
                           [&] {
                               member.drain();
                               return db_.number(
                                          "SELECT count(*) FROM outbox_inbox_dead_letters") == 0;
                           }))
        << db_.value(
               "SELECT row(attempts, retry_requested_at, error) FROM outbox_inbox_dead_letters");
    EXPECT_THAT(effects(), ElementsAre("a", "held"));
    EXPECT_EQ(member.stats().failed, 0U);
}

// JSON can hold a NUL, a text of PostgreSQL cannot.
TEST_F(LibpqConsumer, ANulInTheHeadersOfOneLetterHidesNoOther) {
    db_.exec(
        R"(INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, headers, attempts,
           error_code, error) VALUES
           ('default', 'nul', 't', '{"type":"a\u0000b","saga_id":"s"}', 1, 'x', 'x'),
           ('default', 'other', 't', '{"type":"Paid"}', 1, 'x', 'x'))");
    const auto operations = operations_of(url_);
    const auto letters = operations->dead_letters("default");
    const auto dead = letters->dead({}, 0, 10, true);
    ASSERT_TRUE(dead.ok()) << describe(dead.error());
    ASSERT_EQ(dead->size(), 2U);
    DeadFilter paid;
    paid.event_type = "Paid";
    EXPECT_EQ(letters->count_dead(paid).value_or_throw(), 1);
    EXPECT_EQ(letters->retry_dead(paid).value_or_throw(), 1);
}

// A message that is young by this machine's clock may be from before the floor by the database's.
TEST(LibpqConsumerClock, TheDatabasesClockDecidesWhatMayHaveBeenPruned) {
    const std::string url = shared_postgres().create_database();
    Pg db(url);
    db.exec(
        "CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "
        "$$ SELECT pg_catalog.clock_timestamp() + interval '3 hours' $$");
    const std::string ahead = url + "?options=-c%20search_path%3Dpublic,pg_catalog";
    migrate(ahead);
    Pg(ahead).exec(
        "ALTER FUNCTION inbox_accept SET search_path = public, pg_catalog; "
        "INSERT INTO outbox_inbox_floor VALUES ('default', clock_timestamp() - interval '2 "
        "hours')");
    for (const std::size_t together : {1U, 10U}) {
        MailboxOptions chosen;
        chosen.connect_timeout_s = 60;
        chosen.transaction_size = together;
        for (const char* id : {"pruned", "other"}) {
            db.exec(std::string("INSERT INTO outbox_mailbox (id, topic, key, headers) VALUES ('") +
                    id + std::to_string(together) +
                    "', 't', 'k', json_build_object('occurred_at', to_char(now() AT TIME ZONE "
                    "'UTC' - interval '5 minutes', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')))");
        }
        auto member = libpq_mailbox_consumer(
            ahead, [](PGconn*, const Message& message) { ADD_FAILURE() << message.id; }, chosen);
        EXPECT_EQ(member.drain(), 2U);
        EXPECT_EQ(member.stats().dead, 2U);
    }
}

class ConsumerWithItsOwnRole : public LibpqConsumer {
  protected:
    ConsumerWithItsOwnRole() {
        db_.exec("CREATE ROLE " + role_ + " LOGIN PASSWORD 'test'; GRANT INSERT ON effects TO " +
                 role_);
    }
    ~ConsumerWithItsOwnRole() override {
        db_.exec("DROP OWNED BY " + role_ + "; DROP ROLE " + role_);
    }
    // The rights that docs/receiving.md lists for a consumer of a mailbox.
    void grant_what_the_page_lists() {
        const std::string page = read_file(GUIDE_PAGE);
        const auto from = page.find("GRANT SELECT, DELETE ON outbox_mailbox");
        ASSERT_NE(from, std::string::npos);
        std::string grants = page.substr(from, page.find("```", from) - from);
        for (auto at = grants.find(kExampleRole); at != std::string::npos;
             at = grants.find(kExampleRole)) {
            grants.replace(at, std::string_view(kExampleRole).size(), role_);
        }
        db_.exec(grants);
    }
    MailboxConsumer member(const std::string& more = {}, MailboxOptions chosen = {}) {
        chosen.on_report = options().on_report;
        chosen.connect_timeout_s = options().connect_timeout_s;
        return libpq_mailbox_consumer(url_ + "?user=" + role_ + more, apply, std::move(chosen));
    }
    static ErrorInfo error_of(const std::function<void()>& call) {
        try {
            call();
        } catch (const Error& error) {
            return error.info();
        }
        return {ErrorCode::kInternal, Advice::kStop, {}, "nothing was thrown"};
    }
    // Of a run that ends by itself.
    static ErrorInfo error_of_run(MailboxConsumer consumer) {
        ErrorInfo error;
        std::atomic<bool> ended = false;
        std::thread running([&] {
            error = error_of([&] { consumer.run(); });
            ended = true;
        });
        EXPECT_TRUE(eventually(60s, "the run ends", [&] { return ended.load(); }));
        consumer.stop();
        running.join();
        return error;
    }
    void put_old(const std::string& id) {
        db_.exec("INSERT INTO outbox_mailbox (id, topic, key, headers) VALUES ('" + id +
                 "', 't', 'k', json_build_object('occurred_at', to_char(now() AT TIME ZONE 'UTC' - "
                 "interval '5 hours', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')))");
    }

    static constexpr const char* kExampleRole = "inventory";
    const std::string role_ = "consumer_" + std::to_string(::getpid());
};

// One that is older than an hour asks for the floor.
TEST_F(ConsumerWithItsOwnRole, AppliesWhatIsOldWithTheRightsThatThePageLists) {
    grant_what_the_page_lists();
    for (const char* isolation : {"read%5C%20committed", "repeatable%5C%20read", "serializable"}) {
        put_old(std::string("old ") + isolation);
        put(std::string("young ") + isolation);
        auto chosen = options();
        chosen.inbox_retention_s = 7'200;
        auto one = member(std::string("&options=-c%20default_transaction_isolation%3D") + isolation,
                          chosen);
        EXPECT_EQ(one.drain(), 2U) << isolation;
    }
    EXPECT_EQ(effects().size(), 6U);
    db_.exec(
        "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, attempts, error_code, "
        "error, retry_requested_at) VALUES ('default', 'retried', 't', 1, 'x', 'x', now())");
    EXPECT_EQ(member().drain(), 1U);
}

TEST_F(ConsumerWithItsOwnRole, NamesEveryGrantThatIsMissingAtTheStart) {
    const ErrorInfo error = error_of_run(member());
    EXPECT_EQ(error.code, ErrorCode::kNoRights);
    EXPECT_EQ(error.advice, Advice::kStop);
    for (const char* grant : {"GRANT SELECT, DELETE ON outbox_mailbox TO consumer_",
                              "GRANT SELECT, INSERT ON outbox_inbox TO", "ON outbox_inbox_floor TO",
                              "ON outbox_inbox_dead_letters TO", "ON outbox_inbox_stats TO"}) {
        EXPECT_THAT(error.message, HasSubstr(grant));
    }
    grant_what_the_page_lists();
    db_.exec("REVOKE UPDATE ON outbox_inbox_floor FROM " + role_);
    const ErrorInfo one = error_of_run(member());
    EXPECT_THAT(one.message, testing::EndsWith("consumer needs; GRANT SELECT, INSERT, UPDATE ON "
                                               "outbox_inbox_floor TO " +
                                               role_));
}

// Its messages would wait for ever.
TEST_F(ConsumerWithItsOwnRole, ATableOfWhichRowSecurityHidesRowsEndsTheRun) {
    grant_what_the_page_lists();
    for (const std::string table : {"outbox_mailbox", "outbox_inbox"}) {
        db_.exec("ALTER TABLE " + table + " ENABLE ROW LEVEL SECURITY");
        const ErrorInfo error = error_of_run(member());
        EXPECT_EQ(error.code, ErrorCode::kNoRights);
        EXPECT_THAT(error.message, HasSubstr("row security of " + table));
        db_.exec("ALTER TABLE " + table + " DISABLE ROW LEVEL SECURITY");
    }
}

TEST_F(ConsumerWithItsOwnRole, ARightThatIsTakenAwayLaterEndsTheRunAndIsNoOutage) {
    grant_what_the_page_lists();
    put("before");
    auto one = member();
    ErrorInfo error;
    std::atomic<bool> ended = false;
    std::thread running([&] {
        error = error_of([&] { one.run(); });
        ended = true;
    });
    const bool began =
        bool(eventually(60s, "the first is applied", [&] { return one.stats().applied == 1; }));
    db_.exec("REVOKE INSERT ON outbox_inbox FROM " + role_);
    put("after");
    const bool waits = !bool(eventually(60s, "it ended", [&] { return ended.load(); }));
    one.stop();
    running.join();
    ASSERT_TRUE(began);
    EXPECT_FALSE(waits);
    EXPECT_EQ(error.code, ErrorCode::kNoRights);
    EXPECT_THAT(error.message, HasSubstr("GRANT"));
    EXPECT_EQ(db_.value("SELECT id FROM outbox_mailbox"), "after");
}

TEST(LibpqConsumerUrl, SaysWhyTheDatabaseCannotBeUsedWithoutTheSecret) {
    const auto error_of = [](const std::string& url) {
        MailboxOptions options;
        options.connect_timeout_s = 60;
        try {
            libpq_mailbox_consumer(url, apply, options).run();
        } catch (const Error& error) {
            EXPECT_EQ(std::string(error.what()).find("hidden"), std::string::npos) << error.what();
            return error.code();
        }
        return ErrorCode::kInternal;
    };
    const std::string server = shared_postgres().url();
    EXPECT_EQ(error_of(server + "?user=nobody_here"), ErrorCode::kAuthFailed);
    EXPECT_EQ(error_of(server.substr(0, server.rfind('/')) + "/no_such_db"),
              ErrorCode::kNoSuchDatabase);
    EXPECT_EQ(error_of("postgresql://u:hidden@127.0.0.1:" + std::to_string(free_port()) + "/x"),
              ErrorCode::kConnectFailed);
    EXPECT_EQ(error_of("postgresql://u:hidden@h/x?nope=1"), ErrorCode::kConfigInvalid);
    EXPECT_EQ(error_of("postgresql://u:pw@hidden@127.0.0.1/x"), ErrorCode::kConfigInvalid);
}

class LibpqConsumerOutage : public LibpqConsumer {
  protected:
    LibpqConsumerOutage() : LibpqConsumer(server()) {}
    static PostgresServer& server() {
        static PostgresServer own;
        return own;
    }
};

TEST_F(LibpqConsumerOutage, GoesOnByItselfAfterTheServerWasAwayAndCountsNothing) {
    auto member = libpq_mailbox_consumer(url_, apply, options());
    std::thread running([&] { member.run(); });
    put("before");
    const bool applied =
        bool(eventually(60s, "the first is applied", [&] { return member.stats().applied == 1; }));
    server().stop(PostgresServer::Stop::kImmediate);
    server().start();
    db_ = Pg(url_);
    put("after");
    const bool went_on =
        bool(eventually(60s, "the second is applied", [&] { return member.stats().applied == 2; }));
    member.stop();
    running.join();
    ASSERT_TRUE(applied && went_on);
    EXPECT_THAT(effects(), ElementsAre("before", "after"));
    EXPECT_EQ(member.stats().failed, 0U);
    EXPECT_TRUE(reported(What::kDisconnected));
    EXPECT_TRUE(reported(What::kConnected));
}

TEST_F(LibpqConsumerOutage, GoesOnByItselfAfterItsPasswordFileWasEmptyForAMoment) {
    const TemporaryFolder folder("password");
    const auto file = folder / "password";
    const auto write = [&](const std::string& text) {
        std::ofstream(file, std::ios::trunc) << text;
        using std::filesystem::perms;
        std::filesystem::permissions(file, perms::owner_read | perms::owner_write);
    };
    const std::string whole = server().with_password(url_);
    const std::string before = "postgresql://postgres:";
    const std::string password = whole.substr(before.size(), whole.find('@') - before.size());
    std::atomic<bool> said = false;
    auto chosen = options();
    chosen.on_report = [&](const ConsumerReport& report) {
        if (describe(report.error).find("it is empty") != std::string::npos) said = true;
    };
    write(password);
    auto member = libpq_mailbox_consumer(url_ + "?password_file=" + file.string(), apply, chosen);
    std::string ended;
    std::thread running([&] {
        try {
            member.run();
        } catch (const Error& error) {
            ended = error.what();
        }
    });
    put("before");
    const bool applied =
        bool(eventually(60s, "the first is applied", [&] { return member.stats().applied == 1; }));
    write("");
    db_.exec(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'outbox "
        "consumer'");
    const bool waits = bool(eventually(60s, "it says so", [&] { return said.load(); }));
    write(password);
    put("after");
    const bool went_on =
        bool(eventually(60s, "the second is applied", [&] { return member.stats().applied == 2; }));
    member.stop();
    running.join();
    EXPECT_EQ(ended, "");
    EXPECT_TRUE(applied && waits && went_on);
    EXPECT_THAT(effects(), ElementsAre("before", "after"));
}

// It keeps its connections and answers nothing, in the middle of a handler's statement.
TEST_F(LibpqConsumerOutage, AServerThatStopsAnsweringHangsNeitherTheConsumerNorItsStop) {
    auto chosen = options();
    chosen.connect_timeout_s = 1;
    std::atomic<bool> hangs = true;
    std::atomic<bool> disconnected = false;
    chosen.on_report = [&](const ConsumerReport& report) {
        if (report.what == What::kDisconnected) disconnected = true;
    };
    auto member = libpq_mailbox_consumer(
        url_,
        [&](PGconn* transaction, const Message& message) {
            apply(transaction, message);
            if (hangs.exchange(false)) server().pause();
            Pg::query(transaction, "SELECT 1");
        },
        chosen);
    // Within a second, which may be too short for a first connection: a run would end.
    ASSERT_TRUE(eventually(60s, "it is connected", [&] {
        try {
            member.drain();
            return true;
        } catch (const Error&) {
            return false;
        }
    }));
    std::atomic<bool> ended = false;
    put("first");
    std::thread running([&] {
        member.run();
        ended = true;
    });
    const bool noticed =
        bool(eventually(60s, "it is noticed", [&] { return disconnected.load(); }));
    server().resume();
    const bool resumed =
        bool(eventually(60s, "it goes on", [&] { return member.stats().applied == 1; }));
    hangs = true;
    put("second");
    const bool hung = bool(eventually(60s, "it hangs again", [&] { return !hangs; }));
    member.stop();
    const bool stopped = bool(eventually(60s, "it ended", [&] { return ended.load(); }));
    server().resume();
    running.join();
    EXPECT_TRUE(noticed);
    EXPECT_TRUE(resumed);
    EXPECT_TRUE(hung);
    EXPECT_TRUE(stopped);
    db_ = Pg(url_);
    EXPECT_THAT(effects(), ElementsAre("first"));
    EXPECT_EQ(member.stats().failed, 0U);
}

TEST_F(LibpqConsumer, ASessionThatEndsWhileFiguresAreWrittenIsTold) {
    auto member = libpq_mailbox_consumer(url_, apply, options());
    std::thread running([&] { member.run(); });
    put("first");
    const bool began =
        bool(eventually(60s, "it applies", [&] { return member.stats().applied == 1; }));
    Pg other(url_);
    other.exec("BEGIN");
    other.exec("LOCK outbox_inbox_stats");
    put("second");
    const bool ended = bool(eventually(60s, "its session is ended", [&] {
        return !db_.query(
                       "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                       "application_name = 'outbox consumer' AND wait_event_type = 'Lock' AND "
                       "datname = current_database()")
                    .empty();
    }));
    other.exec("COMMIT");
    const bool applied =
        bool(eventually(60s, "it goes on", [&] { return member.stats().applied == 2; }));
    member.stop();
    running.join();
    EXPECT_TRUE(began);
    EXPECT_TRUE(ended);
    EXPECT_TRUE(applied);
    EXPECT_TRUE(reported(What::kDisconnected));
}

// A statement that only takes long is let alone, and a handler that has none under way: for longer
// than it takes to see that a session has nothing to do.
TEST_F(LibpqConsumer, AHandlerThatTakesLongIsNotTakenForAnOutage) {
    put("slow");
    auto member = libpq_mailbox_consumer(
        url_,
        [](PGconn* transaction, const Message& message) {
            Pg::query(transaction, "SELECT pg_sleep(17)");
            apply(transaction, message);
        },
        options());
    EXPECT_EQ(member.drain(), 1U);
    EXPECT_THAT(effects(), ElementsAre("slow"));
    EXPECT_FALSE(reported(What::kDisconnected));
}

TEST_F(LibpqConsumer, AHandlerThatIsBusyElsewhereForLongIsNotTakenForAnOutage) {
    put("slow");
    auto member = libpq_mailbox_consumer(
        url_,
        [&](PGconn* transaction, const Message& message) {
            apply(transaction, message);
            db_.exec("SELECT pg_sleep(17)");
            Pg::query(transaction, "SELECT 1");
        },
        options());
    EXPECT_EQ(member.drain(), 1U);
    EXPECT_THAT(effects(), ElementsAre("slow"));
    EXPECT_FALSE(reported(What::kDisconnected));
}

TEST_F(LibpqConsumer, AHandlerThatIsBusyElsewhereWhileItsAnswerIsThereIsNotTakenForAnOutage) {
    put("slow");
    auto member = libpq_mailbox_consumer(
        url_,
        [&](PGconn* transaction, const Message& message) {
            apply(transaction, message);
            EXPECT_EQ(PQsendQuery(transaction, "SELECT 1"), 1);
            db_.exec("SELECT pg_sleep(17)");
            while (PGresult* result = PQgetResult(transaction)) {
                EXPECT_EQ(PQresultStatus(result), PGRES_TUPLES_OK) << PQresultErrorMessage(result);
                PQclear(result);
            }
        },
        options());
    EXPECT_EQ(member.drain(), 1U);
    EXPECT_THAT(effects(), ElementsAre("slow"));
    EXPECT_FALSE(reported(What::kDisconnected));
}

TEST_F(LibpqConsumer, AHandlerThatIsBusyElsewhereWithItsAnswerTakenInIsNotTakenForAnOutage) {
    put("slow");
    auto member = libpq_mailbox_consumer(
        url_,
        [&](PGconn* transaction, const Message& message) {
            apply(transaction, message);
            EXPECT_EQ(PQsendQuery(transaction, "SELECT 1"), 1);
            EXPECT_TRUE(eventually(60s, "libpq has the answer", [&] {
                return PQconsumeInput(transaction) == 1 && PQisBusy(transaction) == 0;
            }));
            db_.exec("SELECT pg_sleep(17)");
            while (PGresult* result = PQgetResult(transaction)) {
                EXPECT_EQ(PQresultStatus(result), PGRES_TUPLES_OK) << PQresultErrorMessage(result);
                PQclear(result);
            }
        },
        options());
    EXPECT_EQ(member.drain(), 1U);
    EXPECT_THAT(effects(), ElementsAre("slow"));
    EXPECT_FALSE(reported(What::kDisconnected));
}

// Also what it remarks while it is connected to.
TEST_F(LibpqConsumer, WhatTheServerRemarksIsNotWrittenToStderr) {
    put("only");
    testing::internal::CaptureStderr();
    auto member = libpq_mailbox_consumer(
        url_ + "?options=-c%20client_min_messages%3Ddebug5",
        [](PGconn* transaction, const Message& message) {
            Pg::query(transaction, "DO $$ BEGIN RAISE WARNING 'a remark'; END $$");
            apply(transaction, message);
        },
        options());
    const auto applied = member.drain();
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(applied, 1U);
}

// Its own connection carries nothing any more, as behind a proxy or a firewall that has lost it,
// and a new one is answered.
class LibpqConsumerInSilence : public LibpqConsumer {
  protected:
    void put_and_expect(MailboxConsumer& member, const std::string& id, std::uint64_t applied) {
        put(id);
        EXPECT_TRUE(
            eventually(60s, id + " is applied", [&] { return member.stats().applied == applied; }));
    }

    SilentProxy proxy_{shared_postgres().port()};
    std::string through_ = proxy_.through(url_);
};

TEST_F(LibpqConsumerInSilence, ASessionThatNothingComesFromIsMadeAnew) {
    auto member = libpq_mailbox_consumer(through_, apply, options());
    std::thread running([&] { member.run(); });
    put_and_expect(member, "before", 1);
    proxy_.silence();
    put_and_expect(member, "after", 2);
    member.stop();
    running.join();
    EXPECT_THAT(effects(), ElementsAre("before", "after"));
    EXPECT_EQ(member.stats().failed, 0U);
    EXPECT_TRUE(reported(What::kDisconnected));
}

TEST_F(LibpqConsumerInSilence, AHandlersStatementEndsAndItsMessageIsAppliedOnce) {
    std::atomic<bool> falls_silent = true;
    auto member = libpq_mailbox_consumer(
        through_,
        [&](PGconn* transaction, const Message& message) {
            apply(transaction, message);
            if (falls_silent.exchange(false)) proxy_.silence();
            Pg::query(transaction, "SELECT 1");
        },
        options());
    std::thread running([&] { member.run(); });
    put_and_expect(member, "only", 1);
    member.stop();
    running.join();
    EXPECT_THAT(effects(), ElementsAre("only"));
    EXPECT_EQ(member.stats().failed, 0U);
}

TEST_F(LibpqConsumerInSilence, ABackendThatIsGoneIsNotWaitedFor) {
    auto member = libpq_mailbox_consumer(through_, apply, options());
    std::thread running([&] { member.run(); });
    put_and_expect(member, "before", 1);
    proxy_.silence();
    db_.exec(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = "
        "'outbox consumer' AND datname = current_database()");
    put_and_expect(member, "after", 2);
    member.stop();
    running.join();
    EXPECT_THAT(effects(), ElementsAre("before", "after"));
}

// `outbox verify --effect-query`
TEST_F(LibpqConsumerInSilence, RowsThatDoNotComeAreNotWaitedFor) {
    auto sql = consumer::open_postgres_sql(through_, 60, std::nullopt);
    ASSERT_TRUE(sql.ok()) << describe(sql.error());
    int rows = 0;
    const Status status =
        (*sql)->read("SELECT repeat('x', 20000) || i FROM generate_series(1, 10000) i",
                     [&](const ConsumerOperations::Cells&) {
                         if (++rows == 1) proxy_.silence();
                         return Status();
                     });
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kConnectionLost) << describe(status.error());
    EXPECT_LT(rows, 10000);
}

}  // namespace
}  // namespace outbox::test
