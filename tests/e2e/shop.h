#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/http_client.h"
#include "tests/support/process.h"

namespace outbox::test {

struct ShopOptions {
    // host:port: PostgreSQL and this Kafka, else SQLite and mailboxes. The Kafka must be the shop's
    // alone: its topics are named by the services.
    std::string kafka = {};
    std::vector<std::string> inventory = {};  // more arguments
    std::vector<std::string> payment = {};
    std::string order_by = "order";
};

// The four services of examples/orders, each with its database, and a relay for each that speaks.
// All are processes that may be killed and started again by name: order-service,
// inventory-service, payment-service, notification-service, order-relay, inventory-relay,
// payment-relay. One thread.
class Shop {
  public:
    explicit Shop(ShopOptions options = {});
    ~Shop();
    Shop(const Shop&) = delete;
    Shop& operator=(const Shop&) = delete;

    static const std::vector<std::string>& names();

    void start(const std::string& name);
    void kill(const std::string& name);
    void stop(const std::string& name);

    int port() const { return port_; }
    HttpAnswer post(const std::string& body, const std::string& headers = {}) const;
    // Of an order of two for 20.00, which is in stock and can be paid, unless told otherwise.
    std::string order(const std::string& user = "u-1", int quantity = 2,
                      const std::string& amount = "20.00", const std::string& more = {}) const;
    HttpAnswer cancel(const std::string& order) const;
    HttpAnswer show(const std::string& order) const;

    // The first column of the one row in the database of "order", "inventory", "payment" or
    // "notification"; "" where there is none. SQL that both databases understand.
    std::string value(const std::string& side, const std::string& sql) const;
    long long number(const std::string& side, const std::string& sql) const {
        return std::stoll(value(side, sql));
    }
    void exec(const std::string& side, const std::string& sql) const { value(side, sql); }

    // No event waits for a relay, every order has its outcome, and both its mails went out.
    bool settled() const;
    // `outbox verify` over what "order", "inventory" or "payment" said and all who listen.
    Finished verify(const std::string& side) const;
    // All three are complete and without fault.
    bool verified() const;
    Finished audit() const;

    // What the processes wrote to stderr, for a test that failed.
    std::string logs() const;

  private:
    std::string url(const std::string& side) const { return urls_.at(side); }
    bool said_nothing(const std::string& side) const;
    ProcessOptions service(const std::string& name) const;
    ProcessOptions relay(const std::string& side) const;
    void write_relay_config(const std::string& side, const std::vector<std::string>& listeners);
    bool kafka() const { return !options_.kafka.empty(); }

    ShopOptions options_;
    TemporaryFolder folder_{"shop"};
    std::map<std::string, std::string> urls_;
    int port_ = 0;
    std::map<std::string, Process> processes_;
};

}  // namespace outbox::test
