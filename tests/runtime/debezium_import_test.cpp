#include "runtime/debezium_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/properties_file.h"
#include "runtime/toml_file.h"

namespace outbox::runtime {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kServer = R"(# Debezium Server
debezium.sink.type=kafka
debezium.sink.kafka.producer.bootstrap.servers=localhost:9092
debezium.sink.kafka.producer.key.serializer=org.apache.kafka.common.serialization.StringSerializer
debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector
debezium.source.database.hostname=db
debezium.source.database.port=5432
debezium.source.database.user=app
debezium.source.database.password=secret
debezium.source.database.dbname=shop
debezium.source.topic.prefix=dbz
debezium.source.slot.name=debezium
debezium.source.table.include.list=public.outboxevent
debezium.format.value.schemas.enable=false
debezium.format.key=simplestring
debezium.transforms=outbox
debezium.transforms.outbox.type=io.debezium.transforms.outbox.EventRouter
debezium.transforms.outbox.route.topic.replacement=shop.\\${routedByValue}
debezium.transforms.outbox.table.expand.json.payload=true
debezium.transforms.outbox.table.fields.additional.placement=type:header:eventType,\
    version:envelope
)";

std::string left(const DebeziumImport& made, const std::string& name) {
    for (const auto& one : made.left_out) {
        if (one.name == name) return std::to_string(one.line) + ": " + one.why;
    }
    return {};
}

TEST(DebeziumImport, MakesAConfigurationOfAServersFile) {
    const auto made = import_debezium(kServer);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_THAT(made->toml, HasSubstr("to = [\"kafka://localhost:9092\"]"));
    EXPECT_THAT(made->toml, HasSubstr("format = \"debezium\""));
    EXPECT_THAT(made->toml, HasSubstr("url = \"postgresql://app@db:5432/shop\""));
    EXPECT_THAT(made->toml, HasSubstr("name = \"public.outboxevent\""));
    EXPECT_THAT(made->toml, HasSubstr("metadata_columns = [\"type\", \"version\"]"));
    EXPECT_THAT(made->toml, HasSubstr("metadata_as = \"text\""));
    EXPECT_THAT(made->toml, HasSubstr("\"value.schemas.enable\" = false"));
    EXPECT_THAT(made->toml, HasSubstr("\"key\" = \"simplestring\""));
    EXPECT_THAT(made->toml, HasSubstr("\"route.topic.replacement\" = \"shop.$${routedByValue}\""));
    EXPECT_THAT(made->toml, HasSubstr("\"table.fields.additional.placement\" = "
                                      "\"type:header:eventType,version:envelope\""));
    EXPECT_THAT(made->toml, Not(HasSubstr("secret")));
}

TEST(DebeziumImport, NamesEachLineThatItLeavesOut) {
    const auto made = import_debezium(kServer);
    ASSERT_TRUE(made.ok());
    EXPECT_THAT(left(*made, "debezium.source.slot.name"), HasSubstr("12: the relay's slot"));
    EXPECT_THAT(left(*made, "debezium.source.database.password"), HasSubstr("9: "));
    EXPECT_EQ(left(*made, "debezium.transforms"), "");
    EXPECT_EQ(left(*made, "debezium.sink.type"), "");
}

TEST(DebeziumImport, TellsWhatDebeziumServerDoesNotHandOn) {
    const auto made = import_debezium(
        std::string(kServer) + "debezium.transforms.outbox.table.field.event.timestamp=at\n");
    ASSERT_TRUE(made.ok());
    EXPECT_THAT(left(*made, "debezium.transforms.outbox.table.field.event.timestamp"),
                HasSubstr("without effect as in Debezium Server"));
}

TEST(DebeziumImport, TakesAConnectorOfKafkaConnect) {
    const auto made = import_debezium(
        "connector.class=io.debezium.connector.postgresql.PostgresConnector\n"
        "topic.prefix: dbz\n"
        "transforms=o\n"
        "transforms.o.type=io.debezium.transforms.outbox.EventRouter\n"
        "transforms.o.table.fields.additional.placement=p:partition\n"
        "key.converter=org.apache.kafka.connect.storage.StringConverter\n"
        "value.converter=org.apache.kafka.connect.json.JsonConverter\n"
        "value.converter.schemas.enable=false\n");
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_THAT(made->toml, HasSubstr("\"connect\" = true"));
    EXPECT_THAT(made->toml, HasSubstr("\"header\" = \"simplestring\""));
    EXPECT_THAT(made->toml, HasSubstr("\"value\" = \"json\""));
    EXPECT_THAT(made->toml, HasSubstr("\"value.schemas.enable\" = false"));
    EXPECT_THAT(made->toml, HasSubstr("metadata_columns = [\"p\"]"));
}

// What each of them writes was looked at in Kafka Connect 3.8 and Debezium 3.0.
TEST(DebeziumImport, TakesEachConverterOfKafkaConnectThatTheFormatHasAndNoOther) {
    const auto with = [](const std::string& lines) {
        return import_debezium(
            "transforms=o\n"
            "transforms.o.type=io.debezium.transforms.outbox.EventRouter\n" +
            lines + "\n");
    };
    const std::string kafka = "org.apache.kafka.connect.";
    const std::string debezium = "io.debezium.converters.";
    for (const auto& [line, option] :
         {std::pair{"key.converter=" + kafka + "storage.StringConverter",
                    "\"key\" = \"simplestring\""},
          std::pair{"key.converter=" + kafka + "converters.ByteArrayConverter",
                    "\"key\" = \"binary\""},
          std::pair{"value.converter=" + kafka + "json.JsonConverter", "\"value\" = \"json\""},
          std::pair{"value.converter=" + kafka + "converters.ByteArrayConverter",
                    "\"value\" = \"binary\""},
          std::pair{"value.converter=" + debezium + "BinaryDataConverter",
                    "\"value\" = \"binary\""},
          std::pair{"value.converter=" + debezium + "ByteBufferConverter",
                    "\"value\" = \"binary\""},
          std::pair{"header.converter=" + kafka + "storage.SimpleHeaderConverter",
                    "\"header\" = \"simplestring\""},
          std::pair{"header.converter=" + kafka + "storage.StringConverter",
                    "\"header\" = \"string\""},
          std::pair{"header.converter=" + kafka + "json.JsonConverter", "\"header\" = \"json\""}}) {
        const auto made = with(line);
        ASSERT_TRUE(made.ok()) << made.error().message;
        EXPECT_THAT(made->toml, HasSubstr(option));
        EXPECT_TRUE(made->left_out.empty()) << line;
    }
    for (const auto& [line, why] :
         {std::pair{"value.converter=io.confluent.connect.avro.AvroConverter", "schema registry"},
          std::pair{"value.converter=io.apicurio.registry.utils.converter.AvroConverter",
                    "schema registry"},
          std::pair{"key.converter=org.apache.kafka.connect.converters.LongConverter",
                    "StringConverter"},
          std::pair{"value.converter=io.debezium.converters.ByteArrayConverter",
                    "BinaryDataConverter"},
          std::pair{"header.converter=io.debezium.converters.BinaryDataConverter",
                    "SimpleHeaderConverter"},
          std::pair{"value.converter=io.debezium.converters.CloudEventsConverter", "there are"}}) {
        const auto made = with(line);
        ASSERT_FALSE(made.ok()) << line;
        EXPECT_EQ(made.error().code, ErrorCode::kConfigInvalid);
        EXPECT_THAT(made.error().message, HasSubstr("line 3"));
        EXPECT_THAT(made.error().message, HasSubstr(why));
    }
    const auto delegate = with(
        "value.converter=io.debezium.converters.BinaryDataConverter\n"
        "value.converter.delegate.converter.type=org.apache.kafka.connect.json.JsonConverter\n"
        "value.converter.replace.null.with.default=false");
    ASSERT_TRUE(delegate.ok()) << delegate.error().message;
    EXPECT_THAT(left(*delegate, "value.converter.delegate.converter.type"),
                HasSubstr("4: a bytea alone"));
    EXPECT_THAT(left(*delegate, "value.converter.replace.null.with.default"),
                HasSubstr("changes no record"));
}

// As java.util.Properties and SmallRye Config read the same bytes.
TEST(DebeziumImport, LettersAreWhatTheFilesReaderTakesThemFor) {
    const std::string placed = "table.fields.additional.placement=type:header:gr\\u00f6";
    const std::string connect =
        "transforms=o\n"
        "transforms.o.type=io.debezium.transforms.outbox.EventRouter\n"
        "transforms.o." +
        placed;
    EXPECT_THAT(import_debezium(connect + "\xDF"
                                          "e\n")
                    ->toml,
                HasSubstr("gr\u00f6\u00dfe\""));
    EXPECT_THAT(import_debezium(connect + "\u00dfe\n")->toml, HasSubstr("gr\u00f6\u00c3\u009f"));
    const std::string server = std::string(kServer) + "debezium.transforms.outbox." + placed;
    EXPECT_THAT(import_debezium(server + "\u00dfe\n")->toml, HasSubstr("gr\u00f6\u00dfe\""));
    const auto latin = import_debezium(
        "# gr\xF6\xDF"
        "e\n" +
        server +
        "\xDF"
        "e\n");
    ASSERT_TRUE(latin.ok()) << latin.error().message;
    EXPECT_THAT(latin->toml, Not(HasSubstr("additional.placement")));
    EXPECT_THAT(left(*latin, "debezium.transforms.outbox.table.fields.additional.placement"),
                HasSubstr("23: it is not UTF-8"));
}

TEST(DebeziumImport, TakesAConnectorsJsonAsTheRestApiTakesIt) {
    const std::string config = R"({
  "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
  "database.hostname": "db", "database.dbname": "shop", "database.port": 5432,
  "database.password": "hunter2",
  "slot.name": null,
  "topic.prefix": "dbz",
  "transforms": "o",
  "transforms.o.type": "io.debezium.transforms.outbox.EventRouter",
  "key.converter": "org.apache.kafka.connect.storage.StringConverter",
  "value.converter": "org.apache.kafka.connect.json.JsonConverter",
  "value.converter.schemas.enable": false
})";
    for (const std::string& text :
         {config, "\xEF\xBB\xBF\n {\"name\": \"orders\", \"config\": " + config + "}"}) {
        const auto made = import_debezium(text);
        ASSERT_TRUE(made.ok()) << made.error().message;
        EXPECT_THAT(made->toml, HasSubstr("url = \"postgresql://db:5432/shop\""));
        EXPECT_THAT(made->toml, HasSubstr("\"connect\" = true"));
        EXPECT_THAT(made->toml, HasSubstr("\"value.schemas.enable\" = false"));
        EXPECT_EQ(made->toml.find("hunter2"), std::string::npos);
        EXPECT_THAT(left(*made, "database.password"), HasSubstr("PGPASSWORD"));
        EXPECT_THAT(left(*made, "slot.name"), testing::IsEmpty());
    }
    EXPECT_EQ(import_debezium(config)->left_out.at(0).line, 2U);
    EXPECT_EQ(import_debezium(config)->left_out.at(1).line, 4U);
}

TEST(DebeziumImport, SaysWhereAConnectorsJsonIsNone) {
    const auto broken = import_debezium("{\n\"database.password\": \"hunter2\n}");
    ASSERT_FALSE(broken.ok());
    EXPECT_THAT(broken.error().message, HasSubstr("line 2"));
    EXPECT_EQ(broken.error().message.find("hunter2"), std::string::npos);
    const auto nested = import_debezium("{\"a\": 1,\n\"b\": [\"x\"]}");
    ASSERT_FALSE(nested.ok());
    EXPECT_THAT(nested.error().message, HasSubstr("line 2: b is array"));
    const auto none = import_debezium("{\"name\": \"x\", \"config\": {}}");
    ASSERT_FALSE(none.ok());
    EXPECT_THAT(none.error().message, HasSubstr("EventRouter"));
}

TEST(DebeziumImport, LeavesOutWhatHasNoCounterpartWithARemedy) {
    const auto made = import_debezium(
        std::string(kServer) +
        "debezium.transforms.outbox.table.op.invalid.behavior=fatal\n"
        "debezium.transforms.mask.type=org.apache.kafka.connect.transforms.MaskField$Value\n"
        "debezium.format.key=avro\n");
    ASSERT_FALSE(made.ok());  // Avro is no converter of this format
    EXPECT_THAT(made.error().message, HasSubstr("schema registry"));
    const auto without =
        import_debezium(std::string(kServer) +
                        "debezium.transforms.outbox.table.op.invalid.behavior=fatal\n"
                        "debezium.transforms.mask.type=Mask\n");
    ASSERT_TRUE(without.ok());
    EXPECT_THAT(left(*without, "debezium.transforms.outbox.table.op.invalid.behavior"),
                HasSubstr("trigger"));
    EXPECT_THAT(left(*without, "debezium.transforms.mask.type"), HasSubstr("notice"));
}

TEST(DebeziumImport, RefusesAFileWithoutARouter) {
    const auto made = import_debezium("debezium.sink.type=kafka\n");
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::kConfigInvalid);
    EXPECT_THAT(made.error().message, HasSubstr("EventRouter"));
}

TEST(DebeziumImport, RefusesARegexThatDoesNotCompile) {
    const auto made =
        import_debezium(std::string(kServer) + "debezium.transforms.outbox.route.topic.regex=(a\n");
    ASSERT_FALSE(made.ok());
    EXPECT_THAT(made.error().message, HasSubstr("route.topic.regex"));
}

TEST(DebeziumImport, TakesTheRouterThatRunsAndNotOneThatIsOnlyWrittenDown) {
    const std::string other =
        "debezium.transforms.b.type=io.debezium.transforms.outbox.EventRouter\n"
        "debezium.transforms.b.route.by.field=other\n";
    const auto made = import_debezium(kServer + other);
    ASSERT_TRUE(made.ok());
    EXPECT_THAT(made->toml, HasSubstr("\"table.expand.json.payload\" = true"));
    EXPECT_THAT(made->toml, Not(HasSubstr("other")));
    EXPECT_THAT(left(*made, "debezium.transforms.b.route.by.field"), HasSubstr("notice"));
    const auto none = import_debezium("debezium.source.topic.prefix=dbz\n" + other);
    ASSERT_FALSE(none.ok());
    EXPECT_THAT(none.error().message, HasSubstr("among its transforms"));
}

TEST(DebeziumImport, BlanksBehindAValueAreNotOfIt) {
    const auto made = import_debezium(
        "transforms=outbox \n"
        "transforms.outbox.type=io.debezium.transforms.outbox.EventRouter \n"
        "table.include.list=public.outboxevent\t\n"
        "value.converter=org.apache.kafka.connect.storage.StringConverter \n");
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_THAT(made->toml, HasSubstr("\"value\" = \"simplestring\""));
    EXPECT_THAT(made->toml, HasSubstr("name = \"public.outboxevent\"\n"));
    EXPECT_TRUE(made->left_out.empty());
}

TEST(DebeziumImport, WritesAUrlThatLeadsWhereDebeziumWent) {
    const auto made =
        import_debezium(std::string(kServer) +
                        "debezium.source.database.hostname=::1\n"
                        "debezium.source.database.user=app@x:y/z\n"
                        "debezium.source.database.dbname=my shop?\n"
                        "debezium.sink.kafka.producer.bootstrap.servers=a:9092, SSL://b:9093\n");
    ASSERT_TRUE(made.ok());
    EXPECT_THAT(made->toml,
                HasSubstr("url = \"postgresql://app%40x%3Ay%2Fz@[::1]:5432/my%20shop%3F\""));
    EXPECT_THAT(made->toml, HasSubstr("to = [\"kafka://a:9092,b:9093\"]"));
}

TEST(DebeziumImport, AVariableStaysOneWhereItIsTheEnvironmentsAndIsElseNamed) {
    const auto made = import_debezium(
        std::string(kServer) +
        "debezium.source.database.hostname=${DB_HOST}\n"
        "debezium.sink.kafka.producer.bootstrap.servers=${KAFKA}\n"
        "debezium.source.database.dbname=${DB:shop}\n"
        "debezium.transforms.outbox.route.topic.replacement=${ENV}.\\\\${routedByValue}\n");
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_THAT(made->toml, HasSubstr("to = [\"kafka://${KAFKA}\"]"));
    EXPECT_THAT(made->toml, Not(HasSubstr("url = ")));
    EXPECT_THAT(made->toml, Not(HasSubstr("route.topic.replacement")));
    EXPECT_THAT(left(*made, "debezium.source.database.dbname"), HasSubstr("in its place"));
    EXPECT_THAT(left(*made, "debezium.transforms.outbox.route.topic.replacement"),
                HasSubstr("in its place"));
    const auto connect = import_debezium(
        "transforms=o\n"
        "transforms.o.type=io.debezium.transforms.outbox.EventRouter\n"
        "transforms.o.route.topic.replacement=shop.${routedByValue}\n"
        "database.hostname=${env:DB_HOST}\n"
        "database.dbname=shop\n"
        "topic.prefix=${file:/etc/kafka.properties:prefix}\n");
    ASSERT_TRUE(connect.ok()) << connect.error().message;
    EXPECT_THAT(connect->toml, HasSubstr("url = \"postgresql://${DB_HOST}/shop\""));
    EXPECT_THAT(connect->toml, HasSubstr("\"shop.$${routedByValue}\""));
    EXPECT_THAT(left(*connect, "topic.prefix"), HasSubstr("in its place"));
}

// Else a relay would not start with it.
TEST(DebeziumImport, WhatIsMadeCanBeReadWhateverStandsInTheFile) {
    const std::string text = kServer;
    const auto read = [&](const std::string& name, const std::string& value) {
        const auto made = import_debezium(text + name + "=" + value + "\n");
        EXPECT_TRUE(made.ok()) << made.error().message;
        const auto content = read_toml(made->toml, "outbox.toml");
        EXPECT_TRUE(content.ok()) << content.error().message << "\n" << made->toml;
        return made->toml + left(*made, name);
    };
    const std::string servers = "debezium.sink.kafka.producer.bootstrap.servers";
    EXPECT_THAT(read(servers, "a$b:9092"), HasSubstr("\"kafka://a$$b:9092\""));
    EXPECT_THAT(read(servers, "a b:9092"), HasSubstr("no list of HOST:PORT"));
    EXPECT_THAT(read(servers, "a:b"), HasSubstr("no list of HOST:PORT"));
    EXPECT_THAT(read("debezium.source.database.hostname", "fd00::1$"),
                HasSubstr("\"postgresql://app@[fd00::1$$]:5432/shop\""));
    EXPECT_THAT(read("debezium.source.database.port", "five"), Not(HasSubstr("postgresql://")));
    EXPECT_THAT(read("debezium.source.topic.prefix", "a\x7F"), HasSubstr("\"a\\u007F\""));
}

TEST(Properties, ReadPairsOfUtf16AndWhatIsNoEscape) {
    const auto read = read_properties("a=\\uD83D\\uDE00\\u00e4\\uD83D\\u0041\\uZZZZ\\u1");
    ASSERT_EQ(read.size(), 1U);
    EXPECT_EQ(read[0].value,
              "\xF0\x9F\x98\x80\xC3\xA4\xEF\xBF\xBD"
              "AuZZZZu1");
}

TEST(Properties, AreReadAsJavaReadsThem) {
    const auto read = read_properties(
        "! comment\n# another\n a = b\nc:d\ne f\n\ng=1\\\n   2\\\\\nh\\ i=\\u00e4\\t\\z\r\nlast");
    ASSERT_EQ(read.size(), 6U);
    EXPECT_EQ(read[0].name + "|" + read[0].value, "a|b");
    EXPECT_EQ(read[1].name + "|" + read[1].value, "c|d");
    EXPECT_EQ(read[2].name + "|" + read[2].value, "e|f");
    EXPECT_EQ(read[3].name + "|" + read[3].value, "g|12\\");
    EXPECT_EQ(read[3].line, 7U);
    EXPECT_EQ(read[4].name + "|" + read[4].value, "h i|\xC3\xA4\tz");
    EXPECT_EQ(read[5].name + "|" + read[5].value, "last|");
}

}  // namespace
}  // namespace outbox::runtime
