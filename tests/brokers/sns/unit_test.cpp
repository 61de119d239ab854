// What the sink decides without a server.

#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "brokers/sns/answers.h"
#include "brokers/sns/config.h"
#include "brokers/sns/message.h"
#include "brokers/sns/topic_name.h"
#include "core/url.h"

namespace outbox::sns {
namespace {

using aws::Scope;
using Options = std::map<std::string, std::string>;

std::string refusal_of(const std::string& url, const Options& options = {}) {
    const auto config = make_config(url, options);
    if (config.ok()) return "";
    EXPECT_EQ(config.error().advice, Advice::kStop);
    EXPECT_EQ(config.error().code, ErrorCode::kConfigInvalid);
    return config.error().message;
}

TEST(SnsConfig, ReadsItsUrl) {
    const auto config =
        make_config("sns://sns.eu-central-1.amazonaws.com?connections=4", {}).value_or_throw();
    EXPECT_EQ(config.hosts[0].port, 443);
    EXPECT_EQ(config.region, "eu-central-1");
    EXPECT_TRUE(config.tls);
    const auto local = make_config("sns+http://127.0.0.1", {{"sns.account", "123456789012"}});
    ASSERT_TRUE(local.ok());
    EXPECT_EQ(local->hosts[0].port, 4566);
    EXPECT_EQ(local->account, "123456789012");
    EXPECT_EQ(aws::name_of_server(*local), "SNS at 127.0.0.1:4566");
}

TEST(SnsConfig, SaysWhatIsWrong) {
    EXPECT_NE(refusal_of("sns://h").find("sns.region"), std::string::npos);
    EXPECT_NE(refusal_of("sns://h/orders?region=r").find("topics are named by topics"),
              std::string::npos);
    EXPECT_NE(refusal_of("sns://h?topic=x").find("SNS has no option 'topic'"), std::string::npos);
    EXPECT_NE(refusal_of("sns://h?region=r&account=1").find("12 digits"), std::string::npos);
    EXPECT_NE(refusal_of("sns+http://h?ca_file=x").find("sns://"), std::string::npos);
}

TEST(SnsTopic, TellsWhatIsAName) {
    const std::string long_name(256, 'x');
    for (const std::string& good :
         {std::string("orders"), std::string("Orders_1-x.fifo"), long_name,
          std::string("arn:aws:sns:eu-central-1:123456789012:orders.fifo"),
          std::string("arn:aws-cn:sns:cn-north-1:123456789012:orders")}) {
        EXPECT_TRUE(check_topic(good).ok()) << good;
    }
    for (const std::string& bad :
         {std::string(), std::string(".fifo"), std::string("a.b"), std::string("a/b"),
          std::string("a:b"), std::string("arn:aws:sns:r:1:a:b"), std::string("arn:aws:sqs:r:1:a"),
          std::string("arn:aws:sns:r:1:"), long_name + "x"}) {
        EXPECT_EQ(check_topic(bad).error().code, ErrorCode::kTopicInvalid) << bad;
    }
    EXPECT_EQ(arn_of("eu-central-1", "123456789012", "a"),
              "arn:aws:sns:eu-central-1:123456789012:a");
    EXPECT_EQ(arn_of("cn-north-1", "1", "a"), "arn:aws-cn:sns:cn-north-1:1:a");
    EXPECT_EQ(arn_of("us-gov-east-1", "1", "a"), "arn:aws-us-gov:sns:us-gov-east-1:1:a");
}

// The parameters of a form, in their order.
std::vector<std::pair<std::string, std::string>> read_form(std::string_view text) {
    std::vector<std::pair<std::string, std::string>> all;
    while (!text.empty()) {
        const std::string_view one = text.substr(0, text.find('&'));
        text.remove_prefix(std::min(text.size(), one.size() + 1));
        all.emplace_back(one.substr(0, one.find('=')),
                         percent_decode(one.substr(one.find('=') + 1)));
    }
    return all;
}

TEST(SnsMessage, IsAFormOfItsParts) {
    const std::vector<spi::HeaderView> headers{{"id", "id-1"}};
    spi::Record record;
    record.id = "id-1";
    record.key = "key";
    record.value = R"({"a": "b&c=d \u20ac+"})";
    record.headers = headers;
    aws::Message message;
    ASSERT_EQ(aws::make_message(record, true, "@mark", message), std::nullopt);
    const std::string one = entry(message);
    EXPECT_EQ(one.find_first_of(" {\"+"), std::string::npos) << one;
    const auto made = batch("arn:aws:sns:r:1:orders.fifo", std::vector<std::string_view>{one, one});
    EXPECT_EQ(made.action, "PublishBatch");
    const auto form = read_form(made.body);
    const std::string begin = "PublishBatchRequestEntries.member.";
    using Parameter = std::pair<std::string, std::string>;
    ASSERT_EQ(form.size(), 3U + 2 * 10U);
    EXPECT_EQ(form[0], Parameter("Action", "PublishBatch"));
    EXPECT_EQ(form[2], Parameter("TopicArn", "arn:aws:sns:r:1:orders.fifo"));
    EXPECT_EQ(form[3], Parameter(begin + "1.Id", "0"));
    EXPECT_EQ(form[4], Parameter(begin + "1.Message", std::string(record.value)));
    EXPECT_EQ(form[5], Parameter(begin + "1.MessageAttributes.entry.1.Name", "outbox-key"));
    EXPECT_EQ(form[6], Parameter(begin + "1.MessageAttributes.entry.1.Value.DataType", "String"));
    EXPECT_EQ(form[10], Parameter(begin + "1.MessageAttributes.entry.2.Value.StringValue", "id-1"));
    EXPECT_EQ(form[11], Parameter(begin + "1.MessageGroupId", "key"));
    EXPECT_EQ(form[12], Parameter(begin + "1.MessageDeduplicationId", "id-1@mark"));
    EXPECT_EQ(form[13], Parameter(begin + "2.Id", "1"));
}

TEST(SnsAnswers, ReadsEachEntry) {
    const auto faults = read_batch(
        R"(<?xml version="1.0"?><PublishBatchResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/">
        <PublishBatchResult><Failed><member><Id>1</Id><Code>InvalidParameter</Code><Message>Invalid
        parameter: Message too long</Message><SenderFault>true</SenderFault></member><member>
        <Id>2</Id><Code>InternalError</Code><SenderFault>false</SenderFault></member></Failed>
        <Successful><member><Id>0</Id></member><member><Id>9</Id></member><member/></Successful>
        </PublishBatchResult></PublishBatchResponse>)",
        4);
    ASSERT_EQ(faults.size(), 4U);
    EXPECT_FALSE(faults[0].has_value());
    for (const std::size_t i : {1, 2, 3}) ASSERT_TRUE(faults[i].has_value()) << i;
    EXPECT_EQ(faults[1]->name, "TOO LONG");
    EXPECT_TRUE(faults[1]->ours);
    EXPECT_EQ(faults[2]->name, "InternalError");
    EXPECT_FALSE(faults[2]->ours);
    EXPECT_EQ(faults[3]->name, "UNNAMED");
    for (const char* odd : {"", "{}", "<", "<a>", "<PublishBatchResponse/>",
                            "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>"}) {
        EXPECT_EQ(read_batch(odd, 1)[0]->name, "UNNAMED") << odd;
    }
}

TEST(SnsAnswers, ReadsWhatWentWrong) {
    const auto error = [](int status, const std::string& code, const std::string& text) {
        return read_fault(status, "<ErrorResponse><Error><Code>" + code + "</Code><Message>" +
                                      text + "</Message></Error></ErrorResponse>");
    };
    EXPECT_EQ(error(404, "NotFound", "not there &amp;\x1b").text, "not there &?");
    EXPECT_EQ(error(400, "InvalidParameter", "Invalid parameter: TopicArn Reason: x").name,
              "NO ARN");
    EXPECT_EQ(error(400, "InvalidParameter", "Invalid parameter: Message too long").name,
              "TOO LONG");
    EXPECT_EQ(error(400, "InvalidParameter", "else").name, "InvalidParameter");
    EXPECT_EQ(read_fault(503, "<html>").name, "ServiceUnavailable");
    EXPECT_EQ(read_fault(429, "").name, "Throttling");
    EXPECT_EQ(read_fault(404, "<html></html>").name, "NO SERVICE");
    EXPECT_FALSE(error(500, "Odd", "").ours);
    EXPECT_TRUE(error(400, "Odd", "").ours);
}

TEST(SnsAnswers, ReadsArns) {
    EXPECT_EQ(read_arns("<ListTopicsResponse><ListTopicsResult><Topics><member><TopicArn>a"
                        "</TopicArn></member><member/><member><TopicArn>b</TopicArn></member>"
                        "</Topics></ListTopicsResult></ListTopicsResponse>"),
              (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(read_arns("<ListTopicsResponse><ListTopicsResult/></ListTopicsResponse>"),
              std::vector<std::string>());
    for (const char* other : {"{}", "", "<html></html>", "<ListTopicsResponse><ListTopicsRes"}) {
        EXPECT_EQ(read_arns(other), std::nullopt) << other;
    }
}

TEST(SnsErrors, KnowWhatTheyConcern) {
    const auto scope = [](const char* name, bool ours = true) {
        return aws::scope_of(service(), {name, "text", ours});
    };
    EXPECT_EQ(scope("InvalidParameter"), Scope::kRecord);
    EXPECT_EQ(scope("NotFound"), Scope::kTopic);
    EXPECT_EQ(scope("AuthorizationError"), Scope::kTopic);
    EXPECT_EQ(scope("Throttling"), Scope::kTopic);
    EXPECT_EQ(scope("SignatureDoesNotMatch"), Scope::kService);
    EXPECT_EQ(scope("Unheard-of", true), Scope::kRecord);
    EXPECT_EQ(scope("Unheard-of", false), Scope::kTopic);
    const auto error = aws::to_error(service(), {"SignatureDoesNotMatch", "no"}, "SNS at h:443");
    EXPECT_EQ(error.message,
              "SNS at h:443: no; check the secret of the access key, and sns.region");
}

}  // namespace
}  // namespace outbox::sns
