#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "databases/postgres/connection.h"
#include "databases/postgres/replication.h"
#include "tests/databases/postgres/support.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using postgres::Connection;
using testing::HasSubstr;

// A server that hangs: its sockets still take what is sent.
class SilentServer : public testing::Test {
  protected:
    void expect_silence(const Status& status) {
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kConnectionLost);
        EXPECT_EQ(status.error().advice, Advice::kRetryDestination);
        EXPECT_THAT(status.error().message, HasSubstr("gave no answer within"));
    }

    PostgresServer server_;
    Connection connection_ = value_of(Connection::open(server_.url(), 5));
};

TEST_F(SilentServer, EndsAQueryAndTheConnectionAfterTheLimit) {
    connection_.limit_waits(1s);
    ASSERT_TRUE(connection_.query("SELECT 1").ok());
    server_.pause();
    expect_silence(connection_.query("SELECT 1").status());
    EXPECT_FALSE(connection_.usable());
    expect_silence(connection_.execute("SELECT 1"));
}

TEST_F(SilentServer, EndsACopyBetweenTwoRows) {
    connection_.limit_waits(1s);
    // The last row does not come before the server hangs; the first has left its buffers by then.
    require(connection_.start_copy(
        "SELECT i, repeat('x', 20000) || pg_sleep(CASE WHEN i = 3 THEN 600 ELSE 0 END)::text "
        "FROM generate_series(1, 3) i"));
    std::array<postgres::Field, 2> row;
    Status status;
    ASSERT_TRUE(connection_.next(row, status));
    server_.pause();
    while (connection_.next(row, status)) {
    }
    expect_silence(status);
    EXPECT_FALSE(connection_.usable());
}

TEST_F(SilentServer, EndsAPipelineAfterTheLimit) {
    connection_.limit_waits(1s);
    const std::vector<Connection::Statement> statements{{"SELECT 1", {}}, {"SELECT 2", {}}};
    require(connection_.run_pipeline(statements));
    server_.pause();
    expect_silence(connection_.run_pipeline(statements));
}

TEST_F(SilentServer, IsNotWaitedForOnceTheDescriptorRings) {
    postgres::Wakeup stop;
    connection_.limit_waits(60min, stop.descriptor());
    ASSERT_TRUE(connection_.query("SELECT 1").ok());
    server_.pause();
    stop.ring();
    EXPECT_FALSE(connection_.query("SELECT 1").ok());
    EXPECT_FALSE(connection_.usable());
}

}  // namespace
}  // namespace outbox::test
