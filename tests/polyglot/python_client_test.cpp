// The package clients/python against a real server.
#include <gtest/gtest.h>

#include "tests/polyglot/program.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

TEST(PythonClient, PassesItsTestsAgainstARealServer) {
    const Program python("python");  // makes the environment with psycopg
    const std::string root = OUTBOX_SOURCE_DIR;
    const std::string url = shared_postgres().create_database();
    OutboxBinary outbox;
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    Pg(url).exec(
        "CREATE DATABASE latin1 ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' "
        "LC_CTYPE 'C'");
    const std::string latin1 = shared_postgres().url("latin1");
    ASSERT_EQ(outbox.run({"migrate", "--db", latin1}).status.code, 0);
    ProcessOptions options;
    options.command = {root + "/build/polyglot/python/venv/bin/python", "-B",
                       root + "/clients/python/tests/test_client.py"};
    options.environment = {{"DATABASE_URL", url},
                           {"LATIN1_URL", latin1},
                           {"PYTHONPATH", root + "/clients/python"},
                           {"OUTBOX_VERSION", OUTBOX_VERSION}};
    const Finished done = run(options);
    EXPECT_EQ(done.status.code, 0) << done.err;
}

}  // namespace
}  // namespace outbox::test
