// Where access keys come from, and how long they are used. STS, containers and machines are played
// by key_server.py.

#include "net/aws_keys.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/redact.h"
#include "net/aws_answers.h"
#include "tests/net/key_server.h"
#include "tests/support/certificates.h"
#include "tests/support/eventually.h"

namespace outbox::net {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using test::Variables;

AwsKeys::Clock::time_point clock_now;

class AwsKeysTest : public testing::Test {
  protected:
    AwsKeysTest() {
        server_.reset();
        access_.tls = true;
    }
    // One that hangs is waited for as long as others wait, the others as long as they may need that
    // are given no processor for a while.
    [[nodiscard]] AwsKeys keys(int patience = 20) const {
        return {access_, login_, "eu-central-1", "sqs.", [] { return clock_now; }, patience};
    }
    // Of a key that is not there.
    [[nodiscard]] ErrorInfo error(bool hangs) const {
        AwsKeys wanted = hangs ? keys(1) : keys();
        const auto key = wanted.current();
        return key.ok() ? ErrorInfo{} : key.error();
    }
    void expect_error(const std::string& word, const std::string& mode = {}) const {
        const ErrorInfo found = error(mode == "hang");
        EXPECT_EQ(found.code, ErrorCode::kAuthFailed) << describe(found);
        EXPECT_EQ(found.advice, Advice::kRetryDestination);
        EXPECT_NE(found.message.find(word), std::string::npos) << found.message;
        EXPECT_EQ(found.message.find("t0ken"), std::string::npos) << found.message;
        EXPECT_EQ(found.message.find('\x1b'), std::string::npos) << found.message;
    }
    [[nodiscard]] std::string access_key() const {
        AwsKeys wanted = keys();
        const auto key = wanted.current();
        if (!key.ok()) return describe(key.error());
        return *key == nullptr ? "none" : (*key)->access_key.substr(0, 4);
    }
    [[nodiscard]] std::string origin() const {
        return origin_of_key(access_, login_, "eu-central-1", "sqs.").value_or_throw();
    }
    [[nodiscard]] nlohmann::json seen() const { return nlohmann::json::parse(server_.seen()); }
    void add(const std::map<std::string, std::string>& values) {
        variables_.push_back(std::make_unique<Variables>(values));
    }
    ~AwsKeysTest() override {
        while (!variables_.empty()) variables_.pop_back();
    }

    static const test::KeyServer& shared() {
        static const test::KeyServer one;
        return one;
    }

    const test::KeyServer& server_ = shared();
    ServerAccess access_;
    AwsLogin login_;
    std::vector<std::unique_ptr<Variables>> variables_;
};

// --- Who decides

TEST_F(AwsKeysTest, TheFirstThatNamesAKeyDecides) {
    const test::TemporaryFolder folder("aws");
    const std::string file = (folder / "credentials").string();
    std::ofstream(file) << "[default]\naws_access_key_id = FILE\naws_secret_access_key = of-file\n";
    expect_error("set AWS_ACCESS_KEY_ID");
    add(server_.machine());
    EXPECT_EQ(access_key(), "ROLE");
    EXPECT_NE(origin().find("the machine's role (EC2 metadata at http://127.0.0.1:"),
              std::string::npos);
    const std::size_t of_machine = server_.asked();
    add(server_.container());
    EXPECT_EQ(access_key(), "ROLE");
    EXPECT_EQ(origin(), "the container's role (" + server_.url("/container") + ")");
    add({{"AWS_SHARED_CREDENTIALS_FILE", file}});
    EXPECT_EQ(access_key(), "FILE");
    EXPECT_EQ(origin(), "the profile 'default' in " + file);
    add(server_.web_identity());
    EXPECT_EQ(access_key(), "ROLE");
    EXPECT_EQ(origin(),
              "role arn:aws:iam::123456789012:role/relay by its web identity token (STS at " +
                  server_.url() + ")");
    add({{"AWS_ACCESS_KEY_ID", "ENVI"}, {"AWS_SECRET_ACCESS_KEY", "of-environment"}});
    EXPECT_EQ(access_key(), "ENVI");
    EXPECT_EQ(origin(), "AWS_ACCESS_KEY_ID");
    login_.credentials_file = file;
    EXPECT_EQ(access_key(), "FILE");
    access_.user = "MYID";
    access_.password = "of-url";
    EXPECT_EQ(access_key(), "MYID");
    EXPECT_EQ(origin(), "the URL");
    // The machine is asked for nothing where another names a key.
    EXPECT_EQ(server_.asked(), of_machine + 2);
}

TEST_F(AwsKeysTest, AProfileThatWasAskedForAndIsMissingIsNotReplacedByARole) {
    add(server_.machine());
    add(server_.container());
    add(server_.web_identity());
    login_.profile = "relay";
    expect_error("cannot be read; check its path");
    EXPECT_EQ(server_.asked(), 0U);
}

TEST_F(AwsKeysTest, ASourceThatIsNamedAndFailsIsNotReplacedByARole) {
    add(server_.machine());
    add(server_.container());
    const test::TemporaryFolder folder("aws");
    std::filesystem::create_directory(folder / ".aws");
    const std::string file = (folder / ".aws/credentials").string();
    add({{"HOME", folder.path().string()}});
    const auto write = [&](const std::string& text) { std::ofstream(file) << text; };
    const std::string key = "aws_access_key_id = FILE\naws_secret_access_key = of-file\n";

    // Nobody named the file, and it has nothing for us.
    EXPECT_EQ(access_key(), "ROLE");
    write("[default]\nregion = eu-central-1\n[other]\n" + key);
    EXPECT_EQ(access_key(), "ROLE");
    const std::size_t asked = server_.asked();

    write("[default]\naws_access_key_id = FILE\n");
    expect_error("the profile 'default' in " + file + " has no aws_secret_access_key");
    for (const std::string other : {"role_arn", "sso_session", "credential_process"}) {
        write("[default]\n" + other + " = x\n");
        expect_error("has its key by " + other + ", which is not read");
    }
    write("[default]\nrole_arn = x\n" + key);
    expect_error("has its key by role_arn");
    write("[default]\ncredential_process = x\n" + key);
    EXPECT_EQ(access_key(), "FILE");
    write("[default]\nAWS_ACCESS_KEY_ID = FILE\nAWS_SECRET_ACCESS_KEY = of-file\n");
    EXPECT_EQ(access_key(), "FILE");

    add({{"AWS_PROFILE", "prod"}});
    expect_error("the profile 'prod' in " + file + " is not there");
    write("[prod]\nregion = eu-central-1\n");
    expect_error("the profile 'prod' in " + file + " has no access key");
    add({{"AWS_PROFILE", ""}});
    std::filesystem::remove(file);
    std::filesystem::create_directory(file);
    expect_error("the file of access keys " + file + " cannot be read");
    EXPECT_EQ(server_.asked(), asked);
}

TEST_F(AwsKeysTest, HalfAKeyOfTheEnvironmentIsNotReplacedByAnother) {
    add(server_.machine());
    add({{"AWS_ACCESS_KEY_ID", "ENVI"}});
    expect_error("AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not");
    EXPECT_EQ(server_.asked(), 0U);
}

TEST_F(AwsKeysTest, AServerInClearIsNotGivenTheKeyOfTheMachine) {
    add(server_.machine());
    access_.tls = false;
    EXPECT_EQ(access_key(), "none");
    EXPECT_EQ(origin(), "none");
    EXPECT_EQ(server_.asked(), 0U);
}

TEST_F(AwsKeysTest, AMachineWhoseMetadataAreDisabledIsNotAsked) {
    add(server_.machine());
    add({{"AWS_EC2_METADATA_DISABLED", "TRUE"}});
    expect_error("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or sqs.credentials_file");
    EXPECT_EQ(server_.asked(), 0U);
}

// --- Web identity

TEST_F(AwsKeysTest, AWebIdentityIsSentToStsAndItsTokenReadAnewEachTime) {
    add(server_.web_identity());
    AwsKeys wanted = keys();
    const auto* key = wanted.current().value_or_throw();
    EXPECT_EQ(key->secret_key, "s3cret-of-role");
    EXPECT_EQ(key->session_token, "t0ken-of-" + key->access_key);
    const std::map<std::string, std::string> form{
        {"Action", "AssumeRoleWithWebIdentity"},
        {"Version", "2011-06-15"},
        {"RoleArn", "arn:aws:iam::123456789012:role/relay"},
        {"RoleSessionName", "outbox"},
        {"WebIdentityToken", "web.identity.t0ken"}};
    EXPECT_EQ(seen()[0]["body"], nlohmann::json(form));
    EXPECT_FALSE(seen()[0]["headers"].contains("authorization"));

    const test::TemporaryFolder folder("aws");
    const std::string file = (folder / "token").string();
    std::ofstream(file) << "second=&t0ken";
    add({{"AWS_WEB_IDENTITY_TOKEN_FILE", file}, {"AWS_ROLE_SESSION_NAME", "shop@1"}});
    wanted.refused(wanted.number(), false);
    ASSERT_TRUE(wanted.current().ok());
    EXPECT_EQ(seen()[1]["body"]["WebIdentityToken"], "second=&t0ken");
    EXPECT_EQ(seen()[1]["body"]["RoleSessionName"], "shop@1");
    std::ofstream(file) << "third-t0ken";
    wanted.refused(wanted.number(), false);
    ASSERT_TRUE(wanted.current().ok());
    EXPECT_EQ(seen()[2]["body"]["WebIdentityToken"], "third-t0ken");
}

TEST_F(AwsKeysTest, StsIsThatOfTheRegionOrTheOneThatTheEnvironmentNames) {
    const auto url = [](const std::string& region) {
        return std::get<HttpRequest>(web_identity(region)->begin()).url;
    };
    add(server_.web_identity());
    add({{"AWS_ENDPOINT_URL_STS", ""}});
    EXPECT_EQ(url("eu-central-1"), "https://sts.eu-central-1.amazonaws.com/");
    EXPECT_EQ(url("cn-north-1"), "https://sts.cn-north-1.amazonaws.com.cn/");
    add({{"AWS_ENDPOINT_URL", "https://aws.test/"}});
    EXPECT_EQ(url("eu-central-1"), "https://aws.test/");
    add({{"AWS_ENDPOINT_URL_STS", "http://sts.test:8443"}});
    EXPECT_EQ(url("eu-central-1"), "http://sts.test:8443/");
    EXPECT_EQ(weakness_of_key(access_, login_, "eu-central-1"),
              "gets its access key in clear: use https:// in AWS_ENDPOINT_URL_STS");
    for (const std::string fine : {"https://sts.test", "http://127.0.0.1:5000"}) {
        add({{"AWS_ENDPOINT_URL_STS", fine}});
        EXPECT_EQ(weakness_of_key(access_, login_, "eu-central-1"), "");
    }
}

TEST_F(AwsKeysTest, AWebIdentityThatFailsSaysWhy) {
    add(server_.web_identity());
    const std::vector<std::pair<std::string, std::string>> all{
        {"refuse",
         "HTTP status 400, InvalidIdentityToken: The token *** is not for us; check the "
         "trust policy"},
        {"nonsense", "the answer has no key in it"},
        {"noKey", "the answer has no key in it"},
        {"huge", "its body has more than 65536 bytes"},
        {"expired", "the one that it gives has expired; set the clocks"},
        {"hang", "no answer within 4000 ms"}};
    for (const auto& [mode, why] : all) {
        server_.set("mode", mode);
        expect_error(why, mode);
    }
    add({{"AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1"}});
    expect_error("STS at http://127.0.0.1:1/): ");
    add({{"AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere/token"}});
    expect_error("the token file /nowhere/token holds no token, or cannot be read");
    add({{"AWS_ROLE_ARN", ""}});
    expect_error("AWS_WEB_IDENTITY_TOKEN_FILE is set and AWS_ROLE_ARN is not");
}

TEST_F(AwsKeysTest, StsProvesWhoItIs) {
    test::Certificates certificates;
    certificates.sign("server", "/CN=localhost", "subjectAltName=DNS:localhost");
    const test::KeyServer secure(certificates.file("server.pem"));
    add(server_.web_identity());
    add({{"AWS_ENDPOINT_URL_STS", "https://localhost:" + std::to_string(secure.port())}});
    expect_error("certificate");
    add({{"AWS_CA_BUNDLE", certificates.file("ca.crt")}});
    EXPECT_EQ(access_key(), "ROLE");
}

// --- Containers

TEST_F(AwsKeysTest, AContainerIsGivenItsKeyForItsTokenWhichIsReadAnewEachTime) {
    add(server_.container());
    server_.set("authorization", "first-t0ken");
    add({{"AWS_CONTAINER_AUTHORIZATION_TOKEN", "first-t0ken"}});
    EXPECT_EQ(access_key(), "ROLE");
    const test::TemporaryFolder folder("aws");
    const std::string file = (folder / "token").string();
    std::ofstream(file) << "second-t0ken\n";
    add({{"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file}});
    server_.set("authorization", "second-t0ken");
    AwsKeys wanted = keys();
    ASSERT_TRUE(wanted.current().ok());
    std::ofstream(file) << "third-t0ken";
    server_.set("authorization", "third-t0ken");
    wanted.refused(wanted.number(), false);
    EXPECT_TRUE(wanted.current().ok());
}

TEST_F(AwsKeysTest, AContainersPathIsAskedForAtItsAddressFirst) {
    add(server_.container());
    add({{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/1"}});
    EXPECT_EQ(std::get<HttpRequest>(container_role()->begin()).url,
              "http://169.254.170.2/v2/credentials/1");
    add({{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", ".example.com/v2"}});
    expect_error("does not begin with '/'");
}

TEST_F(AwsKeysTest, AContainersKeyComesInClearFromKnownHostsAlone) {
    const auto allowed = [&](const std::string& url) {
        add({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", url}});
        return std::holds_alternative<HttpRequest>(container_role()->begin());
    };
    for (const std::string url :
         {"https://example.com/x", "http://169.254.170.2/x", "http://169.254.170.23/v1",
          "http://[fd00:ec2::23]/v1", "http://localhost:8080/x", "http://127.0.0.1/x",
          "http://127.1.2.3:80/", "http://[::1]:9/x"}) {
        EXPECT_TRUE(allowed(url)) << url;
    }
    for (const std::string url :
         {"http://example.com/x", "http://127.example.com/x", "http://169.254.169.254/x",
          "http://localhost.example.com/", "http://localhost@example.com/",
          "http://localhost:80@example.com/", "http://example.com#@127.0.0.1/",
          "http://example.com\\@localhost/", "http:///x", "ftp://localhost/x", "localhost"}) {
        EXPECT_FALSE(allowed(url)) << url;
    }
    expect_error("would have it come from there in clear; use https://");
}

TEST_F(AwsKeysTest, AContainerThatFailsSaysWhy) {
    add(server_.container());
    add({{"AWS_CONTAINER_AUTHORIZATION_TOKEN", "my-t0ken"}});
    const std::vector<std::pair<std::string, std::string>> all{
        {"refuse", "HTTP status 401, AccessDenied: no role for ***; check that the task"},
        {"nonsense", "the answer has no key in it"},
        {"huge", "its body has more than 65536 bytes"},
        {"hang", "no answer within 2000 ms"}};
    server_.set("authorization", "my-t0ken");
    for (const auto& [mode, why] : all) {
        server_.set("mode", mode);
        expect_error(why, mode);
    }
    add({{"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/nowhere/token"}});
    expect_error("check AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    add({{"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", ""},
         {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "a\r\nX-Other: t0ken"}});
    expect_error("has a line break");
}

// --- Machines

TEST_F(AwsKeysTest, AMachineIsAskedForATokenItsRoleAndItsKey) {
    add(server_.machine());
    EXPECT_EQ(access_key(), "ROLE");
    const auto all = seen();
    ASSERT_EQ(all.size(), 3U);
    EXPECT_EQ(all[0]["method"], "PUT");
    EXPECT_EQ(all[1]["path"], "/latest/meta-data/iam/security-credentials/");
    EXPECT_EQ(all[2]["path"], "/latest/meta-data/iam/security-credentials/relay-role");
}

TEST_F(AwsKeysTest, AMachineThatFailsSaysWhy) {
    add(server_.machine());
    const std::vector<std::pair<std::string, std::string>> all{
        {"refuse", "the machine's role relay-role (EC2 metadata at"},
        {"refuse", "AssumeRoleUnauthorizedAccess: not trusted; give the machine"},
        {"nonsense", "the answer has no token in it"},
        {"huge", "its body has more than 65536 bytes"},
        {"noRole", "the machine has no role; give the machine an instance profile"},
        {"noKey", "the answer has no key in it"},
        {"off", "its metadata service is switched off"},
        {"hang", "raise the hop limit"}};
    for (const auto& [mode, why] : all) {
        server_.set("mode", mode);
        expect_error(why, mode);
    }
    add({{"AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1"}});
    expect_error("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; on EC2");
}

// --- How long

class AwsKeysLife : public AwsKeysTest {
  protected:
    AwsKeysLife() { add(server_.web_identity()); }
    static void pass(std::chrono::seconds time) { clock_now += time; }
    std::string current() {
        const auto key = wanted_.current();
        return key.ok() ? (*key)->access_key : describe(key.error());
    }
    AwsKeys wanted_ = keys();
};

TEST_F(AwsKeysLife, AKeyIsRenewedBesideTheRequestsBeforeItExpires) {
    AwsKeys hasty = keys(1);
    const auto of_hasty = [&] {
        const auto key = hasty.current();
        return key.ok() ? (*key)->access_key : std::string();
    };
    std::string first;
    ASSERT_TRUE(eventually(60s, "there is one", [&] {
        first = of_hasty();
        return !first.empty();
    }));
    const std::size_t asked = server_.asked();
    pass(3'290s);
    EXPECT_EQ(of_hasty(), first);
    EXPECT_EQ(server_.asked(), asked);
    server_.set("mode", "hang");
    pass(20s);  // within the margin
    EXPECT_EQ(of_hasty(), first);
    ASSERT_TRUE(eventually(60s, "it is asked", [&] {
        hasty.drive();
        return server_.asked() == asked + 1;
    }));
    EXPECT_EQ(of_hasty(), first);
    EXPECT_EQ(hasty.number(), 1U);
    server_.set("mode", "ok");
    ASSERT_TRUE(eventually(60s, "it is renewed", [&] {
        pass(1s);
        const std::string now = of_hasty();
        return !now.empty() && now != first;
    }));
    EXPECT_EQ(hasty.number(), 2U);
}

TEST_F(AwsKeysLife, WhileItHoldsAKeyStaysInForceThoughItsRenewalFails) {
    const std::string first = current();
    server_.set("mode", "refuse");
    pass(3'310s);
    std::size_t tried = 0;
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(current(), first);
        ASSERT_TRUE(eventually(60s, "it is asked", [&] {
            wanted_.drive();
            tried = server_.asked();
            return tried > 1;
        }));
        pass(5s);
    }
    // Each has its pause.
    EXPECT_LE(tried, 12U);
    EXPECT_GT(tried, 2U);
    ASSERT_NE(wanted_.not_renewed(), nullptr);
    EXPECT_NE(wanted_.not_renewed()->message.find("InvalidIdentityToken"), std::string::npos);
    pass(300s);
    EXPECT_NE(current().find("InvalidIdentityToken"), std::string::npos) << current();
    EXPECT_EQ(wanted_.not_renewed(), nullptr) << "there is none in force";
    server_.set("mode", "ok");
    EXPECT_TRUE(current().starts_with("ROLE"));
    EXPECT_EQ(wanted_.not_renewed(), nullptr);
}

TEST_F(AwsKeysLife, AKeyThatNobodyNeedsIsRenewedBeforeItExpires) {
    const std::string first = current();
    pass(3'310s);
    EXPECT_TRUE(eventually(60s, "it is renewed", [&] {
        wanted_.drive();
        return wanted_.number() == 2;
    }));
    EXPECT_EQ(server_.asked(), 2U);
    EXPECT_NE(current(), first);
}

TEST_F(AwsKeysLife, AKeyThatTheServiceRefusesIsRenewedOnceForAllRequestsThatHadIt) {
    const std::string first = current();
    wanted_.refused(1, false);
    const std::string second = current();
    EXPECT_NE(second, first);
    wanted_.refused(1, false);
    EXPECT_EQ(current(), second);
    EXPECT_EQ(server_.asked(), 2U);
}

TEST_F(AwsKeysLife, AKeyThatLacksARightStaysInForceUntilItsSuccessorIsThere) {
    const std::string first = current();
    wanted_.refused(1, true);
    EXPECT_EQ(current(), first);
    EXPECT_EQ(server_.asked(), 1U);
    pass(10s);
    EXPECT_TRUE(eventually(60s, "it is renewed", [&] { return current() != first; }));
    EXPECT_EQ(server_.asked(), 2U);
}

TEST_F(AwsKeysLife, AKeyOfUnsaidLifeHoldsUntilItIsRefused) {
    server_.set("lifetime", "0");
    const std::string first = current();
    pass(100h);
    EXPECT_EQ(current(), first);
    wanted_.refused(1, false);
    EXPECT_NE(current(), first);
}

TEST_F(AwsKeysLife, TheClockOfWhoGivesAKeyDecidesHowLongItHolds) {
    server_.set("mode", "foreign");
    server_.set("lifetime", "1800");
    const std::string first = current();
    pass(1'300s);
    EXPECT_EQ(current(), first);
    EXPECT_EQ(server_.asked(), 1U);
    pass(600s);
    EXPECT_NE(current(), first);
}

TEST_F(AwsKeysLife, AWaitEndsWhenItIsToldToStop) {
    server_.set("mode", "hang");
    std::stop_source stop;
    stop.request_stop();
    const auto key = wanted_.current(stop.get_token());
    ASSERT_FALSE(key.ok());
    EXPECT_EQ(key.error().message, "the relay stops");
    EXPECT_EQ(key.error().advice, Advice::kRetryDestination);
}

TEST_F(AwsKeysLife, SecretsAreHiddenWhileTheyMayBeMetAndForgottenThen) {
    const auto hidden = [](const std::string& text) { return redact("<" + text + ">") == "<***>"; };
    const std::string first = "t0ken-of-" + current();
    EXPECT_TRUE(hidden(first));
    EXPECT_TRUE(hidden("s3cret-of-role"));
    wanted_.refused(1, false);
    const std::string second = "t0ken-of-" + current();
    EXPECT_TRUE(hidden(first));
    EXPECT_TRUE(hidden(second));
    wanted_.refused(2, false);
    const std::string third = "t0ken-of-" + current();
    EXPECT_FALSE(hidden(first));
    EXPECT_TRUE(hidden(second));
    EXPECT_TRUE(hidden(third));
}

// --- What answers may say

TEST(AwsAnswers, AKeyWithAnythingButVisibleCharactersIsNone) {
    const std::string begin = R"({"AccessKeyId":"A","SecretAccessKey":"B","Token":")";
    EXPECT_TRUE(read_key_document(begin + R"(C"})"));
    EXPECT_FALSE(read_key_document(begin + R"(C\r\nX-Other: 1"})"));
    EXPECT_FALSE(read_key_document(begin + R"("})"));
    EXPECT_FALSE(read_key_document(begin + R"(C","Expiration":"soon"})"));
    EXPECT_FALSE(read_key_document(begin + R"(C","Expiration":7,"Code":"Failed"})"));
    EXPECT_FALSE(read_key_document("[1]"));
}

TEST(AwsAnswers, TimesAreThoseOfTheServices) {
    const auto at = [](const std::string& time) {
        const auto key = read_key_document(
            R"({"AccessKeyId":"A","SecretAccessKey":"B","Token":"C","Expiration":")" + time +
            "\"}");
        return key && key->expires ? key->expires->time_since_epoch().count() : -1;
    };
    EXPECT_EQ(at("2026-11-25T17:10:40Z"), 1795626640);
    EXPECT_EQ(at("2026-11-25T17:10:40.123Z"), 1795626640);
    EXPECT_EQ(at("2026-11-25T17:10:40+00:00"), 1795626640);
    for (const std::string wrong :
         {"2026-13-25T17:10:40Z", "2026-02-30T17:10:40Z", "2026-11-25T24:10:40Z",
          "2026-11-25T17:10:40", "2026-11-25 17:10:40Z", "2026-11-25T17:10:40+02:00"}) {
        EXPECT_EQ(at(wrong), -1) << wrong;
    }
}

TEST(AwsAnswers, NoPartOfASecretIsLeftWhereARefusalIsCut) {
    const TemporarySecret token("t0ken-that-is-long-enough-to-be-cut");
    for (std::size_t before = 250; before < 310; ++before) {
        const std::string text = std::string(before, 'y') + " t0ken-that-is-long-enough-to-be-cut";
        for (const std::string& body :
             {"<Error><Code>No</Code><Message>" + text + "</Message></Error>",
              R"({"code":"No","message":")" + text + R"("})"}) {
            EXPECT_EQ(read_key_refusal(body).find("t0k"), std::string::npos) << before;
        }
    }
}

TEST(AwsAnswers, ARoleIsANameAndNothingElse) {
    EXPECT_EQ(read_role_name("relay-role\nother"), "relay-role");
    EXPECT_EQ(read_role_name("../../x"), "");
    EXPECT_EQ(read_role_name("<html>"), "");
    EXPECT_EQ(read_role_name(""), "");
}

}  // namespace
}  // namespace outbox::net
