// examples/orders_orchestrated as it is run: three services with a database each, three relays.

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "tests/consumer/database.h"
#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const std::vector<std::string> kServices{"orders", "inventory", "payment"};

class OrdersOrchestrated : public testing::TestWithParam<Backend> {
  protected:
    void SetUp() override {
        for (const std::string& service : kServices) {
            databases_[service] = make_database(GetParam());
            const Finished made =
                outbox_.run({"migrate", "--db", databases_[service]->url(), "--payload", "json"});
            ASSERT_EQ(made.status.code, 0) << made.err;
        }
        for (const std::string& service : kServices) start_service(service);
        for (const std::string& service : kServices) start_relay(service);
        auto stock = databases_["inventory"]->connect();
        ASSERT_TRUE(eventually(120s, "the services have their tables", [&] {
            try {
                for (const char* where : {"orders", "payment"}) {
                    databases_[where]->connect()->query("SELECT 1 FROM " + std::string(where) +
                                                        (*where == 'p' ? "s" : ""));
                }
                stock->exec("INSERT INTO stock (product_id, available) VALUES ('p', 1000)");
                return true;
            } catch (const std::exception&) {
                return false;
            }
        }));
    }

    ProcessOptions program(std::vector<std::string> words, const std::string& service) const {
        words.insert(words.begin(), ORDERS_ORCHESTRATED);
        return {.command = std::move(words),
                .environment = {{"DATABASE_URL", databases_.at(service)->url()},
                                {"STEP_TIMEOUT_MS", step_timeout_ms_}}};
    }
    void start_service(const std::string& service) {
        services_.erase(service);
        services_.emplace(service, Process(program({service}, service)));
    }
    // The relay of orders brings commands to the others and timers to its own mailbox.
    void start_relay(const std::string& service) {
        relays_.erase(service);
        std::string routes;
        const auto add = [&](const std::string& to) {
            routes += "[[route]]\nname = \"" + to + "\"\nto = \"" +
                      databases_.at(to)->mailbox_url() + "\"\ntopic = [\"" + to + "\"]\n";
        };
        if (service == "orders") {
            for (const std::string& to : kServices) add(to);
        } else {
            add("orders");
        }
        const auto file = outbox_.write(service + ".toml", routes);
        relays_.emplace(service,
                        outbox_.start_relay({"--from", databases_.at(service)->url(), "--config",
                                             file.string(), "--admin", "off"}));
    }
    Finished place(const std::string& order, int quantity, int cents) {
        return run(program({"place", order, "p", std::to_string(quantity), std::to_string(cents)},
                           "orders"));
    }
    testing::AssertionResult all_have_an_outcome(std::chrono::seconds deadline = 240s) {
        auto orders = databases_["orders"]->connect();
        return eventually(deadline, "every order is confirmed or cancelled", [&] {
            return orders->number("SELECT count(*) FROM orders WHERE status = 'CREATED'") == 0 &&
                   orders->number("SELECT count(*) FROM outbox_saga WHERE finished_at IS NULL") ==
                       0;
        });
    }
    long long number(const std::string& service, const std::string& sql) {
        return databases_[service]->connect()->number(sql);
    }
    std::string status(const std::string& order) {
        return databases_["orders"]->connect()->value("SELECT status FROM orders WHERE id = '" +
                                                      order + "'");
    }

    OutboxBinary outbox_;
    std::string step_timeout_ms_ = "300000";
    std::map<std::string, std::unique_ptr<Database>> databases_;
    std::map<std::string, Process> services_;
    std::map<std::string, Process> relays_;
};

INSTANTIATE_TEST_SUITE_P(Databases, OrdersOrchestrated,
                         testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& test) { return backend_name(test.param); });

TEST_P(OrdersOrchestrated, ConfirmsAnOrderAndReleasesTheStockOfOneThatIsNotPaid) {
    ASSERT_EQ(place("good", 2, 9'999).status.code, 0);
    ASSERT_EQ(place("dear", 3, 100'001).status.code, 0);
    ASSERT_EQ(place("large", 1'001, 100).status.code, 0);
    ASSERT_TRUE(all_have_an_outcome());
    EXPECT_EQ(status("good"), "CONFIRMED");
    EXPECT_EQ(status("dear"), "CANCELLED");
    EXPECT_EQ(status("large"), "CANCELLED");
    EXPECT_EQ(number("inventory", "SELECT available FROM stock"), 998);
    EXPECT_EQ(number("payment", "SELECT count(*) FROM payments WHERE status = 'PAID'"), 1);
    EXPECT_EQ(databases_["orders"]->connect()->value(
                  "SELECT cause FROM outbox_saga WHERE saga_id = 'dear'"),
              "step 'pay' was refused: PaymentRefused");
    EXPECT_NE(place("good", 2, 9'999).status.code, 0);
    const Finished negative = place("bad", 1, -1);
    EXPECT_EQ(negative.status.code, 2);
    EXPECT_THAT(negative.err, HasSubstr("CENTS must be a whole number of at least 0"));
}

TEST(SagaGuide, ThePageShowsTheCodeOfTheExample) {
    const std::string page = read_file(SAGA_GUIDE);
    int regions = 0;
    for (const char* file : {"order_saga.cpp", "services.h"}) {
        const std::string source = read_file(std::filesystem::path(ORCHESTRATED_SOURCE) / file);
        for (std::size_t at = source.find("\n// ["); at != std::string::npos;
             at = source.find("\n// [", at + 1)) {
            const auto start = source.find('\n', at + 1) + 1;
            if (source.compare(at, start - at, "\n// [end]\n") == 0) continue;
            const auto end = source.find("// [end]", start);
            EXPECT_THAT(page, HasSubstr("```cpp\n" + source.substr(start, end - start) + "```"));
            ++regions;
        }
    }
    EXPECT_EQ(regions, 4);
}

// Steps time out while their services are away, so answers come late as well.
class OrdersOrchestratedChaos : public OrdersOrchestrated {
  protected:
    OrdersOrchestratedChaos() { step_timeout_ms_ = "400"; }
};

INSTANTIATE_TEST_SUITE_P(Databases, OrdersOrchestratedChaos,
                         testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& test) { return backend_name(test.param); });

TEST_P(OrdersOrchestratedChaos, TheBooksBalanceHoweverOftenServicesAndRelaysAreKilled) {
    constexpr int kOrders = 24;
    for (int i = 0; i < kOrders; ++i) {
        ASSERT_EQ(place("o-" + std::to_string(i), 1, i % 4 == 0 ? 100'001 : 500).status.code, 0);
        const std::string& victim = kServices[static_cast<std::size_t>(i) % kServices.size()];
        if (i % 2 == 0) {
            services_.at(victim).kill(SIGKILL);
            start_service(victim);
        } else {
            relays_.at(victim).kill(SIGKILL);
            start_relay(victim);
        }
    }
    // A compensation that found nobody for long enough waits for an operator.
    auto orders = databases_["orders"]->connect();
    ASSERT_TRUE(eventually(240s, "every saga has ended", [&] {
        if (orders->number("SELECT count(*) FROM outbox_saga WHERE state = 'stuck' AND requested "
                           "IS NULL") > 0) {
            outbox_.run(
                {"saga", "resume", "--state", "stuck", "--db", databases_["orders"]->url()});
        }
        return orders->number("SELECT count(*) FROM outbox_saga WHERE finished_at IS NULL") == 0;
    }));
    ASSERT_TRUE(all_have_an_outcome());
    // Late answers may reopen a compensation for a moment: the books are read when nothing moves.
    ASSERT_TRUE(eventually(240s, "stock and payments agree with the orders", [&] {
        const long long confirmed =
            number("orders", "SELECT count(*) FROM orders WHERE status = 'CONFIRMED'");
        return number("inventory", "SELECT available FROM stock") == 1'000 - confirmed &&
               number("payment", "SELECT count(*) FROM payments WHERE status = 'PAID'") ==
                   confirmed &&
               number("orders", "SELECT count(*) FROM outbox_saga WHERE state = 'completed'") ==
                   confirmed;
    }));
    for (const std::string& service : kServices) {
        EXPECT_EQ(number(service, "SELECT count(*) FROM outbox_inbox_dead_letters"), 0) << service;
        EXPECT_EQ(number(service, "SELECT count(*) FROM outbox_dead_letters"), 0) << service;
    }
    EXPECT_EQ(number("orders", "SELECT count(*) FROM orders WHERE status = 'CREATED'"), 0);
}

}  // namespace
}  // namespace outbox::test
