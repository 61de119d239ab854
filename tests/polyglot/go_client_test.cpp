// The package clients/go against a real server, with Debian's Go.
#include <gtest/gtest.h>

#include "tests/cli/outbox_binary.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

TEST(GoClient, PassesItsTestsAgainstARealServer) {
    const std::string url = shared_postgres().create_database();
    OutboxBinary outbox;
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    ProcessOptions options;
    options.command = {"/usr/bin/go", "test", "-mod=readonly", "-vet=all", "-count=1", "./..."};
    options.working_folder = std::string(OUTBOX_SOURCE_DIR) + "/clients/go/tests";
    options.environment = {{"DATABASE_URL", url}, {"OUTBOX_VERSION", OUTBOX_VERSION}};
    // A first run fetches and compiles the driver.
    const Finished done = run(options, 10min);
    EXPECT_EQ(done.status.code, 0) << done.out << done.err;
}

}  // namespace
}  // namespace outbox::test
