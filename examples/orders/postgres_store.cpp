#include <outbox/adapters/libpq.h>
#include <outbox/adapters/libpq_idempotency.h>
#include <outbox/producer/migrate.h>

#include "pool.h"
#include "postgres.h"
#include "store.h"

namespace orders {

namespace {

class PostgresStore : public Store {
  public:
    PostgresStore(std::string url, Journal& journal, OrderBy order_by)
        : url_(std::move(url)),
          journal_(journal),
          order_by_(order_by),
          pool_(kMaxConnections,
                [this] { return std::make_unique<Postgres>(url_, "order-service"); }) {}

    void prepare() override {
        outbox::migrate(url_);
        auto connection = pool_.take();
        // Two services that start together must not create the same table; and IF NOT EXISTS
        // would ask for the right to create even where the table is there.
        connection->query("BEGIN");
        connection->query("SELECT pg_advisory_xact_lock(hashtext('orders example'))");
        if (connection->query("SELECT to_regclass('orders') IS NULL")[0][0] == "t")
            connection->query(
                "CREATE TABLE orders (id uuid PRIMARY KEY, user_id text NOT NULL, "
                "product_id text NOT NULL, quantity integer NOT NULL, "
                "total_amount numeric(12,2) NOT NULL, status text NOT NULL, "
                "created_at timestamptz NOT NULL, currency text NOT NULL DEFAULT '', "
                "reason text NOT NULL DEFAULT '')");
        if (connection->query("SELECT to_regclass('order_counters') IS NULL")[0][0] == "t")
            connection->query(
                "CREATE TABLE order_counters (user_id text PRIMARY KEY, last_n bigint NOT NULL)");
        connection->query("COMMIT");
    }

    outbox::IdempotentAnswer create(const NewOrder& details,
                                    const outbox::IdempotentRequest& request,
                                    const AnswerFor& answer_for) override {
        auto connection = pool_.take();
        const auto claim = outbox::begin_and_claim_key(connection->handle(), request);
        auto unit = outbox::join_unit_of_work(connection->handle());
        if (!claim.is_new) {
            unit.commit();  // where there is a synchronous standby, waits until it has the answer
            return claim.answer;
        }
        OrderAggregate aggregate(details, order_by_);
        unit.track(aggregate, [&](OrderAggregate& order) { save(*connection, order); });
        unit.flush();
        outbox::IdempotentAnswer answer = answer_for(aggregate.order());
        commit_with_journal(aggregate.entry(), journal_, [&] {
            unit.commit([&] {
                outbox::complete_key_and_commit(connection->handle(), request, claim, answer);
            });
        });
        return answer;
    }

    std::optional<Order> find(const std::string& id) override {
        auto connection = pool_.take();
        const auto rows = connection->query(
            "SELECT id, user_id, product_id, quantity, total_amount, status, " +
                utc_text("created_at") + ", currency, reason FROM orders WHERE id = $1",
            {id});
        if (rows.empty()) return std::nullopt;
        const auto& row = rows[0];
        Order order;
        order.id = row[0];
        order.details = {row[1], row[2], std::stoll(row[3]), Money::parse(row[4]).value(), row[7]};
        order.status = row[5];
        order.created_at = row[6];
        order.reason = row[8];
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
        const auto rows = connection->query(
            "SELECT id, aggregate_type, aggregate_id, event_type, coalesce(payload::text, "
            "'null'), " +
                utc_text("occurred_at") +
                ", attempts, status FROM outbox_status WHERE status IN ('PENDING', 'RETRYING') "
                "ORDER BY position LIMIT $1",
            {std::to_string(limit)});
        std::vector<std::string> events;
        for (const auto& row : rows)
            events.push_back(
                pending_json({row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]}));
        return events;
    }

    std::int64_t pending_count() override {
        return std::stoll(pool_.take()->query("SELECT count(*) FROM outbox_events")[0][0]);
    }

  private:
    void save(Postgres& connection, OrderAggregate& aggregate) const {
        const Order& order = aggregate.order();
        const NewOrder& details = order.details;
        if (order_by_ == OrderBy::kUser) {
            Transaction transaction(connection.handle());
            aggregate.set_n(next_number(transaction, details.user_id));
        }
        connection.query(
            "INSERT INTO orders (id, user_id, product_id, quantity, total_amount, "
            "status, created_at, currency) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            {order.id, details.user_id, details.product_id, std::to_string(details.quantity),
             details.total_amount.text(), order.status, order.created_at, details.currency});
    }

    static std::string utc_text(const std::string& column) {
        return "to_char(" + column + R"( AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))";
    }

    const std::string url_;
    Journal& journal_;
    const OrderBy order_by_;
    Pool<Postgres> pool_;
};

}  // namespace

std::unique_ptr<Store> open_postgres_store(const std::string& url, Journal& journal,
                                           OrderBy order_by) {
    return std::make_unique<PostgresStore>(url, journal, order_by);
}

}  // namespace orders
