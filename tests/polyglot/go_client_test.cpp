// The package clients/go against a real server, with Debian's Go.
#include <gtest/gtest.h>

#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

TEST(GoClient, PassesItsTestsAgainstARealServer) {
    const std::string url = shared_postgres().create_database();
    OutboxBinary outbox;
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    Pg(url).exec(
        "CREATE DATABASE latin1_go ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' "
        "LC_CTYPE 'C'");
    const std::string latin1 = shared_postgres().url("latin1_go");
    ASSERT_EQ(outbox.run({"migrate", "--db", latin1}).status.code, 0);
    ProcessOptions options;
    options.command = {"/usr/bin/go", "test", "-mod=readonly", "-vet=all", "-count=1", "./..."};
    options.working_folder = std::string(OUTBOX_SOURCE_DIR) + "/clients/go/tests";
    options.environment = {
        {"DATABASE_URL", url}, {"LATIN1_URL", latin1}, {"OUTBOX_VERSION", OUTBOX_VERSION}};
    // A first run fetches and compiles the driver.
    const Finished done = run(options, 10min);
    EXPECT_EQ(done.status.code, 0) << done.out << done.err;
}

}  // namespace
}  // namespace outbox::test
