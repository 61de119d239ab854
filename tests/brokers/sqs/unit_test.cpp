// What the sink decides without a server.

#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>

#include "brokers/sqs/answers.h"
#include "brokers/sqs/config.h"
#include "brokers/sqs/message.h"
#include "brokers/sqs/queue_name.h"

namespace outbox::sqs {
namespace {

using aws::Fault;
using aws::fifo_id;
using aws::is_fifo;
using aws::is_text;
using aws::Scope;
using aws::transport_weakness;
using net::read_profile;
using nlohmann::json;
using Options = std::map<std::string, std::string>;

SqsConfig config_of(const std::string& url, const Options& options = {}) {
    return make_config(url, options).value_or_throw();
}

std::string refusal_of(const std::string& url, const Options& options = {}) {
    const auto config = make_config(url, options);
    if (config.ok()) return "";
    EXPECT_EQ(config.error().advice, Advice::kStop);
    EXPECT_EQ(config.error().code, ErrorCode::kConfigInvalid);
    return config.error().message;
}

TEST(SqsConfig, ReadsItsUrl) {
    const auto config = config_of("sqs://sqs.eu-central-1.amazonaws.com?connections=4");
    EXPECT_EQ(config.hosts[0].name, "sqs.eu-central-1.amazonaws.com");
    EXPECT_EQ(config.hosts[0].port, 443);
    EXPECT_EQ(config.region, "eu-central-1");
    EXPECT_EQ(config.connections, 4U);
    EXPECT_TRUE(config.tls);
    EXPECT_EQ(config_of("sqs://sqs.cn-north-1.amazonaws.com.cn").region, "cn-north-1");
    const auto local =
        config_of("sqs+http://AKID:a%2Fb@127.0.0.1:9324", {{"sqs.account", "123456789012"}});
    EXPECT_FALSE(local.tls);
    EXPECT_EQ(local.user, "AKID");
    EXPECT_EQ(local.password, "a/b");
    EXPECT_EQ(local.region, "us-east-1");
    EXPECT_EQ(local.account, "123456789012");
    EXPECT_EQ(config_of("sqs://vpce-1.sqs.eu-west-1.vpce.amazonaws.com?region=eu-west-1").region,
              "eu-west-1");
}

TEST(SqsConfig, SaysWhatIsWrong) {
    EXPECT_NE(refusal_of("sqs://").find("no host"), std::string::npos);
    EXPECT_NE(refusal_of("sqs://h").find("sqs.region"), std::string::npos);
    EXPECT_NE(refusal_of("sqs://h?region=eu central").find("a region is"), std::string::npos);
    EXPECT_NE(refusal_of("sqs://h/123/queue?region=r").find("topics"), std::string::npos);
    EXPECT_NE(refusal_of("sqs://a,b?region=r").find("one service"), std::string::npos);
    EXPECT_NE(refusal_of("sqs://h?queue=x").find("no option 'queue'"), std::string::npos);
    EXPECT_NE(refusal_of("sqs://h?region=r&account=1").find("12 digits"), std::string::npos);
    EXPECT_NE(refusal_of("sqs://h?region=r&connections=0").find("1 to 256"), std::string::npos);
    EXPECT_NE(refusal_of("sqs+http://h?ca_file=x").find("sqs://"), std::string::npos);
    EXPECT_NE(refusal_of("sqs://AKID@h?region=r").find("secret"), std::string::npos);
    EXPECT_NE(refusal_of("sqs://AKID:s@h?region=r&profile=p").find("profile"), std::string::npos);
}

TEST(SqsConfig, WarnsOfAWayInClear) {
    EXPECT_NE(transport_weakness(config_of("sqs+http://queues.internal")), "");
    EXPECT_EQ(transport_weakness(config_of("sqs+http://127.0.0.1")), "");
    EXPECT_NE(transport_weakness(config_of("sqs://h?region=r&verify=false")), "");
    EXPECT_EQ(transport_weakness(config_of("sqs://h?region=r")), "");
}

TEST(SqsCredentials, FindsAProfileInAFile) {
    constexpr std::string_view kText =
        "# a comment = 1\n[default]\r\naws_access_key_id = A\r\naws_secret_access_key = a=b/c+\r\n"
        "\n[ relay ]\naws_access_key_id=B\naws_secret_access_key=c\naws_session_token=t\n"
        "[half]\nAWS_ACCESS_KEY_ID=C\nRole_Arn = r\n";
    const auto first = read_profile(kText, "default");
    EXPECT_TRUE(first.is_there);
    EXPECT_EQ(first.key.access_key, "A");
    EXPECT_EQ(first.key.secret_key, "a=b/c+");
    EXPECT_EQ(first.key.session_token, "");
    EXPECT_EQ(first.other_source, "");
    EXPECT_EQ(read_profile(kText, "relay").key.session_token, "t");
    EXPECT_EQ(read_profile(kText, "half").key.access_key, "C");
    EXPECT_EQ(read_profile(kText, "half").key.secret_key, "");
    EXPECT_EQ(read_profile(kText, "half").other_source, "role_arn");
    EXPECT_FALSE(read_profile(kText, "none").is_there);
    EXPECT_FALSE(read_profile("", "default").is_there);
}

TEST(SqsQueue, TellsWhatIsAName) {
    for (const char* good : {"orders", "Orders_1-x.fifo", "https://sqs.r.amazonaws.com/1/orders",
                             "http://127.0.0.1:9324/0/orders.fifo"}) {
        EXPECT_TRUE(check_queue(good).ok()) << good;
    }
    const std::string long_name(81, 'x');
    for (const std::string bad :
         {"", ".fifo", "a.b", "a/b", "caf\xC3\xA9", "https://h/1/a.b", "a:b", long_name.c_str()}) {
        EXPECT_EQ(check_queue(bad).error().code, ErrorCode::kTopicInvalid) << bad;
    }
    EXPECT_TRUE(is_fifo("https://h/1/a.fifo"));
    EXPECT_FALSE(is_fifo("fifo"));
}

struct Made {
    json entry;
    std::size_t bytes = 0;
    std::string why;
};

Made make(const spi::Record& record, bool fifo = true) {
    aws::Message message;
    const auto why = aws::make_message(record, fifo, "@mark", message);
    if (why) return {{}, 0, *why};
    return {json::parse("{" + entry(message) + "}"), message.bytes, ""};
}

spi::Record record_of(std::span<const spi::HeaderView> headers = {}) {
    spi::Record record;
    record.id = "id-1";
    record.key = "key";
    record.value = "{}";
    record.headers = headers;
    return record;
}

TEST(SqsMessage, HasAnAttributeForEachHeaderWhileTheyFit) {
    const std::vector<spi::HeaderView> headers{{"id", "id-1"}, {"type", "Made \xE2\x82\xAC"}};
    const Made made = make(record_of(headers));
    EXPECT_EQ(made.entry["MessageBody"], "{}");
    EXPECT_EQ(made.entry["MessageGroupId"], "key");
    EXPECT_EQ(made.entry["MessageDeduplicationId"], "id-1@mark");
    const json& attributes = made.entry["MessageAttributes"];
    EXPECT_EQ(attributes.size(), 3U);
    EXPECT_EQ(attributes["outbox-key"]["StringValue"], "key");
    EXPECT_EQ(attributes["type"]["StringValue"], "Made \xE2\x82\xAC");
    EXPECT_EQ(attributes["type"]["DataType"], "String");
    EXPECT_EQ(made.bytes, 2U + (10 + 6 + 3) + (2 + 6 + 4) + (4 + 6 + 8));
}

TEST(SqsMessage, HasOneAttributeWhereTheyDoNotFit) {
    const std::string broken("\xFF", 1);
    const std::vector<std::vector<spi::HeaderView>> all{{{"a", ""}},
                                                        {{"a", "1"}, {"a", "2"}},
                                                        {{"a", "\x01"}},
                                                        {{"a", broken}},
                                                        {{"a", "\xEF\xBF\xBE\xEF\xBF\xBF"}},
                                                        {{"a b", "1"}},
                                                        {{"AWS.x", "1"}},
                                                        {{".a", "1"}},
                                                        {{"a..b", "1"}},
                                                        {{"caf\xC3\xA9", "1"}},
                                                        {{"0", "x"},
                                                         {"1", "x"},
                                                         {"2", "x"},
                                                         {"3", "x"},
                                                         {"4", "x"},
                                                         {"5", "x"},
                                                         {"6", "x"},
                                                         {"7", "x"},
                                                         {"8", "x"},
                                                         {"9", "x"}}};
    for (const auto& headers : all) {
        const Made made = make(record_of(headers));
        const json& attributes = made.entry["MessageAttributes"];
        ASSERT_EQ(attributes.size(), 1U) << headers[0].name;
        const std::string text = attributes["outbox-headers"]["StringValue"];
        EXPECT_TRUE(is_text(text)) << text;
        const auto pairs = json::parse(text);
        ASSERT_EQ(pairs.size(), headers.size() + 1);
        EXPECT_EQ(pairs[0], (json{"outbox-key", "key"}));
        if (headers[0].value.data() == broken.data()) {
            EXPECT_EQ(pairs[1], (json{"a*", "UTF-8''%FF"}));
        } else {
            EXPECT_EQ(pairs[1][0], headers[0].name);
            EXPECT_EQ(pairs[1][1], headers[0].value);
        }
    }
    const std::vector<spi::HeaderView> nine{{"0", "x"}, {"1", "x"}, {"2", "x"},
                                            {"3", "x"}, {"4", "x"}, {"5", "x"},
                                            {"6", "x"}, {"7", "x"}, {"8", "x"}};
    EXPECT_EQ(make(record_of(nine)).entry["MessageAttributes"].size(), 10U);
}

TEST(SqsMessage, SaysWhatItsBodyStandsFor) {
    const auto kind = [](const Made& made) {
        return made.entry.value(json::json_pointer("/MessageAttributes/outbox-body/StringValue"),
                                "none");
    };
    spi::Record record = record_of();
    record.value = {};
    EXPECT_EQ(kind(make(record)), "null");
    EXPECT_EQ(make(record).entry["MessageBody"], "-");
    record.value = "";
    EXPECT_EQ(kind(make(record)), "empty");
    record.value = std::string_view("a\0b", 3);
    EXPECT_EQ(kind(make(record)), "base64");
    EXPECT_EQ(make(record).entry["MessageBody"], "YQBi");
    record.value = "text\n";
    EXPECT_EQ(kind(make(record)), "none");
}

TEST(SqsMessage, HasNoGroupWhereTheQueueIsStandard) {
    const Made made = make(record_of(), false);
    EXPECT_FALSE(made.entry.contains("MessageGroupId"));
    EXPECT_FALSE(made.entry.contains("MessageDeduplicationId"));
    spi::Record record = record_of();
    record.id = "";
    EXPECT_EQ(make(record, false).why, "");
    EXPECT_NE(make(record, true).why, "");
    record.key = {};
    record.id = "id";
    EXPECT_EQ(make(record).entry["MessageGroupId"], "id");
    EXPECT_FALSE(make(record).entry.contains("MessageAttributes"));
}

TEST(SqsMessage, KeepsIdsThatFitAndHashesOthers) {
    EXPECT_EQ(fifo_id("a!~"), "a!~");
    EXPECT_EQ(fifo_id(std::string(128, 'x')), std::string(128, 'x'));
    EXPECT_EQ(fifo_id(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    for (const std::string& bad :
         {std::string(129, 'x'), std::string("a b"), std::string("\xC3\xA9"), std::string("a\n")}) {
        EXPECT_EQ(fifo_id(bad).size(), 64U);
        EXPECT_NE(fifo_id(bad), fifo_id(bad + "x"));
    }
}

TEST(SqsMessage, KnowsWhatXmlAllows) {
    for (const std::string good : {"", "a\t\r\n", "\x7F", "\xEF\xBF\xBD", "\xF0\x9F\x98\x80"}) {
        EXPECT_TRUE(is_text(good)) << good;
    }
    for (const std::string bad :
         {"\x01", "\x1F", "\xEF\xBF\xBE", "a\xEF\xBF\xBF", "\xED\xA0\x80", "\xFF"}) {
        EXPECT_FALSE(is_text(bad)) << bad;
    }
    EXPECT_FALSE(is_text(std::string_view("\0", 1)));
}

TEST(SqsAnswers, ReadsEachEntry) {
    const auto faults = read_batch(
        R"({"Successful":[{"Id":"0"},{"Id":"9"},{"Id":3},{}],"Failed":[{"Id":"1","Code":
        "AWS.SimpleQueueService.NonExistentQueue","SenderFault":true,"Message":"no"},
        {"Id":"2","Code":"InternalError","SenderFault":false}]})",
        4);
    ASSERT_EQ(faults.size(), 4U);
    EXPECT_FALSE(faults[0].has_value());
    EXPECT_EQ(faults[1]->name, "QueueDoesNotExist");
    EXPECT_TRUE(faults[1]->ours);
    EXPECT_FALSE(faults[2]->ours);
    EXPECT_EQ(faults[3]->name, "UNNAMED");
    for (const char* odd :
         {"", "[]", "{\"Successful\":{\"Id\":\"0\"}}", "{\"Failed\":7}", "\"x\""}) {
        EXPECT_EQ(read_batch(odd, 1)[0]->name, "UNNAMED") << odd;
    }
}

TEST(SqsAnswers, ReadsWhatWentWrong) {
    const Fault fault = read_fault(
        400, R"({"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"not there\u001b"})");
    EXPECT_EQ(fault.name, "QueueDoesNotExist");
    EXPECT_EQ(fault.text, "not there?");
    EXPECT_EQ(read_fault(503, "<html>").name, "ServiceUnavailable");
    EXPECT_EQ(read_fault(429, "").name, "Throttling");
    EXPECT_EQ(read_fault(413, "").name, "TOO LONG");
    EXPECT_EQ(read_fault(404, "<html>").name, "NO SERVICE");
    EXPECT_EQ(read_fault(400, R"({"__type":"InvalidParameterValue","message":
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."})")
                  .name,
              "TOO LONG");
    EXPECT_FALSE(read_fault(500, R"({"__type":"Odd"})").ours);
    EXPECT_TRUE(read_fault(400, R"({"__type":"Odd"})").ours);
}

TEST(SqsAnswers, ReadsUrls) {
    EXPECT_EQ(read_queue_url(R"({"QueueUrl":"https://h/1/q"})"), "https://h/1/q");
    EXPECT_EQ(read_queue_url("{}"), "");
    EXPECT_EQ(read_queue_urls(R"({"QueueUrls":["a",1,"b"]})"),
              (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(read_queue_urls("{}"), std::vector<std::string>());
    for (const char* other : {"", "<html></html>", "[]", R"({"QueueUrls":["a")"}) {
        EXPECT_EQ(read_queue_urls(other), std::nullopt) << other;
    }
}

ErrorInfo to_error(const Fault& fault, const char* what) {
    return aws::to_error(service(), fault, what);
}

TEST(SqsErrors, KnowWhatTheyConcern) {
    const auto scope = [](const char* name, bool ours = true) {
        return aws::scope_of(service(), {name, "text", ours});
    };
    EXPECT_EQ(scope("InvalidMessageContents"), Scope::kRecord);
    EXPECT_EQ(scope("RequestThrottled"), Scope::kTopic);
    EXPECT_EQ(scope("AccessDenied"), Scope::kTopic);
    EXPECT_EQ(scope("TIMEOUT"), Scope::kService);
    EXPECT_EQ(scope("Unheard-of", true), Scope::kRecord);
    EXPECT_EQ(scope("Unheard-of", false), Scope::kTopic);
    EXPECT_EQ(to_error({"Unheard-of", "text", true}, "x").advice, Advice::kRetryEvent);
    EXPECT_EQ(to_error({"Unheard-of", "text", false}, "x").advice, Advice::kRetryDestination);
    const ErrorInfo error = to_error({"BatchRequestTooLong", "too long", true}, "SQS at h:443");
    EXPECT_EQ(error.code, ErrorCode::kPayloadTooLarge);
    EXPECT_EQ(error.advice, Advice::kDeadLetter);
    EXPECT_TRUE(error.message.starts_with("SQS at h:443: too long; ")) << error.message;
}

}  // namespace
}  // namespace outbox::sqs
