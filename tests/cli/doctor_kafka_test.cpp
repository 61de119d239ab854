// What a preflight says of topics: partitions, and how long they keep records beside an inbox.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/brokers/kafka/admin.h"
#include "tests/support/eventually.h"
#include "tests/support/kafka_client.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class DoctorOfKafka : public testing::Test {
  protected:
    void SetUp() override { ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0); }
    std::string doctor(const std::vector<std::string>& topics) {
        std::vector<std::string> words{
            "doctor", "--from", url_, "--to", "kafka://" + bootstrap_, "--consumer-db", url_};
        for (const std::string& topic : topics) {
            words.insert(words.end(), {"--allowed-topic", topic});
        }
        const Finished ended = outbox_.run(words);
        EXPECT_EQ(ended.status.code, 0) << ended.out << ended.err;
        return ended.out;
    }

    OutboxBinary outbox_;
    std::string url_ = shared_postgres().create_database();
    std::string bootstrap_ = shared_kafka().bootstrap();
};

TEST_F(DoctorOfKafka, WarnsWhereATopicKeepsRecordsForLongerThanAnInboxItsIds) {
    create_topic(bootstrap_, "week", 3,
                 {{"retention.ms", "604800000"}, {"cleanup.policy", "delete"}});
    create_topic(bootstrap_, "compacted", 1,
                 {{"retention.ms", "604800000"}, {"cleanup.policy", "compact"}});
    create_topic(bootstrap_, "always", 1, {{"retention.ms", "-1"}});
    EXPECT_THAT(doctor({"week", "compacted", "always", "wee*"}),
                AllOf(HasSubstr("ok       topics: route kafka: week (partitions: 3) keeps records "
                                "for 7 d"),
                      HasSubstr("compacted (partitions: 1) keeps records for ever"),
                      HasSubstr("always (partitions: 1) keeps records for ever"),
                      Not(HasSubstr("wee*")), HasSubstr("0 problems, 0 warnings")));
    const auto forgets = [&](const std::string& before) {
        Pg(url_).exec(
            "INSERT INTO outbox_inbox_floor (consumer, floor) VALUES ('billing', now() - interval "
            "'" +
            before + "') ON CONFLICT (consumer) DO UPDATE SET floor = excluded.floor");
        return doctor({"week", "compacted", "always"});
    };
    EXPECT_THAT(forgets("8 days"), HasSubstr("0 problems, 0 warnings"));
    EXPECT_THAT(forgets("6 days"),
                AllOf(HasSubstr("consumer billing has forgotten the ids from before "),
                      HasSubstr(", and topic week keeps records for 7 d: "),
                      HasSubstr("0 problems, 1 warning\n")));
}

// Not even where the broker makes what is asked for.
TEST_F(DoctorOfKafka, NamesATopicThatIsMissingAndDoesNotMakeIt) {
    for (int look = 0; look < 2; ++look) {
        EXPECT_THAT(doctor({"never-made"}),
                    AllOf(HasSubstr("warning  topics: route kafka: OB_TOPIC_UNKNOWN"),
                          HasSubstr("topic never-made"), HasSubstr("0 problems, 1 warning\n")));
    }
}

TEST_F(DoctorOfKafka, NamesATopicWithPartitionsThatHaveNoLeader) {
    KafkaServer second(
        {.auto_create_topics = false, .properties = "", .first = &shared_kafka(), .tls = {}});
    create_topic_on(bootstrap_, "spread", {1, 2, 1});
    EXPECT_THAT(doctor({"spread"}), HasSubstr("ok       topics: route kafka: spread"));
    second.stop();
    wait_for_leader(bootstrap_, "spread", 1, false);
    EXPECT_THAT(doctor({"spread"}),
                HasSubstr("warning  topics: route kafka: 1 of the 3 partitions of spread have no "
                          "leader"));
    second.start();
    remove_topic(bootstrap_, "spread");
}

TEST_F(DoctorOfKafka, WarnsWhereATopicPromisesMoreCopiesThanItHasOrThanAreInSync) {
    create_topic(bootstrap_, "alone", 1, {{"min.insync.replicas", "2"}});
    EXPECT_THAT(doctor({"alone"}),
                AllOf(HasSubstr("warning  topics: route kafka: min.insync.replicas of alone is 2, "
                                "and it has 1 replica: "),
                      HasSubstr("--add-config min.insync.replicas=1)"),
                      HasSubstr("0 problems, 1 warning\n")));
    KafkaServer second(
        {.auto_create_topics = false, .properties = "", .first = &shared_kafka(), .tls = {}});
    create_topic(bootstrap_, "twice", 1, {{"min.insync.replicas", "2"}}, 2);
    EXPECT_THAT(doctor({"twice"}), HasSubstr("ok       topics: route kafka: twice"));
    second.stop();
    EXPECT_TRUE(eventually(120s, "one replica is in sync", [&] {
        return doctor({"twice"}).find(
                   "1 of the 1 partitions of twice have fewer replicas in sync "
                   "than min.insync.replicas (2)") != std::string::npos;
    }));
    second.start();
    remove_topic(bootstrap_, "twice");
}

}  // namespace
}  // namespace outbox::test
