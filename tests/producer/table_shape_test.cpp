#include "core/table_shape.h"

#include <gtest/gtest.h>
#include <vector>

namespace outbox {
namespace {

using Columns = std::vector<std::string>;

std::string_view preset_of(const Columns& columns) {
    const auto shape = recognise_table_shape(columns);
    return shape ? shape->preset : "none";
}

TEST(TableShape, RecognisesTheSixShapesByTheirColumns) {
    EXPECT_EQ(preset_of({"id", "aggregate_type", "aggregate_id", "event_type", "payload",
                         "created_at", "published_at", "retry_count", "status"}),
              "pending-published");
    EXPECT_EQ(preset_of({"id", "tenant_id", "aggregate_type", "aggregate_id", "event_type", "topic",
                         "occurred_at", "payload", "event_metadata", "routing_key", "schema_id",
                         "schema_version", "status", "retry_count", "retry_after", "error_message",
                         "created_at"}),
              "new-sent");
    EXPECT_EQ(preset_of({"id", "topic", "payload", "status", "retry_after"}), "new-sent");
    EXPECT_EQ(preset_of({"id", "event_type", "payload", "created_at", "processed_at"}),
              "processed-at");
    EXPECT_EQ(preset_of({"id", "event_type", "payload", "created_at"}), "delete-when-sent");
    EXPECT_EQ(preset_of({"Id", "EventType", "Payload", "CreatedAt", "Processed"}), "camel-case");
    EXPECT_EQ(preset_of({"id", "aggregatetype", "aggregateid", "type", "payload"}), "debezium");
}

TEST(TableShape, DoesNotGuessAtOtherTables) {
    EXPECT_EQ(preset_of({"id", "name"}), "none");
    EXPECT_EQ(preset_of({"id", "event_type", "payload", "created_at", "status"}), "none");
    EXPECT_EQ(preset_of({"id", "payload", "status", "retry_after"}), "none");
    EXPECT_EQ(preset_of({}), "none");
}

TEST(TableShape, TellsTheNativeTableFromTheOthers) {
    const Columns native = {"position",   "id",         "aggregate_type", "aggregate_id",
                            "event_type", "payload",    "headers",        "tenant_id",
                            "schema_id",  "topic",      "schema_version", "occurred_at",
                            "key",        "routing_key"};
    EXPECT_TRUE(is_native_table(native));
    EXPECT_EQ(preset_of(native), "none");
    EXPECT_FALSE(is_native_table(Columns{"id", "event_type", "payload", "created_at"}));
}

}  // namespace
}  // namespace outbox
