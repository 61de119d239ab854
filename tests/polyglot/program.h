#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/outbox_binary.h"
#include "tests/support/process.h"

namespace outbox::test {

// A program of examples/polyglot, whose README.md is the contract that these tests hold it to.
class Program {
  public:
    // Builds it, once in this process. Throws std::runtime_error when that fails.
    explicit Program(const std::string& language);

    const std::string& language() const { return language_; }

    // What runs `emit`; `lines` of "ORDER CUSTOMER CENTS".
    ProcessOptions emit(const std::string& database, const std::string& lines) const;

    // Bills what comes on the topic into `database`.
    ProcessOptions consume(const std::string& database, const std::string& topic,
                           const std::string& group) const;

    // Bills what comes into the mailbox of `database`.
    ProcessOptions receive(const std::string& database) const;

    ProcessOptions serve(const std::string& database) const;

  private:
    ProcessOptions command(const std::string& name,
                           std::map<std::string, std::string> environment) const;
    std::string language_;
    std::string executable_;
};

// The order service's database and the relay that carries its events to a topic of its own.
class Shop {
  public:
    Shop();

    const std::string& url() const { return url_; }
    const std::string& topic() const { return topic_; }

    // A new database for a billing consumer.
    std::string new_billing();

    // Ids of the committed events of an order.
    std::vector<std::string> events_of(const std::string& order);

  private:
    void migrate(const std::string& url, const std::vector<std::string>& more,
                 const std::string& own_tables);

    OutboxBinary outbox_;
    std::string url_;
    std::string topic_;
    std::optional<Process> relay_;
};

// What a consumer said of the orders whose names begin with `prefix`.
struct Told {
    std::map<std::string, std::vector<int>> applied;  // versions, per order
    std::map<std::string, std::vector<int>> repeats;
};
Told told(const Process& consumer, const std::string& prefix);

// `count` lines for each of the orders PREFIX1 to PREFIX<orders>, in turn; customer alice, and
// 1 cent, 2 cents, ...
std::string order_lines(const std::string& prefix, int orders, int count);

// A name as SQL has it.
std::string literal(const std::string& name);

// Whether SIGTERM ended it in order; a JVM reports the signal as 143.
bool ends_in_order(Process& process);

}  // namespace outbox::test
