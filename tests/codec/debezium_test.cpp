// The parts of the format where no server is needed to say what is right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/debezium/column_default.h"
#include "codec/debezium/encoder.h"
#include "codec/debezium/java_text.h"
#include "codec/debezium/value_forms.h"
#include "codec/formats.h"
#include "tests/codec/debezium_rows.h"

namespace outbox::codec::debezium {
namespace {

using testing::HasSubstr;

std::string java(double value) {
    std::string out;
    append_java(value, out);
    return out;
}

TEST(JavaText, WritesNumbersAsJavaDoes) {
    EXPECT_EQ(java(0), "0.0");
    EXPECT_EQ(java(-0.0), "-0.0");
    EXPECT_EQ(java(1), "1.0");
    EXPECT_EQ(java(0.001), "0.001");
    EXPECT_EQ(java(0.0001), "1.0E-4");
    EXPECT_EQ(java(9999999), "9999999.0");
    EXPECT_EQ(java(1e7), "1.0E7");
    EXPECT_EQ(java(2e23), "2.0E23");
    EXPECT_EQ(java(4.9e-324), "4.9E-324");
    EXPECT_EQ(java(1.7976931348623157e308), "1.7976931348623157E308");
    std::string single;
    append_java(0.1F, single);
    EXPECT_EQ(single, "0.1");
}

TEST(ValueForms, WriteBigIntegersAsJavaDoes) {
    const auto bytes = [](const char* text) { return unscaled_bytes(*read_decimal(text)); };
    EXPECT_EQ(bytes("0"), std::string(1, '\0'));
    EXPECT_EQ(bytes("127"), "\x7F");
    EXPECT_EQ(bytes("128"), std::string("\0\x80", 2));
    EXPECT_EQ(bytes("-128"), "\x80");
    EXPECT_EQ(bytes("-129"), "\xFF\x7F");
    EXPECT_EQ(bytes("-256"), std::string("\xFF\0", 2));
    EXPECT_EQ(bytes("65535"), std::string("\0\xFF\xFF", 3));
}

TEST(ValueForms, ReadTimesOfAnyZone) {
    EXPECT_EQ(read_timestamp("1970-01-02 00:00:00")->total_us(), 86'400'000'000);
    EXPECT_EQ(read_timestamp("294247-01-09 23:59:59.999999")->total_us(),
              9'223'372'022'399'999'999);
    const auto last = read_timestamp("294276-12-31 23:59:59.999999");
    EXPECT_FALSE(last->total_us().has_value());
    EXPECT_EQ(last->total_ms(), 9'224'318'015'999'999);
    EXPECT_EQ(read_timestamp("1970-01-01 00:00:00+02")->total_us(), -7'200'000'000);
    EXPECT_EQ(read_timestamp("1969-12-31 23:59:59.999999")->total_us(), -1);
    EXPECT_EQ(zoned_text(*read_timestamp("2026-02-28 12:34:56.78+02:30"), 6),
              "2026-02-28T10:04:56.780000Z");
    // As Debezium 3.0 wrote them.
    EXPECT_EQ(read_timestamp("0044-03-15 BC")->days, -735'160);
    EXPECT_EQ(read_timestamp("0044-03-15 00:00:00 BC")->total_us(), -63'517'824'000'000'000);
    EXPECT_EQ(zoned_text(*read_timestamp("0044-03-15 00:00:00+00 BC"), 6),
              "-0043-03-15T00:00:00.000000Z");
    EXPECT_EQ(zoned_text(*read_timestamp("0001-01-01 00:00:00+00 BC"), 0), "0000-01-01T00:00:00Z");
    for (const char* text : {"infinity", "2026-02-30", "", "x", " BC"}) {
        EXPECT_FALSE(read_timestamp(text).has_value()) << text;
    }
}

// As Java 17 and Kafka Connect 3.8 printed them.
TEST(ValueForms, WriteDatesAsJavaDoesWhereTheZoneIsUtc) {
    struct Printed {
        std::int64_t ms;
        const char* header;
        const char* text;
    };
    for (const auto& [ms, header, text] : {
             Printed{0, "00:00:00.000Z", "Thu Jan 01 00:00:00 UTC 1970"},
             Printed{86'399'999, "23:59:59.999Z", "Thu Jan 01 23:59:59 UTC 1970"},
             Printed{86'400'000, "1970-01-02", "Fri Jan 02 00:00:00 UTC 1970"},
             Printed{86'400'001, "1970-01-02T00:00:00.001Z", "Fri Jan 02 00:00:00 UTC 1970"},
             Printed{-1, "23:59:59.999Z", "Wed Dec 31 23:59:59 UTC 1969"},
             Printed{-86'400'001, "23:59:59.999Z", "Tue Dec 30 23:59:59 UTC 1969"},
             Printed{1'700'000'000'123, "2023-11-14T22:13:20.123Z", "Tue Nov 14 22:13:20 UTC 2023"},
             Printed{-12'220'243'200'000, "00:00:00.000Z", "Mon Sep 24 00:00:00 UTC 1582"},
             Printed{-12'219'292'800'000, "00:00:00.000Z", "Fri Oct 15 00:00:00 UTC 1582"},
             Printed{-30'605'126'399'995, "00:00:00.005Z", "Sat Feb 24 00:00:00 UTC 1000"},
             Printed{-33'734'448'000'000, "00:00:00.000Z", "Fri Dec 26 00:00:00 UTC 900"},
             Printed{-62'135'596'800'000, "00:00:00.000Z", "Mon Jan 03 00:00:00 UTC 1"},
             Printed{327'408'480'000'000, "12345-03-01", "Thu Mar 01 00:00:00 UTC 12345"},
         }) {
        EXPECT_EQ(header_date_text(ms), header);
        EXPECT_EQ(java_date_text(ms), text);
    }
}

std::string topic(const std::string& regex, const std::string& replacement,
                  const std::string& value) {
    auto router = TopicRouter::make(regex, replacement);
    if (!router.ok()) return "error: " + router.error().message;
    spi::EventBatch arena;
    const auto made = router->topic(value, arena);
    return made ? std::string(*made) : "too long";
}

// The relay reads without a search path, so PostgreSQL puts the schema before a type's name.
TEST(ColumnDefault, OfAnEnumIsFoundWithItsTypesSchemaAndWithout) {
    const auto of = [](const char* expression) {
        spi::ColumnShape column;
        column.type = "mood";
        column.labels = "sad,happy";
        column.default_value = expression;
        return default_of(column);
    };
    EXPECT_EQ(of("'sad'::mood"), "sad");
    EXPECT_EQ(of("'sad'::public.mood"), "sad");
    EXPECT_EQ(of("'sad'::text::mood"), std::nullopt);
    EXPECT_EQ(of("'sad'::public.other"), std::nullopt);
    EXPECT_EQ(of("any_mood()"), std::nullopt);
}

TEST(TopicRouter, ReplacesTheFirstMatchWhereAllMatches) {
    EXPECT_EQ(topic("(?<routedByValue>.*)", "outbox.event.${routedByValue}", "Order"),
              "outbox.event.Order");
    EXPECT_EQ(topic("(.*)-(.*)", "$2.$1", "a-b"), "b.a");
    EXPECT_EQ(topic("a|ab", "x", "ab"), "xb");  // matches() by the second, replaced by the first
    EXPECT_EQ(topic("a", "x", "ab"), "ab");     // does not match as a whole
    EXPECT_EQ(topic("(a)(b)?", "$2-$12", "a"), "-a2");
    EXPECT_EQ(topic("\\u0041", "\\$1", "A"), "$1");
}

TEST(TopicRouter, RefusesWhatJavaMeansOtherwiseOrRefuses) {
    EXPECT_THAT(topic("(a", "x", "a"), HasSubstr("route.topic.regex"));
    EXPECT_THAT(topic("[a&&[b]]", "x", "a"), HasSubstr("class within a class"));
    EXPECT_THAT(topic("a", "$1", "a"), HasSubstr("route.topic.replacement"));
    EXPECT_THAT(topic("a", "${no}", "a"), HasSubstr("route.topic.replacement"));
    EXPECT_THAT(topic("a", "x$", "a"), HasSubstr("route.topic.replacement"));
}

TEST(TopicRouter, GivesUpOnAnExpressionThatTakesForEver) {
    EXPECT_EQ(topic("(a+)+(b|c)", "x", std::string(60, 'a')), "too long");
}

// Rows of the shape that Debezium's guide names.
class DebeziumFormat : public testing::Test {
  protected:
    DebeziumFormat() {
        event_.position = 7;
        event_.id = "6f9619ff-8b86-d011-b42d-00c04fc964ff";
        event_.aggregate_type = "Order";
        event_.aggregate_id = "o-1";
        event_.event_type = "OrderCreated";
        event_.payload = R"({"a": 1})";
    }

    void add(const char* name, const char* type, bool nullable) {
        shape_.columns.push_back({.name = name, .type = type, .nullable = nullable});
    }

    Result<spi::Record> encode(const std::map<std::string, std::string>& texts) {
        const auto options = parse_options(texts);
        if (!options.ok()) return options.status();
        auto encoder = DebeziumEncoder::make(*options, shape_);
        if (!encoder.ok()) return encoder.status();
        encoder_ = *std::move(encoder);
        return encoder_->encode(event_, {}, arena_);
    }

    std::string refusal(const std::map<std::string, std::string>& texts) {
        const auto record = encode(texts);
        if (record.ok()) return "a record";
        EXPECT_EQ(record.error().code, ErrorCode::kConfigInvalid);
        return record.error().message;
    }

    spi::RowShape shape_ = debezium_rows();
    spi::EventView event_;
    spi::EventBatch arena_;
    std::unique_ptr<DebeziumEncoder> encoder_;
};

TEST_F(DebeziumFormat, CopiesNothingOfPlainTexts) {
    const auto record = encode({{"key", "simplestring"}, {"value", "simplestring"}});
    ASSERT_TRUE(record.ok()) << record.error().message;
    EXPECT_EQ(record->topic, "outbox.event.Order");
    EXPECT_EQ(record->key.data(), event_.aggregate_id.data());
    EXPECT_EQ(record->value.data(), event_.payload.data());
    ASSERT_EQ(record->headers.size(), 1U);
    EXPECT_EQ(record->headers[0].value,
              R"({"schema":{"type":"string","optional":false,"name":"io.debezium.data.Uuid",)"
              R"("version":1},"payload":"6f9619ff-8b86-d011-b42d-00c04fc964ff"})");
}

TEST_F(DebeziumFormat, TakesThePrefixOffIdsThatAreNoUuids) {
    shape_.columns[0].type = "text";
    event_.id = "public.outboxevent:17";
    const auto record = encode({{"header.schemas.enable", "false"}});
    ASSERT_TRUE(record.ok());
    EXPECT_EQ(record->headers[0].value, "\"17\"");
}

// A new id of a replay, or a column that has had another type since.
TEST_F(DebeziumFormat, WritesNoNumberThatIsNone) {
    shape_.columns[0].type = "int8";
    event_.id = "public.outboxevent:17";
    const auto record = encode({{"header.schemas.enable", "false"}});
    ASSERT_TRUE(record.ok());
    EXPECT_EQ(record->headers[0].value, "17");
    for (const char* id :
         {"fcb15f1a-bbc4-5b62-a532-b9e0dae0d1ae", "17 ", "1.5", "", "x", "99999999999999999999"}) {
        event_.id = id;
        const auto refused = encode({{"header.schemas.enable", "false"}});
        ASSERT_FALSE(refused.ok()) << id;
        EXPECT_EQ(refused.error().advice, Advice::kDeadLetter);
    }
}

TEST_F(DebeziumFormat, TheIdIsTheEventsWhereItsColumnIsReadAsWell) {
    shape_.metadata_columns = {"id"};
    shape_.metadata_as_text = true;
    event_.metadata = R"({"id": "6f9619ff-8b86-d011-b42d-00c04fc964ff"})";
    event_.id = "fcb15f1a-bbc4-5b62-a532-b9e0dae0d1ae";
    const auto record = encode({{"header.schemas.enable", "false"}});
    ASSERT_TRUE(record.ok()) << record.error().message;
    EXPECT_EQ(record->headers[0].value, "\"fcb15f1a-bbc4-5b62-a532-b9e0dae0d1ae\"");
}

TEST_F(DebeziumFormat, GivesUpAnEventThatEndsDebeziumsEngine) {
    for (const char* payload :
         {"[1, 2]", R"({"a": 9223372036854775808})", R"({"a": [[1], ["x"]]})"}) {
        event_.payload = payload;
        const auto record = encode({{"table.expand.json.payload", "true"}});
        ASSERT_FALSE(record.ok()) << payload;
        EXPECT_EQ(record.error().advice, Advice::kDeadLetter);
        EXPECT_EQ(record.error().code, ErrorCode::kInvalidEvent);
        EXPECT_THAT(record.error().message, HasSubstr("table.expand.json.payload = false"));
    }
    event_.payload = "{}";
    event_.aggregate_type = {};
    const auto record = encode({});
    ASSERT_FALSE(record.ok());
    EXPECT_EQ(record.error().advice, Advice::kDeadLetter);
    EXPECT_THAT(record.error().message, HasSubstr("'aggregatetype'"));
}

TEST_F(DebeziumFormat, TopicAndKeyOfADeadLetterAreTheOperatorsWhereTheTableHasNone) {
    event_.topic = "elsewhere";
    event_.key = "k-2";
    const std::map<std::string, std::string> texts{{"key", "simplestring"}};
    auto record = encode(texts);
    ASSERT_TRUE(record.ok()) << record.error().message;
    EXPECT_EQ(record->topic, "elsewhere");
    EXPECT_EQ(record->key, "k-2");
    // Columns of the table, at which Debezium does not look.
    shape_.fields["topic"] = "type";
    shape_.fields["key"] = "type";
    event_.key = {};
    record = encode(texts);
    ASSERT_TRUE(record.ok()) << record.error().message;
    EXPECT_EQ(record->topic, "outbox.event.Order");
    EXPECT_EQ(record->key, "o-1");
}

TEST_F(DebeziumFormat, WritesNoColumnThatADeadLetterOfAnotherConfigurationHasNot) {
    add("region", "text", false);
    add("note", "text", true);
    shape_.metadata_columns = {"region", "note"};
    shape_.metadata_as_text = true;
    const auto written = [&](const char* metadata, const char* placed) {
        event_.metadata = metadata == nullptr ? std::string_view() : std::string_view(metadata);
        const auto record = encode({{"table.fields.additional.placement", placed}});
        if (record.ok()) return std::string("a record");
        EXPECT_EQ(record.error().advice, Advice::kDeadLetter);
        return record.error().message;
    };
    EXPECT_EQ(written(R"({"note": null, "region": "eu"})", "region:header,note:header"),
              "a record");
    EXPECT_EQ(written(R"({"note": null})", "note:header"), "a record");
    EXPECT_THAT(written(R"({"region": "eu"})", "region:header,note:header"), HasSubstr("'note'"));
    EXPECT_THAT(written(R"({"note": "n"})", "region:header,note:header"), HasSubstr("'region'"));
    EXPECT_THAT(written(nullptr, "note:header"), HasSubstr("'note'"));
    // Of metadata_as = "json".
    EXPECT_THAT(written(R"({"region": 3, "note": null})", "region:header,note:header"),
                HasSubstr("under another configuration"));
    // A field that was not mapped, of a column that is never NULL.
    event_.event_type = {};
    EXPECT_EQ(written(nullptr, "payload:header"), "a record");
    EXPECT_THAT(written(nullptr, "type:header"), HasSubstr("'type' of event"));
}

TEST_F(DebeziumFormat, SaysWhichColumnItMisses) {
    EXPECT_THAT(refusal({{"table.fields.additional.placement", "nothing:header"}}),
                HasSubstr("has no column 'nothing'"));
    add("version", "int4", true);
    EXPECT_THAT(refusal({{"table.fields.additional.placement", "version:header"}}),
                HasSubstr("metadata_columns = [\"version\"]"));
    add("place", "point", true);
    EXPECT_THAT(refusal({{"table.fields.additional.placement", "place:header"}}),
                HasSubstr("type point"));
    EXPECT_THAT(refusal({{"route.by.field", "no"}}), HasSubstr("'no'"));
}

TEST_F(DebeziumFormat, TakesNoKeyThatTheRelayDoesNotKeepOrderBy) {
    add("customerid", "text", true);
    shape_.metadata_columns = {"customerid"};
    shape_.metadata_as_text = true;
    EXPECT_THAT(refusal({{"table.field.event.key", "customerid"}}),
                HasSubstr("key = \"customerid\" under [source.table]"));
    shape_.metadata_columns = {};
    shape_.fields["key"] = "customerid";
    event_.key = "c-1";
    const auto record = encode({{"table.field.event.key", "customerid"}});
    ASSERT_TRUE(record.ok()) << describe(record.error());
}

// Where a table has both columns, as Outbox's own, each event has its own choice.
TEST_F(DebeziumFormat, GivesUpAnEventWhoseKeyIsNotTheOneThatOrderIsKeptBy) {
    add("key", "text", true);
    shape_.fields["key"] = "key";
    const std::map<std::string, std::string> texts{{"key", "simplestring"}};
    ASSERT_TRUE(encode(texts).ok());
    event_.key = "o-1";
    ASSERT_TRUE(encode(texts).ok());
    event_.key = "k-1";
    const auto record = encode(texts);
    ASSERT_FALSE(record.ok());
    EXPECT_EQ(record.error().advice, Advice::kDeadLetter);
    EXPECT_THAT(record.error().message, HasSubstr("'aggregateid'"));
    auto by_key = texts;
    by_key["table.field.event.key"] = "key";
    EXPECT_EQ(encode(by_key)->key, "k-1");
    event_.key = {};
    EXPECT_EQ(encode(by_key)->key.data(), nullptr);
}

TEST_F(DebeziumFormat, RefusesOptionsThatDebeziumRefuses) {
    EXPECT_THAT(refusal({{"table.fields.additional.placement", "type"}}), HasSubstr("COLUMN"));
    EXPECT_THAT(refusal({{"table.fields.additional.placement", "type:body"}}),
                HasSubstr("placements"));
    EXPECT_THAT(refusal({{"value", "avro"}}), HasSubstr("schema registry"));
    EXPECT_THAT(refusal({{"table.expand.json.payload", "yes"}}), HasSubstr("true or false"));
    EXPECT_TRUE(encode({{"table.fields.additional.placement", "aggregateid:header:"}}).ok());
    EXPECT_THAT(refusal({{"route.topc", "x"}}), HasSubstr("no option route.topc"));
    EXPECT_THAT(refusal({{"value", "binary"}}), HasSubstr("bytea"));
    EXPECT_THAT(refusal({{"table.fields.additional.placement", "type:envelope"}}),
                HasSubstr("topic.prefix"));
}

TEST_F(DebeziumFormat, SetsPartitionAndTimestampAsKafkaConnectDoes) {
    add("part", "int4", true);
    add("at", "timestamp", true);
    shape_.metadata_columns = {"part", "at"};
    shape_.metadata_as_text = true;
    event_.metadata = R"({"at": "2026-01-01 00:00:00.5", "part": "3"})";
    const std::map<std::string, std::string> texts{
        {"table.fields.additional.placement", "part:partition"},
        {"table.field.event.timestamp", "at"}};
    auto with_connect = texts;
    with_connect["connect"] = "true";
    const auto record = encode(with_connect);
    ASSERT_TRUE(record.ok()) << record.error().message;
    EXPECT_EQ(record->partition, 3);
    EXPECT_EQ(record->timestamp_ms, 1'767'225'600'500);
    event_.metadata = R"({"at": "294276-12-31 00:00:00", "part": "-1"})";
    EXPECT_THAT(encode(with_connect).error().message, HasSubstr("'part'"));
    // As the event router of Debezium 3.0 gives them to Kafka Connect, which refuses the third.
    for (const auto& [at, ms] : {std::pair{"2023-11-14 22:13:20.123456", 1'700'000'000'123},
                                 std::pair{"1969-12-31 23:59:59.999999", std::int64_t{0}}}) {
        const std::string metadata = R"({"at": ")" + std::string(at) + R"(", "part": "1"})";
        event_.metadata = metadata;
        EXPECT_EQ(encode(with_connect)->timestamp_ms, ms);
    }
    for (const char* at : {"1969-12-31 23:59:59.9985", "294276-12-31 00:00:00"}) {
        const std::string metadata = R"({"at": ")" + std::string(at) + R"(", "part": "1"})";
        event_.metadata = metadata;
        EXPECT_THAT(encode(with_connect).error().message, HasSubstr("'at'"));
    }
    event_.metadata = R"({"at": "2026-01-01 00:00:00.5", "part": "3"})";
    const auto server = encode(texts);
    ASSERT_TRUE(server.ok());
    EXPECT_EQ(server->partition, -1);
    EXPECT_EQ(server->timestamp_ms, -1);
}

// Each value as Kafka Connect 3.8 printed it.
TEST_F(DebeziumFormat, WritesHeadersAsKafkaConnectsConvertersDo) {
    struct Column {
        const char* name;
        const char* type;
        const char* value;
        const char* simple;
        const char* text;  // empty: there is none
    };
    const std::vector<Column> columns{
        {"b", "bytea", R"(\\x00ff10)", "AP8Q", "java.nio.HeapByteBuffer[pos=0 lim=3 cap=3]"},
        {"n", "numeric", "1.50", R"({"scale":1,"value":"Dw=="})", ""},
        {"d", "date", "1970-01-04", "1970-01-04", "Sun Jan 04 00:00:00 UTC 1970"},
        {"t", "time", "01:01:01.001", "01:01:01.001Z", "Thu Jan 01 01:01:01 UTC 1970"},
        {"s", "timestamp", "2023-11-14 22:13:20.123456", "2023-11-14T22:13:20.123Z",
         "Tue Nov 14 22:13:20 UTC 2023"},
        {"x", "float8", "1e300", "1.0E300", "1.0E300"},
        {"o", "bool", "t", "true", "true"},
        {"j", "jsonb", R"({\"a\": 1.50})", R"({"a": 1.50})", R"({"a": 1.50})"},
        {"e", "text", "", "", ""},
    };
    shape_.metadata_as_text = true;
    for (const Column& column : columns) {
        add(column.name, column.type, true);
        shape_.metadata_columns = {column.name};
        const std::string metadata =
            std::string("{\"") + column.name + "\": \"" + column.value + "\"}";
        event_.metadata = metadata;
        std::map<std::string, std::string> texts{
            {"table.fields.additional.placement", std::string(column.name) + ":header"},
            {"time.precision.mode", "connect"},
            {"header", "simplestring"}};
        const auto simple = encode(texts);
        ASSERT_TRUE(simple.ok()) << simple.error().message;
        EXPECT_EQ(simple->headers.back().value, column.simple);
        texts["header"] = "string";
        const auto text = encode(texts);
        EXPECT_EQ(text.ok(), column.name != std::string("n"));
        if (text.ok()) EXPECT_EQ(text->headers.back().value, column.text);
        const std::string null = std::string("{\"") + column.name + "\": null}";
        event_.metadata = null;
        EXPECT_EQ(encode(texts)->headers.back().value.data(), nullptr);
        event_.metadata = {};
    }
}

// Handlers would see large payloads in another shape than small ones.
TEST_F(DebeziumFormat, TakesNoClaimsWhereItsValueIsMoreThanThePayload) {
    const auto refused = [&](const std::map<std::string, std::string>& options, bool claims) {
        const auto made = find_format("debezium")->make({options, "t", {}, nullptr, claims});
        return made.ok() ? std::string() : made.error().message;
    };
    const std::string placed = "debezium.table.fields.additional.placement";
    const std::string bare = "debezium.value.schemas.enable";
    EXPECT_THAT(refused({{placed, "type:envelope"}}, true), HasSubstr("claim_check"));
    EXPECT_THAT(refused({{bare, "false"}}, true), HasSubstr("simplestring"));
    EXPECT_EQ(refused({{placed, "type:envelope"}}, false), "");
    EXPECT_EQ(refused({{bare, "false"}, {"debezium.table.expand.json.payload", "true"}}, true), "");
    EXPECT_EQ(refused({{bare, "false"}, {"debezium.value", "simplestring"}}, true), "");
    EXPECT_EQ(refused({{placed, "type:header"}}, true), "");
}

// Each event would be refused by the sink, one after another.
TEST_F(DebeziumFormat, PlacesNoColumnInAHeaderThatTheDestinationCannotHave) {
    const auto refused = [&](const std::string& placed) {
        FormatSettings settings{
            {{"debezium.table.fields.additional.placement", placed}}, "t", {}, nullptr};
        settings.why_not_header = [](std::string_view name) {
            return name == "value" ? std::optional<std::string>("it is taken") : std::nullopt;
        };
        const auto made = find_format("debezium")->make(settings);
        return made.ok() ? std::string() : made.error().message;
    };
    EXPECT_THAT(refused("type:header:value"), HasSubstr("type:header:value"));
    EXPECT_THAT(refused("value:header"), HasSubstr("it is taken"));
    EXPECT_EQ(refused("value:header:amount"), "");
    EXPECT_EQ(refused("value:envelope"), "");
}

TEST_F(DebeziumFormat, NeedsASourceThatTellsTypes) {
    shape_.columns.clear();
    EXPECT_THAT(refusal({}), HasSubstr("PostgreSQL"));
}

}  // namespace
}  // namespace outbox::codec::debezium
