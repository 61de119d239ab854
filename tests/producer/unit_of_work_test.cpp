#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <outbox/adapters/libpq.h>
#include <outbox/adapters/sqlite.h>
#include <outbox/producer/migrate.h>

#include "tests/support/files.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

struct Order {
    std::string id;
    std::vector<Event> events;

    void place() {
        Event event;
        event.aggregate_type = "Order";
        event.aggregate_id = id;
        event.event_type = "OrderPlaced";
        event.payload = "{}";
        events.push_back(event);
    }
    std::vector<Event> take_events() { return std::exchange(events, {}); }
};

struct Postgres {
    std::string url = shared_postgres().create_database();
    Pg db;
    Pg look;
    Postgres() : db((migrate(url), url)), look(url) {}
};

struct SqliteFile {
    TemporaryFolder folder{"unit"};
    std::string path = folder / "shop.db";
    Sqlite db;
    Sqlite look;
    SqliteFile() : db((migrate("sqlite://" + path), path)), look(path) {}
};

template <typename Database>
class UnitOfWorkOn : public testing::Test {
  protected:
    UnitOfWorkOn() {
        database_.db.exec("CREATE TABLE orders (id text PRIMARY KEY, seen_events int)");
    }
    UnitOfWork begin() { return begin_unit_of_work(database_.db.handle()); }
    // Also records how many events were there when the order was saved.
    auto save() {
        return [this](Order& order) {
            database_.db.exec("INSERT INTO orders SELECT '" + order.id +
                              "', count(*) FROM outbox_events");
        };
    }
    std::string orders() {
        return database_.look.value(
            "SELECT count(*) || ' ' || coalesce(max(seen_events), 0) "
            "FROM orders");
    }
    long long events() { return database_.look.number("SELECT count(*) FROM outbox_events"); }

    Database database_;
};

using Databases = testing::Types<Postgres, SqliteFile>;
TYPED_TEST_SUITE(UnitOfWorkOn, Databases);

TYPED_TEST(UnitOfWorkOn, SavesEveryAggregateBeforeAnyEvent) {
    Order first{"o-1", {}};
    Order second{"o-2", {}};
    {
        auto unit = this->begin();
        unit.emit([] {
            Event event;
            event.topic = "audit";
            event.payload = "{}";
            return event;
        }());
        unit.track(first, this->save());
        unit.track(second, this->save());
        unit.track(first, this->save());
        first.place();
        second.place();
        unit.commit();
    }
    EXPECT_EQ(this->orders(), "2 0");
    EXPECT_EQ(this->events(), 3);
    EXPECT_TRUE(first.events.empty());
}

TYPED_TEST(UnitOfWorkOn, GivesTheTokenOfAllItsEventsAndOfNoMoreThanATokenHolds) {
    Event audit;
    audit.topic = "audit";
    audit.payload = "{}";
    Order order{"o-1", {}};
    order.place();
    auto unit = this->begin();
    EXPECT_EQ(unit.fence(), fence_token({}));
    const std::string first = unit.emit(audit);
    EXPECT_EQ(unit.fence(), fence_token({})) << "nothing is written yet";
    unit.flush();
    unit.track(order, this->save());
    unit.commit();
    const auto ids = fence_ids(unit.fence());
    ASSERT_EQ(ids.size(), 2U);
    EXPECT_EQ(ids[0], first);
    EXPECT_EQ(this->database_.look.value("SELECT id FROM outbox_events WHERE aggregate_id = 'o-1'"),
              ids[1]);
    auto large = this->begin();
    for (int n = 0; n < 101; ++n) large.emit(audit);
    large.commit();
    EXPECT_THROW(static_cast<void>(large.fence()), Error);
}

TYPED_TEST(UnitOfWorkOn, RollsBackUnlessCommitted) {
    Order order{"o-1", {}};
    {
        auto unit = this->begin();
        unit.track(order, this->save());
        order.place();
        unit.flush();
    }
    EXPECT_EQ(this->orders(), "0 0");
    EXPECT_EQ(this->events(), 0);
    auto next = this->begin();
    next.commit();
}

TYPED_TEST(UnitOfWorkOn, AFailedSaveUndoesTheWholeUnit) {
    Order good{"o-1", {}};
    Order bad{"o-2", {}};
    auto unit = this->begin();
    unit.track(good, this->save());
    unit.track(bad, [](Order&) { throw std::runtime_error("version conflict"); });
    good.place();
    EXPECT_THROW(unit.commit(), std::runtime_error);
    EXPECT_THROW(unit.commit(), Error);
    unit.rollback();
    EXPECT_EQ(this->orders(), "0 0");
    EXPECT_EQ(this->events(), 0);
    EXPECT_THROW(unit.emit(Event{}), Error);
}

TYPED_TEST(UnitOfWorkOn, AnInvalidEventUndoesTheWholeUnit) {
    Order order{"o-1", {}};
    {
        auto unit = this->begin();
        unit.track(order, this->save());
        unit.emit(Event{});
        try {
            unit.commit();
            ADD_FAILURE() << "the event was accepted";
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::kInvalidEvent);
        }
    }
    EXPECT_EQ(this->orders(), "0 0");
}

TYPED_TEST(UnitOfWorkOn, RefusesAConnectionThatHasATransactionOpen) {
    this->database_.db.exec("BEGIN");
    try {
        auto unit = this->begin();
        FAIL() << "a second transaction was begun";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kConflict);
    }
    this->database_.db.exec("ROLLBACK");
}

TEST(UnitOfWork, ACommitThatTheServerTurnsIntoARollbackIsAnError) {
    Postgres database;
    auto unit = begin_unit_of_work(database.db.handle());
    EXPECT_THROW(database.db.exec("SELECT 1/0"), std::runtime_error);
    EXPECT_THROW(unit.commit(), Error);
}

}  // namespace
}  // namespace outbox::test
