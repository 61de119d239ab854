// A folder with a broker is all that it takes: schemes, options, help and warnings come from it.

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <outbox/producer/migrate.h>

#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/process.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
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

TEST_F(DroppedIn, SaysWhatItPromises) {
    EXPECT_THAT(run_with(OUTBOX_WITH_PARROT, {"sinks"}).out, HasSubstr("parrot:///file"));
    const Finished json = run_with(OUTBOX_WITH_PARROT, {"sinks", "--json"});
    EXPECT_EQ(json.status.code, 0);
    EXPECT_THAT(json.out, HasSubstr("\"name\": \"parrot\""));
    EXPECT_THAT(json.out, HasSubstr("\"guarantee\": \"at_least_once\""));
    EXPECT_THAT(run_with(OUTBOX, {"sinks"}).out, Not(HasSubstr("parrot")));
}

TEST_F(DroppedIn, IsKnownToHelpAndErrors) {
    EXPECT_THAT(run_with(OUTBOX_WITH_PARROT, {"relay", "--help"}).out, HasSubstr("parrot:///file"));
    const Finished wrong = run_with(OUTBOX_WITH_PARROT, relay("to = \"crow:///x\"\n"));
    EXPECT_EQ(wrong.status.code, 2);
    EXPECT_THAT(wrong.err, HasSubstr("parrot:"));
}

TEST_F(DroppedIn, RefusesWhatIsNotIts) {
    const Finished option =
        run_with(OUTBOX_WITH_PARROT, relay(parrot_ + "[route.parrot]\nwings = 2\n"));
    EXPECT_EQ(option.status.code, 2);
    EXPECT_THAT(option.err, HasSubstr("parrot.wings: the parrot has the option times alone"));
    const Finished table =
        run_with(OUTBOX_WITH_PARROT, relay("to = \"stdout:\"\n[route.parrot]\ntimes = 2\n"));
    EXPECT_EQ(table.status.code, 2);
    EXPECT_THAT(table.err, HasSubstr("[route.parrot] is for a route to parrot:"));
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
