#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <outbox/producer/emit.h>

namespace outbox {
namespace {

using testing::HasSubstr;

Event order_created() {
    Event event;
    event.aggregate_type = "Order";
    event.aggregate_id = "o-1";
    event.event_type = "OrderCreated";
    event.payload = R"({"order_id":"o-1"})";
    return event;
}

ErrorInfo error_of(const Event& event, const EmitOptions& options = {}) {
    try {
        (void)insert_command(event, options);
    } catch (const Error& error) {
        return error.info();
    }
    return {ErrorCode::kInternal, Advice::kStop, "", "accepted"};
}

TEST(InsertCommand, NamesOnlyTheColumnsThatAreSet) {
    const auto command = insert_command(order_created());
    EXPECT_EQ(command.sql,
              "INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload) "
              "VALUES ($1, $2, $3, $4, $5)");
    EXPECT_EQ(command.values[0], command.id);
    EXPECT_EQ(command.values[4], R"({"order_id":"o-1"})");
}

TEST(InsertCommand, DelayedEventsGoToTheScheduleWithTheirTime) {
    Event event = order_created();
    event.available_at =
        std::chrono::system_clock::time_point(std::chrono::microseconds(1'700'000'000'123'456));
    const auto command = insert_command(event);
    EXPECT_THAT(command.sql, HasSubstr("INTO outbox_scheduled (available_at, "));
    EXPECT_EQ(command.values[0], "2023-11-14 22:13:20.123456+00");
    event.available_at = std::chrono::system_clock::time_point(std::chrono::microseconds(-1));
    EXPECT_EQ(insert_command(event).values[0], "1969-12-31 23:59:59.999999+00");
}

TEST(InsertCommand, HeadersAndTraceparentBecomeOneJsonObject) {
    Event event = order_created();
    event.headers = {{"b", "2 \"quoted\""}, {"a", "1"}};
    event.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    EXPECT_EQ(insert_command(event).values[5],
              R"({"a":"1","b":"2 \"quoted\"",)"
              R"("traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})");
    event.headers.emplace_back("traceparent", "x");
    EXPECT_THAT(error_of(event).message, HasSubstr("'traceparent' twice"));
}

TEST(InsertCommand, RefusesWhatNoDatabaseOrBrokerCouldTake) {
    EXPECT_THAT(error_of(Event{}).message, HasSubstr("neither a topic nor an aggregate type"));

    Event event = order_created();
    event.aggregate_id = "\xff";
    EXPECT_EQ(error_of(event).code, ErrorCode::kInvalidEvent);
    EXPECT_THAT(error_of(event).message, HasSubstr("aggregate_id is not valid UTF-8"));

    event = order_created();
    event.payload = std::string("a\0b", 3);
    EXPECT_THAT(error_of(event).message, HasSubstr("payload holds U+0000"));

    event = order_created();
    event.key = std::string(kMaxTextBytes + 1, 'k');
    EXPECT_THAT(error_of(event).message, HasSubstr("key has 4097 bytes"));

    event = order_created();
    event.topic = std::string(kMaxTopicBytes + 1, 't');
    EXPECT_EQ(error_of(event).code, ErrorCode::kTopicInvalid);

    event = order_created();
    event.headers = {{"", "x"}};
    EXPECT_THAT(error_of(event).message, HasSubstr("header without a name"));

    event = order_created();
    event.occurred_at = std::chrono::system_clock::time_point::max();
    // The clock's own end lies before the year 9999 where it counts nanoseconds.
    EXPECT_THAT(insert_command(event).sql, HasSubstr("occurred_at"));
}

TEST(InsertCommand, TheSizeLimitNamesTheRemedy) {
    Event event = order_created();
    event.payload = "\"" + std::string(kMaxPayloadBytes - 2, 'x') + "\"";
    EXPECT_NO_THROW((void)insert_command(event));
    event.payload->insert(1, "x");
    const auto error = error_of(event);
    EXPECT_EQ(error.code, ErrorCode::kPayloadTooLarge);
    EXPECT_EQ(error.advice, Advice::kDeadLetter);
    EXPECT_THAT(error.message, HasSubstr("claim check"));
    EmitOptions options;
    options.max_payload_bytes = 2 * kMaxPayloadBytes;
    EXPECT_NO_THROW((void)insert_command(event, options));
}

TEST(InsertCommand, BinaryPayloadsMayHoldAnyBytes) {
    Event event = order_created();
    event.payload = std::string("\x00\xff\\", 3);
    EmitOptions options;
    options.binary_payload = true;
    EXPECT_EQ(insert_command(event, options).values[4], "\\x00ff5c");
}

}  // namespace
}  // namespace outbox
