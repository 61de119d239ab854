// What the sink decides without a server.

#include <gtest/gtest.h>
#include <map>
#include <openssl/evp.h>

#include "brokers/nats/answers.h"
#include "brokers/nats/config.h"
#include "brokers/nats/errors.h"
#include "brokers/nats/login.h"
#include "brokers/nats/message.h"
#include "brokers/nats/protocol.h"
#include "brokers/nats/stream_numbers.h"
#include "brokers/nats/subject.h"
#include "net/id_suffix.h"

namespace outbox::nats {
namespace {

using Options = std::map<std::string, std::string>;

NatsConfig config_of(const std::string& url, const Options& options = {}) {
    return make_config(url, options).value_or_throw();
}

std::string refusal_of(const std::string& url, const Options& options = {}) {
    const auto config = make_config(url, options);
    if (config.ok()) return "";
    EXPECT_EQ(config.error().advice, Advice::kStop);
    return config.error().message;
}

TEST(NatsConfig, ReadsItsUrl) {
    const auto config = config_of("nats://us%40er:p%2Fw@one:1000,two?stream=ORDERS");
    ASSERT_EQ(config.hosts.size(), 2U);
    EXPECT_EQ(config.hosts[0].name, "one");
    EXPECT_EQ(config.hosts[0].port, 1000);
    EXPECT_EQ(config.hosts[1].port, 4222);
    EXPECT_EQ(config.user, "us@er");
    EXPECT_EQ(config.password, "p/w");
    EXPECT_EQ(config.stream, "ORDERS");
    EXPECT_FALSE(config.tls);
    EXPECT_TRUE(config_of("tls://h").tls);
    EXPECT_EQ(config_of("nats://:token@h", {{"nats.stream", "S"}}).password, "token");
    EXPECT_EQ(make_consumer_config("nats://h?stream=S&consumer=C").value_or_throw().consumer, "C");
}

TEST(NatsConfig, SaysWhatIsWrong) {
    EXPECT_NE(refusal_of("nats://").find("no host"), std::string::npos);
    EXPECT_NE(refusal_of("nats://h/path").find("path"), std::string::npos);
    EXPECT_NE(refusal_of("nats://h?subject=x").find("no option 'subject'"), std::string::npos);
    EXPECT_NE(refusal_of("nats://h?stream=a.b").find("white space"), std::string::npos);
    EXPECT_NE(refusal_of("nats://h?inbox_prefix=a..b").find("inbox_prefix"), std::string::npos);
    EXPECT_NE(refusal_of("nats://h?ca_file=x").find("tls://"), std::string::npos);
    EXPECT_NE(refusal_of("nats://u:p@h?creds_file=x").find("creds_file"), std::string::npos);
    const auto token = refusal_of("nats://tokentoken@h");
    EXPECT_NE(token.find("nats://:TOKEN@host"), std::string::npos);
    EXPECT_EQ(token.find("tokentoken"), std::string::npos);
    EXPECT_FALSE(make_consumer_config("nats://h?stream=S").ok());
}

TEST(NatsSubject, ATokenIsReversibleAndMeansNothing) {
    EXPECT_EQ(encode_token("plain-1_\xC3\xA9"), "plain-1_\xC3\xA9");
    EXPECT_EQ(encode_token("a.b*c>d e$f%g"), "a%2Eb%2Ac%3Ed%20e%24f%25g");
    EXPECT_EQ(encode_token("\n\x7F"), "%0A%7F");
    EXPECT_EQ(encode_token(""), "%");
}

TEST(NatsSubject, TellsWhatCanBePublishedTo) {
    EXPECT_TRUE(check_subject("orders.new").ok());
    for (const char* bad : {"", ".a", "a.", "a..b", "a.*", "a.>", "$JS.API.STREAM.DELETE.X"}) {
        EXPECT_EQ(check_subject(bad).error().code, ErrorCode::kTopicInvalid) << bad;
    }
}

// In pieces of `step` bytes.
std::vector<std::string> read_all(std::string_view bytes, std::size_t step, std::string& broken) {
    Reader reader;
    std::vector<std::string> said;
    for (std::size_t i = 0; i < bytes.size() && broken.empty(); i += step) {
        reader.buffer().append(bytes.substr(i, step));
        while (const auto frame = reader.next(broken)) {
            said.push_back(std::to_string(static_cast<int>(frame->kind)) + "|" +
                           std::string(frame->text) + "|" + std::string(frame->subject) + "|" +
                           std::string(frame->reply) + "|" + std::string(frame->headers) + "|" +
                           std::string(frame->payload));
        }
    }
    return said;
}

TEST(NatsProtocol, CutsWhatTheServerSaysHoweverItComes) {
    const std::string bytes =
        "INFO {\"a\":1} \r\n+OK\r\nPING\r\nPONG\r\nMSG a.b 1 5\r\nx\r\nyz\r\n"
        "MSG\ta.b 1  r 0\r\n\r\nHMSG a 1 r 14 16\r\nNATS/1.0 503\r\nhi\r\n"
        "-ERR 'Permissions Violation for Publish to \"x\"'\r\n";
    const std::vector<std::string> expected = {"0|{\"a\":1}||||",
                                               "4|||||",
                                               "2|||||",
                                               "3|||||",
                                               "1||a.b|||x\r\nyz",
                                               "1||a.b|r||",
                                               "1||a|r|NATS/1.0 503\r\n|hi",
                                               "5|Permissions Violation for Publish to \"x\"||||"};
    for (const std::size_t step : {std::size_t{1}, std::size_t{2}, std::size_t{7}, bytes.size()}) {
        std::string broken;
        EXPECT_EQ(read_all(bytes, step, broken), expected) << step;
        EXPECT_EQ(broken, "");
    }
}

TEST(NatsProtocol, SaysWhatIsNoNats) {
    for (const char* bytes :
         {"HTTP/1.1 400\r\n", "\r\n", "MSG a 1\r\n", "MSG a 1 -5\r\n", "MSG a 1 r 5 5 5\r\n",
          "MSG a 1 99999999999\r\n", "HMSG a 1 9 5\r\n12345\r\n", "MSG a 1 1\r\nabc"}) {
        std::string broken;
        EXPECT_TRUE(read_all(bytes, 1'000, broken).empty()) << bytes;
        EXPECT_NE(broken, "") << bytes;
    }
}

TEST(NatsProtocol, ReadsHeaders) {
    HeaderLines lines("NATS/1.0 408 Request Timeout\r\nA: b: c \r\nbad\r\nEmpty:\r\n\r\n");
    EXPECT_EQ(lines.status(), "408");
    EXPECT_EQ(lines.description(), "Request Timeout");
    std::string_view name;
    std::string_view value;
    ASSERT_TRUE(lines.next(name, value));
    EXPECT_EQ(name, "A");
    EXPECT_EQ(value, "b: c");
    ASSERT_TRUE(lines.next(name, value));
    EXPECT_EQ(name, "Empty");
    EXPECT_EQ(value, "");
    EXPECT_FALSE(lines.next(name, value));
}

TEST(NatsMessage, CarriesIdKeyAndNull) {
    const spi::HeaderView headers[] = {{"type", "T"}, {"note", "a\nb"}};
    spi::Record record;
    record.id = "7";
    record.key = "k";
    record.headers = headers;
    std::string lines;
    write_headers(record, "@p", "S", lines);
    EXPECT_EQ(lines,
              "NATS/1.0\r\nNats-Msg-Id: 7@p\r\nNats-Expected-Stream: S\r\noutbox-key: k\r\n"
              "outbox-null: true\r\ntype: T\r\nnote*: UTF-8''a%0Ab\r\n\r\n");
}

TEST(NatsMessage, IdsOfTwoProducersAreNeverTheSame) {
    EXPECT_EQ(net::id_suffix("a").size(), 17U);
    EXPECT_EQ(net::id_suffix("a"), net::id_suffix("a"));
    EXPECT_NE(net::id_suffix("a"), net::id_suffix("b"));
    spi::Record record;
    record.id = "7";
    record.value = "";
    std::string lines;
    write_headers(record, "", "", lines);
    EXPECT_EQ(lines, "NATS/1.0\r\n\r\n") << "without an id the stream drops nothing";
}

TEST(NatsMessage, RefusesHeadersThatMeanSomethingElse) {
    const auto refusal = [](std::string_view name) {
        const spi::HeaderView headers[] = {{name, "x"}};
        spi::Record record;
        record.headers = headers;
        return why_not_carried(record).value_or("");
    };
    EXPECT_EQ(refusal("type"), "");
    EXPECT_NE(refusal("nats-rollup").find("meaning of its own"), std::string::npos);
    EXPECT_NE(refusal("outbox-key").find("the relay's"), std::string::npos);
    EXPECT_NE(refusal("a:b").find("colon"), std::string::npos);
    EXPECT_NE(refusal("a b").find("blank"), std::string::npos);
    EXPECT_NE(refusal("caf\xC3\xA9").find("ASCII"), std::string::npos);
    EXPECT_NE(refusal("").find("without a name"), std::string::npos);
}

TEST(NatsAnswers, TellsAnErrorFromAnAcknowledgement) {
    EXPECT_FALSE(fault_of_answer(R"({"stream":"S","seq":5})"));
    EXPECT_FALSE(fault_of_answer(R"({"stream":"error","seq":5,"duplicate":true})"));
    const auto full = fault_of_answer(
        R"({"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"seq":0})");
    ASSERT_TRUE(full);
    EXPECT_EQ(full->name, "10077");
    EXPECT_EQ(full->text, "maximum messages exceeded");
    EXPECT_EQ(to_error(*full, "it").advice, Advice::kRetryDestination);
    EXPECT_EQ(fault_of_answer("-")->name, "ENDED");
    EXPECT_EQ(fault_of_answer(R"({"error":7})")->name, "0");
}

TEST(NatsAnswers, ReadsWhatAStreamHasTaken) {
    const auto plain = read_accepted(R"({"stream":"S","seq":5})");
    ASSERT_TRUE(plain);
    EXPECT_EQ(plain->stream, "S");
    EXPECT_EQ(plain->number, 5U);
    EXPECT_FALSE(plain->duplicate);
    const auto again = read_accepted(
        R"({"stream": "seq", "domain":"d", "seq": 18446744073709551615,"duplicate": true})");
    ASSERT_TRUE(again);
    EXPECT_EQ(again->stream, "seq");
    EXPECT_EQ(again->number, UINT64_MAX);
    EXPECT_TRUE(again->duplicate);
    for (const char* none :
         {"", "{}", R"({"stream":"S"})", R"({"seq":5})", R"({"stream":"S","seq":"x"})",
          R"({"stream":7,"seq":5})", R"({"stream":"S)", R"({"stream":"S","seq":)",
          R"({"stream":"S","seq":18446744073709551616})"}) {
        EXPECT_FALSE(read_accepted(none)) << none;
    }
}

std::size_t notes_of(StreamNumbers& numbers) {
    spi::SinkReport report;
    numbers.report(report);
    return report.notes.size();
}

// The numbers of answers, of messages, and of the last message sent by then.
TEST(NatsStreamNumbers, AMessageSentAfterAnAnswerHasAHigherNumber) {
    StreamNumbers numbers;
    numbers.accepted({"S", 10}, 1, 4, "it");
    numbers.accepted({"S", 12}, 3, 4, "it");
    numbers.accepted({"S", 8}, 2, 4, "it");  // under way beside the first: in any order
    numbers.accepted({"T", 1}, 5, 6, "it");
    numbers.accepted({"S", 3, true}, 6, 6, "it");
    EXPECT_EQ(notes_of(numbers), 0U);
    numbers.accepted({"S", 10}, 7, 9, "it");
    EXPECT_EQ(notes_of(numbers), 1U);
    numbers.accepted({"S", 11}, 8, 9, "it");
    numbers.accepted({"S", 12}, 10, 12, "it");
    EXPECT_EQ(notes_of(numbers), 0U) << "it is said once";
    numbers.accepted({"S", 12}, 13, 13, "it");
    EXPECT_EQ(notes_of(numbers), 1U);
}

TEST(NatsErrors, KnowsTheSubjectThatIsRefused) {
    const Fault fault = fault_of_error("Permissions Violation for Publish to \"a.b\"");
    EXPECT_EQ(fault.subject, "a.b");
    EXPECT_EQ(to_error(fault, "it").code, ErrorCode::kNoRights);
    EXPECT_EQ(fault_of_error("Authorization Violation").subject, "");
    EXPECT_EQ(fault_of_error("Authorization Violation").name, "AUTHORIZATION");
}

TEST(NatsErrors, TakeNothingFromTheNameOfASubject) {
    for (const std::string name : {"Authorization.created", "a.Authentication Timeout",
                                   "Authentication Expired", "Maximum Payload"}) {
        const Fault fault = fault_of_error("Permissions Violation for Publish to \"" + name + "\"");
        EXPECT_EQ(fault.name, "PERMISSIONS") << name;
        EXPECT_EQ(fault.subject, name);
    }
    for (const std::string text :
         {"User Authentication Expired", "Account Authentication Expired"}) {
        EXPECT_EQ(fault_of_error(text).name, "EXPIRED") << text;
    }
    EXPECT_EQ(fault_of_error("Authentication Timeout").name, "AUTHORIZATION");
    EXPECT_EQ(fault_of_error("Maximum Payload Violation").name, "TOO LARGE");
}

// As Go's %q writes it.
TEST(NatsErrors, ReadASubjectOutOfItsQuotes) {
    const auto subject = [](const std::string& quoted) {
        return fault_of_error("Permissions Violation for Publish to \"" + quoted + "\"").subject;
    };
    EXPECT_EQ(subject(R"(a\"b)"), "a\"b");
    EXPECT_EQ(subject(R"(a\\b\\)"), "a\\b\\");
    EXPECT_EQ(subject(R"(\a\b\f\v)"), "\a\b\f\v");
    EXPECT_EQ(subject(R"(a\x7fb)"),
              "a\x7f"
              "b");
    EXPECT_EQ(subject(R"(a\u00adb\U000e0001)"), "a\u00adb\U000e0001");
    EXPECT_EQ(subject("\u00e9"), "\u00e9");
    // What ends too early names nothing.
    for (const char* broken : {"\\", "\\x7", "\\u00a", "\\xzz", "\\q"}) {
        EXPECT_EQ(subject(broken), "") << broken;
    }
}

// The seed's 32 bytes are 0, 1, ... 31.
TEST(NatsLogin, SignsWithASeed) {
    const std::string seed = "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y";
    const auto signature = sign("nonce", seed);
    if (!signature.ok()) GTEST_FAIL() << describe(signature.error());
    EXPECT_EQ(signature->text.size(), 86U);
    EXPECT_FALSE(sign("nonce", "SUAAAAICAMCAKBQHBAEQUCYMBUHB6EARCIJRIFIWC4MBSGQ3DQOR4H776Y").ok());
    EXPECT_FALSE(sign("nonce", "").ok());
    EXPECT_FALSE(sign("nonce", "seed").ok());
}

}  // namespace
}  // namespace outbox::nats
