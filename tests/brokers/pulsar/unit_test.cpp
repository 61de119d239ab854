// What the sink decides without a broker.

#include <array>
#include <cstdio>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "brokers/pulsar/config.h"
#include "brokers/pulsar/crc32c.h"
#include "brokers/pulsar/errors.h"
#include "brokers/pulsar/message.h"
#include "brokers/pulsar/protocol.h"
#include "brokers/pulsar/topic.h"
#include "brokers/pulsar/wire.h"

namespace outbox::pulsar {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;

std::string refusal_of(const std::string& url) {
    const auto config = make_config(url, {});
    if (config.ok()) return "";
    EXPECT_EQ(config.error().advice, Advice::kStop);
    return config.error().message;
}

TEST(PulsarConfig, ReadsItsUrl) {
    const auto config =
        make_config("pulsar://:to%2Fken@one:1000,two?tenant=shop&mixed_batches=true",
                    {{"pulsar.namespace", "orders"}})
            .value_or_throw();
    ASSERT_EQ(config.hosts.size(), 2U);
    EXPECT_EQ(config.hosts[0].port, 1000);
    EXPECT_EQ(config.hosts[1].port, 6650);
    EXPECT_EQ(config.password, "to/ken");
    EXPECT_EQ(config.home(), "shop/orders");
    EXPECT_TRUE(config.mixed_batches);
    const auto usual = make_config("pulsar+ssl://h", {}).value_or_throw();
    EXPECT_EQ(usual.hosts[0].port, 6651);
    EXPECT_EQ(usual.home(), "public/default");
    EXPECT_FALSE(usual.mixed_batches);
}

TEST(PulsarConfig, SaysWhatIsWrong) {
    EXPECT_THAT(refusal_of("pulsar://"), HasSubstr("no host"));
    EXPECT_THAT(refusal_of("pulsar://h/public/default"), HasSubstr("?tenant=NAME&namespace=NAME"));
    EXPECT_THAT(refusal_of("pulsar://me:t@h"), HasSubstr("pulsar://:TOKEN@host"));
    EXPECT_THAT(refusal_of("pulsar://h?tenant=a/b"), HasSubstr("letters, digits"));
    EXPECT_THAT(refusal_of("pulsar://h?namespace="), HasSubstr("letters, digits"));
    EXPECT_THAT(refusal_of("pulsar://h?mixed_batches=1"), HasSubstr("true or false"));
    EXPECT_THAT(refusal_of("pulsar://h?password_file=x"), HasSubstr("token_file"));
    EXPECT_THAT(refusal_of("pulsar://:t@h?token_file=x"), HasSubstr("leave one of them out"));
    EXPECT_THAT(refusal_of("pulsar://h?ca_file=x"), HasSubstr("pulsar+ssl://"));
    EXPECT_THAT(refusal_of("pulsar://h?acks=1"), HasSubstr("no option 'acks'"));
}

TEST(PulsarTopic, IsNamedInFull) {
    EXPECT_EQ(full_name("orders", "a/b"), "persistent://a/b/orders");
    EXPECT_EQ(full_name("t/n/orders", "a/b"), "persistent://t/n/orders");
    EXPECT_EQ(full_name("persistent://t/n/orders", "a/b"), "persistent://t/n/orders");
    EXPECT_EQ(name_of_partition("persistent://t/n/o", 3), "persistent://t/n/o-partition-3");
}

TEST(PulsarTopic, TellsWhatCanBePublishedTo) {
    for (const char* good : {"orders", "caf\xC3\xA9", "t/n/o", "persistent://t-1/n.2/o?x"}) {
        EXPECT_TRUE(check_topic(good).ok()) << good;
    }
    for (const char* bad : {"non-persistent://t/n/o", "a/b", "t/n/o/p", "/n/o", "t//o", "t/n/",
                            "t/n/__change_events", "persistent://o", "t!/n/o", "a\xFF", "__x"}) {
        EXPECT_EQ(check_topic(bad).error().code, ErrorCode::kTopicInvalid) << bad;
    }
}

TEST(PulsarTopic, APartIsReversibleAndSplitsNothing) {
    EXPECT_EQ(encode_part("plain.1_\xC3\xA9"), "plain.1_\xC3\xA9");
    EXPECT_EQ(encode_part("a/b c%d\n"), "a%2Fb%20c%25d%0A");
}

TEST(PulsarTopic, AValueNamesNoPartitionOfAnotherTopic) {
    EXPECT_EQ(encode_part("base-partition-1"), "base-partition%2D1");
    EXPECT_EQ(encode_part("a-partition-1-partition-07"), "a-partition-1-partition%2D07");
    EXPECT_EQ(encode_part("partition-1"), "partition%2D1") << "behind u- it would be one";
    EXPECT_EQ(encode_part("a-partition-\xD9\xA1"), "a-partition%2D\xD9\xA1") << "a digit to Java";
    for (const char* plain : {"a-partition-", "a-partition-x", "a-partition-1x", "apartition-1"}) {
        EXPECT_EQ(encode_part(plain), plain);
        EXPECT_TRUE(check_topic(plain).ok()) << plain;
    }
    for (const char* partition : {"o-partition-1", "t/n/o-partition-12", "-partition-0",
                                  "persistent://t/n/o-partition-1"}) {
        EXPECT_THAT(check_topic(partition).error().message, HasSubstr("names a partition"))
            << partition;
    }
    EXPECT_TRUE(check_topic("partition-1").ok());
    EXPECT_TRUE(check_topic("u-" + encode_part("base-partition-1")).ok());
}

// Of java.lang.String.hashCode, by a JVM.
TEST(PulsarTopic, HashesAsJavaDoes) {
    EXPECT_EQ(java_hash(""), 0U);
    EXPECT_EQ(java_hash("Aa"), 2112U);
    EXPECT_EQ(java_hash("BB"), 2112U);
    EXPECT_EQ(java_hash("polygenelubricants"), 0x80000000U);
    EXPECT_EQ(java_hash("\xC3\xA9"), 233U);
    EXPECT_EQ(java_hash("\xF0\x9F\x98\x80"), 31U * 0xD83DU + 0xDE00U);
    EXPECT_EQ(partition_of("polygenelubricants", 7), 0U);
}

// RFC 3720, B.4.
TEST(PulsarChecksum, IsCrc32c) {
    EXPECT_EQ(crc32c(""), 0U);
    EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
    EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
    EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
    std::string rising;
    for (char c = 0; c < 32; ++c) rising += c;
    EXPECT_EQ(crc32c(rising), 0x46DD794EU);
}

TEST(PulsarWire, ReadsWhatItWrites) {
    std::string bytes;
    append_number(1, 300, bytes);
    append_bytes(20, "text", bytes);
    append_number(3, UINT64_MAX, bytes);
    EXPECT_EQ(bytes.substr(0, 3), "\x08\xAC\x02"s) << "as the specification's example";
    Fields fields(bytes);
    EXPECT_EQ(fields.next()->value, 300U);
    const auto text = fields.next();
    EXPECT_EQ(text->number, 20U);
    EXPECT_EQ(text->bytes, "text");
    EXPECT_EQ(fields.next()->value, UINT64_MAX);
    EXPECT_FALSE(fields.next());
    EXPECT_FALSE(fields.broken());
}

TEST(PulsarWire, SaysWhatIsNoMessage) {
    for (const std::string& bytes :
         {"\x08"s, "\x12\x05"s + "abc", "\x0B"s, std::string(11, '\xFF'), "\x00"s, "\x0D\x01"s}) {
        Fields fields(bytes);
        EXPECT_FALSE(fields.next());
        EXPECT_TRUE(fields.broken());
    }
}

std::string frame_of(unsigned type, const std::string& command) {
    std::string base;
    append_number(1, type, base);
    append_bytes(type, command, base);
    std::string frame;
    append_u32(static_cast<std::uint32_t>(base.size() + 4), frame);
    append_u32(static_cast<std::uint32_t>(base.size()), frame);
    return frame + base;
}

// A receipt, a lookup's answer, an error, an unknown command.
std::string said_by_a_broker() {
    std::string receipt;
    append_number(1, 7, receipt);
    append_number(2, 8, receipt);
    std::string lookup;
    append_bytes(1, "pulsar://b:6650", lookup);
    append_number(3, 1, lookup);
    append_number(4, 9, lookup);
    append_number(5, 1, lookup);
    std::string error;
    append_number(1, 10, error);
    append_number(2, 11, error);
    append_bytes(3, "gone", error);
    return frame_of(7, receipt) + frame_of(24, lookup) + frame_of(14, error) + frame_of(99, "");
}

TEST(PulsarProtocol, CutsWhatTheBrokerSaysHoweverItComes) {
    const std::string bytes = said_by_a_broker();
    for (const std::size_t step : {std::size_t{1}, std::size_t{7}, bytes.size()}) {
        Reader reader;
        std::string broken;
        std::vector<std::string> said;
        for (std::size_t i = 0; i < bytes.size(); i += step) {
            reader.buffer().append(bytes.substr(i, step));
            while (const auto command = reader.next(broken)) {
                said.push_back(std::to_string(static_cast<int>(command->kind)) + " " +
                               std::to_string(command->producer) + " " +
                               std::to_string(command->sequence) + " " +
                               std::to_string(command->request) + " " +
                               std::to_string(command->error) + std::string(command->url) +
                               std::string(command->text) + (command->failed ? " failed" : "") +
                               (command->authoritative ? " authoritative" : ""));
            }
        }
        EXPECT_EQ(broken, "");
        EXPECT_THAT(said,
                    testing::ElementsAre("1 7 8 0 0", "6 0 0 9 0pulsar://b:6650 authoritative",
                                         "3 0 0 10 11gone", "10 0 0 0 0"));
    }
}

TEST(PulsarProtocol, SaysWhatIsNoPulsar) {
    for (const std::string& bytes : {"HTTP/1.1 400\r\n"s, "\0\0\0\1\0\0\0\0"s,
                                     "\0\0\0\5\0\0\0\x63x"s, "\0\0\0\5\0\0\0\1\x0B"s}) {
        Reader reader;
        reader.buffer() = bytes;
        std::string broken;
        EXPECT_FALSE(reader.next(broken));
        EXPECT_NE(broken, "") << bytes;
    }
}

TEST(PulsarProtocol, AMessageHasItsChecksumBehindItsCommand) {
    std::string bytes;
    append_send({.producer = 1, .first = 5, .count = 3}, "meta", "payload", bytes);
    EXPECT_EQ(u32_at(bytes, 0), bytes.size() - 4);
    const std::size_t at = 8 + u32_at(bytes, 4);
    EXPECT_EQ(bytes.substr(at, 2), "\x0E\x01");
    EXPECT_EQ(u32_at(bytes, at + 2), crc32c(bytes.substr(at + 6)));
    EXPECT_EQ(bytes.substr(at + 6), "\0\0\0\4"s + "metapayload");
}

// Field numbers and their values, of a message's metadata.
std::vector<std::string> fields_of(const std::string& bytes) {
    std::vector<std::string> all;
    Fields fields(bytes);
    while (const auto field = fields.next()) {
        all.push_back(std::to_string(field->number) + "=" +
                      (field->bytes.data() != nullptr ? std::string(field->bytes)
                                                      : std::to_string(field->value)));
    }
    return all;
}

TEST(PulsarMessage, CarriesKeyHeadersTimeAndNull) {
    const spi::HeaderView headers[] = {{"a", "b"}, {"odd", "\xFF"}};
    spi::Record record;
    record.key = "k";
    record.headers = headers;
    record.occurred_at_us = 1'500;
    std::string bytes;
    append_metadata({"p", 7, 9}, record, bytes);
    EXPECT_THAT(fields_of(bytes),
                testing::ElementsAre("1=p", "2=7", "3=9", "4=\n\1a\x12\1b",
                                     "4=\n\4odd*\x12\nUTF-8''%FF", "6=k", "12=1", "25=1"));
    record.key = "\xFF\xFE";
    record.headers = {};
    record.value = "v";
    record.occurred_at_us = 0;
    bytes.clear();
    append_metadata({"p", 7, 9}, record, bytes);
    EXPECT_THAT(fields_of(bytes), testing::ElementsAre("1=p", "2=7", "3=9", "6=//4=", "17=1"))
        << "as the Java client writes a key of bytes";
    record.key = {};
    bytes.clear();
    append_to_batch(8, record, bytes);
    EXPECT_THAT(fields_of(bytes.substr(4, u32_at(bytes, 0))), testing::ElementsAre("3=1", "8=8"));
    EXPECT_EQ(bytes.back(), 'v');
}

TEST(PulsarMessage, RefusesHeadersWithoutAName) {
    const auto refusal = [](std::string_view name) {
        const spi::HeaderView headers[] = {{name, "x"}};
        spi::Record record;
        record.headers = headers;
        return why_not_carried(record).value_or("");
    };
    EXPECT_EQ(refusal("caf\xC3\xA9"), "");
    EXPECT_THAT(refusal(""), HasSubstr("without a name"));
    EXPECT_THAT(refusal("\xFF"), HasSubstr("not UTF-8"));
}

TEST(PulsarErrors, TellATopicFromARecord) {
    EXPECT_EQ(to_error(fault_of_send(22, "Exceed maximum message size"), "it").code,
              ErrorCode::kPayloadTooLarge);
    EXPECT_EQ(to_error(fault_of_request(22, "no"), "it").advice, Advice::kRetryDestination);
    EXPECT_EQ(to_error(fault_of_request(17, "bad"), "it").advice, Advice::kDeadLetter);
    EXPECT_EQ(to_error(fault_of_request(11, ""), "it").backend_code, "TopicNotFound");
    EXPECT_EQ(to_error(fault_of_request(77, "new"), "it").advice, Advice::kRetryDestination);
    EXPECT_TRUE(is_moving(fault_of_request(6, "")));
    EXPECT_EQ(fault_of_request(1, "a\x1B[2Jb").text, "a?[2Jb");
}

}  // namespace
}  // namespace outbox::pulsar
