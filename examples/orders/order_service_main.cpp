#include <CLI/CLI.hpp>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>

#include "answers.h"
#include "order_service.h"

namespace orders {

namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

std::string environment(const char* name, const char* fallback) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : fallback;
}

std::uint16_t parse_port(const std::string& text) {
    std::uint16_t port = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (error != std::errc() || end != text.data() + text.size())
        throw std::runtime_error(
            "PORT must be a number from 0 to 65535 (0 picks a free one), not \"" + text + "\"");
    return port;
}

/// A server that is away may come back: requests are answered 503 until then. Anything else needs
/// a person.
void try_to_prepare(OrderService& service, bool has_server) {
    try {
        service.prepare();
    } catch (const outbox::Error& error) {
        const auto code = error.code();
        const bool away = error.advice() == outbox::Advice::kRetryDestination ||
                          code == outbox::ErrorCode::kConnectFailed ||
                          code == outbox::ErrorCode::kConnectionLost;
        if (!has_server || !away) throw;
        std::cerr << "order-service: answering 503 until the database is there: " << error.what()
                  << std::endl;
    }
}

struct Options {
    std::string journal;
    std::string received_folder;
    OrderBy order_by = OrderBy::kOrder;
    outbox::IdempotencyOptions idempotency;
    EventLoopOptions answers;
};

int serve(Options& options) {
    const std::string url = environment("DATABASE_URL", "");
    const std::uint16_t port = parse_port(environment("PORT", "8080"));
    const OrderBy order_by = options.order_by;
    Journal journal(options.journal);
    ServiceJournals journals(journal, options.received_folder);
    const auto store = open_store(url, journal, order_by);
    OrderService service(*store, options.idempotency);
    try_to_prepare(service, is_postgres(url));

    std::optional<EventLoop> loop;
    if (!options.answers.events.empty()) {
        options.answers.service = "order-service";
        options.answers.database_url = url;
        options.answers.topics = {"inventory-events", "payment-events"};
        // Two transactions that count for the same users in another order would deadlock.
        if (order_by == OrderBy::kUser) options.answers.workers = 1;
        loop.emplace(
            options.answers,
            [order_by](Transaction& transaction, const OrderEvent& event) {
                apply_answer(transaction, order_by, event);
            },
            journals);
    }

    HttpServer server(environment("HOST", "127.0.0.1"), port, HttpLimits(),
                      [&](const HttpRequest& request) { return service.handle(request); });
    std::cout << "listening on http://" << environment("HOST", "127.0.0.1") << ":" << server.port()
              << std::endl;
    std::optional<Answers> answers;
    if (loop) answers.emplace(service, *loop);
    const bool in_time = server.run();
    const bool failed = answers && answers->failed();
    answers.reset();
    if (in_time) return failed ? kExitFailed : 0;
    std::cerr << "order-service: requests were cut off after the grace time" << std::endl;
    std::_Exit(kExitFailed);  // a handler that hangs would keep an orderly end waiting
}

int main_checked(int argc, char** argv) {
    CLI::App app(
        "Takes orders over HTTP and writes each with its event in one transaction.\n"
        "Environment: DATABASE_URL (postgresql://... or sqlite:///path), PORT (8080; 0 picks a "
        "free one),\nHOST (127.0.0.1).");
    Options options;
    options.answers.events.clear();
    options.answers.add_to(app);
    app.add_option("--journal", options.journal,
                   "append what was committed to this file, for outbox verify")
        ->type_name("FILE");
    app.add_option("--received", options.received_folder,
                   "append what was received to files in this folder, for outbox verify")
        ->type_name("FOLDER");
    app.add_option("--order-by", options.order_by,
                   "keep events in order by order (default) or user")
        ->transform(CLI::CheckedTransformer(
            std::map<std::string, OrderBy>{{"order", OrderBy::kOrder}, {"user", OrderBy::kUser}}))
        ->type_name("order|user");
    app.add_flag("--require-idempotency-key", options.idempotency.required,
                 "answer 400 to an order without the header Idempotency-Key (or request_id)");
    app.add_option("--idempotency-wait", options.idempotency.wait_ms,
                   "how long an order waits while another with its key is under way, in "
                   "milliseconds (10000); 0: 409 at once")
        ->type_name("MS")
        ->check(CLI::Range(0, 600'000));
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : kExitUsage;
    }
    return serve(options);
}

}  // namespace

}  // namespace orders

int main(int argc, char** argv) {
    std::signal(SIGPIPE, SIG_IGN);
    try {
        return orders::main_checked(argc, argv);
    } catch (const std::exception& error) {
        std::cerr << "order-service: " << error.what() << std::endl;
        return orders::kExitUsage;
    }
}
