// What emit adds to a transaction, at one client. bench_emit URL TRANSACTIONS
// Three transactions in turn, each with one business row: alone, with a plain INSERT of the event
// into an identical table, and with emit. Turn about in blocks, so that the machine's noise falls
// on all three; the figures are medians of the blocks.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <libpq-fe.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <outbox/adapters/libpq.h>

namespace {

constexpr int kBlocks = 20;

struct Finish {
    void operator()(PGconn* connection) const { PQfinish(connection); }
};
struct Clear {
    void operator()(PGresult* result) const { PQclear(result); }
};

void run(PGconn* connection, const char* sql) {
    const std::unique_ptr<PGresult, Clear> result(PQexec(connection, sql));
    const ExecStatusType status = PQresultStatus(result.get());
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        throw std::runtime_error(PQerrorMessage(connection));
    }
}

void run(PGconn* connection, const char* sql, const std::vector<const char*>& values) {
    const std::unique_ptr<PGresult, Clear> result(
        PQexecParams(connection, sql, static_cast<int>(values.size()), nullptr, values.data(),
                     nullptr, nullptr, 0));
    if (PQresultStatus(result.get()) != PGRES_COMMAND_OK) {
        throw std::runtime_error(PQerrorMessage(connection));
    }
}

double transactions_us(PGconn* connection, int count, const std::function<void()>& event) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
        run(connection, "BEGIN");
        run(connection, "INSERT INTO bench_orders (user_id, amount) VALUES ($1, $2)",
            {"u-1", "99.99"});
        event();
        run(connection, "COMMIT");
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    return took.count() / count;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 3) {
        std::fprintf(stderr, "usage: bench_emit URL TRANSACTIONS\n");
        return 2;
    }
    const std::unique_ptr<PGconn, Finish> owner(PQconnectdb(argv[1]));
    PGconn* connection = owner.get();
    run(connection,
        "CREATE TABLE bench_orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        "user_id text, amount numeric(12,2))");
    run(connection, "CREATE TABLE bench_plain (LIKE outbox_events INCLUDING ALL)");
    const std::string payload = R"({"order_id": "o-1", "fill": ")" + std::string(160, 'x') + "\"}";
    outbox::Event event;
    event.aggregate_type = "Order";
    event.aggregate_id = "o-1";
    event.event_type = "OrderCreated";
    event.payload = payload;

    const auto nothing = [] {};
    const auto plain = [&] {
        run(connection,
            "INSERT INTO bench_plain (aggregate_type, aggregate_id, event_type, payload) "
            "VALUES ($1, $2, $3, $4)",
            {"Order", "o-1", "OrderCreated", payload.c_str()});
    };
    const auto emit = [&] { outbox::emit(connection, event); };

    const int per_block = std::max(1, std::atoi(argv[2]) / kBlocks);
    std::vector<double> without_us;
    std::vector<double> plain_us;
    std::vector<double> emit_us;
    for (int block = 0; block < kBlocks; ++block) {
        without_us.push_back(transactions_us(connection, per_block, nothing));
        plain_us.push_back(transactions_us(connection, per_block, plain));
        emit_us.push_back(transactions_us(connection, per_block, emit));
    }
    std::printf(
        "{\"no_event_us\": %.1f, \"plain_insert_us\": %.1f, \"emit_us\": %.1f, "
        "\"emit_adds_percent\": %.1f}\n",
        median(without_us), median(plain_us), median(emit_us),
        (median(emit_us) / median(plain_us) - 1) * 100);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "bench_emit: %s\n", error.what());
    return 1;
}
