#include "mailbox_service.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include <outbox/adapters/sqlite_consumer.h>
#include <outbox/producer/migrate.h>

#include "journal.h"

namespace orders {

namespace {

constexpr int kExitUsage = 2;

outbox::MailboxConsumer* running = nullptr;  // for the signal handler

extern "C" void stop_running(int) {
    running->stop();
}

/// Throws what makes the message a dead letter: it will not read better next time.
OrderCreated parse_order(const outbox::Message& message) {
    try {
        const auto payload = nlohmann::json::parse(message.payload);
        return {payload.at("order_id"), payload.at("user_id"), payload.at("product_id"),
                payload.at("quantity")};
    } catch (const nlohmann::json::exception& error) {
        throw outbox::Error(outbox::ErrorCode::kHandlerFailed, outbox::Advice::kDeadLetter,
                            "not an OrderCreated: " + std::string(error.what()));
    }
}

JournalEntry journal_entry(const outbox::Message& message) {
    const std::string n = message.header("n").value_or("0");
    JournalEntry entry{std::string(message.id), std::string(message.key), 0};
    std::from_chars(n.data(), n.data() + n.size(), entry.n);
    return entry;
}

/// Before the commit: the line must be on its way, else the message has to wait.
void write_intent(Journal& journal, const outbox::Message& message) {
    try {
        journal.intent(journal_entry(message));
    } catch (const std::exception& error) {
        throw outbox::Error(outbox::ErrorCode::kDiskFull, outbox::Advice::kRetryDestination,
                            error.what());
    }
}

/// After the commit: nothing can be taken back any more.
void write_outcome(Journal& journal, const outbox::Message& message, bool applied) {
    try {
        journal.received(journal_entry(message), applied);
    } catch (const std::exception& error) {
        std::cerr << error.what() << std::endl;
    }
}

void report(const std::string& service, Journal& journal, const outbox::ConsumerReport& report) {
    using What = outbox::ConsumerReport::What;
    switch (report.what) {
        case What::kApplied:
            return write_outcome(journal, *report.message, true);
        case What::kRepeat:
            return write_outcome(journal, *report.message, false);
        case What::kRetry:
        case What::kDeadLetter:
            std::cerr << service << ": message " << report.message->id << ": "
                      << describe(report.error) << std::endl;
            return;
        case What::kDisconnected:
        case What::kPruneFailed:
            std::cerr << service << ": " << describe(report.error) << std::endl;
            return;
        case What::kConnected:
        case What::kStandby:
        case What::kActive:
            return;
    }
}

void serve(const MailboxService& service, const std::string& url, Journal& journal) {
    constexpr std::string_view kScheme = "sqlite://";
    if (!url.starts_with(kScheme))
        throw std::runtime_error("DATABASE_URL must be sqlite:///path/to/file");
    outbox::MigrateOptions consumer_only;
    consumer_only.side = outbox::MigrationSide::kConsumer;
    outbox::migrate(url, consumer_only);
    Sqlite(url.substr(kScheme.size())).exec(service.tables);

    outbox::MailboxOptions options;
    options.consumer = service.name;
    options.on_report = [&](const outbox::ConsumerReport& what) {
        report(service.name, journal, what);
    };
    auto consumer = outbox::sqlite_mailbox_consumer(
        url,
        [&](sqlite3* transaction, const outbox::Message& message) {
            service.apply(transaction, message, parse_order(message));
            write_intent(journal, message);
        },
        options);
    running = &consumer;
    std::signal(SIGINT, stop_running);
    std::signal(SIGTERM, stop_running);
    consumer.run();
}

}  // namespace

int run_mailbox_service(const MailboxService& service, int argc, char** argv) {
    CLI::App app(service.summary + "\nEnvironment: DATABASE_URL (sqlite:///path).");
    std::string journal_path;
    app.add_option("--journal", journal_path,
                   "append what was received to this file, for outbox verify")
        ->type_name("FILE");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : kExitUsage;
    }
    try {
        const char* url = std::getenv("DATABASE_URL");
        Journal journal(journal_path);
        serve(service, url != nullptr ? url : "", journal);
        return 0;
    } catch (const std::exception& error) {
        std::cerr << service.name << ": " << error.what() << std::endl;
        return kExitUsage;
    }
}

}  // namespace orders
