// What receiving costs, on one connection.
//   bench_inbox URL MESSAGES            every mode beside the limits of the same connection
//   bench_inbox URL MESSAGES mailbox    a consumer process that drains a mailbox
//   bench_inbox URL MESSAGES kafka BROKERS TOPIC   one that drains a topic with so many records
// Every mode makes one business update per message: one by one (a transaction each), batches of 100
// and offsets with 1,000 records in a transaction (both update by one statement over an array).
// Offset mode is measured behind a source without repeats, as it must be. What is compared is
// measured in blocks turn about; the figure is the median of the blocks.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <libpq-fe.h>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <outbox/adapters/libpq.h>
#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/libpq_idempotency.h>
#include <outbox/adapters/libpq_kafka.h>

namespace {

constexpr int kBlocks = 20;
constexpr int kBatch = 100;
constexpr int kOffsetBatch = 1'000;
constexpr int kItems = 1'000;

constexpr const char* kUpdateOne =
    "UPDATE bench_stock SET reserved = reserved + 1 WHERE id = $1::integer";
constexpr const char* kUpdateMany =
    "UPDATE bench_stock s SET reserved = s.reserved + m.n FROM (SELECT id, count(*) AS n "
    "FROM unnest($1::integer[]) AS id GROUP BY id) m WHERE s.id = m.id";

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

void prepare(PGconn* connection, const char* name, const char* sql) {
    check(connection, PQprepare(connection, name, sql, 0, nullptr));
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

// BEGIN, INSERT of an id, the business update, COMMIT, each a round trip of a prepared statement.
double bare(PGconn* connection, int count) {
    return count / seconds([&] {
               for (int i = 0; i < count; ++i) {
                   run(connection, "begin", {});
                   run(connection, "id", {outbox::new_event_id().c_str()});
                   run(connection, "one", {item(i).c_str()});
                   run(connection, "commit", {});
               }
           });
}

void send(PGconn* connection, const char* name, const std::vector<const char*>& values) {
    if (PQsendQueryPrepared(connection, name, static_cast<int>(values.size()), values.data(),
                            nullptr, nullptr, 0) != 1) {
        throw std::runtime_error(PQerrorMessage(connection));
    }
}

// The same four in one round trip: what is left is the server's work and its flush.
double bare_in_one_trip(PGconn* connection, int count) {
    return count / seconds([&] {
               PQenterPipelineMode(connection);
               for (int i = 0; i < count; ++i) {
                   send(connection, "begin", {});
                   send(connection, "id", {outbox::new_event_id().c_str()});
                   send(connection, "one", {item(i).c_str()});
                   send(connection, "commit", {});
                   PQpipelineSync(connection);
                   for (int statement = 0; statement < 4; ++statement) {
                       check(connection, PQgetResult(connection));
                       PQgetResult(connection);
                   }
                   PQclear(PQgetResult(connection));
               }
               PQexitPipelineMode(connection);
           });
}

double one_by_one(PGconn* connection, int count) {
    return count / seconds([&] {
               for (int i = 0; i < count; ++i) {
                   const std::string id = outbox::new_event_id();
                   if (outbox::begin_and_accept(connection, "one", id,
                                                outbox::message_time(id, {}))) {
                       run(connection, "one", {item(i).c_str()});
                   }
                   run(connection, "commit", {});
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

// Microseconds for one order with its event, as the order service writes it.
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
            const auto claim = outbox::begin_and_claim_key(connection, request);
            run(connection, "order", {"u-1", "99.99"});
            outbox::emit(connection, event);
            outbox::complete_key_and_commit(
                connection, request, claim,
                {.status = 201, .headers = {{"Location", "/o/1"}}, .body = body});
        }
    });
    return took * 1e6 / count;
}

double peak_mb() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        if (word != "VmHWM:") continue;
        double kilobytes = 0;
        status >> kilobytes;
        return kilobytes / 1024;
    }
    return 0;
}

using Connection = std::unique_ptr<PGconn, Finish>;

Connection connect(const char* url) {
    Connection connection(PQconnectdb(url));
    if (PQstatus(connection.get()) != CONNECTION_OK) {
        throw std::runtime_error(PQerrorMessage(connection.get()));
    }
    return connection;
}

// Messages of 200 bytes, of 10,000 keys.
void fill_mailbox(PGconn* connection, int count) {
    const std::string messages = std::to_string(count);
    run(connection,
        ("INSERT INTO outbox_mailbox (mailbox, id, topic, key, payload) SELECT 'bench', "
         "'m-' || g, 'bench-events', 'k' || g % 10000, convert_to(repeat('x', 200), 'UTF8') FROM "
         "generate_series(1, " +
         messages + ") g")
            .c_str());
    run(connection, "VACUUM (ANALYZE) outbox_mailbox");
}

void update_stock(PGconn* transaction, std::span<const outbox::Message> messages) {
    std::string all = "{";
    for (std::size_t i = 0; i < messages.size(); ++i) {
        all += (i == 0 ? "" : ",") + item(static_cast<int>(messages[i].position));
    }
    all += '}';
    const char* values[] = {all.c_str()};
    check(transaction,
          PQexecParams(transaction, kUpdateMany, 1, nullptr, values, nullptr, nullptr, 0));
}

// Messages per second of a runner that takes each by itself.
double drain_one_by_one(const char* url, PGconn* connection, int count) {
    outbox::MailboxOptions options;
    options.mailbox = "bench";
    auto consumer = outbox::libpq_mailbox_consumer(
        url,
        outbox::LibpqHandler(
            [is_prepared = false](PGconn* transaction, const outbox::Message& message) mutable {
                if (!std::exchange(is_prepared, true)) prepare(transaction, "one", kUpdateOne);
                run(transaction, "one", {item(static_cast<int>(message.position)).c_str()});
            }),
        options);
    consumer.drain();  // connects
    fill_mailbox(connection, count);
    std::size_t done = 0;
    const double rate = count / seconds([&] { done = consumer.drain(); });
    if (done != static_cast<std::size_t>(count)) throw std::runtime_error("not all were applied");
    run(connection, "DELETE FROM outbox_inbox WHERE consumer = 'bench'");
    return rate;
}

void print_drained(const char* source, double rate) {
    std::printf("{\"%s_drain_per_s\": %.0f, \"%s_consumer_peak_mb\": %.1f}\n", source, rate, source,
                peak_mb());
}

void drain_mailbox(const char* url, int count) {
    fill_mailbox(connect(url).get(), count);
    outbox::MailboxOptions options;
    options.mailbox = "bench";
    options.transaction_size = kBatch;
    auto consumer =
        outbox::libpq_mailbox_consumer(url, outbox::LibpqBatchHandler(update_stock), options);
    std::size_t done = 0;
    const double rate = count / seconds([&] { done = consumer.drain(); });
    if (done != static_cast<std::size_t>(count)) throw std::runtime_error("not all were applied");
    print_drained("mailbox", rate);
}

void drain_kafka(const char* url, int count, const char* brokers, const char* topic) {
    outbox::KafkaConsumerOptions options;
    options.brokers = brokers;
    options.group = "bench";
    options.topics = {topic};
    // The records of script/bench carry no ids.
    options.mode = outbox::KafkaConsumerOptions::Mode::kOffset;
    options.exactly_once_wire = true;
    options.transaction_size = kOffsetBatch;
    outbox::KafkaConsumer* running = nullptr;
    int applied = 0;
    options.on_report = [&](const outbox::ConsumerReport& report) {
        if (report.what == outbox::ConsumerReport::What::kApplied && ++applied == count) {
            running->stop();
        }
    };
    auto consumer =
        outbox::libpq_kafka_consumer(url, outbox::LibpqBatchHandler(update_stock), options);
    running = &consumer;
    print_drained("kafka", count / seconds([&] { consumer.run(); }));
}

void compare(const char* url, int count) {
    const Connection owner = connect(url);
    PGconn* connection = owner.get();
    run(connection,
        "CREATE TABLE bench_key_orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        "user_id text, amount numeric(12,2)); "
        "CREATE TABLE bench_ids (id text PRIMARY KEY)");
    prepare(connection, "begin", "BEGIN");
    prepare(connection, "commit", "COMMIT");
    prepare(connection, "id", "INSERT INTO bench_ids VALUES ($1) ON CONFLICT DO NOTHING");
    prepare(connection, "one", kUpdateOne);
    prepare(connection, "many", kUpdateMany);
    prepare(connection, "order",
            "INSERT INTO bench_key_orders (user_id, amount) VALUES ($1, $2::numeric)");
    std::vector<double> bare_rates;
    std::vector<double> one_trip_rates;
    std::vector<double> accept_rates;
    std::vector<double> mailbox_rates;
    std::vector<double> without_us;
    std::vector<double> with_us;
    const int per_block = std::max(10, count / 10 / kBlocks);
    for (int block = 0; block < kBlocks; ++block) {
        bare_rates.push_back(bare(connection, per_block));
        one_trip_rates.push_back(bare_in_one_trip(connection, per_block));
        accept_rates.push_back(one_by_one(connection, per_block));
        mailbox_rates.push_back(drain_one_by_one(url, connection, per_block));
        without_us.push_back(order_us(connection, per_block, false));
        with_us.push_back(order_us(connection, per_block, true));
    }
    const double batch = batches(connection, count);
    const double offset = offsets(connection, count * 4);
    std::printf(
        "{\"limit_bare_transaction_per_s\": %.0f, \"limit_bare_in_one_trip_per_s\": %.0f, "
        "\"one_by_one_per_s\": %.0f, \"mailbox_one_by_one_per_s\": %.0f, "
        "\"batch_100_per_s\": %.0f, \"offset_1000_per_s\": %.0f, \"order_us\": %.1f, "
        "\"idempotent_order_us\": %.1f, \"idempotent_transaction_adds_percent\": %.1f}\n",
        median(bare_rates), median(one_trip_rates), median(accept_rates), median(mailbox_rates),
        batch, offset, median(without_us), median(with_us),
        (median(with_us) / median(without_us) - 1) * 100);
}

}  // namespace

int main(int argc, char** argv) try {
    const std::string what = argc > 3 ? argv[3] : "";
    const bool usable =
        argc == 3 || (argc == 4 && what == "mailbox") || (argc == 6 && what == "kafka");
    if (!usable) {
        std::fprintf(stderr, "usage: bench_inbox URL MESSAGES [mailbox | kafka BROKERS TOPIC]\n");
        return 2;
    }
    const int count = std::max(kOffsetBatch, std::atoi(argv[2]) / kOffsetBatch * kOffsetBatch);
    run(connect(argv[1]).get(),
        "CREATE TABLE bench_stock (id integer PRIMARY KEY, reserved bigint NOT NULL) WITH "
        "(fillfactor = 50); "
        "INSERT INTO bench_stock SELECT g, 0 FROM generate_series(0, 999) g");
    if (what == "mailbox") {
        drain_mailbox(argv[1], count);
    } else if (what == "kafka") {
        drain_kafka(argv[1], count, argv[4], argv[5]);
    } else {
        compare(argv[1], count);
    }
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "bench_inbox: %s\n", error.what());
    return 1;
}
