// orders-orchestrated SERVICE | place ORDER PRODUCT QUANTITY CENTS
// Environment: DATABASE_URL (postgresql://... or sqlite:///path); STEP_TIMEOUT_MS (5000).

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/sqlite_consumer.h>
#include <outbox/producer/migrate.h>

#include "services.h"

namespace orchestrated {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

outbox::MailboxConsumer* running = nullptr;  // for the signal handler

extern "C" void stop_running(int) {
    running->stop();
}

/// SIGINT and SIGTERM stop the consumer as long as this lives; later ones, while the process ends,
/// are ignored: a handler must not touch what is gone.
class StopsOnSignal {
  public:
    explicit StopsOnSignal(outbox::MailboxConsumer& consumer) {
        running = &consumer;
        set(stop_running);
    }
    ~StopsOnSignal() { set(SIG_IGN); }
    StopsOnSignal(const StopsOnSignal&) = delete;
    StopsOnSignal& operator=(const StopsOnSignal&) = delete;

  private:
    static void set(void (*handler)(int)) {
        std::signal(SIGINT, handler);
        std::signal(SIGTERM, handler);
    }
};

std::int64_t number(const std::string& name, const std::string& text, std::int64_t least) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least) {
        throw std::invalid_argument(name + " must be a whole number of at least " +
                                    std::to_string(least) + ", not '" + text + "'");
    }
    return value;
}

void report(const outbox::ConsumerReport& report) {
    if (report.error.message.empty()) return;
    std::cerr << describe(report.error) << std::endl;
}

/// Applies what comes to the mailbox until SIGINT or SIGTERM.
template <typename Apply>
void serve(const std::string& url, const std::string& service, const char* tables, Apply apply) {
    outbox::migrate(url);
    with_connection(url, [&](auto* connection) { execute(connection, tables); });
    outbox::MailboxOptions options;
    options.consumer = service;
    options.on_report = report;
    outbox::MailboxConsumer consumer =
        is_sqlite(url) ? outbox::sqlite_mailbox_consumer(url, outbox::SqliteHandler(apply), options)
                       : outbox::libpq_mailbox_consumer(url, outbox::LibpqHandler(apply), options);
    const StopsOnSignal stops(consumer);
    consumer.run();
}

int run(const std::vector<std::string>& words) {
    const char* database = std::getenv("DATABASE_URL");
    const char* timeout = std::getenv("STEP_TIMEOUT_MS");
    const std::string url = database == nullptr ? "" : database;
    const std::string command = words.empty() ? "" : words[0];
    const outbox::Sagas sagas =
        order_sagas(number("STEP_TIMEOUT_MS", timeout == nullptr ? "5000" : timeout, 1));
    if (url.empty()) throw std::invalid_argument("DATABASE_URL is not set");
    if (command == "place" && words.size() == 5) {
        const Order order{words[1], words[2], number("QUANTITY", words[3], 1),
                          number("CENTS", words[4], 0)};
        with_connection(url, [&](auto* connection) { place(connection, sagas, order); });
    } else if (command == "orders") {
        serve(url, command, kOrderTables, [&](auto* transaction, const outbox::Message& message) {
            lead(transaction, sagas, message);
        });
    } else if (command == "inventory") {
        serve(url, command, kInventoryTables,
              [](auto* transaction, const outbox::Message& message) {
                  take_part(transaction, message);
              });
    } else if (command == "payment") {
        serve(url, command, kPaymentTables,
              [](auto* transaction, const outbox::Message& message) { pay(transaction, message); });
    } else {
        throw std::invalid_argument(
            "usage: orders-orchestrated orders | inventory | payment | "
            "place ORDER PRODUCT QUANTITY CENTS");
    }
    return 0;
}

}  // namespace
}  // namespace orchestrated

int main(int count, char** words) {
    try {
        return orchestrated::run({words + 1, words + count});
    } catch (const std::invalid_argument& error) {
        std::cerr << "orders-orchestrated: " << error.what() << std::endl;
        return orchestrated::kExitUsage;
    } catch (const std::exception& error) {
        std::cerr << "orders-orchestrated: " << error.what() << std::endl;
        return orchestrated::kExitFailed;
    }
}
