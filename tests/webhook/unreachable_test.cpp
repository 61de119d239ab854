#include "webhook/unreachable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace outbox::webhook {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

Endpoint endpoint(const std::string& id, const std::string& url) {
    Endpoint out;
    out.id = id;
    out.url = url;
    return out;
}

Reach reach() {
    Reach out{.allow = "hooks.internal", .timeout = std::chrono::seconds(60)};
    out.lookup = [](const std::string& host, NoAddress& no) -> std::vector<Address> {
        if (host == "nowhere.example") {
            no.why = "no such host";
            return {};
        }
        return {*parse_address(host.ends_with(".example") ? "192.88.98.1" : "10.1.2.3")};
    };
    return out;
}

TEST(UnreachableEndpoints, AreToldWithTheReasonAndOthersAreNot) {
    std::vector<Endpoint> endpoints{
        endpoint("fine", "https://a.example/"),      endpoint("allowed", "https://hooks.internal/"),
        endpoint("inside", "https://b.internal/"),   endpoint("clear", "http://a.example/"),
        endpoint("literal", "https://10.0.0.1/"),    endpoint("off", "https://10.0.0.1/"),
        endpoint("lost", "https://nowhere.example/")};
    endpoints[5].state = Endpoint::State::kDisabled;
    EXPECT_THAT(unreachable_endpoints(endpoints, reach()).value_or_throw(),
                ElementsAre(AllOf(StartsWith("endpoint clear would not be sent to: "),
                                  HasSubstr("https://"), HasSubstr("webhook disable clear")),
                            HasSubstr("endpoint literal would not be sent to: 10.0.0.1 is a"),
                            HasSubstr("b.internal resolves to 10.1.2.3, a private"),
                            HasSubstr("endpoint lost would not be sent to: no such host")));
    Reach allowing = reach();
    allowing.allow += ", 10.0.0.0/8";
    allowing.allow_http = true;
    endpoints.pop_back();
    EXPECT_THAT(unreachable_endpoints(endpoints, allowing).value_or_throw(), IsEmpty());
    allowing.allow = "0.0.0.0/0";
    EXPECT_FALSE(unreachable_endpoints(endpoints, allowing).ok());
}

TEST(UnreachableEndpoints, AreCountedWhereTheyAreMany) {
    std::vector<Endpoint> endpoints;
    for (std::size_t i = 0; i < kMaxUnreachableTold + 5; ++i) {
        endpoints.push_back(endpoint("e" + std::to_string(i), "https://10.0.0.1/"));
    }
    const auto told = unreachable_endpoints(endpoints, reach()).value_or_throw();
    ASSERT_EQ(told.size(), kMaxUnreachableTold + 1);
    EXPECT_EQ(told.back(), "so it is with 5 more endpoints");
}

}  // namespace
}  // namespace outbox::webhook
