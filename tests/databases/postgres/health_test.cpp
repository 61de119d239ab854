// What the preflight says of a server: what can be neither waited for nor set is given to its
// parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "databases/postgres/source/preflight.h"
#include "tests/databases/postgres/support.h"
#include "tests/support/pg.h"

namespace outbox::test {
namespace {

using postgres::judge_clock;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using enum spi::Finding::Grade;

constexpr std::int64_t kNowMs = 1'790'000'000'000;

TEST(HealthOfAServer, ClocksThatAreApartAreToldWithWhoIsAhead) {
    // Ours went from 0 to 500 ms as theirs was read.
    const auto of = [](std::int64_t theirs_ms) {
        return judge_clock(kNowMs, kNowMs + theirs_ms, kNowMs + 500);
    };
    for (const std::int64_t together : {-1'999, -1, 0, 250, 500, 2'499}) {
        EXPECT_EQ(of(together).grade, kOk) << together;
    }
    EXPECT_EQ(of(2'500).grade, kWarn);
    EXPECT_THAT(of(90'500).text, StartsWith("clock: the server's is 90 s ahead of this machine's"));
    EXPECT_EQ(of(-2'000).grade, kWarn);
    EXPECT_THAT(of(-90'000).text, StartsWith("clock: the server's is 90 s behind this machine's"));
}

class HealthOfPostgres : public testing::Test {
  protected:
    void SetUp() override { migrate(url_); }
    std::string warnings(const postgres::HealthLimits& limits) {
        auto connection = value_of(postgres::Connection::open(url_, 60));
        postgres::PostgresSourceConfig config;
        config.url = url_;
        const postgres::Table table = value_of(postgres::resolve_table(connection, config));
        std::vector<spi::Finding> findings;
        require(postgres::look_at_health(connection, table, findings, limits));
        std::string text;
        for (const spi::Finding& finding : findings) {
            if (finding.grade != kOk) text += finding.text + "\n";
        }
        return text;
    }

    std::string url_ = shared_postgres().create_database();
};

TEST_F(HealthOfPostgres, TransactionsThatAreOpenForLongAreNamedWithWhatTheyHold) {
    constexpr postgres::HealthLimits kAnyTransaction{.transaction_s = 0};
    EXPECT_THAT(warnings(kAnyTransaction), IsEmpty());
    Pg writer(url_ + "?application_name=checkout");
    writer.exec("BEGIN; SELECT outbox_emit(topic => 'orders', payload => '1')");
    Pg reader(url_ + "?application_name=report");
    reader.exec("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox_events");
    const std::string pid = writer.value("SELECT pg_backend_pid()");
    EXPECT_THAT(warnings(kAnyTransaction),
                AllOf(HasSubstr("transaction: pid " + pid +
                                " of postgres (checkout) has been open "
                                "for 0 minutes; events written after its own may wait for it"),
                      HasSubstr("SELECT pg_terminate_backend(" + pid + ")"),
                      HasSubstr("(report) has been open for 0 minutes; dead rows stay as long")));
    EXPECT_THAT(warnings({}), IsEmpty()) << "they have been open for a moment";
}

TEST_F(HealthOfPostgres, ASlotThatNobodyReadsIsNamedWithWhatItKeeps) {
    constexpr postgres::HealthLimits kAnySlot{.kept_log_bytes = -1};
    const std::string slot = "left_" + url_.substr(url_.rfind('/') + 1);
    Pg pg(url_);
    pg.exec("SELECT pg_create_physical_replication_slot('" + slot + "', true)");
    const std::string told = warnings(kAnySlot);
    const std::string by_default = warnings({});
    pg.exec("SELECT pg_drop_replication_slot('" + slot + "')");
    EXPECT_THAT(told, AllOf(HasSubstr("slot: nobody reads \"" + slot + "\", and it keeps "),
                            HasSubstr("SELECT pg_drop_replication_slot('" + slot + "')")));
    EXPECT_THAT(by_default, Not(HasSubstr(slot))) << "it keeps less than 1 GiB";
    EXPECT_THAT(warnings(kAnySlot), Not(HasSubstr(slot)));
}

}  // namespace
}  // namespace outbox::test
