#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "order_event.h"
#include "service_journals.h"
#include "transaction.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}

namespace orders {

/// Where a service's events come from, and where its effects go.
struct EventLoopOptions {
    std::string service;              ///< Name of its inbox and of its consumer group.
    std::string database_url;         ///< postgresql://... or sqlite:///path.
    std::string events = "mailbox:";  ///< Or kafka://host:port,host:port.
    std::string instance;             ///< Kafka: keeps its partitions over a restart.
    std::vector<std::string> topics;  ///< Kafka: what it reads; a mailbox is filled by routes.
    std::size_t workers = 2;          ///< Kafka: transactions at the same time.

    /// Adds the options that all services have.
    void add_to(CLI::App& app);
};

/// Applies events, each exactly once in effect: inbox, what the handler changes and what it emits
/// are one transaction of the service's database; many events share one.
class EventLoop {
  public:
    /// Called on several threads at once. An exception rolls back; see docs/receiving.md.
    using Handler = std::function<void(Transaction& transaction, const OrderEvent& event)>;

    /// The journals must outlive the loop. Throws `outbox::Error` for options that cannot be used.
    EventLoop(const EventLoopOptions& options, Handler handler, ServiceJournals& journals);
    ~EventLoop();
    EventLoop(const EventLoop&) = delete;
    EventLoop& operator=(const EventLoop&) = delete;

    /// Blocks until `stop`. Throws when the database cannot be used at the start; lost later it is
    /// tried for ever.
    void run();
    /// Safe in a signal handler.
    void stop() noexcept;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace orders
