// A member of a queue's consumers, as a process that a test can kill.
// usage: queue_member QUEUE_URL DATABASE_URL NAME PAUSE_US [OPTION=NUMBER...]
// hang_after=N: its handler hangs in the message after so many, and says so, until SIGUSR1 or
// SIGTERM. SIGUSR2: in the next one.

#include "tests/conformance/queue_member.h"

#include <atomic>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unistd.h>

#include <outbox/adapters/libpq_queue.h>
#include <outbox/adapters/sqlite_queue.h>

#include "tests/support/pg.h"
#include "tests/support/sqlite.h"

namespace {

outbox::QueueConsumer* running = nullptr;
std::atomic<int> may_begin = INT_MAX;
std::atomic<bool> stops = false;

void hang_where_it_is_told() {
    if (may_begin.load() == INT_MAX || may_begin.fetch_sub(1) > 0) return;
    std::cerr << "it hangs" << std::endl;
    constexpr useconds_t kLook = 1'000;
    while (may_begin <= 0 && !stops) ::usleep(kLook);
}

outbox::QueueConsumer consumer(const std::string& url, const outbox::Queue& queue,
                               const std::string& member, useconds_t pause_us,
                               const outbox::QueueConsumerOptions& options) {
    const auto insert = [member](const outbox::Message& message) {
        hang_where_it_is_told();
        if (message.payload == "abort") std::abort();
        return "INSERT INTO effects (id, key, payload, member) VALUES ('" +
               std::string(message.id) + "', '" + std::string(message.key) + "', '" +
               std::string(message.payload) + "', '" + member + "')";
    };
    if (url.starts_with("sqlite:")) {
        return outbox::sqlite_queue_consumer(
            url, queue,
            [=](sqlite3* transaction, const outbox::Message& message) {
                outbox::test::Sqlite::query(transaction, insert(message));
                if (pause_us > 0) ::usleep(pause_us);
            },
            options);
    }
    return outbox::libpq_queue_consumer(
        url, queue,
        [=](PGconn* transaction, const outbox::Message& message) {
            outbox::test::Pg::query(transaction, insert(message));
            if (pause_us > 0) ::usleep(pause_us);
        },
        options);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 5) return 2;
    std::signal(SIGUSR1, [](int) { may_begin = INT_MAX; });
    std::signal(SIGUSR2, [](int) { may_begin = 0; });
    outbox::QueueConsumerOptions options;
    options.consumer = "stock";
    options.transaction_size = 20;
    for (int i = 5; i < argc; ++i) {
        const std::string_view option = argv[i];
        const auto equals = option.find('=');
        const auto value = std::strtoul(argv[i] + equals + 1, nullptr, 10);
        if (option.starts_with("max_deliveries=")) {
            options.max_deliveries = static_cast<std::uint32_t>(value);
        } else if (option.starts_with("max_in_flight=")) {
            options.max_in_flight = value;
        } else if (option.starts_with("hang_after=")) {
            may_begin = static_cast<int>(value);
        } else {
            return 2;
        }
    }
    options.on_report = [](const outbox::ConsumerReport& report) {
        if (report.error.message.empty()) return;
        std::cerr << outbox::describe(report.error) << std::endl;
    };
    try {
        auto made = consumer(argv[2], outbox::test::queue_of(argv[1]), argv[3],
                             static_cast<useconds_t>(std::atoi(argv[4])), options);
        running = &made;
        std::signal(SIGTERM, [](int) {
            stops = true;
            running->stop();
        });
        made.run();
        std::signal(SIGTERM, SIG_IGN);  // the next one would find it gone
    } catch (const std::exception& error) {
        std::cerr << error.what() << std::endl;
        return 1;
    }
    return 0;
}
