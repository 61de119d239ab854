#include <gtest/gtest.h>

#include <outbox/adapters/libpqxx.h>
#include <outbox/producer/migrate.h>

#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

class EmitLibpqxx : public testing::Test {
  protected:
    EmitLibpqxx() { migrate(url_); }

    std::string url_ = shared_postgres().create_database();
    Pg look_{url_};
};

TEST_F(EmitLibpqxx, WritesTheEventInTheCallersTransaction) {
    pqxx::connection connection(url_);
    Event event;
    event.aggregate_type = "Order";
    event.aggregate_id = "o-1";
    event.payload = R"({"a": 1})";
    {
        pqxx::work undone(connection);
        emit(undone, event);
    }
    pqxx::work work(connection);
    const std::string id = emit(work, event);
    event.payload.reset();
    emit(work, event);
    emit(work, "orders", "{}");
    work.commit();
    EXPECT_EQ(look_.value("SELECT string_agg(concat_ws('|', aggregate_id, topic, payload), ';' "
                          "ORDER BY position) FROM outbox_events"),
              "o-1|{\"a\": 1};o-1;orders|{}");
    EXPECT_EQ(look_.value("SELECT id FROM outbox_events ORDER BY position LIMIT 1"), id);
}

TEST_F(EmitLibpqxx, RefusesANontransaction) {
    pqxx::connection connection(url_);
    pqxx::nontransaction each_by_itself(connection);
    EXPECT_THROW(emit(each_by_itself, "orders", "{}"), Error);
    EXPECT_EQ(look_.number("SELECT count(*) FROM outbox_events"), 0);
}

}  // namespace
}  // namespace outbox::test
