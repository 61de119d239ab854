// A folder with a broker is all that it takes: schemes, options, help and warnings come from it.

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <outbox/producer/migrate.h>

#include "backend/broker.h"
#include "runtime/man_page.h"
#include "runtime/reference.h"
#include "tests/conformance/sink_suite.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/process.h"
#include "tests/support/sqlite.h"

namespace outbox {
const Broker& parrot_broker();
}

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class DroppedIn : public testing::Test {
  protected:
    DroppedIn() {
        migrate(url_);
        Sqlite(folder_ / "shop.db")
            .exec("INSERT INTO outbox_events (topic, key, payload) VALUES ('t', 'k', '\"hello\"')");
    }
    Finished run_with(const std::string& program, std::vector<std::string> words) {
        words.insert(words.begin(), program);
        return run({.command = words});
    }
    std::vector<std::string> relay(const std::string& route) {
        std::ofstream(folder_ / "outbox.toml") << "[[route]]\nname = \"p\"\n" << route;
        return {"relay",
                "--from",
                url_,
                "--admin",
                "off",
                "--config",
                (folder_ / "outbox.toml").string()};
    }

    TemporaryFolder folder_{"dropped-in"};
    const std::string url_ = "sqlite://" + (folder_ / "shop.db").string();
    const std::string parrot_ = "to = \"parrot://" + (folder_ / "said").string() + "\"\n";
};

TEST_F(DroppedIn, CarriesEventsWithItsOwnOptions) {
    auto words = relay(parrot_ + "[route.parrot]\ntimes = 2\n");
    words.insert(words.begin(), OUTBOX_WITH_PARROT);
    Process running({.command = words});
    EXPECT_TRUE(eventually(60s, "it was said twice", [&] {
        return read_file(folder_ / "said") == "k \"hello\"\nk \"hello\"\n";
    })) << running.stderr_text();
    EXPECT_EQ(running.stop(30s).code, 0);
    EXPECT_THAT(running.stderr_text(), HasSubstr("whisper"));
}

std::unique_ptr<spi::Sink> open_parrot(const std::filesystem::path& file) {
    Destination destination;
    destination.url = "parrot://" + file.string();
    return parrot_broker().make(destination).value_or_throw();
}

// What it says, by the suite that every sink is put through.
class ParrotFixture : public SinkFixture {
  public:
    std::unique_ptr<spi::Sink> open(bool /*small*/) override {
        return open_parrot(folder_ / "said");
    }
    std::string new_topic() override { return "perch"; }
    std::vector<Arrived> arrived(const std::string&, std::size_t) override { return {}; }

  private:
    TemporaryFolder folder_{"parrot"};
};
INSTANTIATE_TEST_SUITE_P(Parrot, SinkConformance, testing::Values(SinkFixtureFactory([] {
                             return std::make_unique<ParrotFixture>();
                         })));

TEST(Parrot, TakesItsTimeWhereThereIsNothingToSay) {
    ParrotFixture fixture;
    const auto sink = fixture.open(false);
    const auto start = std::chrono::steady_clock::now();
    spi::Completions completions;
    sink->poll(20ms, completions);
    EXPECT_GE(std::chrono::steady_clock::now() - start, 20ms);
    EXPECT_TRUE(completions.empty());
}

TEST(Parrot, WhatItCouldNotSayIsNotDone) {
    const TemporaryFolder folder("parrot");
    const auto sink = open_parrot(folder / "gone/said");
    const auto sent = letters("perch", 1, 1);
    ASSERT_TRUE(sink->publish(sent[0].record(7)));
    spi::Completions completions;
    sink->poll(1ms, completions);
    EXPECT_TRUE(completions.acknowledged.empty());
    ASSERT_EQ(completions.failed.size(), 1U);
    EXPECT_EQ(completions.failed[0].error.advice, Advice::kRetryDestination);
}

TEST_F(DroppedIn, SaysWhatItPromises) {
    EXPECT_THAT(run_with(OUTBOX_WITH_PARROT, {"sinks"}).out, HasSubstr("parrot:///file"));
    const Finished json = run_with(OUTBOX_WITH_PARROT, {"sinks", "--json"});
    EXPECT_EQ(json.status.code, 0);
    EXPECT_THAT(json.out, HasSubstr("\"name\": \"parrot\""));
    EXPECT_THAT(json.out, HasSubstr("\"guarantee\": \"at_least_once\""));
    EXPECT_THAT(json.out, HasSubstr("\"name\": \"times\""));
    EXPECT_THAT(run_with(OUTBOX, {"sinks"}).out, Not(HasSubstr("parrot")));
}

TEST_F(DroppedIn, IsKnownToHelpAndErrors) {
    const std::string help = run_with(OUTBOX_WITH_PARROT, {"relay", "--help"}).out;
    EXPECT_THAT(help, HasSubstr("parrot:///file"));
    EXPECT_THAT(help, ContainsRegex("\n  parrot +times, watchword\n"));
    const Finished wrong = run_with(OUTBOX_WITH_PARROT, relay("to = \"crow:///x\"\n"));
    EXPECT_EQ(wrong.status.code, 2);
    EXPECT_THAT(wrong.err, HasSubstr("parrot:"));
}

TEST_F(DroppedIn, RefusesWhatIsNotIts) {
    const Finished option =
        run_with(OUTBOX_WITH_PARROT, relay(parrot_ + "[route.parrot]\nwings = 2\n"));
    EXPECT_EQ(option.status.code, 2);
    EXPECT_THAT(option.err,
                HasSubstr("the parrot has no option 'wings'; there are times and watchword"));
    for (const char* const times :
         {"\"x\"", "\"2x\"", "0", "101", "\"\"", "99999999999999999999"}) {
        const Finished value = run_with(OUTBOX_WITH_PARROT,
                                        relay(parrot_ + "[route.parrot]\ntimes = " + times + "\n"));
        EXPECT_EQ(value.status.code, 2) << times;
        if (std::string(times).size() > 10) continue;  // no number of TOML
        EXPECT_THAT(value.err, HasSubstr("it is a number from 1 to 100")) << times;
    }
    const Finished table =
        run_with(OUTBOX_WITH_PARROT, relay("to = \"stdout:\"\n[route.parrot]\ntimes = 2\n"));
    EXPECT_EQ(table.status.code, 2);
    EXPECT_THAT(table.err, HasSubstr("[route.parrot] is for a route to parrot:"));
}

TEST_F(DroppedIn, IsCheckedBeforeTheFirstEvent) {
    auto words = relay(parrot_ + "[route.parrot]\ntimes = 2\n");
    words.emplace_back("--check");
    const Finished well = run_with(OUTBOX_WITH_PARROT, words);
    EXPECT_EQ(well.status.code, 0) << well.out << well.err;
    EXPECT_THAT(well.err, HasSubstr("whisper"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "said"));
    words = relay("to = \"parrot:///nowhere/said\"\n");
    words.emplace_back("--check");
    const Finished nowhere = run_with(OUTBOX_WITH_PARROT, words);
    EXPECT_EQ(nowhere.status.code, 1) << nowhere.out << nowhere.err;
    EXPECT_THAT(nowhere.out + nowhere.err,
                HasSubstr("the parrot cannot say it into /nowhere/said"));
}

TEST_F(DroppedIn, ItsSecretIsShownNowhere) {
    for (const std::string form :
         {"parrot:///nowhere/said?watchword=", "crow:///said?watchword="}) {
        auto words = relay("to = \"" + form + "quarterdeck\"\n");
        words.emplace_back("--check");
        const Finished ended = run_with(OUTBOX_WITH_PARROT, words);
        EXPECT_NE(ended.status.code, 0);
        EXPECT_THAT(ended.out + ended.err, HasSubstr("said"));
        EXPECT_THAT(ended.out + ended.err, Not(HasSubstr("quarterdeck")));
    }
}

// In the pages that a program makes which has the broker.
TEST(Parrot, IsInTheReferenceWithItsOptions) {
    const Broker& parrot = parrot_broker();
    EXPECT_THAT(runtime::options_page(),
                AllOf(HasSubstr("\n### `[route.parrot]`\n"),
                      HasSubstr("| `times` | 1 to 100 | `1` | how often it says everything |\n"),
                      HasSubstr("parrot:///file")));
    EXPECT_THAT(runtime::man_page(), HasSubstr("parrot:///file. Options: times, watchword.\n"));
    EXPECT_THAT(runtime::example_file(), HasSubstr("# [route.parrot]\n# times = 2\n"));
    const std::string page =
        "# Parrot\n<!-- options: made from the declarations of src/brokers by `write_reference` "
        "-->\nold\n<!-- end of options -->\nThe rest.\n";
    EXPECT_THAT(runtime::with_broker_options(parrot, page),
                AllOf(HasSubstr("| `watchword` |"), Not(HasSubstr("old")), HasSubstr("The rest.")));
    EXPECT_EQ(runtime::with_broker_options(parrot, "# Parrot\n"), "");
}

TEST_F(DroppedIn, IsInNoOtherProgram) {
    EXPECT_THAT(run_with(OUTBOX, {"relay", "--help"}).out, Not(HasSubstr("parrot")));
    const Finished scheme = run_with(OUTBOX, relay(parrot_));
    EXPECT_EQ(scheme.status.code, 2);
    EXPECT_THAT(scheme.err, HasSubstr("no destination is known by 'parrot:'"));
    const Finished table = run_with(OUTBOX, relay("to = \"stdout:\"\n[route.parrot]\ntimes = 2\n"));
    EXPECT_EQ(table.status.code, 2);
    EXPECT_THAT(table.err, HasSubstr("parrot"));
}

}  // namespace
}  // namespace outbox::test
