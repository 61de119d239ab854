// The order saga over four services while each of them, their relays and the broker are killed at
// random under load. At the end the books have to balance.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/shop.h"
#include "tests/support/eventually.h"
#include "tests/support/full_run.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr auto kDeadline = 120s;
constexpr long long kOrdersInAnOutage = 150;
constexpr auto kDuration = 120s;

// Customers, who send an order again under the same Idempotency-Key until it is answered.
class Customers {
  public:
    Customers(int port, int count) : port_(port) {
        for (int i = 0; i < count; ++i) threads_.emplace_back([this, i] { buy(i); });
    }
    ~Customers() { leave(); }

    // Lets the orders under way come to their answers.
    void leave() {
        leaving_ = true;
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
    }
    long long orders() const { return orders_; }
    // None are placed beyond this many.
    void wait_at(long long orders) { limit_ = orders; }
    long long sent_again() const { return sent_again_; }
    long long unexpected() const { return unexpected_; }

  private:
    void buy(int customer) {
        std::mt19937 random(static_cast<unsigned>(customer) + 1);
        for (int n = 0; !leaving_; ++n) {
            while (orders_ >= limit_ && !leaving_) std::this_thread::sleep_for(5ms);
            const std::string key = std::to_string(customer) + "-" + std::to_string(n);
            const std::string body = R"({"user_id":"u-)" + std::to_string(random() % 9) +
                                     R"(","product_id":"p-)" + std::to_string(random() % 3) +
                                     R"(","quantity":)" + std::to_string(1 + random() % 3) +
                                     R"(,"total_amount":)" + std::to_string(1 + random() % 200) +
                                     ".50}";
            const HttpAnswer answer = ask("/api/orders", body, "Idempotency-Key: " + key + "\r\n");
            if (answer.status != 201) ++unexpected_;
            ++orders_;
            if (random() % 10 == 0) {
                const HttpAnswer cancelled = ask(answer.headers.at("location") + "/cancel", {}, {});
                if (cancelled.status != 200 && cancelled.status != 409) ++unexpected_;
            }
            // So that there is time for the whole course of an order under a sanitizer.
            std::this_thread::sleep_for(std::chrono::milliseconds(random() % 100));
        }
    }

    // None: the service was killed; whether the order was taken is not known.
    std::optional<HttpAnswer> ask_once(const std::string& target, const std::string& body,
                                       const std::string& headers) const {
        try {
            return http(port_, "POST", target, body, headers);
        } catch (const std::runtime_error&) {
            return std::nullopt;
        }
    }

    HttpAnswer ask(const std::string& target, const std::string& body, const std::string& headers) {
        while (true) {
            const auto answer = ask_once(target, body, headers);
            if (answer && answer->status != 503) return *answer;
            ++sent_again_;
            std::this_thread::sleep_for(20ms);
        }
    }

    const int port_;
    std::atomic<bool> leaving_{false};
    std::atomic<long long> orders_{0};
    std::atomic<long long> limit_{std::numeric_limits<long long>::max()};
    std::atomic<long long> sent_again_{0};
    std::atomic<long long> unexpected_{0};
    std::vector<std::thread> threads_;
};

class SagaChaos : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Wires, SagaChaos,
                         testing::ValuesIn(and_in_full<std::string>({"mailbox"}, {"kafka"})),
                         [](const auto& test) { return test.param; });

TEST_P(SagaChaos, BooksBalanceThoughEverythingIsKilledAtRandom) {
    std::unique_ptr<KafkaServer> kafka;
    if (GetParam() == "kafka") kafka = std::make_unique<KafkaServer>();
    // Little stock and credit, so that orders are rejected and payments refused.
    Shop shop({.kafka = kafka ? kafka->bootstrap() : "",
               .inventory = {"--stock", "400"},
               .payment = {"--credit", "8000.00"}});
    Customers customers(shop.port(), 4);
    std::mt19937 random(static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed() + 7));
    const auto end = steady_clock::now() + kDuration;
    std::vector<std::string> victims;
    int kills = 0;
    while (steady_clock::now() < end || !victims.empty()) {
        if (victims.empty()) {
            victims = Shop::names();
            if (kafka) victims.push_back("broker");
            std::shuffle(victims.begin(), victims.end(), random);
        }
        const std::string victim = victims.back();
        victims.pop_back();
        const long long target = customers.orders() + 3 + static_cast<long long>(random() % 25);
        ASSERT_TRUE(eventually(kDeadline, "orders are taken", [&] {
            return customers.orders() >= target;
        })) << shop.logs();
        if (victim == "broker") {
            customers.wait_at(customers.orders() + kOrdersInAnOutage);
            kafka->kill();
            kafka->start();
            customers.wait_at(std::numeric_limits<long long>::max());
        } else {
            shop.kill(victim);
            shop.start(victim);
        }
        ++kills;
    }
    customers.leave();
    const auto closed = steady_clock::now();
    ASSERT_TRUE(eventually(kDeadline, "every order has its outcome and its mails", [&] {
        return shop.settled();
    })) << shop.logs();
    ASSERT_TRUE(eventually(kDeadline, "every event is accounted for", [&] {
        return shop.verified();
    })) << shop.logs();
    const Finished audit = shop.audit();
    EXPECT_EQ(audit.status.code, 0) << audit.out << audit.err;
    EXPECT_EQ(shop.number("order", "SELECT count(*) FROM orders"), customers.orders());
    EXPECT_EQ(customers.unexpected(), 0);
    EXPECT_GT(shop.number("order", "SELECT count(*) FROM orders WHERE status = 'CONFIRMED'"), 0);
    EXPECT_GT(
        shop.number("inventory", "SELECT count(*) FROM reservations WHERE state = 'RELEASED'"), 0);
    std::cout << kills << " kills, " << customers.sent_again() << " requests sent again, settled "
              << std::chrono::duration<double>(steady_clock::now() - closed).count()
              << " s after the last order\n"
              << audit.out;
    for (const std::string& name : Shop::names()) shop.stop(name);
}

}  // namespace
}  // namespace outbox::test
