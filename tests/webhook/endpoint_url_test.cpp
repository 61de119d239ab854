// Which URLs of customers are taken, and what those are told whose are not.
#include "webhook/endpoint_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace outbox::webhook {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string why_not(std::string_view url, bool allow_http = false) {
    const auto parsed = parse_endpoint_url(url, {.allow_http = allow_http});
    return parsed.ok() ? "" : parsed.error().message;
}

TEST(WebhookUrl, IsTakenApart) {
    const auto url = parse_endpoint_url("HTTPS://Hooks.Example.COM:8443/A/b?Token=c%20d");
    ASSERT_TRUE(url.ok());
    EXPECT_EQ(url->text, "https://hooks.example.com:8443/A/b?Token=c%20d");
    EXPECT_EQ(url->host, "hooks.example.com");
    EXPECT_EQ(url->port, 8443);
    EXPECT_TRUE(url->tls);
    EXPECT_EQ(url->address, std::nullopt);
    EXPECT_EQ(parse_endpoint_url("https://a.example")->port, 443);
    EXPECT_EQ(parse_endpoint_url("https://a.example?x")->text, "https://a.example?x");
    EXPECT_EQ(parse_endpoint_url("https://xn--caf-dma.example/")->host, "xn--caf-dma.example");
}

TEST(WebhookUrl, MayHaveAnAddressInItsPlainForm) {
    const auto v4 = parse_endpoint_url("https://192.0.2.1/x");
    ASSERT_TRUE(v4.ok());
    EXPECT_EQ(to_text(v4->address.value()), "192.0.2.1");
    const auto v6 = parse_endpoint_url("https://[2001:DB8::1]:444/x");
    ASSERT_TRUE(v6.ok());
    EXPECT_EQ(v6->host, "2001:db8::1");
    EXPECT_EQ(v6->text, "https://[2001:db8::1]:444/x");
    EXPECT_EQ(v6->port, 444);
}

TEST(WebhookUrl, IsInClearOnlyWhereThatIsAllowed) {
    EXPECT_THAT(why_not("http://a.example/"), HasSubstr("write https://"));
    EXPECT_EQ(why_not("http://a.example/", true), "");
    EXPECT_EQ(parse_endpoint_url("http://a.example", {.allow_http = true})->port, 80);
    for (const char* url :
         {"ftp://a.example", "file:///etc/passwd", "gopher://a.example", "a.example", "//a.example",
          "", "https:/a.example", "https:a.example", "javascript:0"}) {
        EXPECT_THAT(why_not(url, true), HasSubstr("https://")) << url;
    }
}

TEST(WebhookUrl, ThatIsAnAddressInDisguiseIsRefused) {
    for (const char* host : {"2130706433",
                             "0x7f000001",
                             "0x7f.1",
                             "0177.0.0.1",
                             "127.1",
                             "127.0.0.1.",
                             "127.0.0.256",
                             "1.2.3.4.5",
                             "017700000001",
                             "0x",
                             "a.0x7f",
                             "a.1",
                             "[127.0.0.1]",
                             "[fe80::1%25eth0]",
                             "[::1",
                             "[::1]x",
                             "[]",
                             "[::ffff:7f.1]",
                             "%31%32%37.0.0.1",
                             "127.0.0.1%00.example"}) {
        EXPECT_NE(why_not("https://" + std::string(host) + "/"), "") << host;
    }
}

TEST(WebhookUrl, ThatTwoReadersCouldReadAsTwoHostsIsRefused) {
    for (const char* url : {"https://a.example@127.0.0.1/",
                            "https://user:pass@a.example/",
                            "https://@a.example/",
                            "https://a.example\\@127.0.0.1/",
                            "https://a.example#@127.0.0.1/",
                            "https://a.example/#x",
                            "https://a.example:80:90/",
                            "https://a.example:/",
                            "https://a.example:0/",
                            "https://a.example:65536/",
                            "https://a.example:+80/",
                            "https://a.example:8o/",
                            "https://a .example/",
                            "https://a.example/ x",
                            "https://a.example/\r\nHost: b",
                            "https://",
                            "https:///x",
                            "https://.example",
                            "https://a..example",
                            "https://a.example.",
                            "https://-a.example",
                            "https://a,b.example",
                            "https://a.example\t/",
                            "https://\xE2\x93\x94ocalhost/",
                            "https://caf\xC3\xA9.example/",
                            "https://a\x7F.example"}) {
        EXPECT_NE(why_not(url), "") << url;
    }
    EXPECT_NE(why_not(std::string_view("https://a.example\0.b/", 21)), "");
    EXPECT_THAT(why_not("https://a.example/b\\..\\c"), HasSubstr("backslash"));
    EXPECT_THAT(why_not("https://user:pass@a.example/"), HasSubstr("has a user"));
    EXPECT_THAT(why_not("https://caf\xC3\xA9.example/"), HasSubstr("xn--"));
    EXPECT_THAT(why_not("https://" + std::string(64, 'a') + ".example"), HasSubstr("63"));
    EXPECT_THAT(why_not("https://a.example/" + std::string(2048, 'a')), HasSubstr("2,048"));
}

TEST(WebhookUrl, IsNotShownWithWhatIsSecretInIt) {
    EXPECT_THAT(why_not("https://user:s3cretword@a.example/"), Not(HasSubstr("s3cretword")));
    EXPECT_THAT(why_not("ftp://a.example/?token=s3cretword"), Not(HasSubstr("s3cretword")));
    EXPECT_THAT(why_not("https://a.example/\x1b[2J"), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace outbox::webhook
