#include <algorithm>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// As a pager that somebody left, or a collector that hangs.
TEST(RelayWhoseLogNobodyReads, DeliversAndEndsAndSaysLaterHowManyLinesItLeftOut) {
    const TemporaryFolder folder("unread");
    const std::string url = "sqlite://" + (folder / "shop.db").string();
    OutboxBinary outbox;
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    Sqlite database(folder / "shop.db");
    const std::string log = folder / "log";
    ASSERT_EQ(mkfifo(log.c_str(), 0600), 0);
    const int reader = ::open(log.c_str(), O_RDWR | O_NONBLOCK);
    ASSERT_GE(reader, 0);
    while (::write(reader, "full\n", 5) > 0) {
    }
    Process relay({.command = {"sh", "-c", "exec \"$@\" 2>\"$LOG\"", "sh", OUTBOX_BINARY, "relay",
                               "--from", url, "--to", "null:", "--admin", "off"},
                   .environment = {{"LOG", log}}});
    database.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't')");
    EXPECT_TRUE(eventually(60s, "the event is delivered and removed", [&] {
        return database.number("SELECT count(*) FROM outbox_events") == 0;
    }));
    const auto read_all = [reader] {
        std::string text(1 << 20, '\0');
        const ssize_t size = ::read(reader, text.data(), text.size());
        return text.substr(0, static_cast<std::size_t>(std::max<ssize_t>(0, size)));
    };
    EXPECT_THAT(read_all(), Not(HasSubstr("event=")));
    const ExitStatus ended = relay.stop();
    EXPECT_EQ(ended.code, 0);
    EXPECT_THAT(read_all(),
                AllOf(HasSubstr("event=log_lines_left_out lines="), HasSubstr("event=stopping")));
    ::close(reader);
}

}  // namespace
}  // namespace outbox::test
