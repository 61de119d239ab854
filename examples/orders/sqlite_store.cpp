#include <outbox/adapters/sqlite.h>
#include <outbox/adapters/sqlite_idempotency.h>
#include <outbox/producer/migrate.h>

#include "pool.h"
#include "sqlite.h"
#include "store.h"

namespace orders {

namespace {

// created_at is kept as the API shows it; money as whole cents.
constexpr const char* kTables = R"sql(
CREATE TABLE IF NOT EXISTS orders (
    id           text PRIMARY KEY,
    user_id      text NOT NULL,
    product_id   text NOT NULL,
    quantity     integer NOT NULL,
    total_cents  integer NOT NULL,
    status       text NOT NULL,
    created_at   text NOT NULL,
    currency     text NOT NULL DEFAULT '',
    reason       text NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS order_counters (
    user_id text PRIMARY KEY,
    last_n  integer NOT NULL
);
)sql";

class SqliteStore : public Store {
  public:
    SqliteStore(std::string path, Journal& journal, OrderBy order_by)
        : path_(std::move(path)),
          journal_(journal),
          order_by_(order_by),
          pool_(kMaxConnections, [this] { return std::make_unique<Sqlite>(path_); }) {}

    void prepare() override {
        outbox::migrate("sqlite://" + path_);
        pool_.take()->exec(kTables);
    }

    outbox::IdempotentAnswer create(const NewOrder& details,
                                    const outbox::IdempotentRequest& request,
                                    const AnswerFor& answer_for) override {
        auto connection = pool_.take();
        auto unit = outbox::begin_unit_of_work(connection->handle());
        const auto claim = outbox::claim_key(connection->handle(), request);
        if (!claim.is_new) return claim.answer;
        OrderAggregate aggregate(details, order_by_);
        unit.track(aggregate, [&](OrderAggregate& order) { save(*connection, order); });
        unit.flush();
        outbox::IdempotentAnswer answer = answer_for(aggregate.order());
        outbox::complete_key(connection->handle(), request, claim, answer);
        commit_with_journal(unit, aggregate.entry(), journal_);
        return answer;
    }

    std::optional<Order> find(const std::string& id) override {
        auto connection = pool_.take();
        SqliteStatement row(connection->handle(),
                            "SELECT id, user_id, product_id, quantity, total_cents, status, "
                            "created_at, currency, reason FROM orders WHERE id = ?1");
        row.bind(1, id);
        if (!row.step()) return std::nullopt;
        Order order;
        order.id = row.text(0);
        order.details = {row.text(1), row.text(2), row.integer(3), Money{row.integer(4)},
                         row.text(7)};
        order.status = row.text(5);
        order.created_at = row.text(6);
        order.reason = row.text(8);
        return order;
    }

    Settlement cancel(const std::string& id) override {
        auto connection = pool_.take();
        auto unit = outbox::begin_unit_of_work(connection->handle());
        Transaction transaction(connection->handle());
        const Settlement settlement =
            settle_order(transaction, order_by_, id, kCancelled, kCancelReason);
        if (settlement.done) commit_with_journal(unit, transaction.emitted().at(0), journal_);
        return settlement;
    }

    std::vector<std::string> pending(int limit) override {
        auto connection = pool_.take();
        SqliteStatement row(
            connection->handle(),
            "SELECT id, coalesce(aggregate_type, ''), coalesce(aggregate_id, ''), "
            "coalesce(event_type, ''), coalesce(payload, 'null'), occurred_at, "
            "attempts, status FROM outbox_status WHERE status IN ('PENDING', 'RETRYING') "
            "ORDER BY position LIMIT ?1");
        row.bind(1, limit);
        std::vector<std::string> events;
        while (row.step())
            events.push_back(pending_json({row.text(0), row.text(1), row.text(2), row.text(3),
                                           row.text(4), row.text(5), row.text(6), row.text(7)}));
        return events;
    }

    std::int64_t pending_count() override {
        auto connection = pool_.take();
        SqliteStatement row(connection->handle(), "SELECT count(*) FROM outbox_events");
        row.step();
        return row.integer(0);
    }

  private:
    void save(Sqlite& connection, OrderAggregate& aggregate) const {
        const Order& order = aggregate.order();
        const NewOrder& details = order.details;
        if (order_by_ == OrderBy::kUser) {
            Transaction transaction(connection.handle());
            aggregate.set_n(next_number(transaction, details.user_id));
        }
        SqliteStatement insert(connection.handle(),
                               "INSERT INTO orders (id, user_id, product_id, quantity, "
                               "total_cents, status, created_at, currency) "
                               "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)");
        insert.bind(1, order.id).bind(2, details.user_id).bind(3, details.product_id);
        insert.bind(4, details.quantity).bind(5, details.total_amount.cents);
        insert.bind(6, order.status).bind(7, order.created_at).bind(8, details.currency).step();
    }

    const std::string path_;
    Journal& journal_;
    const OrderBy order_by_;
    Pool<Sqlite> pool_;
};

}  // namespace

std::unique_ptr<Store> open_sqlite_store(const std::string& path, Journal& journal,
                                         OrderBy order_by) {
    return std::make_unique<SqliteStore>(path, journal, order_by);
}

}  // namespace orders
