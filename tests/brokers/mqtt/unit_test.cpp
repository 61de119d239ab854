// What the sink decides without a broker.

#include <gtest/gtest.h>
#include <map>

#include "brokers/mqtt/config.h"
#include "brokers/mqtt/errors.h"
#include "brokers/mqtt/message.h"
#include "brokers/mqtt/packet_ids.h"
#include "brokers/mqtt/protocol.h"
#include "brokers/mqtt/topic.h"

namespace outbox::mqtt {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;

std::string refusal_of(const std::string& url) {
    const auto config = make_config(url, {});
    if (config.ok()) return "";
    EXPECT_EQ(config.error().advice, Advice::kStop);
    return config.error().message;
}

TEST(MqttConfig, ReadsItsUrl) {
    const auto config = make_config("mqtt://us%40er:p%2Fw@one:1000,two?retain=true",
                                    {{"mqtt.require_subscriber", "false"}})
                            .value_or_throw();
    ASSERT_EQ(config.hosts.size(), 2U);
    EXPECT_EQ(config.hosts[0].port, 1000);
    EXPECT_EQ(config.hosts[1].port, 1883);
    EXPECT_EQ(config.user, "us@er");
    EXPECT_EQ(config.password, "p/w");
    EXPECT_TRUE(config.retain);
    EXPECT_FALSE(config.require_subscriber);
    EXPECT_EQ(make_config("mqtts://h", {}).value_or_throw().hosts[0].port, 8883);
}

TEST(MqttConfig, SaysWhatIsWrong) {
    EXPECT_NE(refusal_of("mqtt://").find("no host"), std::string::npos);
    EXPECT_NE(refusal_of("mqtt://h/orders").find("topics come from the events"), std::string::npos);
    EXPECT_NE(refusal_of("mqtt://h?qos=2").find("no option 'qos'"), std::string::npos);
    EXPECT_NE(refusal_of("mqtt://h?retain=1").find("true or false"), std::string::npos);
    EXPECT_NE(refusal_of("mqtt://h?ca_file=x").find("mqtts://"), std::string::npos);
}

TEST(MqttTopic, ALevelIsReversibleAndMeansNothing) {
    EXPECT_EQ(encode_level("plain.1_\xC3\xA9"), "plain.1_\xC3\xA9");
    EXPECT_EQ(encode_level("a/b+c#d e$f%g\n"), "a%2Fb%2Bc%23d%20e%24f%25g%0A");
    EXPECT_EQ(encode_level("a\xC2\x85\xC3\xA9\xEF\xBF\xBF\xFFz"), "a%C2%85\xC3\xA9%EF%BF%BF%FFz");
    EXPECT_EQ(encode_level("\xEF\xBF\xBD\xEF\xB7\x8F\xF0\x9F\xBF\xBD"),
              "\xEF\xBF\xBD\xEF\xB7\x8F\xF0\x9F\xBF\xBD")
        << "what lies beside noncharacters";
}

TEST(MqttTopic, TellsWhatCanBePublishedTo) {
    EXPECT_TRUE(check_topic("orders/new").ok());
    EXPECT_TRUE(check_topic("/").ok());
    for (const char* bad : {"orders/+", "#", "$SYS/x", "a\xFF", "a\nb", "a\xC2\x85", "\xEF\xB7\x90",
                            "\xF0\x9F\xBF\xBE"}) {
        EXPECT_EQ(check_topic(bad).error().code, ErrorCode::kTopicInvalid) << bad;
    }
    EXPECT_FALSE(check_topic(std::string(65'536, 'x')).ok());
}

TEST(MqttProtocol, WritesPackets) {
    std::string out;
    append_connect({.user = "u", .password = "p", .keep_alive_s = 60}, out);
    EXPECT_EQ(out, "\x10\x18\0\4MQTT\5\xC2\0\x3C\5\x27\0\1\0\0\0\0\0\1u\0\1p"s);
    out.clear();
    const std::vector<std::pair<std::string_view, std::string_view>> properties = {{"n", "v"}};
    const Publish message{
        .topic = "t", .id = 258, .retain = true, .properties = properties, .payload = "xyz"};
    append_publish(message, out);
    EXPECT_EQ(out, "\x33\x10\0\1t\1\2\7\x26\0\1n\0\1vxyz"s);
    EXPECT_EQ(bytes_of(message), out.size());
    const std::string large(300, 'x');
    out.clear();
    append_publish({.topic = "t", .id = 1, .properties = {}, .payload = large}, out);
    EXPECT_EQ(out.substr(0, 3), "\x32\xB2\2"s);  // 306 bytes
    EXPECT_EQ(out.size(), 309U);
}

std::vector<Packet> read_all(const std::string& bytes, std::size_t step, std::string& broken) {
    Reader reader;
    std::vector<Packet> packets;
    for (std::size_t i = 0; i < bytes.size() && broken.empty(); i += step) {
        reader.buffer().append(bytes.substr(i, step));
        while (auto packet = reader.next(broken)) packets.push_back(*packet);
    }
    for (Packet& packet : packets) packet.reason = {};
    return packets;
}

TEST(MqttProtocol, ReadsWhatTheBrokerSaysHoweverItComes) {
    const std::string bytes = "\x20\x0B\0\0\x08\x21\0\5\x27\0\1\0\0"s + "\x40\2\1\2"s +
                              "\x40\4\1\3\x10\0"s + "\x40\3\1\4\x87"s + "\xD0\0"s +
                              "\xE0\x07\x8B\x05\x1F\0\2by"s;
    for (const std::size_t step : {std::size_t{1}, std::size_t{3}, bytes.size()}) {
        std::string broken;
        const auto packets = read_all(bytes, step, broken);
        EXPECT_EQ(broken, "");
        ASSERT_EQ(packets.size(), 6U);
        EXPECT_EQ(packets[0].kind, Packet::Kind::kConnected);
        EXPECT_EQ(packets[0].receive_max, 5);
        EXPECT_EQ(packets[0].max_packet, 65'536U);
        EXPECT_EQ(packets[1].kind, Packet::Kind::kAnswer);
        EXPECT_EQ(packets[1].id, 258);
        EXPECT_EQ(packets[1].code, 0);
        EXPECT_EQ(packets[2].code, 0x10);
        EXPECT_EQ(packets[3].code, 0x87);
        EXPECT_EQ(packets[4].kind, Packet::Kind::kPong);
        EXPECT_EQ(packets[5].kind, Packet::Kind::kDisconnect);
        EXPECT_EQ(packets[5].code, 0x8B);
    }
}

TEST(MqttPacketIds, AreNotUsedAgainWhileTheirMessagesHaveNoAnswer) {
    PacketIds ids;
    const std::uint16_t open = ids.next(1);
    EXPECT_NE(open, 0U);
    for (std::uint64_t number = 2; number < 200'000; ++number) {
        const std::uint16_t id = ids.next(number);
        ASSERT_NE(id, 0U);
        ASSERT_NE(id, open);
        ASSERT_EQ(ids.answered(id), number);
        ASSERT_EQ(ids.answered(id), std::nullopt) << "once";
    }
    EXPECT_EQ(ids.answered(open), 1U);
}

TEST(MqttProtocol, SaysWhatIsNoMqtt) {
    for (const std::string& bytes :
         {"HTTP/1.1 400 Bad Request\r\n"s, "\x40\1\1"s, "\x40\xFF\xFF\xFF\xFF\xFF"s,
          "\x20\4\0\0\x01\xFF"s, "\x20\6\0\0\x03\x1F\0\x09"s, "\x30\0"s}) {
        std::string broken;
        EXPECT_TRUE(read_all(bytes, 1'000, broken).empty());
        EXPECT_NE(broken, "") << bytes;
    }
}

TEST(MqttMessage, CarriesHeadersKeyAndNull) {
    const spi::HeaderView headers[] = {{"type", "T"}, {"note", "a\nb"}};
    spi::Record record;
    record.key = "k";
    record.headers = headers;
    Properties properties;
    EXPECT_EQ(properties.set(record), std::nullopt);
    const std::vector<std::pair<std::string_view, std::string_view>> expected = {
        {"outbox-key", "k"}, {"outbox-null", "true"}, {"type", "T"}, {"note*", "UTF-8''a%0Ab"}};
    EXPECT_EQ(properties.list(), expected);
    const spi::HeaderView odd[] = {{"note", "a\xC2\x85"}};
    record.headers = odd;
    EXPECT_EQ(properties.set(record), std::nullopt);
    EXPECT_EQ(properties.list().back(), std::pair("note*"sv, "UTF-8''a%C2%85"sv));
    const spi::HeaderView marked[] = {{"note", "a\xEF\xBB\xBF"}};
    record.headers = marked;
    EXPECT_EQ(properties.set(record), std::nullopt);
    EXPECT_EQ(properties.list().back(), std::pair("note*"sv, "UTF-8''a%EF%BB%BF"sv));
    for (const char* name : {"no\xC2\x85te", "\xEF\xBB\xBFnote"}) {
        const spi::HeaderView odd_name[] = {{name, "a"}};
        record.headers = odd_name;
        EXPECT_NE(properties.set(record).value_or("").find("control character"), std::string::npos);
    }
    record.headers = headers;
    record.content_type = "text/\xC2\x85";
    EXPECT_NE(properties.set(record).value_or("").find("content type"), std::string::npos);
    record.content_type = {};
    const std::string key(65'536, 'x');
    record.key = key;
    EXPECT_NE(properties.set(record).value_or("").find("65536 bytes"), std::string::npos);
}

TEST(MqttErrors, GivesTheBrokersWords) {
    const auto error = to_error(fault_of_code(0x97, "disk\nfull"), "it");
    EXPECT_EQ(error.backend_code, "0x97");
    EXPECT_NE(error.message.find("quota exceeded (disk?full)"), std::string::npos) << error.message;
    EXPECT_EQ(to_error(fault_of_code(0x83, ""), "it").advice, Advice::kRetryDestination);
}

}  // namespace
}  // namespace outbox::mqtt
