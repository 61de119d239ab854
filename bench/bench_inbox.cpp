// What receiving costs, on one connection. bench_inbox URL MESSAGES
// Every mode makes one business update per message: one by one (a transaction each), batches of 100
// and offsets with 1,000 records in a transaction (both update by one statement over an array).
// Offset mode is measured behind a source without repeats, as it must be. The idempotent request is
// the transaction of an order with its event, with and without a key, in blocks turn about.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <libpq-fe.h>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <outbox/adapters/libpq.h>
#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/libpq_idempotency.h>

namespace {

constexpr int kBlocks = 20;
constexpr int kBatch = 100;
constexpr int kOffsetBatch = 1'000;
constexpr int kItems = 1'000;

struct Finish {
    void operator()(PGconn* connection) const { PQfinish(connection); }
};
struct Clear {
    void operator()(PGresult* result) const { PQclear(result); }
};

void check(PGconn* connection, PGresult* made) {
    const std::unique_ptr<PGresult, Clear> result(made);
    const ExecStatusType status = PQresultStatus(result.get());
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        throw std::runtime_error(PQerrorMessage(connection));
    }
}

void run(PGconn* connection, const char* sql) {
    check(connection, PQexec(connection, sql));
}

void run(PGconn* connection, const char* name, const std::vector<const char*>& values) {
    check(connection, PQexecPrepared(connection, name, static_cast<int>(values.size()),
                                     values.data(), nullptr, nullptr, 0));
}

double seconds(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

std::string item(int i) {
    return std::to_string(i % kItems);
}

// "{1,2,...}": the items of `count` messages.
std::string items(int first, int count) {
    std::string out = "{";
    for (int i = first; i < first + count; ++i) out += (i == first ? "" : ",") + item(i);
    return out + "}";
}

double one_by_one(PGconn* connection, int count) {
    return count / seconds([&] {
               for (int i = 0; i < count; ++i) {
                   run(connection, "BEGIN");
                   const std::string id = outbox::new_event_id();
                   if (outbox::accept(connection, "one", id, outbox::message_time(id, {}))) {
                       run(connection, "one", {item(i).c_str()});
                   }
                   run(connection, "COMMIT");
               }
           });
}

double batches(PGconn* connection, int count) {
    return count / seconds([&] {
               std::vector<std::string> ids(kBatch);
               std::vector<outbox::InboxEntry> entries(kBatch);
               for (int i = 0; i < count; i += kBatch) {
                   for (int k = 0; k < kBatch; ++k) {
                       ids[k] = outbox::new_event_id();
                       entries[k] = {ids[k], outbox::message_time(ids[k], {})};
                   }
                   run(connection, "BEGIN");
                   outbox::accept_batch(connection, "batch", entries);
                   run(connection, "many", {items(i, kBatch).c_str()});
                   run(connection, "COMMIT");
               }
           });
}

double offsets(PGconn* connection, int count) {
    return count / seconds([&] {
               std::optional<std::int64_t> expected;
               for (int i = 0; i < count; i += kOffsetBatch) {
                   run(connection, "BEGIN");
                   if (!outbox::accept_offset(connection, "offset", "t", 0, expected,
                                              i + kOffsetBatch)) {
                       throw std::runtime_error("the offset did not move");
                   }
                   run(connection, "many", {items(i, kOffsetBatch).c_str()});
                   run(connection, "COMMIT");
                   expected = i + kOffsetBatch;
               }
           });
}

// Microseconds for one order with its event.
double order_us(PGconn* connection, int count, bool with_key) {
    const std::string body = R"({"user_id":"u-1","product_id":"p-1","quantity":2,"total":99.99})";
    outbox::Event event;
    event.aggregate_type = "Order";
    event.aggregate_id = "o-1";
    event.event_type = "OrderCreated";
    event.payload = body;
    const double took = seconds([&] {
        for (int i = 0; i < count; ++i) {
            const std::string key = with_key ? outbox::new_event_id() : std::string();
            const outbox::IdempotentRequest request{
                .scope = "u-1", .key = key, .operation = "POST /api/orders", .body = body};
            run(connection, "BEGIN");
            const auto claim = outbox::claim_key(connection, request);
            run(connection, "order", {"u-1", "99.99"});
            outbox::emit(connection, event);
            outbox::complete_key(connection, request, claim,
                                 {.status = 201, .headers = {{"Location", "/o/1"}}, .body = body});
            run(connection, "COMMIT");
        }
    });
    return took * 1e6 / count;
}

void prepare(PGconn* connection, const char* name, const char* sql) {
    check(connection, PQprepare(connection, name, sql, 0, nullptr));
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 3) {
        std::fprintf(stderr, "usage: bench_inbox URL MESSAGES\n");
        return 2;
    }
    const std::unique_ptr<PGconn, Finish> owner(PQconnectdb(argv[1]));
    PGconn* connection = owner.get();
    run(connection,
        "CREATE TABLE bench_stock (id integer PRIMARY KEY, reserved bigint NOT NULL) WITH "
        "(fillfactor = 50); "
        "INSERT INTO bench_stock SELECT g, 0 FROM generate_series(0, 999) g; "
        "CREATE TABLE bench_key_orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        "user_id text, amount numeric(12,2))");
    prepare(connection, "one",
            "UPDATE bench_stock SET reserved = reserved + 1 WHERE id = $1::integer");
    prepare(connection, "many",
            "UPDATE bench_stock s SET reserved = s.reserved + m.n FROM (SELECT id, count(*) AS n "
            "FROM unnest($1::integer[]) AS id GROUP BY id) m WHERE s.id = m.id");
    prepare(connection, "order",
            "INSERT INTO bench_key_orders (user_id, amount) VALUES ($1, $2::numeric)");

    const int count = std::max(kOffsetBatch, std::atoi(argv[2]) / kOffsetBatch * kOffsetBatch);
    const double single = one_by_one(connection, count / 10);
    const double batch = batches(connection, count);
    const double offset = offsets(connection, count * 4);
    std::vector<double> without_us;
    std::vector<double> with_us;
    for (int block = 0; block < kBlocks; ++block) {
        const int per_block = std::max(10, count / 10 / kBlocks);
        without_us.push_back(order_us(connection, per_block, false));
        with_us.push_back(order_us(connection, per_block, true));
    }
    std::printf(
        "{\"one_by_one_per_s\": %.0f, \"batch_100_per_s\": %.0f, \"offset_1000_per_s\": %.0f, "
        "\"order_us\": %.1f, \"idempotent_order_us\": %.1f, \"idempotency_adds_percent\": %.1f}\n",
        single, batch, offset, median(without_us), median(with_us),
        (median(with_us) / median(without_us) - 1) * 100);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "bench_inbox: %s\n", error.what());
    return 1;
}
