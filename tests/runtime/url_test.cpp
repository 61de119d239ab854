#include "core/url.h"

#include <array>
#include <gtest/gtest.h>
#include <string_view>

namespace outbox {
namespace {

TEST(Url, KeepsEveryPartOfADatabaseUrl) {
    const auto url = parse_url("postgresql://al%40ice:s%3Acret@db.local:6432/shop?sslmode=require");
    ASSERT_TRUE(url.ok());
    EXPECT_EQ(url->scheme, "postgresql");
    EXPECT_EQ(url->user, "al@ice");
    EXPECT_EQ(url->password, "s:cret");
    EXPECT_EQ(url->authority, "db.local:6432");
    EXPECT_EQ(url->path, "/shop");
    EXPECT_EQ(url->query_value("sslmode"), "require");
    EXPECT_EQ(url->query_value("missing", "none"), "none");
}

TEST(Url, AcceptsSchemesWithoutHost) {
    EXPECT_EQ(parse_url("stdout:")->scheme, "stdout");
    EXPECT_EQ(parse_url("sqlite:///var/lib/shop.db")->path, "/var/lib/shop.db");
    EXPECT_EQ(parse_url("sqlite:///var/lib/shop.db")->authority, "");
    EXPECT_EQ(parse_url("mailbox+sqlite:///a.db?mailbox=mail")->query_value("mailbox"), "mail");
    EXPECT_EQ(parse_url("kafka://a:9092,b:9092")->authority, "a:9092,b:9092");
}

TEST(Url, RefusesTextThatIsNoUrlWithAnExample) {
    const auto url = parse_url("localhost/shop");
    ASSERT_FALSE(url.ok());
    EXPECT_EQ(url.error().code, ErrorCode::kConfigInvalid);
    EXPECT_NE(url.error().message.find("postgresql://"), std::string::npos);
    EXPECT_FALSE(parse_url("").ok());
    EXPECT_FALSE(parse_url("://x").ok());
}

TEST(Redact, HidesPasswordsOfUrlsAndOfConnectionStrings) {
    EXPECT_EQ(redact("to postgresql://app:s3cret@db/shop failed"),
              "to postgresql://app:***@db/shop failed");
    EXPECT_EQ(redact("host=db password=s3cret user=app"), "host=db password=*** user=app");
    EXPECT_EQ(redact("password='a b\\'c' user=app"), "password=*** user=app");
    // What stands behind an "&" may be the rest of it.
    EXPECT_EQ(redact("kafka://h:9092?a=b&kafka.sasl.password=x&y&a=b is"),
              "kafka://h:9092?a=b&kafka.sasl.password=*** is");
    EXPECT_EQ(redact("sasl.oauthbearer.client.secret=x y"), "sasl.oauthbearer.client.secret=*** y");
}

TEST(RedactedLine, IsOneLineWithoutSecrets) {
    EXPECT_EQ(redacted_line("refused\n\tIs it there,\r\n  password=s3cret ?\n"),
              "refused Is it there, password=*** ?");
    EXPECT_EQ(redacted_line(" \n"), "");
}

TEST(Redact, HidesTheWholePasswordThatHoldsSeparators) {
    EXPECT_EQ(redact("postgresql://app:p/w@x@db/shop"), "postgresql://app:***@db/shop");
}

TEST(Redact, HidesPasswordsThatAreWrittenWrongly) {
    for (const char* text :
         {"mailbox+postgresql://app:it's-s3cret@db/shop", "postgres//app:s3cret@db/shop",
          "postgres:/app:s3cret@db/shop", "app:s3cret@db", "password = s3cret", "PGPASSWORD=s3cret",
          "password = 's3cret' user=app", R"({"password": "s3cret"})",
          "kafka://h:9092?sasl.password=a's3cret"}) {
        EXPECT_EQ(redact(text).find("s3cret"), std::string::npos) << redact(text);
        EXPECT_TRUE(holds_secret(text)) << text;
    }
}

TEST(Redact, HidesTheOptionsThatABackendTells) {
    forget_secrets();
    constexpr std::array<std::string_view, 1> kParts{"odd.thing"};
    const std::string text = "kafka://h:9092?kafka.odd.thing.x=s3cret";
    EXPECT_EQ(redact(text), text);
    add_secret_options(kParts);
    EXPECT_EQ(redact(text), "kafka://h:9092?kafka.odd.thing.x=***");
}

TEST(Redact, HidesWhatWasRememberedWhereverItStands) {
    remember_secrets_of("postgresql://app:p w@d with/all@db/shop");
    remember_secret("-----BEGIN KEY-----\nMIIabcdef\n-----END KEY-----");
    EXPECT_EQ(redact("user p w@d with/all is unknown"), "user *** is unknown");
    EXPECT_EQ(redact("bad line MIIabcdef"), "bad line ***");
    remember_secrets_of("kafka://h:9092?kafka.sasl.password=first%26&second&linger.ms=5");
    EXPECT_EQ(redact("no 'first&' and no 'second', but linger.ms=5"),
              "no '***' and no '***', but linger.ms=5");
    forget_secrets();
    EXPECT_EQ(redact("bad line MIIabcdef"), "bad line MIIabcdef");
}

TEST(Url, RefusesWhatWouldCutAPassword) {
    for (const char* text : {"postgresql://app:p/w@db/shop", "postgresql://app:1/w@db/shop",
                             "postgresql://app:1?w@db/shop", "kafka://app:p?w@h:9092",
                             "postgresql://app:p@w@db/shop", "mailbox+postgresql://app:pw@@db/shop",
                             "kafka://app:p@w@h:9092", "postgresql://app:p b@w@db/shop",
                             "postgresql://app:p c/w@db", "postgresql://app:p1@h?a=w@db",
                             "postgresql://app:1/x?a=w@db", "postgresql://app:1?a=w@db/shop"}) {
        const auto url = parse_url(text);
        ASSERT_FALSE(url.ok()) << text;
        EXPECT_NE(url.error().message.find("percent-encode"), std::string::npos);
        EXPECT_EQ(url.error().message.find("w@"), std::string::npos) << url.error().message;
        EXPECT_EQ(url.error().message.find(":p"), std::string::npos) << url.error().message;
    }
    EXPECT_FALSE(parse_url("postgresql://al@ice@db/shop").ok());
    for (const char* text : {"kafka://[::1]x:80", "redis://a,[::1]x", "redis://[::1:80"}) {
        EXPECT_FALSE(parse_url(text).ok()) << text;
    }
    for (const char* text : {"postgresql://a:b@[::1]:5432,h2:5433/x?options=a%40b", "sqlite:///a@b",
                             "mailbox+sqlite:///a.db?mailbox=a@b", "kafka://a:1,b:2",
                             "postgresql://app:p%2Fw@db/shop"}) {
        EXPECT_TRUE(parse_url(text).ok()) << text;
    }
}

TEST(Redact, LeavesTextWithoutSecretsAlone) {
    for (const char* text : {"postgresql://app@db:5432/shop", "kafka://a:9092,b:9092", "plain",
                             "postgresql://db:5432/shop?sslmode=require", "password="}) {
        EXPECT_EQ(redact(text), text);
        EXPECT_FALSE(holds_secret(text));
    }
    EXPECT_TRUE(holds_secret("postgresql://a:b@c/d"));
}

TEST(Redact, TakesTheNameOfAFileForNoSecret) {
    for (const char* text : {"postgresql://app@db/shop?password_file=/run/secrets/pw",
                             "mailbox+postgresql://app@db/shop?mailbox=a&password_file=/pw",
                             "sqs://region?credentials_file=/keys", "pulsar://h?token_file=/jwt",
                             "AWS_WEB_IDENTITY_TOKEN_FILE=/jwt", "--admin-token-file=/token"}) {
        EXPECT_EQ(redact(text), text);
        EXPECT_FALSE(holds_secret(text)) << text;
    }
    EXPECT_TRUE(holds_secret("postgresql://app@db/shop?password_file=/pw&password=s3cret"));
}

TEST(Redact, SurvivesEveryPrefixOfASecretText) {
    const std::string text = "password='x\\'y' postgresql://a:b@c?password=z&q";
    for (std::size_t size = 0; size <= text.size(); ++size) {
        EXPECT_EQ(redact(text.substr(0, size)).find("z&"), std::string::npos);
    }
}

}  // namespace
}  // namespace outbox
