// What operators are told of a consumer's database, the same of every one.

#include "tests/consumer/operations.h"

#include <gtest/gtest.h>

#include <outbox/producer/migrate.h>

#include "tests/consumer/database.h"

namespace outbox::test {
namespace {

class ConsumersDatabase : public testing::TestWithParam<Backend> {
  protected:
    bool has_producer() { return operations_of(database_->url())->has_producer().value_or_throw(); }

    std::unique_ptr<Database> database_ = make_database(GetParam());
    std::unique_ptr<Database::Connection> db_ = database_->connect();
};

INSTANTIATE_TEST_SUITE_P(Databases, ConsumersDatabase,
                         testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& test) { return backend_name(test.param); });

TEST_P(ConsumersDatabase, HasAProducerWhereMigrateARelayOrAnOperatorHasMadeItsTables) {
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    migrate(database_->url(), options);
    EXPECT_FALSE(has_producer());
    for (const std::string table :
         {"outbox_events", "outbox_lease", "outbox_replays", "outbox_paused_tenants"}) {
        db_->exec("CREATE TABLE " + table + " (id integer)");
        EXPECT_TRUE(has_producer()) << table;
        db_->exec("DROP TABLE " + table);
        EXPECT_FALSE(has_producer()) << table;
    }
    options.side = MigrationSide::kProducer;
    migrate(database_->url(), options);
    EXPECT_TRUE(has_producer());
}

}  // namespace
}  // namespace outbox::test
