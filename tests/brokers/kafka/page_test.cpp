// docs/brokers/kafka.md as a reader runs it.

#include <gtest/gtest.h>

#include "tests/brokers/guide.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

TEST(KafkaPage, ItsFirstBlockBringsAnEventToATopic) {
    Guide page("kafka.md", {.words = {{"localhost:9092", shared_kafka().bootstrap()}},
                            .programs = {{"kafka-console-consumer.sh",
                                          std::string(OUTBOX_SOURCE_DIR) +
                                              "/script/servers/kafka java "
                                              "org.apache.kafka.tools.consumer.ConsoleConsumer"}}});
    page.expect_an_event();
}

}  // namespace
}  // namespace outbox::test
