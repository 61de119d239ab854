// What operators' sessions in a consumer's database are like; what is done in them is tested with
// the commands (tests/cli).
#include "databases/postgres/receive/operator_sql.h"

#include <chrono>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <utility>

#include <outbox/producer/migrate.h>

#include "tests/support/full_run.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/still_sessions.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class OperatorsSession : public testing::Test {
  protected:
    OperatorsSession() { migrate(url_); }
    void open(const std::optional<consumer::Trust>& trust) {
        session_ = consumer::open_postgres_sql(url_, 60, trust).value_or_throw();
    }
    std::string value(const std::string& sql) {
        return session_->run(sql, {}).value_or_throw()[0][0].value_or("");
    }
    std::string url_ = shared_postgres().create_database();
    std::unique_ptr<consumer::Sql> session_;
};

// A minute and five seconds is the most.
TEST_F(OperatorsSession, IsGivenUpWhereItDoesNotAnswerWhileOthersDo) {
    using Limit = std::pair<std::chrono::milliseconds, const char*>;
    for (const auto& [limit, words] : and_in_full<Limit>({{1s, "1 s"}}, {{1h, "65 s"}})) {
        open(consumer::Trust{});
        session_->limit_waits(limit);
        // In the middle of a statement, so that it passes for busy.
        StillSessions still(url_, "outbox consumer", "outbox_inbox");
        Result<consumer::Sql::Rows> rows = ErrorInfo{};
        std::future<void> asked;
        ASSERT_TRUE(still.keep_waiting(
            [&] { rows = session_->run("SELECT count(*) FROM outbox_inbox", {}); }, asked));
        asked.get();
        ASSERT_FALSE(rows.ok());
        EXPECT_EQ(rows.error().code, ErrorCode::kConnectionLost);
        EXPECT_THAT(rows.error().message, HasSubstr(std::string("no answer within ") + words));
        EXPECT_FALSE(session_->run("SELECT 1", {}).ok());
    }
}

TEST_F(OperatorsSession, HasTheServerEndWhatTakesAMinuteButForAQueryOfTheUsers) {
    open(consumer::Trust{});
    EXPECT_EQ(value("SHOW statement_timeout"), "1min");
    std::string of_user;
    const Status read = session_->read("SHOW statement_timeout", [&](const auto& row) {
        of_user = row[0].value_or("");
        return Status();
    });
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(of_user, "0");
    EXPECT_EQ(value("SHOW statement_timeout"), "1min");
}

// A janitor's work may be large, and is broken off when its consumer stops.
TEST_F(OperatorsSession, OfAConsumerItselfHasNoSuchLimit) {
    open(std::nullopt);
    EXPECT_EQ(value("SHOW statement_timeout"), "0");
}

}  // namespace
}  // namespace outbox::test
