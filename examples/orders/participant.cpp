#include "participant.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <iostream>

namespace orders {

namespace {

constexpr int kExitUsage = 2;

EventLoop* running = nullptr;  // for the signal handler

extern "C" void stop_running(int) {
    running->stop();
}

/// SIGINT and SIGTERM stop the loop as long as this lives; later ones, while the process ends, are
/// ignored: a handler must not touch what is gone.
class StopsOnSignal {
  public:
    explicit StopsOnSignal(EventLoop& loop) {
        running = &loop;
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

}  // namespace

int run_participant(const Participant& participant, int argc, char** argv) {
    CLI::App app(participant.summary +
                 "\nEnvironment: DATABASE_URL (postgresql://... or sqlite:///path).");
    std::string journal_path;
    std::string received_folder;
    EventLoopOptions options;
    options.service = participant.name;
    options.topics = participant.topics;
    options.workers = participant.workers;
    options.add_to(app);
    app.add_option("--journal", journal_path,
                   "append what was committed to this file, for outbox verify")
        ->type_name("FILE");
    app.add_option("--received", received_folder,
                   "append what was received to files in this folder, for outbox verify")
        ->type_name("FOLDER");
    participant.add_options(app);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : kExitUsage;
    }
    try {
        const char* url = std::getenv("DATABASE_URL");
        options.database_url = url != nullptr ? url : "";
        Journal journal(journal_path);
        ServiceJournals journals(journal, received_folder);
        prepare_database(options.database_url, participant.tables);
        participant.start();
        EventLoop loop(options, participant.handle, journals);
        const StopsOnSignal stops(loop);
        loop.run();
        return 0;
    } catch (const std::exception& error) {
        std::cerr << participant.name << ": " << error.what() << std::endl;
        return kExitUsage;
    }
}

}  // namespace orders
