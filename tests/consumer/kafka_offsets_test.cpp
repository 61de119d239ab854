// Where consumers of Kafka go on: databases set back, topics made anew, clusters exchanged, records
// gone.

#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <thread>

#include "tests/brokers/kafka/admin.h"
#include "tests/consumer/kafka_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/full_run.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using What = ConsumerReport::What;
using Mode = KafkaConsumerOptions::Mode;
using Writer = KafkaWriter;

// A handler that applies, and waits with one record until it may go on.
class Gate {
  public:
    explicit Gate(std::string id) : id_(std::move(id)) {}
    void pass(const Message& message) {
        if (message.id != id_) return;
        entered_ = true;
        EXPECT_TRUE(eventually(90s, "it may go on", [&] { return open_.load(); }));
    }
    [[nodiscard]] bool entered() const { return entered_; }
    void open() { open_ = true; }

  private:
    std::string id_;
    std::atomic<bool> entered_ = false;
    std::atomic<bool> open_ = false;
};

class KafkaOffsets : public KafkaConsumerTest {
  protected:
    static Handler through(Gate& gate) {
        return [&gate](const Transaction& transaction, const Message& message) {
            gate.pass(message);
            apply(transaction, message);
        };
    }
    KafkaConsumerOptions by_offset(Mode mode) {
        auto made = options();
        made.mode = mode;
        made.exactly_once_wire = true;
        made.kafka = {{"topic.metadata.refresh.interval.ms", "500"}};
        return made;
    }
    // Records of one key, so of one partition; payloads are their numbers.
    void write(const std::string& prefix, int from, int to) {
        Writer writer;  // one that has written to a former topic of the name could not go on
        for (int i = from; i < to; ++i) {
            writer.write(topic_, prefix + std::to_string(i), "k", std::to_string(i));
        }
    }
    static std::vector<std::string> ids(const std::string& prefix, int from, int to) {
        std::vector<std::string> out;
        for (int i = from; i < to; ++i) out.push_back(prefix + std::to_string(i));
        return out;
    }
    // As a restore leaves effects, inbox and offset. At once: a consumer that runs looks, too.
    void set_back_to(int next) {
        const std::string n = std::to_string(next);
        const std::string offsets = next == 0
                                        ? "DELETE FROM outbox_inbox_offsets"
                                        : "UPDATE outbox_inbox_offsets SET next_offset = " + n +
                                              ", last_id = 'a" + std::to_string(next - 1) + "'";
        db_->exec("BEGIN; " + offsets +
                  "; DELETE FROM outbox_inbox WHERE message_id IN (SELECT id FROM effects WHERE "
                  "CAST(payload AS integer) >= " +
                  n + "); DELETE FROM effects WHERE CAST(payload AS integer) >= " + n + "; COMMIT");
    }
    void begin_anew() {
        db_->exec(
            "UPDATE outbox_inbox_offsets SET next_offset = 0, cluster_id = '', "
            "last_id = NULL");
    }
    void recreate_topic(int partitions = 4) {
        delete_topic(shared_kafka().bootstrap(), topic_);
        ASSERT_TRUE(eventually(60s, "the topic is there anew", [&] {
            try {
                create_topic(shared_kafka().bootstrap(), topic_, partitions);
                return true;
            } catch (const std::runtime_error&) {
                return false;  // the former one is not quite gone
            }
        }));
    }
    // What the report says to do.
    void follow_the_remedy() {
        const std::string remedy = cause().substr(cause().find("INSERT INTO"));
        db_->exec(remedy.substr(0, remedy.find(';')));
    }
    std::string cause() {
        const std::lock_guard lock(mutex_);
        for (const auto& [what, text] : reports_) {
            if (what == What::kQuarantined) return text;
        }
        return {};
    }
};
INSTANTIATE_TEST_SUITE_P(Databases, KafkaOffsets,
                         testing::ValuesIn(and_in_full({Backend::kPostgres}, {Backend::kSqlite})),
                         [](const auto& test) { return backend_name(test.param); });

TEST_P(KafkaOffsets, ADatabaseThatWentBackInTimeGetsItsRecordsAgain) {
    for (const Mode mode : {Mode::kOffset, Mode::kInboxAndOffset}) {
        if (mode == Mode::kInboxAndOffset) {
            db_->exec("DELETE FROM effects");
            db_->exec("DELETE FROM outbox_inbox_offsets");
            topic_ += "-both";
            create_topic(shared_kafka().bootstrap(), topic_, 4);
        }
        write("a", 0, 10);
        Running member(consumer(apply, by_offset(mode)));
        ASSERT_TRUE(eventually(60s, "ten are applied", [&] { return effects() == 10; }));
        set_back_to(5);
        write("a", 10, 12);
        ASSERT_TRUE(eventually(60s, "the last is applied", [&] {
            return db_->number("SELECT count(*) FROM effects WHERE id = 'a11'") == 1;
        }));
        EXPECT_EQ(ids_of("k"), ids("a", 0, 12));
        EXPECT_EQ(reported(What::kQuarantined), 0) << cause();
        member.stop();
        EXPECT_EQ(db_->number("SELECT next_offset FROM outbox_inbox_offsets"), 12);
    }
}

TEST_P(KafkaOffsets, ADatabaseThatForgotItsOffsetIsNotTakenForANewOne) {
    write("a", 0, 10);
    auto chosen = by_offset(Mode::kInboxAndOffset);
    chosen.consumer = "o'brien";
    {
        Running member(consumer(apply, chosen));
        ASSERT_TRUE(eventually(60s, "ten are applied", [&] { return effects() == 10; }));
    }
    set_back_to(0);
    Running member(consumer(apply, chosen));
    ASSERT_TRUE(eventually(60s, "it is quarantined", [&] { return !cause().empty(); }));
    EXPECT_THAT(cause(), HasSubstr("set back to before the first"));
    follow_the_remedy();
    ASSERT_TRUE(eventually(60s, "all are applied", [&] { return effects() == 10; }));
    EXPECT_EQ(ids_of("k"), ids("a", 0, 10));
}

// Only the offsets were lost, under a consumer that runs: the inbox knows what was applied.
TEST_P(KafkaOffsets, OffsetsThatAreDeletedUnderARunningConsumerAreMissed) {
    write("a", 0, 10);
    Running member(consumer(apply, by_offset(Mode::kInboxAndOffset)));
    ASSERT_TRUE(eventually(60s, "ten are applied and committed",
                           [&] { return effects() == 10 && member->lag() == 0; }));
    member.stop();
    Running again(consumer(apply, by_offset(Mode::kInboxAndOffset)));
    write("a", 10, 11);
    ASSERT_TRUE(eventually(60s, "it goes on", [&] { return effects() == 11; }));
    db_->exec("DELETE FROM outbox_inbox_offsets");
    write("a", 11, 12);
    ASSERT_TRUE(eventually(60s, "it is quarantined", [&] { return !cause().empty(); }));
    EXPECT_EQ(effects(), 11);
    follow_the_remedy();
    ASSERT_TRUE(eventually(60s, "the last is applied", [&] { return effects() == 12; }));
    EXPECT_EQ(ids_of("k"), ids("a", 0, 12));
    EXPECT_TRUE(eventually(60s, "the repeats are counted", [&] {
        return again->stats().repeats == 11;
    })) << again->stats().repeats;
}

// One that fails for good while the database is set back: its partition is read again.
TEST_P(KafkaOffsets, ADatabaseSetBackWhileARecordIsGivenUpOnGetsItsRecordsAgain) {
    if (GetParam() == Backend::kSqlite) GTEST_SKIP() << "nobody can write between the two";
    write("a", 0, 11);
    std::atomic<bool> went_back = false;
    std::jthread later;
    auto chosen = by_offset(Mode::kInboxAndOffset);
    chosen.transaction_size = 1;
    {
        Running member(consumer(
            [&](const Transaction& transaction, const Message& message) {
                if (message.id != "a10") return apply(transaction, message);
                if (!later.joinable()) {
                    later = std::jthread([this, &went_back] {
                        // Behind this transaction, which is going to be rolled back.
                        Pg(database_->url())
                            .exec(
                                "BEGIN; UPDATE outbox_inbox_offsets SET next_offset = 5, last_id = "
                                "'a4'; DELETE FROM outbox_inbox WHERE message_id IN ('a5', 'a6', "
                                "'a7', 'a8', 'a9'); DELETE FROM effects WHERE "
                                "CAST(payload AS integer) >= 5; COMMIT");
                        went_back = true;
                    });
                    Pg look(database_->url());  // this thread's own
                    eventually(60s, "it waits", [&] {
                        return look.number("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0;
                    });
                }
                throw Error(ErrorCode::kHandlerFailed, Advice::kDeadLetter, "no stock");
            },
            chosen));
        EXPECT_TRUE(eventually(60s, "the database went back", [&] { return went_back.load(); }));
        // It may have been the last to write: the next record finds that.
        write("a", 11, 12);
        EXPECT_TRUE(eventually(60s, "all are dealt with", [&] {
            return effects() == 11 &&
                   db_->number("SELECT count(*) FROM outbox_inbox_dead_letters") == 1 &&
                   db_->number("SELECT next_offset FROM outbox_inbox_offsets") == 12;
        }));
    }
    auto applied = ids("a", 0, 10);
    applied.emplace_back("a11");
    EXPECT_EQ(ids_of("k"), applied);
}

// Retention took what was not read yet, or this is another log: not for a consumer to say.
TEST_P(KafkaOffsets, RecordsThatWentBeforeTheyWereReadAreNotSkippedInSilence) {
    write("a", 0, 10);
    const auto chosen = by_offset(Mode::kInboxAndOffset);
    {
        Running member(consumer(apply, chosen));
        ASSERT_TRUE(eventually(60s, "ten are applied", [&] { return effects() == 10; }));
    }
    write("a", 10, 20);
    KafkaReader reader(shared_kafka().bootstrap(), topic_);
    const int partition = reader.read(20, 90s).front().partition;
    // All that was applied, and no more: as usual.
    delete_records(shared_kafka().bootstrap(), topic_, partition, 10);
    {
        Running member(consumer(apply, chosen));
        ASSERT_TRUE(eventually(60s, "the others are applied", [&] { return effects() == 20; }));
        EXPECT_EQ(reported(What::kQuarantined), 0) << cause();
    }
    write("a", 20, 30);
    delete_records(shared_kafka().bootstrap(), topic_, partition, 25);
    Running member(consumer(apply, chosen));
    ASSERT_TRUE(eventually(60s, "it is quarantined", [&] { return !cause().empty(); }));
    EXPECT_THAT(cause(), HasSubstr("begins with offset 25, what comes next was to be 20"));
    EXPECT_TRUE(eventually(60s, "they wait", [&] { return member->lag() == 5; }));
    EXPECT_EQ(effects(), 20);
    follow_the_remedy();
    ASSERT_TRUE(eventually(60s, "the rest is applied", [&] { return effects() == 25; }));
}

TEST_P(KafkaOffsets, ATopicMadeAnewWithMorePartitionsIsNotTakenForTheOld) {
    constexpr int kRecords = 40;
    const auto write_all = [&](const std::string& prefix) {
        Writer writer;
        for (int i = 0; i < kRecords; ++i) {
            writer.write(topic_, prefix + std::to_string(i), "k" + std::to_string(i), "1");
        }
    };
    write_all("a");
    const auto chosen = by_offset(Mode::kInboxAndOffset);
    {
        Running member(consumer(apply, chosen));
        ASSERT_TRUE(eventually(60s, "all are applied", [&] { return effects() == kRecords; }));
    }
    recreate_topic(8);
    write_all("b");
    write_all("c");
    Running member(consumer(apply, chosen));
    ASSERT_TRUE(eventually(60s, "the old partitions are quarantined",
                           [&] { return reported(What::kQuarantined) == 4; }));
    begin_anew();
    ASSERT_TRUE(eventually(60s, "all are applied", [&] { return effects() == 3 * kRecords; }));
    EXPECT_EQ(distinct_effects(), 3 * kRecords);
    EXPECT_EQ(reported(What::kQuarantined), 4);
}

// Their place and time tell them apart.
TEST_P(KafkaOffsets, ATopicMadeAnewIsNoticedAlsoWhereRecordsHaveNoIds) {
    const auto write_without_ids = [&](int count) {
        Writer writer;
        for (int i = 0; i < count; ++i) writer.write(topic_, "", "k", std::to_string(i));
    };
    write_without_ids(10);
    const auto chosen = by_offset(Mode::kOffset);
    for (int run = 0; run < 2; ++run) {  // the second one goes on
        Running member(consumer(apply, chosen));
        ASSERT_TRUE(eventually(60s, "ten are applied", [&] { return effects() == 10 + run; }));
        EXPECT_EQ(reported(What::kQuarantined), 0) << cause();
        member.stop();
        if (run == 0) write_without_ids(1);
    }
    recreate_topic();
    write_without_ids(20);
    Running member(consumer(apply, chosen));
    ASSERT_TRUE(eventually(60s, "it is quarantined", [&] { return !cause().empty(); }));
    EXPECT_EQ(effects(), 11);
}

TEST_P(KafkaOffsets, TwoGroupsOfOneNameApplyEachRecordOnceTogether) {
    constexpr int kRecords = 200;
    for (const Mode mode : {Mode::kOffset, Mode::kInboxAndOffset}) {
        auto first_options = by_offset(mode);
        auto second_options = by_offset(mode);
        first_options.consumer = second_options.consumer = "stock";
        first_options.transaction_size = second_options.transaction_size = 5;
        second_options.group = "of the same name";
        const int before = static_cast<int>(effects());
        Running first(consumer(apply, first_options));
        Running second(consumer(apply, second_options));
        {
            Writer writer;
            for (int i = before; i < before + kRecords; ++i) {
                writer.write(topic_, "a" + std::to_string(i), "k" + std::to_string(i % 9),
                             std::to_string(i));
            }
        }
        ASSERT_TRUE(eventually(120s, "all are applied", [&] {
            return effects() >= before + kRecords;
        })) << effects();
        first.stop();
        second.stop();
        EXPECT_EQ(effects(), before + kRecords);
        EXPECT_EQ(distinct_effects(), before + kRecords);
        EXPECT_EQ(out_of_order(), 0);
        EXPECT_EQ(reported(What::kQuarantined), 0) << cause();
    }
}

TEST_P(KafkaOffsets, ATopicMadeAnewIsNeitherRepeatsNorSkipped) {
    for (const int length : {7, 10, 20}) {
        write("a", 0, 10);
        const auto chosen = by_offset(length == 7 ? Mode::kOffset : Mode::kInboxAndOffset);
        {
            Running member(consumer(apply, chosen));
            ASSERT_TRUE(eventually(60s, "ten are applied", [&] { return effects() == 10; }));
        }
        recreate_topic();
        write("b", 0, length);
        {
            Running member(consumer(apply, chosen));
            ASSERT_TRUE(eventually(60s, "it is quarantined", [&] { return !cause().empty(); }));
            EXPECT_EQ(member->stats().applied + member->stats().repeats, 0U);
            EXPECT_TRUE(eventually(60s, "they wait", [&] { return member->lag() == length; }));
            begin_anew();
            ASSERT_TRUE(
                eventually(60s, "all are applied", [&] { return effects() == 10 + length; }));
        }
        auto expected = ids("a", 0, 10);
        for (auto& id : ids("b", 0, length)) expected.push_back(std::move(id));
        EXPECT_EQ(ids_of("k"), expected);
        db_->exec("DELETE FROM effects");
        db_->exec("DELETE FROM outbox_inbox_offsets");
        db_->exec("DELETE FROM outbox_inbox");
        {
            const std::lock_guard lock(mutex_);
            reports_.clear();
        }
        recreate_topic();
    }
}

TEST_P(KafkaOffsets, ATopicMadeAnewUnderARunningConsumerIsNotTakenForTheOld) {
    write("a", 0, 10);
    Running member(consumer(apply, by_offset(Mode::kInboxAndOffset)));
    ASSERT_TRUE(eventually(60s, "ten are applied", [&] { return effects() == 10; }));
    recreate_topic();
    write("b", 0, 7);
    ASSERT_TRUE(eventually(90s, "it is quarantined", [&] { return !cause().empty(); }));
    EXPECT_EQ(effects(), 10);
    begin_anew();
    ASSERT_TRUE(eventually(60s, "all are applied", [&] { return effects() == 17; }));
}

// Longer than the old one when reading goes on. What librdkafka leaves in the queues of the old
// partitions must not keep the consumer from being destroyed.
TEST_P(KafkaOffsets, ATopicThatWasGoneIsComparedAlsoWhereItIsLongerThanTheOldOne) {
    write("a", 0, 10);
    Running member(consumer(apply, by_offset(Mode::kInboxAndOffset)));
    ASSERT_TRUE(eventually(60s, "ten are applied", [&] { return effects() == 10; }));
    delete_topic(shared_kafka().bootstrap(), topic_);
    ASSERT_TRUE(eventually(60s, "it is missed", [&] { return reported(What::kDisconnected) > 0; }));
    ASSERT_TRUE(eventually(60s, "the topic is there anew", [&] {
        try {
            create_topic(shared_kafka().bootstrap(), topic_, 4);
            return true;
        } catch (const std::runtime_error&) {
            return false;  // the former one is not quite gone
        }
    }));
    write("b", 0, 20);
    ASSERT_TRUE(eventually(90s, "it is quarantined", [&] { return !cause().empty(); }));
    EXPECT_EQ(effects(), 10);
    begin_anew();
    ASSERT_TRUE(eventually(60s, "all are applied", [&] { return effects() == 30; }));
}

// No fetch was under way while it was gone, so that none was refused: the slow handler's records
// wait in a full queue.
TEST_P(KafkaOffsets, ATopicMadeAnewBetweenTwoFetchesIsNotTakenForTheOld) {
    topic_ += "-one";
    create_topic(shared_kafka().bootstrap(), topic_, 1);
    auto chosen = by_offset(Mode::kInboxAndOffset);
    chosen.kafka = {{"topic.metadata.refresh.interval.ms", "600000"}, {"queued.min.messages", "1"}};
    chosen.max_in_flight = chosen.transaction_size = 1;
    Gate gate("a9");
    write("a", 0, 10);
    Running member(consumer(through(gate), chosen));
    EXPECT_TRUE(eventually(60s, "the last is in hand", [&] { return gate.entered(); }));
    write("a", 10, 11);
    KafkaReader reader(shared_kafka().bootstrap(), topic_);
    EXPECT_EQ(reader.read(11, 90s).size(), 11U);
    recreate_topic(1);
    write("b", 0, 20);
    gate.open();
    ASSERT_TRUE(eventually(60s, "it is quarantined", [&] { return !cause().empty(); }))
        << effects();
    EXPECT_EQ(db_->number("SELECT count(*) FROM effects WHERE id LIKE 'b%'"), 0);
    begin_anew();
    ASSERT_TRUE(eventually(60s, "all are applied", [&] {
        return db_->number("SELECT count(*) FROM effects WHERE id LIKE 'b%'") == 20;
    }));
}

// As long as the old one, so that nothing of it is ever read: it is looked at all the same.
TEST_P(KafkaOffsets, ATopicMadeAnewAsLongAsTheOldOneIsNoticed) {
    write("a", 0, 10);
    auto chosen = by_offset(Mode::kInboxAndOffset);
    chosen.kafka = {{"topic.metadata.refresh.interval.ms", "600000"}};
    Running member(consumer(apply, chosen));
    ASSERT_TRUE(eventually(60s, "ten are applied", [&] { return effects() == 10; }));
    recreate_topic();
    write("b", 0, 10);
    ASSERT_TRUE(eventually(90s, "it is quarantined", [&] { return !cause().empty(); }));
    begin_anew();
    ASSERT_TRUE(eventually(60s, "all are applied", [&] { return effects() == 20; }));
}

TEST_P(KafkaOffsets, TheLogOfAnotherClusterIsNotTakenForOurs) {
    write("a", 0, 10);
    const auto chosen = by_offset(Mode::kOffset);
    {
        Running member(consumer(apply, chosen));
        ASSERT_TRUE(eventually(60s, "ten are applied", [&] { return effects() == 10; }));
    }
    EXPECT_EQ(db_->value("SELECT last_id FROM outbox_inbox_offsets"), "a9");
    EXPECT_NE(db_->value("SELECT cluster_id FROM outbox_inbox_offsets"), "");
    db_->exec("UPDATE outbox_inbox_offsets SET cluster_id = 'another'");
    write("a", 10, 12);
    Running member(consumer(apply, chosen));
    ASSERT_TRUE(eventually(60s, "it is quarantined", [&] { return !cause().empty(); }));
    EXPECT_THAT(cause(), HasSubstr("of the cluster another"));
    EXPECT_EQ(effects(), 10);
    db_->exec("UPDATE outbox_inbox_offsets SET cluster_id = ''");
    ASSERT_TRUE(eventually(60s, "all are applied", [&] { return effects() == 12; }));
}

// ---- the ends of logs ----

// A batch for each record, and no more of them in memory than must be.
std::map<std::string, std::string> record_by_record() {
    return {{"topic.metadata.refresh.interval.ms", "500"},
            {"queued.min.messages", "1"},
            {"fetch.message.max.bytes", "1"}};
}

TEST_P(KafkaOffsets, RecordsThatWentWhileReadingPausedAreNotSkippedInSilence) {
    for (const Mode mode : {Mode::kInbox, Mode::kInboxAndOffset}) {
        topic_ += "-one";
        create_topic(shared_kafka().bootstrap(), topic_, 1);
        auto chosen = by_offset(mode);
        chosen.group = topic_;
        chosen.kafka = record_by_record();
        chosen.max_in_flight = chosen.transaction_size = 1;
        Gate gate(topic_ + "0");
        Running member(consumer(through(gate), chosen));
        for (int i = 0; i < 20; ++i) write(topic_, i, i + 1);
        EXPECT_TRUE(eventually(60s, "the first is in hand", [&] { return gate.entered(); }));
        delete_records(shared_kafka().bootstrap(), topic_, 0, 18);
        gate.open();
        const auto applied = [&](const std::string& id) {
            return db_->number("SELECT count(*) FROM effects WHERE id = '" + id + "'") == 1;
        };
        if (mode == Mode::kInbox) {
            EXPECT_TRUE(eventually(60s, "the rest is applied", [&] {
                return applied(topic_ + "18") && applied(topic_ + "19");
            }));
            EXPECT_GE(reported(What::kLogChanged), 1);
        } else {
            EXPECT_TRUE(eventually(60s, "it is quarantined", [&] { return !cause().empty(); }));
            EXPECT_THAT(cause(), HasSubstr("begins with offset 18"));
            EXPECT_FALSE(applied(topic_ + "19"));
            follow_the_remedy();
            EXPECT_TRUE(
                eventually(60s, "the rest is applied", [&] { return applied(topic_ + "19"); }));
        }
        EXPECT_FALSE(applied(topic_ + "17"));
    }
}

// What is known of records was written by a consumer of another format, which called them
// otherwise.
TEST_P(KafkaOffsets, AConsumerOfAnotherFormatKnowsLogAndRecords) {
    const auto described = [](int i) {
        return R"({"schema":{"type":"string","optional":false},"payload":"d)" + std::to_string(i) +
               "\"}";
    };
    const auto write_from = [&](int from) {
        Writer writer;
        for (int i = from; i < from + 5; ++i) {
            writer.write(topic_, "\"q" + std::to_string(i) + '"', "k", std::to_string(i));
            writer.write(topic_, described(i), "k", std::to_string(i));
        }
    };
    for (const Mode mode : {Mode::kInbox, Mode::kInboxAndOffset}) {
        topic_ += "-one";
        create_topic(shared_kafka().bootstrap(), topic_, 1);
        auto chosen = by_offset(mode);
        chosen.group = topic_;
        int written = 0;
        for (const MessageFormat format :
             {MessageFormat::kRaw, MessageFormat::kDebezium, MessageFormat::kAuto}) {
            write_from(written);
            written += 5;
            chosen.format = format;
            Running member(consumer(apply, chosen));
            ASSERT_TRUE(eventually(60s, "all are applied, and Kafka knows", [&] {
                return effects() == 2 * written &&
                       committed_offsets(shared_kafka().bootstrap(), topic_, topic_, 1) ==
                           2 * written;
            })) << effects();
        }
        EXPECT_EQ(reported(What::kLogChanged), 0);
        EXPECT_EQ(reported(What::kQuarantined), 0) << cause();
        // As a group that Kafka has forgotten: each is a repeat by what another format called it.
        for (const MessageFormat format :
             {MessageFormat::kRaw, MessageFormat::kAuto, MessageFormat::kDebezium}) {
            if (mode != Mode::kInbox) break;
            chosen.group = topic_ + "-" + std::to_string(static_cast<int>(format));
            chosen.consumer = topic_;
            chosen.format = format;
            Running member(consumer(apply, chosen));
            EXPECT_TRUE(eventually(60s, "all are met again", [&] {
                return committed_offsets(shared_kafka().bootstrap(), chosen.group, topic_, 1) ==
                       2 * written;
            }));
        }
        EXPECT_EQ(effects(), 2 * written);
        db_->exec("DELETE FROM effects");
    }
}

// The group's offset is one of the old log: records of the new one lie below it.
TEST_P(KafkaOffsets, ByTheGroupsOffsetALogMadeAnewIsReadWhole) {
    write("a", 0, 10);
    const auto chosen = by_offset(Mode::kInbox);
    {
        Running member(consumer(apply, chosen));
        ASSERT_TRUE(eventually(60s, "ten are applied", [&] { return effects() == 10; }));
    }
    recreate_topic();
    write("b", 0, 20);
    Running member(consumer(apply, chosen));
    ASSERT_TRUE(eventually(60s, "all are applied", [&] { return effects() == 30; }));
}

TEST_P(KafkaOffsets, ByTheGroupsOffsetALogMadeAnewUnderARunningConsumerIsReadWhole) {
    topic_ += "-one";
    create_topic(shared_kafka().bootstrap(), topic_, 1);
    auto chosen = by_offset(Mode::kInbox);
    chosen.kafka = record_by_record();
    chosen.kafka["topic.metadata.refresh.interval.ms"] = "600000";
    chosen.max_in_flight = chosen.transaction_size = 1;
    Gate gate("a9");
    write("a", 0, 10);
    Running member(consumer(through(gate), chosen));
    EXPECT_TRUE(eventually(60s, "the last is in hand", [&] { return gate.entered(); }));
    recreate_topic(1);
    write("b", 0, 30);
    gate.open();
    ASSERT_TRUE(eventually(60s, "all are applied", [&] { return effects() == 40; })) << effects();
    EXPECT_EQ(distinct_effects(), 40);
}

// A group that begins with what comes has told Kafka nothing yet.
TEST_P(KafkaOffsets, AGroupThatBeganWithWhatComesReadsALogMadeAnewWhole) {
    topic_ += "-one";
    create_topic(shared_kafka().bootstrap(), topic_, 1);
    auto chosen = by_offset(Mode::kInbox);
    chosen.kafka = record_by_record();
    chosen.kafka["topic.metadata.refresh.interval.ms"] = "600000";
    chosen.kafka["auto.offset.reset"] = "latest";
    chosen.max_in_flight = chosen.transaction_size = 1;
    write("old", 0, 5);
    Gate gate(topic_ + "9");
    Running member(consumer(through(gate), chosen));
    ASSERT_TRUE(eventually(60s, "it reads", [&] { return reported(What::kActive) > 0; }));
    // Until it has asked where the log ends it may pass some over.
    while (!gate.entered()) {
        write(topic_, 9, 10);
        eventually(1s, "the first is in hand", [&] { return gate.entered(); });
    }
    recreate_topic(1);
    write("b", 0, 30);
    gate.open();
    EXPECT_TRUE(eventually(60s, "all of the new log are applied", [&] {
        return db_->number("SELECT count(*) FROM effects WHERE id LIKE 'b%'") == 30;
    })) << effects();
    EXPECT_EQ(db_->number("SELECT count(*) FROM effects WHERE id LIKE 'old%'"), 0);
}

// What comes between two runs of a group that has applied nothing yet.
TEST_P(KafkaOffsets, AGroupThatBeganWithWhatComesGoesOnThere) {
    for (const Mode mode : {Mode::kInbox, Mode::kInboxAndOffset}) {
        topic_ += "-one";
        create_topic(shared_kafka().bootstrap(), topic_, 1);
        auto chosen = by_offset(mode);
        chosen.group = topic_;
        chosen.kafka["auto.offset.reset"] = "latest";
        write("old", 0, 5);
        {
            Running member(consumer(apply, chosen));
            ASSERT_TRUE(eventually(60s, "Kafka knows where it begins", [&] {
                return committed_offsets(shared_kafka().bootstrap(), topic_, topic_, 1) == 5;
            }));
        }
        write(topic_, 5, 10);
        Running member(consumer(apply, chosen));
        EXPECT_TRUE(eventually(60s, "what came between is applied", [&] {
            return db_->number("SELECT count(*) FROM effects WHERE id LIKE '" + topic_ + "_'") == 5;
        }));
    }
    EXPECT_EQ(db_->number("SELECT count(*) FROM effects WHERE id LIKE 'old%'"), 0);
}

TEST_P(KafkaOffsets, AGroupsOffsetBeyondTheEndIsSaidAndTheLogReadWhole) {
    topic_ += "-one";
    create_topic(shared_kafka().bootstrap(), topic_, 1);
    const auto chosen = by_offset(Mode::kInbox);
    write("a", 0, 20);
    commit_offset(shared_kafka().bootstrap(), chosen.group, topic_, 0, 50);
    Running member(consumer(apply, chosen));
    ASSERT_TRUE(eventually(60s, "all are applied", [&] { return effects() == 20; }));
    EXPECT_EQ(reported(What::kLogChanged), 1);
    EXPECT_TRUE(eventually(60s, "the group's offset is mended", [&] {
        return committed_offsets(shared_kafka().bootstrap(), chosen.group, topic_, 1) == 20;
    }));
}

// What it last applied there cannot be read once more now, and nobody else waits for that.
TEST_P(KafkaOffsets, APartitionWithoutALeaderDelaysNoOther) {
    static KafkaServer first;
    auto chosen = by_offset(Mode::kInbox);
    chosen.brokers = first.bootstrap();
    const auto write_to_all = [&](int from, int to) {
        Writer writer("", first.bootstrap());
        for (int i = from; i < to; ++i) {
            writer.write(topic_, "r" + std::to_string(i), "k" + std::to_string(i % 40),
                         std::to_string(i));
        }
    };
    const auto apply_all = [&](int count) {
        Running member(consumer(apply, chosen));
        ASSERT_TRUE(eventually(60s, "they are applied", [&] { return effects() == count; }));
    };
    create_topic_on(first.bootstrap(), topic_, {1});
    write_to_all(0, 10);
    apply_all(10);  // the group's offsets are on the first broker now
    KafkaServer second({.auto_create_topics = true, .properties = "", .first = &first});
    topic_ += "-half";
    chosen.topics = {topic_};
    create_topic_on(first.bootstrap(), topic_, {1, 1, 1, 2});
    write_to_all(10, 210);
    apply_all(210);
    write_to_all(210, 1'210);
    int healthy = 210;
    {
        // Gone before the broker is: librdkafka 2.0 may wait for ever for the thread of one that
        // left.
        KafkaReader reader(first.bootstrap(), topic_);
        for (const KafkaRecord& record : reader.read(1'200, 90s)) {
            const bool fresh = std::stoi(record.value.value_or("0")) >= 210;
            if (fresh && record.partition != 3) ++healthy;
        }
    }
    second.stop();
    wait_for_leader(first.bootstrap(), topic_, 3, false);
    Running member(consumer(apply, chosen));
    EXPECT_TRUE(eventually(60s, "the others are applied", [&] { return effects() == healthy; }))
        << effects() << " of " << healthy;
    second.start();
    EXPECT_TRUE(eventually(60s, "all are applied", [&] { return effects() == 1'210; }))
        << effects();
    EXPECT_EQ(out_of_order(), 0);
    member.stop();
    remove_topic(first.bootstrap(), topic_);
}

TEST_P(KafkaOffsets, StoppingEndsAlsoWhereKafkaDoesNotAnswer) {
    static KafkaServer kafka;
    for (const Mode mode : {Mode::kInbox, Mode::kInboxAndOffset}) {
        topic_ += "-one";
        create_topic(kafka.bootstrap(), topic_, 1);
        auto chosen = by_offset(mode);
        chosen.brokers = kafka.bootstrap();
        chosen.topics = {topic_};
        chosen.group = topic_;
        chosen.commit_interval_ms = 60'000;  // so that there is something to tell at the end
        const long long before = effects();
        Running member(consumer(apply, chosen));
        {
            Writer writer("", kafka.bootstrap());
            for (int i = 0; i < 10; ++i) writer.write(topic_, topic_ + std::to_string(i), "k", "1");
        }
        ASSERT_TRUE(eventually(60s, "ten are applied", [&] { return effects() == before + 10; }));
        kafka.pause();
        std::thread stopping([&] { member.stop(); });
        EXPECT_TRUE(eventually(45s, "it has ended", [&] { return member.ended(); }));
        kafka.resume();
        stopping.join();
    }
}

// The ends of transactions take offsets, and are no records: they go with those.
TEST_P(KafkaOffsets, WhatRetentionTookThatWasNoRecordIsNotMissed) {
    topic_ += "-one";
    create_topic(shared_kafka().bootstrap(), topic_, 1);
    auto chosen = by_offset(Mode::kInboxAndOffset);
    KafkaWriter transactional("by " + topic_);
    const auto write_in_a_transaction = [&](int from, int to, bool commit) {
        transactional.begin();
        for (int i = from; i < to; ++i) {
            transactional.write(topic_, "t" + std::to_string(i), "k", std::to_string(i));
        }
        transactional.end(commit);
    };
    write_in_a_transaction(0, 10, true);
    write_in_a_transaction(100, 105, false);
    {
        Running member(consumer(apply, chosen));
        ASSERT_TRUE(eventually(60s, "ten are applied", [&] { return effects() == 10; }));
        ASSERT_TRUE(eventually(60s, "Kafka knows the end", [&] {
            return committed_offsets(shared_kafka().bootstrap(), chosen.group, topic_, 1) == 17;
        }));
    }
    delete_records(shared_kafka().bootstrap(), topic_, 0, 17);
    write_in_a_transaction(10, 20, true);
    Running member(consumer(apply, chosen));
    ASSERT_TRUE(eventually(60s, "the others are applied", [&] { return effects() == 20; }))
        << cause();
    EXPECT_EQ(reported(What::kQuarantined), 0) << cause();
}

// Kafka's offset follows the database's also where nothing comes any more.
TEST_P(KafkaOffsets, AGroupThatIsNewToKafkaIsToldWhereTheDatabaseIs) {
    write("a", 0, 10);
    auto chosen = by_offset(Mode::kOffset);
    chosen.consumer = "stock";
    {
        Running member(consumer(apply, chosen));
        ASSERT_TRUE(eventually(60s, "ten are applied", [&] { return effects() == 10; }));
    }
    chosen.group = "new";
    Running member(consumer(apply, chosen));
    EXPECT_TRUE(eventually(60s, "Kafka knows the end", [&] {
        return committed_offsets(shared_kafka().bootstrap(), "new", topic_, 4) == 10;
    }));
    EXPECT_EQ(effects(), 10);
}

TEST_P(KafkaOffsets, ADatabaseSetBackWhileNothingComesGetsItsRecordsAgain) {
    write("a", 0, 10);
    Running member(consumer(apply, by_offset(Mode::kInboxAndOffset)));
    ASSERT_TRUE(eventually(60s, "ten are applied", [&] { return effects() == 10; }));
    set_back_to(5);
    ASSERT_TRUE(eventually(60s, "ten are applied again", [&] { return effects() == 10; }));
    EXPECT_EQ(ids_of("k"), ids("a", 0, 10));
    EXPECT_EQ(reported(What::kQuarantined), 0) << cause();
}

// As a console producer writes it.
TEST_P(KafkaOffsets, ARecordWithoutAnyHeaderIsADeadLetterAndDelaysNoOther) {
    for (const Mode mode : {Mode::kInbox, Mode::kInboxAndOffset}) {
        topic_ += "-one";
        create_topic(shared_kafka().bootstrap(), topic_, 1);
        produce(shared_kafka().bootstrap(), topic_, "k", "1");
        write(topic_, 1, 2);
        auto chosen = by_offset(mode);
        chosen.group = topic_;
        Running member(consumer(apply, chosen));
        ASSERT_TRUE(eventually(60s, "what follows is applied", [&] {
            return member->stats().applied == 1 && member->stats().dead == 1;
        }));
        EXPECT_EQ(db_->value("SELECT headers FROM outbox_inbox_dead_letters WHERE topic = '" +
                             topic_ + "'"),
                  "{}");
    }
}

}  // namespace
}  // namespace outbox::test
