#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <sqlite3.h>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/http_client.h"
#include "tests/support/pg.h"
#include "tests/support/process.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr const char* kGoodOrder =
    R"({"user_id":"u-1","product_id":"p-1","quantity":2,"total_amount":99.99})";

// The running service and what it needs.
class Service {
  public:
    explicit Service(const std::string& database_url, std::vector<std::string> arguments = {})
        : journal_(folder_ / "journal") {
        std::vector<std::string> command{ORDER_SERVICE, "--journal", journal_.string()};
        command.insert(command.end(), arguments.begin(), arguments.end());
        process_ = std::make_unique<Process>(ProcessOptions{
            .command = command, .environment = {{"DATABASE_URL", database_url}, {"PORT", "0"}}});
        const std::string sign = "listening on http://127.0.0.1:";
        const auto up = eventually(60s, "the order service listens", [&] {
            const std::string out = process_->stdout_text();
            const auto at = out.find(sign);
            if (at == std::string::npos || !out.ends_with('\n')) return !process_->running();
            port_ = std::stoi(out.substr(at + sign.size()));
            return true;
        });
        if (!up || port_ == 0) throw std::runtime_error(process_->stderr_text());
    }

    HttpAnswer get(const std::string& target) const { return http(port_, "GET", target); }
    HttpAnswer post(const std::string& body) const {
        return http(port_, "POST", "/api/orders", body);
    }
    HttpAnswer post(const std::string& body, const std::string& key) const {
        return http(port_, "POST", "/api/orders", body, "Idempotency-Key: " + key + "\r\n");
    }
    std::int64_t pending() const {
        return json::parse(get("/health").body).at("pending_outbox_events").get<std::int64_t>();
    }
    std::vector<json> journal() const {
        std::vector<json> lines;
        std::istringstream file(read_file(journal_));
        for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
        return lines;
    }
    int port() const { return port_; }
    Process& process() { return *process_; }

  private:
    TemporaryFolder folder_{"orders"};
    std::filesystem::path journal_;
    std::unique_ptr<Process> process_;
    int port_ = 0;
};

// Every test of the API runs on both databases.
class OrderService : public testing::TestWithParam<std::string> {
  protected:
    std::string database_url() {
        if (GetParam() == "postgres") return shared_postgres().create_database();
        return "sqlite://" + (folder_ / "orders.db").string();
    }
    TemporaryFolder folder_{"orders-db"};
};

INSTANTIATE_TEST_SUITE_P(Databases, OrderService, testing::Values("postgres", "sqlite"),
                         [](const auto& test) { return test.param; });

TEST_P(OrderService, CreatesAnOrderWithItsEvent) {
    const Service service(database_url());
    const HttpAnswer created = service.post(kGoodOrder);
    ASSERT_EQ(created.status, 201) << created.body;
    const json order = json::parse(created.body);
    EXPECT_EQ(order.size(), 7U);
    EXPECT_EQ(order.at("user_id"), "u-1");
    EXPECT_EQ(order.at("product_id"), "p-1");
    EXPECT_EQ(order.at("quantity"), 2);
    EXPECT_EQ(order.at("status"), "CREATED");
    EXPECT_NE(created.body.find(R"("total_amount":99.99,)"), std::string::npos) << created.body;
    const std::string id = order.at("id");

    const HttpAnswer read = service.get("/api/orders/" + id);
    EXPECT_EQ(read.status, 200);
    EXPECT_EQ(read.body, created.body);

    const json pending = json::parse(service.get("/api/outbox/pending").body);
    ASSERT_EQ(pending.size(), 1U);
    const json& event = pending[0];
    EXPECT_EQ(event.at("aggregate_type"), "Order");
    EXPECT_EQ(event.at("aggregate_id"), id);
    EXPECT_EQ(event.at("event_type"), "OrderCreated");
    EXPECT_EQ(event.at("status"), "PENDING");
    EXPECT_EQ(event.at("retry_count"), 0);
    EXPECT_TRUE(event.at("published_at").is_null());
    EXPECT_FALSE(event.at("created_at").get<std::string>().empty());
    EXPECT_EQ(event.at("payload"), json({{"order_id", id},
                                         {"user_id", "u-1"},
                                         {"product_id", "p-1"},
                                         {"quantity", 2},
                                         {"total_amount", 99.99},
                                         {"timestamp", order.at("created_at")}}));
    EXPECT_EQ(service.get("/health").body,
              "{\"status\":\"healthy\",\"pending_outbox_events\":1}\n");

    const auto journal = service.journal();
    ASSERT_EQ(journal.size(), 2U);
    EXPECT_EQ(journal[0].at("state"), "intent");
    EXPECT_EQ(journal[1].at("state"), "committed");
    for (const json& line : journal) {
        EXPECT_EQ(line.at("id"), event.at("id"));
        EXPECT_EQ(line.at("key"), id);
        EXPECT_EQ(line.at("n"), 1);
    }
}

TEST_P(OrderService, KeepsMoneyExact) {
    const Service service(database_url());
    for (const auto& [given, kept] :
         std::map<std::string, std::string>{{"0.1", "0.10"},
                                            {"9999999999.99", "9999999999.99"},
                                            {"1e2", "100.00"},
                                            {"8.30", "8.30"},
                                            {"0", "0.00"}}) {
        const HttpAnswer created = service.post(
            R"({"user_id":"u","product_id":"p","quantity":1,"total_amount":)" + given + "}");
        ASSERT_EQ(created.status, 201) << created.body;
        EXPECT_NE(created.body.find("\"total_amount\":" + kept + ","), std::string::npos);
        const std::string id = json::parse(created.body).at("id");
        EXPECT_EQ(service.get("/api/orders/" + id).body, created.body);
    }
    const std::string pending = service.get("/api/outbox/pending").body;
    EXPECT_NE(pending.find("9999999999.99"), std::string::npos) << pending;
}

TEST_P(OrderService, RefusesBadInputAndWritesNothing) {
    const Service service(database_url());
    const std::string amount = R"("total_amount":1})";
    const std::string ids = R"({"user_id":"u","product_id":"p",)";
    const std::vector<std::string> bodies{
        "",
        "{",
        "null",
        "[]",
        "42",
        "\"text\"",
        kGoodOrder + std::string("x"),
        "{}",
        ids + R"("quantity":0,)" + amount,
        ids + R"("quantity":-2,)" + amount,
        ids + R"("quantity":1.5,)" + amount,
        ids + R"("quantity":"2",)" + amount,
        ids + R"("quantity":null,)" + amount,
        ids + R"("quantity":1000001,)" + amount,
        ids + R"("quantity":99999999999999999999,)" + amount,
        ids + R"("quantity":[1],)" + amount,
        ids + R"("quantity":1,"total_amount":-0.01})",
        ids + R"("quantity":1,"total_amount":1.005})",
        ids + R"("quantity":1,"total_amount":10000000000})",
        ids + R"("quantity":1,"total_amount":1e400})",
        ids + R"("quantity":1,"total_amount":"1"})",
        ids + R"("quantity":1,"total_amount":true})",
        ids + R"("quantity":1})",
        R"({"user_id":"","product_id":"p","quantity":1,)" + amount,
        R"({"user_id":7,"product_id":"p","quantity":1,)" + amount,
        R"({"user_id":"a\u0000b","product_id":"p","quantity":1,)" + amount,
        R"({"user_id":"\ud800","product_id":"p","quantity":1,)" + amount,
        "{\"user_id\":\"\xff\xfe\",\"product_id\":\"p\",\"quantity\":1," + amount,
        R"({"user_id":")" + std::string(256, 'x') + R"(","product_id":"p","quantity":1,)" + amount,
        std::string(500'000, '['),
    };
    for (const std::string& body : bodies) {
        const HttpAnswer answer = service.post(body);
        EXPECT_EQ(answer.status, 400) << body.substr(0, 200);
        EXPECT_FALSE(json::parse(answer.body).at("error").get<std::string>().empty());
    }
    EXPECT_EQ(service.pending(), 0);
    EXPECT_TRUE(service.journal().empty());

    const HttpAnswer fields = service.post(ids + R"("quantity":0,)" + amount);
    EXPECT_EQ(json::parse(fields.body), json::parse(R"({"error":"validation failed",
                  "fields":{"quantity":"must be a whole number from 1 to 1000000"}})"));
}

TEST_P(OrderService, RefusesABodyOf20MegabytesAndGoesOn) {
    const Service service(database_url());
    const std::string big = R"({"user_id":")" + std::string(std::size_t{20} << 20, 'x') + "\"}";
    EXPECT_EQ(service.post(big).status, 413);
    // The same without saying its length first.
    EXPECT_EQ(http_raw(service.port(),
                       "POST /api/orders HTTP/1.1\r\nHost: x\r\n"
                       "Transfer-Encoding: chunked\r\n\r\n1312D00\r\n" +
                           big)
                  .status,
              413);
    EXPECT_EQ(service.pending(), 0);
    EXPECT_EQ(service.post(kGoodOrder).status, 201);
}

TEST_P(OrderService, RefusesABodyWhoseEndIsNotCertain) {
    const Service service(database_url());
    const std::string order = kGoodOrder;
    for (const char* encoding :
         {"chunked, identity", "gzip", "xchunked", "identity", "chunked\r\nContent-Length: 5"}) {
        EXPECT_EQ(http_raw(service.port(),
                           "POST /api/orders HTTP/1.1\r\nHost: x\r\n"
                           "Transfer-Encoding: " +
                               std::string(encoding) +
                               "\r\n\r\nPOST /api/orders HTTP/1.1\r\nHost: x\r\n"
                               "Content-Length: " +
                               std::to_string(order.size()) + "\r\n\r\n" + order)
                      .status,
                  400)
            << encoding;
    }
    EXPECT_EQ(service.pending(), 0);
}

TEST_P(OrderService, RefusesTwoIdempotencyKeysAndWhatAForeignPageMaySend) {
    const Service service(database_url());
    const auto post = [&](const std::string& headers) {
        return http(service.port(), "POST", "/api/orders", kGoodOrder, headers).status;
    };
    EXPECT_EQ(post("Idempotency-Key: a\r\nIdempotency-Key: b\r\n"), 400);
    for (const char* empty : {"", "  ", "\"\""}) {
        EXPECT_EQ(post("Idempotency-Key: " + std::string(empty) + "\r\n"), 400) << empty;
    }
    for (const char* type :
         {"text/plain", "text/plain; charset=application/json", "application/x-www-form-urlencoded",
          "multipart/form-data; boundary=x"})
        EXPECT_EQ(post("Content-Type: " + std::string(type) + "\r\n"), 415) << type;
    EXPECT_EQ(post("Origin: https://evil.example\r\n"), 415);
    EXPECT_EQ(service.pending(), 0);
    EXPECT_EQ(post("Content-Type: Application/JSON; charset=utf-8\r\n"), 201);
}

TEST_P(OrderService, AnswersWhatIsNotItsApi) {
    const Service service(database_url());
    EXPECT_EQ(service.get("/").status, 404);
    EXPECT_EQ(service.get("/api/orders/no-such").status, 404);
    EXPECT_EQ(service.get("/api/orders/00000000-0000-4000-8000-000000000000").status, 404);
    EXPECT_EQ(service.get("/api/orders").status, 405);
    EXPECT_EQ(service.get("/api/orders").headers.at("allow"), "POST");
    EXPECT_EQ(http(service.port(), "DELETE", "/health").status, 405);
    EXPECT_EQ(http_raw(service.port(), "NOT HTTP AT ALL\r\n\r\n").status, 400);
    EXPECT_EQ(http_raw(service.port(), "GET / HTTP/1.1\r\nX: " + std::string(100'000, 'x')).status,
              431);
}

TEST_P(OrderService, ShowsTheOldestFiftyPendingEvents) {
    const Service service(database_url());
    std::vector<std::string> ids;
    for (int i = 0; i < 55; ++i) ids.push_back(json::parse(service.post(kGoodOrder).body).at("id"));
    const json pending = json::parse(service.get("/api/outbox/pending").body);
    ASSERT_EQ(pending.size(), 50U);
    for (std::size_t i = 0; i < 50; ++i) EXPECT_EQ(pending[i].at("aggregate_id"), ids[i]);
    EXPECT_EQ(service.pending(), 55);
}

TEST_P(OrderService, NumbersTheOrdersOfAUserWithoutGapsUnderConcurrency) {
    const Service service(database_url(), {"--order-by", "user"});
    std::vector<std::thread> clients;
    std::atomic<int> created = 0;
    for (int client = 0; client < 8; ++client)
        clients.emplace_back([&] {
            for (int i = 0; i < 10; ++i) created += service.post(kGoodOrder).status == 201 ? 1 : 0;
        });
    for (std::thread& client : clients) client.join();
    ASSERT_EQ(created, 80);
    std::vector<int> numbers;
    for (const json& line : service.journal()) {
        EXPECT_EQ(line.at("key"), "u-1");
        if (line.at("state") == "committed") numbers.push_back(line.at("n"));
    }
    std::sort(numbers.begin(), numbers.end());
    ASSERT_EQ(numbers.size(), 80U);
    for (int i = 0; i < 80; ++i) EXPECT_EQ(numbers[static_cast<std::size_t>(i)], i + 1);
}

TEST_P(OrderService, ARepeatedOrderGetsTheSameAnswerAndIsOneOrderWithOneEvent) {
    const Service service(database_url());
    const HttpAnswer first = service.post(kGoodOrder, "\"key-1\"");
    ASSERT_EQ(first.status, 201) << first.body;
    for (int i = 0; i < 3; ++i) {
        const HttpAnswer repeat = service.post(kGoodOrder, "key-1");
        EXPECT_EQ(repeat.status, 201);
        EXPECT_EQ(repeat.body, first.body);
        EXPECT_EQ(repeat.headers.at("location"), first.headers.at("location"));
        EXPECT_EQ(repeat.headers.at("content-type"), "application/json");
    }
    EXPECT_EQ(service.pending(), 1);
    EXPECT_EQ(service.journal().size(), 2U);
    // Keys of other users are theirs, and an order without a key is never a repeat.
    std::string other = kGoodOrder;
    other.replace(other.find("u-1"), 3, "u-2");
    EXPECT_NE(service.post(other, "key-1").body, first.body);
    EXPECT_NE(service.post(kGoodOrder).body, first.body);
    EXPECT_EQ(service.pending(), 3);
}

TEST_P(OrderService, TakesTheKeyAsRequestIdInTheBodyToo) {
    const Service service(database_url());
    const std::string body =
        R"({"request_id":"key-1","user_id":"u","product_id":"p","quantity":1,"total_amount":1})";
    const HttpAnswer first = service.post(body);
    ASSERT_EQ(first.status, 201);
    EXPECT_EQ(service.post(body).body, first.body);
    EXPECT_EQ(service.post(body, "key-1").body, first.body);
    EXPECT_EQ(service.post(body, "key-2").status, 400);
    EXPECT_EQ(service.pending(), 1);
}

TEST_P(OrderService, RefusesAKeyThatIsMissingMalformedOrUsedForAnotherOrder) {
    const Service service(database_url(), {"--require-idempotency-key"});
    ASSERT_EQ(service.post(kGoodOrder, "key-1").status, 201);
    std::string other = kGoodOrder;
    other.replace(other.find("99.99"), 5, "10.00");
    const std::vector<std::pair<int, HttpAnswer>> answers{
        {422, service.post(other, "key-1")},
        {400, service.post(kGoodOrder)},
        {400, service.post(kGoodOrder, std::string(10'240, 'k'))}};
    for (const auto& [status, answer] : answers) {
        EXPECT_EQ(answer.status, status) << answer.body;
        EXPECT_EQ(answer.headers.at("content-type"), "application/problem+json");
        EXPECT_EQ(json::parse(answer.body).at("status"), status);
    }
    EXPECT_EQ(service.pending(), 1);
}

TEST_P(OrderService, AnOrderThatWasRefusedLeavesItsKeyFree) {
    const Service service(database_url());
    EXPECT_EQ(service.post(R"({"user_id":"u-1"})", "key-1").status, 400);
    EXPECT_EQ(service.post(kGoodOrder, "key-1").status, 201);
}

TEST_P(OrderService, AThousandRequestsAtOnceWithOneKeyAreOneOrder) {
    const Service service(database_url(), {"--idempotency-wait", "120000"});
    constexpr int kRequests = 1'000;
    std::vector<HttpAnswer> answers(kRequests);
    std::vector<std::thread> clients;
    for (int i = 0; i < kRequests; ++i)
        clients.emplace_back([&, i] { answers[i] = service.post(kGoodOrder, "key-1"); });
    for (std::thread& client : clients) client.join();
    for (const HttpAnswer& answer : answers) {
        ASSERT_EQ(answer.status, 201) << answer.body;
        ASSERT_EQ(answer.body, answers[0].body);
    }
    EXPECT_EQ(service.pending(), 1);
    EXPECT_EQ(service.journal().size(), 2U);
}

TEST_P(OrderService, StopsAtSigtermAndSigint) {
    const std::string url = database_url();
    for (const int signal_number : {SIGTERM, SIGINT}) {
        Service service(url);
        ASSERT_EQ(service.post(kGoodOrder).status, 201);
        boost::asio::io_context io;
        boost::asio::ip::tcp::socket idle(io);  // a client that says nothing does not hold it up
        idle.connect(
            {boost::asio::ip::address_v4::loopback(), static_cast<unsigned short>(service.port())});
        service.process().kill(signal_number);
        EXPECT_EQ(service.process().wait(60s), (ExitStatus{0, 0}));
    }
}

TEST(OrderServiceOnPostgres, FinishesTheRequestUnderWayWhenToldToStop) {
    const std::string url = shared_postgres().create_database();
    Service service(url);
    Pg blocker(url);
    blocker.exec("BEGIN; LOCK TABLE orders IN EXCLUSIVE MODE");
    auto answer = std::async(std::launch::async, [&] { return service.post(kGoodOrder); });
    Pg observer(url);
    ASSERT_TRUE(eventually(60s, "the request waits for the table", [&] {
        return observer.number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1;
    }));
    service.process().kill(SIGTERM);
    ASSERT_TRUE(eventually(60s, "nothing new is accepted", [&] {
        try {
            service.get("/health");
            return false;
        } catch (const std::runtime_error&) {
            return true;
        }
    }));
    EXPECT_TRUE(service.process().running());
    blocker.exec("COMMIT");
    EXPECT_EQ(answer.get().status, 201);
    EXPECT_EQ(service.process().wait(60s), (ExitStatus{0, 0}));
}

TEST(OrderServiceOnPostgres, WhileTheFirstIsUnderWayARepeatWaitsOrGets409) {
    const std::string url = shared_postgres().create_database();
    const Service waiting(url, {"--idempotency-wait", "120000"});
    const Service impatient(url, {"--idempotency-wait", "0"});
    Pg blocker(url);
    blocker.exec("BEGIN; LOCK TABLE orders IN EXCLUSIVE MODE");
    const auto post = [&] { return waiting.post(kGoodOrder, "key-1"); };
    auto first = std::async(std::launch::async, post);
    Pg observer(url);
    ASSERT_TRUE(eventually(60s, "the first waits for the table", [&] {
        return observer.number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 1;
    }));
    const HttpAnswer conflict = impatient.post(kGoodOrder, "key-1");
    EXPECT_EQ(conflict.status, 409) << conflict.body;
    EXPECT_EQ(conflict.headers.at("retry-after"), "1");
    // More than there are workers and connections: none is kept by a request that waits.
    std::vector<std::future<HttpAnswer>> repeats;
    for (int i = 0; i < 50; ++i) repeats.push_back(std::async(std::launch::async, post));
    EXPECT_EQ(waiting.get("/health").status, 200);
    // Each looks now and then whether the answer is there, and has no transaction between its
    // looks.
    EXPECT_TRUE(eventually(60s, "none waits in a transaction", [&] {
        return observer.number(
                   "SELECT count(*) FROM pg_stat_activity WHERE datname = "
                   "current_database() AND application_name = 'order-service' "
                   "AND state LIKE 'idle in transaction%'") == 0;
    }));
    blocker.exec("COMMIT");
    const std::string body = first.get().body;
    for (auto& repeat : repeats) EXPECT_EQ(repeat.get().body, body);
    EXPECT_EQ(observer.number("SELECT count(*) FROM orders"), 1);
    EXPECT_EQ(observer.number("SELECT count(*) FROM outbox_events"), 1);
}

TEST(OrderServiceOnPostgres, Answers503WhileTheDatabaseIsAwayAndRecovers) {
    PostgresServer postgres;
    const std::string url = postgres.create_database();
    Service service(url);
    ASSERT_EQ(service.post(kGoodOrder).status, 201);
    postgres.stop(PostgresServer::Stop::kImmediate);
    EXPECT_EQ(service.get("/health").status, 503);
    const HttpAnswer refused = service.post(kGoodOrder);
    EXPECT_EQ(refused.status, 503);
    EXPECT_TRUE(refused.headers.contains("retry-after"));
    postgres.start();
    EXPECT_TRUE(eventually(60s, "the service is healthy again",
                           [&] { return service.get("/health").status == 200; }));
    EXPECT_EQ(service.post(kGoodOrder).status, 201);
    EXPECT_EQ(service.pending(), 2);
}

TEST(OrderServiceOnPostgres, StartsWhileTheDatabaseIsAway) {
    PostgresServer postgres;
    const std::string url = postgres.create_database();
    postgres.stop();
    Service service(url);
    EXPECT_EQ(service.get("/health").status, 503);
    postgres.start();
    EXPECT_TRUE(eventually(60s, "the service is healthy",
                           [&] { return service.get("/health").status == 200; }));
    EXPECT_EQ(service.post(kGoodOrder).status, 201);
}

TEST(OrderServiceOnSqlite, Answers503WhenAnotherWriterKeepsTheDatabase) {
    const TemporaryFolder folder("orders-db");
    const std::string path = (folder / "orders.db").string();
    Service service("sqlite://" + path);
    sqlite3* other = nullptr;
    ASSERT_EQ(sqlite3_open(path.c_str(), &other), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
    EXPECT_EQ(service.post(kGoodOrder).status, 503);
    EXPECT_EQ(service.get("/health").status, 200);  // readers need no lock
    sqlite3_close(other);
    EXPECT_EQ(service.post(kGoodOrder).status, 201);
    EXPECT_EQ(service.pending(), 1);
}

Finished start(const std::map<std::string, std::string>& environment,
               const std::vector<std::string>& arguments = {}) {
    std::vector<std::string> command{ORDER_SERVICE};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run({.command = command, .environment = environment});
}

TEST(OrderServiceStart, SaysWhatIsWrong) {
    const TemporaryFolder folder("orders-start");
    const std::string good = "sqlite://" + (folder / "orders.db").string();
    const std::string no_database = shared_postgres().url("no_such_database");
    struct Case {
        std::map<std::string, std::string> environment;
        std::vector<std::string> arguments;
        std::string message;
    };
    const std::vector<Case> cases{
        {{{"DATABASE_URL", ""}}, {}, "DATABASE_URL must be"},
        {{{"DATABASE_URL", "oracle://x"}}, {}, "DATABASE_URL must be"},
        {{{"DATABASE_URL", no_database}, {"PORT", "0"}}, {}, "no_such_database"},
        {{{"DATABASE_URL", good}, {"PORT", "-1"}}, {}, "PORT must be"},
        {{{"DATABASE_URL", good}, {"PORT", "65536"}}, {}, "PORT must be"},
        {{{"DATABASE_URL", good}, {"PORT", "http"}}, {}, "PORT must be"},
        {{{"DATABASE_URL", good}, {"PORT", std::to_string(shared_postgres().port())}},
         {},
         "cannot listen"},
        {{{"DATABASE_URL", good}, {"PORT", "0"}}, {"--nonsense"}, "nonsense"},
        {{{"DATABASE_URL", good}, {"PORT", "0"}},
         {"--journal", (folder / "no" / "such" / "folder").string()},
         "journal"},
    };
    for (const Case& given : cases) {
        const Finished finished = start(given.environment, given.arguments);
        EXPECT_EQ(finished.status, (ExitStatus{2, 0})) << given.message;
        EXPECT_NE(finished.err.find(given.message), std::string::npos) << finished.err;
    }
}

TEST(OrderServiceStart, RefusesADatabaseInAFolderThatIsNotThere) {
    const TemporaryFolder folder("orders-start");
    const auto path = (folder / "missing" / "orders.db").string();
    const Finished finished = start({{"DATABASE_URL", "sqlite://" + path}, {"PORT", "0"}});
    EXPECT_EQ(finished.status.code, 2);
    EXPECT_NE(finished.err.find(path), std::string::npos) << finished.err;
}

}  // namespace
}  // namespace outbox::test
