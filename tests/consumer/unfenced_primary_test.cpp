// Who writes into another's database does not write into an old primary that came back beside the
// one in its place: what was acknowledged would be gone with it.

#include "tests/support/unfenced_primary.h"

#include <gtest/gtest.h>
#include <vector>

#include <outbox/producer/migrate.h>

#include "consumer/env.h"
#include "databases/postgres/mailbox_writer.h"
#include "databases/postgres/receive/broker_store.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

class BesideAnUnfencedPrimary : public testing::Test {
  protected:
    std::int64_t rows_of_old(const std::string& table) {
        return Pg(servers_.old().url()).number("SELECT count(*) FROM " + table);
    }
    std::int64_t rows_of_promoted(const std::string& table) {
        return Pg(servers_.promoted().url()).number("SELECT count(*) FROM " + table);
    }

    UnfencedPrimary servers_{[](const std::string& url) {
        MigrateOptions options;
        options.side = MigrationSide::kConsumer;
        migrate(url, options);
    }};
};

TEST_F(BesideAnUnfencedPrimary, AMailboxIsWrittenInTheOneInItsPlace) {
    mailbox::MailboxConfig config;
    config.target = servers_.url();
    const auto client = mailbox::open_postgres_mailbox(config);
    ASSERT_TRUE(client.ok());
    const auto deliver = [&](std::string_view id) -> Status {
        Status status = (*client)->prepare();
        mailbox::Row row;
        row.id = id;
        row.topic = "t";
        row.headers = "{}";
        return status.ok() ? (*client)->insert({&row, 1}) : status;
    };
    ASSERT_TRUE(deliver("one").ok());
    servers_.come_back();
    EXPECT_TRUE(eventually(60s, "it is delivered", [&] { return deliver("two").ok(); }));
    EXPECT_EQ(rows_of_promoted("outbox_mailbox"), 2);
    EXPECT_EQ(rows_of_old("outbox_mailbox"), 0);
    servers_.promoted().stop();
    std::string refused;
    EXPECT_TRUE(eventually(60s, "it is refused by name", [&] {
        const Status status = deliver("three");
        if (!status.ok()) refused = status.error().message;
        return refused.find("an old primary") != std::string::npos;
    })) << refused;
    EXPECT_EQ(rows_of_old("outbox_mailbox"), 0);
}

TEST_F(BesideAnUnfencedPrimary, AConsumersEffectsAreInTheOneInItsPlace) {
    const consumer::Env env = consumer::real_env();
    consumer::LibpqBrokerStore store(servers_.url(), {.consumer = "c"}, env.clock);
    const auto take = [&](std::string_view id) {
        spi::EventView event;
        event.id = id;
        event.topic = "t";
        event.payload = "1";
        const std::vector<spi::EventView> messages{event};
        return store.begin(messages, true, {}, nullptr).ok() && store.inbox().commit().ok();
    };
    ASSERT_TRUE(take("one"));
    servers_.come_back();
    EXPECT_TRUE(eventually(60s, "it is taken", [&] { return take("two"); }));
    EXPECT_EQ(rows_of_promoted("outbox_inbox"), 2);
    EXPECT_EQ(rows_of_old("outbox_inbox"), 0);
}

}  // namespace
}  // namespace outbox::test
