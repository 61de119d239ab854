// The relay itself in front of a real Pulsar.

#include <fstream>
#include <gmock/gmock.h>

#include "tests/brokers/guide.h"
#include "tests/brokers/pulsar/server.h"
#include "tests/brokers/relay_suite.h"
#include "tests/support/eventually.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class PulsarRelay : public RelaySuite {};

TEST_F(PulsarRelay, LosesAndReordersNothingWhenItIsKilledInMidFlight) {
    publish_all_through_a_kill(shared_pulsar().url(), "relay");
    expect_all(shared_pulsar().arrived("relay", kEvents), 10'000);
}

TEST_F(PulsarRelay, BringsAllThatPostgresCommitsThoughItIsKilledAgainAndAgain) {
    publish_a_load_through_kills(shared_pulsar().url(), "load", "polling");
    expect_all(shared_pulsar().arrived("load", committed()), 30'000);
}

TEST_F(PulsarRelay, CheckSaysWhatIsWrong) {
    const auto right = check(shared_pulsar().url());
    EXPECT_EQ(right.first, 0) << right.second;
    const auto token = check(shared_pulsar().url("old_token"));
    EXPECT_EQ(token.first, 1) << token.second;
    EXPECT_THAT(token.second, HasSubstr("OB_AUTH_FAILED"));
    EXPECT_EQ(token.second.find(shared_pulsar().token("old_token")), std::string::npos);
    const auto missing = check(shared_pulsar().url() + "?namespace=nowhere");
    EXPECT_EQ(missing.first, 1) << missing.second;
    EXPECT_THAT(missing.second, HasSubstr("public/nowhere"));
    const auto option = check(shared_pulsar().url() + "?batching=true");
    EXPECT_EQ(option.first, 2) << option.second;
    EXPECT_THAT(option.second, HasSubstr("no option 'batching'"));
}

// A key may hold whatever means something in a topic's name.
TEST_F(PulsarRelay, AKeyBecomesOnePartOfTheTopic) {
    Sqlite(path_).exec(
        "INSERT INTO outbox_events (aggregate_type, event_type, key, payload) VALUES"
        " ('A', 'T', 'a/b c%?#:', json_object('n', 1))");
    auto words = arguments(shared_pulsar().url());
    words.insert(words.end(), {"--topic-template", "public/default/key-{key}"});
    Process relay = outbox_.start_relay(words);
    ASSERT_TRUE(eventually(60s, "it is published", [&] { return left() == 0; }));
    EXPECT_EQ(relay.stop().code, 0);
    EXPECT_THAT(shared_pulsar().read("public/default/key-a%2Fb%20c%25?#:", 1),
                HasSubstr("\"key\": \"a/b c%?#:\""));
}

TEST(PulsarPage, ItsCommandsBringAnEventToASubscriptionAndGiveTheRight) {
    const PulsarServer& server = shared_pulsar();
    const TemporaryFolder folder("client");
    std::ofstream(folder / "client.conf")
        << "webServiceUrl=http://localhost:" << read_file(server.folder() / "web_port")
        << "\nbrokerServiceUrl=pulsar://localhost:" << server.port()
        << "\nauthPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken"
        << "\nauthParams=token:" << server.token() << "\n";
    const std::string java = std::string(OUTBOX_SOURCE_DIR) + "/script/servers/pulsar java ";
    const std::string settings = " " + (folder / "client.conf").string();
    Guide page("pulsar.md",
               {.words = {{"pulsar://localhost:6650", server.url()}},
                .programs = {{"pulsar-admin",
                              java + "org.apache.pulsar.admin.cli.PulsarAdminTool" + settings},
                             {"pulsar-client",
                              java + "org.apache.pulsar.client.cli.PulsarClientTool" + settings}}});
    page.expect_an_event();
    page.run_block(1);
}

}  // namespace
}  // namespace outbox::test
