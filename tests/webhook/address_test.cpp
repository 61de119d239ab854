// Which addresses webhooks reach, and which only where somebody allowed them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "webhook/address_guard.h"

namespace outbox::webhook {

void PrintTo(const Address& address, std::ostream* out) {
    *out << to_text(address);
}

namespace {

using testing::HasSubstr;
using Kind = AddressKind;

Address address(std::string_view text) {
    const auto parsed = parse_address(text);
    EXPECT_TRUE(parsed.has_value()) << text;
    return parsed.value_or(Address{});
}

AddressGuard guard(std::string_view allowed) {
    auto made = AddressGuard::make(allowed);
    EXPECT_TRUE(made.ok()) << allowed;
    return std::move(*made);
}

TEST(WebhookAddress, EachIsOfItsKind) {
    const std::initializer_list<std::pair<const char*, Kind>> expected{
        {"8.8.8.8", Kind::kPublic},
        {"1.1.1.1", Kind::kPublic},
        {"172.15.255.255", Kind::kPublic},
        {"172.32.0.0", Kind::kPublic},
        {"100.63.255.255", Kind::kPublic},
        {"223.255.255.255", Kind::kPublic},
        {"0.0.0.0", Kind::kUnspecified},
        {"0.1.2.3", Kind::kUnspecified},
        {"127.0.0.1", Kind::kLoopback},
        {"127.255.255.255", Kind::kLoopback},
        {"10.0.0.1", Kind::kPrivate},
        {"172.16.0.1", Kind::kPrivate},
        {"172.31.255.255", Kind::kPrivate},
        {"192.168.1.1", Kind::kPrivate},
        {"169.254.1.1", Kind::kLinkLocal},
        {"169.254.169.254", Kind::kMetadata},
        {"169.254.170.2", Kind::kMetadata},
        {"100.100.100.200", Kind::kMetadata},
        {"168.63.129.16", Kind::kMetadata},
        {"192.0.0.192", Kind::kMetadata},
        {"100.64.0.1", Kind::kShared},
        {"100.127.255.255", Kind::kShared},
        {"224.0.0.1", Kind::kMulticast},
        {"239.255.255.255", Kind::kMulticast},
        {"192.0.2.1", Kind::kDocumentation},
        {"198.51.100.1", Kind::kDocumentation},
        {"203.0.113.1", Kind::kDocumentation},
        {"192.88.99.1", Kind::kTransition},
        {"198.18.0.1", Kind::kReserved},
        {"240.0.0.1", Kind::kReserved},
        {"255.255.255.255", Kind::kReserved},
        {"2606:4700:4700::1111", Kind::kPublic},
        {"2a00:1450:4001::1", Kind::kPublic},
        {"::", Kind::kUnspecified},
        {"::1", Kind::kLoopback},
        {"fc00::1", Kind::kPrivate},
        {"fd12:3456::1", Kind::kPrivate},
        {"fec0::1", Kind::kPrivate},
        {"fe80::1", Kind::kLinkLocal},
        {"fd00:ec2::254", Kind::kMetadata},
        {"ff02::1", Kind::kMulticast},
        {"2001:db8::1", Kind::kDocumentation},
        {"3fff::1", Kind::kDocumentation},
        {"::127.0.0.1", Kind::kTransition},
        {"::8.8.8.8", Kind::kTransition},
        {"2001:0:1::1", Kind::kTransition},
        {"2002:7f00:1::", Kind::kTransition},
        {"2002:808:808::1", Kind::kTransition},
        {"64:ff9b:1::8.8.8.8", Kind::kTransition},
        {"2600::5efe:127.0.0.1", Kind::kTransition},
        {"2600::200:5efe:10.0.0.1", Kind::kTransition},
        {"2600::100:5efe:10.0.0.1", Kind::kPublic},
        {"fe80::5efe:10.0.0.1", Kind::kLinkLocal},
        {"2001:2::1", Kind::kReserved},
        {"100::1", Kind::kReserved},
        {"5f00::1", Kind::kReserved},
        {"4000::1", Kind::kReserved},
        // What is in them counts.
        {"::ffff:8.8.8.8", Kind::kPublic},
        {"::ffff:127.0.0.1", Kind::kLoopback},
        {"::ffff:169.254.169.254", Kind::kMetadata},
        {"::ffff:10.0.0.1", Kind::kPrivate},
        {"::ffff:0.0.0.0", Kind::kUnspecified},
        {"64:ff9b::8.8.8.8", Kind::kPublic},
        {"64:ff9b::10.0.0.1", Kind::kPrivate},
        {"64:ff9b::169.254.169.254", Kind::kMetadata},
    };
    for (const auto& [text, kind] : expected) {
        EXPECT_EQ(name_of(classify(address(text))), name_of(kind)) << text;
    }
}

TEST(WebhookAddress, OnlyThePlainFormIsOne) {
    for (const char* text :
         {"", "0177.0.0.1", "0x7f.0.0.1", "127.1", "2130706433", "127.0.0.1.", "127.0.0.256",
          " 127.0.0.1", "127.0.0.1 ", "fe80::1%eth0", "[::1]", "::1::", "1.2.3.4:80", "localhost",
          "::ffff:1.2.3.4.5", "1:2:3:4:5:6:7:8:9"}) {
        EXPECT_EQ(parse_address(text), std::nullopt) << text;
    }
    EXPECT_EQ(parse_address(std::string_view("127.0.0.1\0", 10)), std::nullopt);
    EXPECT_EQ(to_text(address("2001:DB8:0:0::0:1")), "2001:db8::1");
}

TEST(WebhookAddress, RangesAreWhole) {
    EXPECT_TRUE(parse_range("10.0.0.0/8"));
    EXPECT_TRUE(parse_range("fd00::/8"));
    EXPECT_TRUE(parse_range("10.0.0.1")->is_single());
    for (const char* text : {"10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8x", "10.0.0.0/-1",
                             "fd00::/129", "/8", "10.0/8"}) {
        EXPECT_FALSE(parse_range(text)) << text;
    }
    const AddressRange range = parse_range("172.16.0.0/12").value();
    EXPECT_TRUE(range.holds(address("172.31.255.255")));
    EXPECT_FALSE(range.holds(address("172.32.0.0")));
    EXPECT_FALSE(range.holds(address("::ffff:172.16.0.1")));
}

TEST(WebhookGuard, LetsOnlyPublicAddressesThroughByItself) {
    const AddressGuard none;
    EXPECT_EQ(none.refusal("example.com", address("8.8.8.8")), std::nullopt);
    EXPECT_THAT(none.refusal("inside.example.com", address("10.0.0.5")).value_or(""),
                HasSubstr("inside.example.com resolves to 10.0.0.5, a private address"));
    EXPECT_THAT(none.refusal("10.0.0.5", address("10.0.0.5")).value_or(""),
                testing::StartsWith("10.0.0.5 is a private address"));
}

TEST(WebhookGuard, AllowsHostsByTheirNamesAndRanges) {
    const AddressGuard some = guard("Hooks.Internal, 10.1.0.0/16 fd00:1::/32");
    EXPECT_FALSE(some.refusal("hooks.internal", address("127.0.0.1")));
    EXPECT_TRUE(some.refusal("a.hooks.internal", address("127.0.0.1")));
    EXPECT_TRUE(some.refusal("hooks.internal.example.com", address("127.0.0.1")));
    EXPECT_FALSE(some.refusal("any.example.com", address("10.1.2.3")));
    EXPECT_FALSE(some.refusal("any.example.com", address("::ffff:10.1.2.3")));
    EXPECT_TRUE(some.refusal("any.example.com", address("10.2.0.1")));
    EXPECT_FALSE(some.refusal("any.example.com", address("fd00:1::5")));
}

TEST(WebhookGuard, NoRangeLetsAMetadataServiceThrough) {
    EXPECT_TRUE(guard("169.254.0.0/16").refusal("x.example", address("169.254.169.254")));
    EXPECT_TRUE(guard("fd00::/8").refusal("x.example", address("fd00:ec2::254")));
    EXPECT_FALSE(guard("169.254.0.0/16").refusal("x.example", address("169.254.1.1")));
    EXPECT_FALSE(guard("169.254.169.254").refusal("x.example", address("169.254.169.254")));
    EXPECT_FALSE(guard("meta.internal").refusal("meta.internal", address("169.254.169.254")));
}

TEST(WebhookGuard, RefusesToAllowWhatIsNoHostOrFarTooMuch) {
    for (const char* allowed : {"0.0.0.0/0", "::/0", "10.0.0.1/8", "*.internal", "http://x",
                                "a b:1", "::ffff:10.0.0.0/104", "127.1", "host/8"}) {
        EXPECT_FALSE(AddressGuard::make(allowed).ok()) << allowed;
    }
}

TEST(WebhookGuard, ChoosesAmongTheAddressesThatAreAllowed) {
    const AddressGuard none;
    std::string why;
    const std::vector<Address> mixed{address("127.0.0.1"), address("8.8.8.8"), address("10.0.0.1"),
                                     address("1.1.1.1")};
    EXPECT_EQ(none.choose("x.example", mixed, 0, why), address("8.8.8.8"));
    EXPECT_EQ(none.choose("x.example", mixed, 1, why), address("1.1.1.1"));
    EXPECT_EQ(none.choose("x.example", mixed, 2, why), address("8.8.8.8"));
    EXPECT_EQ(why, "");
    const std::vector<Address> inside{address("127.0.0.1"), address("::1")};
    EXPECT_EQ(none.choose("x.example", inside, 0, why), std::nullopt);
    EXPECT_THAT(why, HasSubstr("a loopback address"));
    EXPECT_EQ(none.choose("x.example", {}, 0, why), std::nullopt);
    EXPECT_THAT(why, HasSubstr("has no address"));
}

}  // namespace
}  // namespace outbox::webhook
