#pragma once

// What Amazon's own services do to the sink, as aws.py plays them: signatures are checked by
// botocore. A service's test includes this file and instantiates the suite.

#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "aws/config.h"
#include "tests/brokers/aws/server.h"
#include "tests/brokers/troubles.h"
#include "tests/net/key_server.h"
#include "tests/support/eventually.h"

namespace outbox::test {

/// A service, and what it calls some things.
struct AwsWords {
    std::string name;  ///< "sqs"
    Result<aws::Config> (*config)(std::string_view url,
                                  const std::map<std::string, std::string>& options);
    std::unique_ptr<spi::Sink> (*open)(const aws::Config& config);
    std::string signature;  ///< The fault where it does not match.
    std::string expired;
    std::string unknown_key;
    std::string refused;  ///< A fault of a message, for good.
};

class AwsServiceTest : public testing::TestWithParam<AwsWords> {
  protected:
    static AwsService& service() {
        static AwsService aws(GetParam().name);
        return aws;
    }
    static aws::Config config_of(const std::string& url) {
        return GetParam().config(url, {}).value_or_throw();
    }
    static std::unique_ptr<spi::Sink> open(const std::string& url) {
        return GetParam().open(config_of(url));
    }
    static spi::Sink& sink() {
        static const auto one = open(service().url());
        return *one;
    }
    static ErrorInfo error_of(const std::string& url) {
        const Status status = open(url)->check();
        return status.ok() ? ErrorInfo{} : status.error();
    }
    static std::string part(const std::string& topic) {
        return std::string(config_of(service().url()).service->topic) + " " + topic;
    }
    static std::string in_clear() { return GetParam().name + "+http://" + service().address(); }
    static std::string with_tls(const std::string& rest) { return GetParam().name + "://" + rest; }
};

TEST_P(AwsServiceTest, TakesWhatIsSigned) {
    const Status status = sink().check();
    EXPECT_TRUE(status.ok()) << describe(status.error());
    auto sent = letters("orders", 200, 200);
    sent[3].value = "{\"a\":\"\xE2\x82\xAC \\\" b\"}\n";
    Courier courier(sink());
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_EQ(courier.failures(), 0U);
}

TEST_P(AwsServiceTest, ReadsTheKeyOfTheEnvironmentAndOfAFile) {
    const std::string url = in_clear();
    EXPECT_EQ(error_of(url).code, ErrorCode::kAuthFailed);
    {
        const Variables id("AWS_ACCESS_KEY_ID", "AKTEMP");
        const Variables secret("AWS_SECRET_ACCESS_KEY", "s3cret-of-aws");
        EXPECT_EQ(error_of(url).backend_code, GetParam().expired);
        const Variables token("AWS_SESSION_TOKEN", "s3cret-token");
        const Status status = open(url)->check();
        EXPECT_TRUE(status.ok()) << describe(status.error());
        // The service quotes what was signed.
        const Variables wrong("AWS_SECRET_ACCESS_KEY", "wrong-one");
        const auto error = error_of(url);
        EXPECT_EQ(error.backend_code, GetParam().signature);
        EXPECT_NE(error.message.find("canonical string"), std::string::npos);
        EXPECT_EQ(error.message.find("s3cret"), std::string::npos) << error.message;
    }
    const TemporaryFolder folder("aws");
    const std::string file = (folder / "credentials").string();
    std::ofstream(file) << "[default]\naws_access_key_id = AKID\naws_secret_access_key = wrong\n"
                           "[relay]\naws_access_key_id=AKID\naws_secret_access_key=s3cret-of-aws\n";
    const std::string with_file = url + "?credentials_file=" + file;
    EXPECT_EQ(error_of(with_file).backend_code, GetParam().signature);
    const Status status = open(with_file + "&profile=relay")->check();
    EXPECT_TRUE(status.ok()) << describe(status.error());
    // As Docker makes where the file of a mount is missing.
    const auto of_folder = error_of(url + "?credentials_file=" + folder.path().string());
    EXPECT_EQ(of_folder.code, ErrorCode::kAuthFailed);
    EXPECT_NE(of_folder.message.find(folder.path().string()), std::string::npos);
    const auto none = error_of(with_file + "&profile=nobody");
    EXPECT_EQ(none.code, ErrorCode::kAuthFailed);
    EXPECT_NE(none.message.find("profile 'nobody'"), std::string::npos) << none.message;
}

TEST_P(AwsServiceTest, AKeyThatIsRenewedIsReadAgain) {
    const TemporaryFolder folder("aws");
    const std::string file = (folder / "credentials").string();
    const auto write = [&](const std::string& token) {
        std::ofstream(file) << "[default]\naws_access_key_id = AKTEMP\naws_secret_access_key = "
                               "s3cret-of-aws\naws_session_token = "
                            << token << "\n";
    };
    write("old");
    const auto renewed = open(in_clear() + "?credentials_file=" + file);
    EXPECT_EQ(failure_of(*renewed, "orders").error.backend_code, GetParam().expired);
    write("s3cret-token");
    EXPECT_EQ(outcome_of(*renewed, letters("orders", 1, 1)).acknowledged.size(), 1U);
}

TEST_P(AwsServiceTest, AKeyWithTheRightThatWasMissingIsReadAgain) {
    const TemporaryFolder folder("aws");
    const std::string file = (folder / "credentials").string();
    const auto write = [&](const std::string& key) {
        std::ofstream(file) << "[default]\naws_access_key_id = " << key
                            << "\naws_secret_access_key = s3cret-of-aws\n";
    };
    write("AKPOOR");
    const auto sink = open(in_clear() + "?credentials_file=" + file);
    EXPECT_EQ(failure_of(*sink, "orders").error.code, ErrorCode::kNoRights);
    write("AKID");
    EXPECT_EQ(outcome_of(*sink, letters("orders", 1, 1)).acknowledged.size(), 1U);
}

TEST_P(AwsServiceTest, TheDocumentedRightsAreEnough) {
    const auto sink = open(service().url("AKPAGE") + "?account=123456789012");
    const auto sent = letters("order-events.fifo", 20, 20);
    EXPECT_EQ(outcome_of(*sink, sent).acknowledged.size(), sent.size());
    const auto failed = failure_of(*sink, "secret.fifo");
    EXPECT_EQ(failed.error.code, ErrorCode::kNoRights) << describe(failed.error);
    EXPECT_EQ(failed.part, part("secret.fifo"));
    const Status status = sink->check();
    EXPECT_TRUE(status.ok()) << describe(status.error());
}

TEST_P(AwsServiceTest, SaysWhatIsWrongWithTheKey) {
    const auto secret = error_of(service().url("AKID", "another-secret"));
    EXPECT_EQ(secret.code, ErrorCode::kAuthFailed) << describe(secret);
    EXPECT_EQ(secret.message.find("another-secret"), std::string::npos);
    EXPECT_EQ(error_of(service().url("NOBODY")).backend_code, GetParam().unknown_key);
    const auto wrong = open(service().url("AKID", "another-secret"));
    const auto failed = failure_of(*wrong, "orders");
    EXPECT_EQ(failed.error.advice, Advice::kRetryDestination);
    EXPECT_EQ(failed.part, "");
    const Variables no_machine("AWS_EC2_METADATA_DISABLED", "true");
    const auto keyless = open(with_tls(service().address("localhost") + "?region=eu-central-1"));
    const auto none = failure_of(*keyless, "orders");
    EXPECT_EQ(none.error.code, ErrorCode::kAuthFailed);
    EXPECT_NE(none.error.message.find("AWS_ACCESS_KEY_ID"), std::string::npos);
}

TEST_P(AwsServiceTest, AClockThatIsWrongIsNamedAndAllowedFor) {
    const auto skewed = open(service().url() + "?region=skewed-1");
    const auto failed = failure_of(*skewed, "orders");
    EXPECT_EQ(failed.error.code, ErrorCode::kAuthFailed);
    EXPECT_EQ(failed.error.backend_code, "CLOCK") << describe(failed.error);
    EXPECT_NE(failed.error.message.find("s ahead of this machine's"), std::string::npos);
    EXPECT_NE(failed.error.message.find("NTP"), std::string::npos);
    EXPECT_EQ(outcome_of(*skewed, letters("orders", 1, 1)).acknowledged.size(), 1U);
}

TEST_P(AwsServiceTest, AnAnswerThatIsNoListOfTopicsIsNotTakenForAService) {
    const auto error = error_of(service().url() + "?region=empty-1");
    EXPECT_EQ(error.backend_code, "NO SERVICE") << describe(error);
    EXPECT_NE(error.message.find("check host and port"), std::string::npos);
}

TEST_P(AwsServiceTest, ThrottlingIsNoAttemptAndDelaysOneTopicAlone) {
    const auto failed = failure_of(sink(), "throttled");
    EXPECT_EQ(failed.error.advice, Advice::kRetryDestination) << describe(failed.error);
    EXPECT_EQ(failed.error.code, ErrorCode::kSinkUnavailable);
    EXPECT_EQ(failed.part, part("throttled"));
}

TEST_P(AwsServiceTest, AMissingRightOrTopicConcernsOneTopicAlone) {
    const auto denied = failure_of(sink(), "denied");
    EXPECT_EQ(denied.error.code, ErrorCode::kNoRights) << describe(denied.error);
    EXPECT_EQ(denied.part, part("denied"));
    const auto missing = failure_of(sink(), "missing");
    EXPECT_EQ(missing.error.code, ErrorCode::kTopicUnknown) << describe(missing.error);
    EXPECT_EQ(missing.part, part("missing"));
    // Said of all that comes, in a word that nobody knows, it is no event's fault.
    const auto strange = failure_of(sink(), "strange");
    EXPECT_EQ(strange.error.advice, Advice::kRetryDestination) << describe(strange.error);
    EXPECT_EQ(strange.error.backend_code, "SomethingNew");
    EXPECT_LT(strange.error.message.size(), 2'000U);
    EXPECT_EQ(strange.part, part("strange"));
    const auto broken = failure_of(sink(), "broken");
    EXPECT_EQ(broken.error.advice, Advice::kRetryDestination) << describe(broken.error);
}

TEST_P(AwsServiceTest, EachEntryOfABatchHasAnOutcomeOfItsOwn) {
    auto sent = letters("partly", 10, 10);
    sent[1].value = "refuse " + GetParam().refused;
    sent[3].value = "fault InternalError";
    sent[5].value = "refuse SomethingNew";
    sent[7].value = "forget";
    sent[9].value = "fault SomethingNew";
    const auto out = outcome_of(sink(), sent);
    EXPECT_EQ(out.acknowledged, (std::vector<std::uint64_t>{0, 2, 4, 6, 8}));
    ASSERT_EQ(out.failed.size(), 5U);
    const auto expect = [&](std::size_t i, std::uint64_t token, Advice advice,
                            const std::string& of) {
        EXPECT_EQ(out.failed[i].token, token);
        EXPECT_EQ(out.failed[i].error.advice, advice) << describe(out.failed[i].error);
        EXPECT_EQ(out.failed[i].part, of);
        EXPECT_FALSE(out.failed[i].suspect);
    };
    expect(0, 1, Advice::kDeadLetter, "");
    expect(1, 3, Advice::kRetryDestination, part("partly"));
    expect(2, 5, Advice::kRetryEvent, "");
    expect(3, 7, Advice::kRetryDestination, part("partly"));
    expect(4, 9, Advice::kRetryDestination, part("partly"));
}

TEST_P(AwsServiceTest, ABatchThatIsRefusedForOneOfItsEntriesCostsNoOther) {
    auto sent = letters("toolong", 20, 20);
    sent[4].value = "long";
    Courier courier(sink());
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_EQ(courier.dead().size(), 1U);
    EXPECT_EQ(courier.dead()[0].index, 4U);
    EXPECT_EQ(courier.dead()[0].error.code, ErrorCode::kPayloadTooLarge);
    EXPECT_EQ(courier.acknowledged(), 19U);
    EXPECT_GT(courier.suspects(), 0U);
}

TEST_P(AwsServiceTest, AKeyOfARoleThatHasExpiredIsRenewedAndCostsNoAttempt) {
    const KeyServer keys;
    const Variables role(keys.web_identity());
    keys.set("lifetime", "0");  // it is found out by the refusal
    const auto sink = open(in_clear());
    keys.set("key", "ROLE1x1");
    const auto failed = failure_of(*sink, "orders");
    EXPECT_EQ(failed.error.backend_code, GetParam().expired) << describe(failed.error);
    EXPECT_EQ(failed.error.advice, Advice::kRetryDestination);
    keys.set("key", "");
    keys.set("lifetime", "3600");
    EXPECT_EQ(outcome_of(*sink, letters("orders", 1, 1)).acknowledged.size(), 1U);
}

TEST_P(AwsServiceTest, WithoutAKeyItIsDownWithCauseAndRemedy) {
    const KeyServer keys;
    const Variables role(keys.web_identity());
    keys.set("mode", "refuse");
    const auto sink = open(in_clear());
    const auto failed = failure_of(*sink, "orders");
    EXPECT_EQ(failed.error.code, ErrorCode::kAuthFailed);
    EXPECT_EQ(failed.error.advice, Advice::kRetryDestination);
    EXPECT_EQ(failed.part, "");
    for (const std::string word : {"InvalidIdentityToken", "trust policy", "***"}) {
        EXPECT_NE(failed.error.message.find(word), std::string::npos) << failed.error.message;
    }
    keys.set("mode", "ok");
    EXPECT_EQ(outcome_of(*sink, letters("orders", 1, 1)).acknowledged.size(), 1U);
}

TEST_P(AwsServiceTest, ContainersAndMachinesGiveAKey) {
    const AwsService secure(GetParam().name, broker_certificates().file("server.pem"));
    const std::string url = with_tls(secure.address("localhost") + "?region=eu-central-1&ca_file=" +
                                     broker_certificates().file("ca.crt"));
    const KeyServer keys;
    // They have a second or two to answer, which is no time for a process that others leave none.
    std::size_t most_asked = 0;
    for (const auto& [environment, requests] :
         {std::pair{keys.container(), 1U}, std::pair{keys.machine(), 3U}}) {
        const Variables role(environment);
        const std::size_t before = keys.asked();
        Status status;
        EXPECT_TRUE(eventually(std::chrono::seconds(60), "there is a key", [&] {
            most_asked += requests;
            status = open(url)->check();
            return status.ok();
        })) << describe(status.error());
        EXPECT_GE(keys.asked(), before + requests);
    }
    EXPECT_LE(keys.asked(), most_asked);
}

TEST_P(AwsServiceTest, TlsProvesWhoTheServiceIs) {
    const AwsService secure(GetParam().name, broker_certificates().file("server.pem"));
    expect_tls_proves_who_it_is(
        GetParam().name + ".", [&](const std::string& host, const std::string& options) {
            return open(with_tls("AKID:s3cret-of-aws@" + secure.address(host) +
                                 "?region=eu-central-1&" + options))
                ->check();
        });
}

}  // namespace outbox::test
