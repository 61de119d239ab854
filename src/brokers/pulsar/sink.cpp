#include "brokers/pulsar/sink.h"

#include <memory>
#include <utility>

#include "brokers/pulsar/connection.h"
#include "brokers/pulsar/link.h"
#include "brokers/pulsar/topic.h"

namespace outbox::pulsar {

PulsarSink::PulsarSink(const PulsarConfig& config)
    : PulsarSink(config, std::make_shared<Searches>()) {}

PulsarSink::PulsarSink(const PulsarConfig& config, const std::shared_ptr<Searches>& searches)
    : ConfirmedSink(
          {config.max_records, config.max_bytes, config.stuck_after}, "topic ",
          [config, searches](std::size_t host) -> Result<std::unique_ptr<net::ConfirmedLink>> {
              auto connection = Connection::open_any(config, host);
              if (!connection.ok()) return connection.error();
              return std::unique_ptr<net::ConfirmedLink>(
                  new Link(config, std::move(*connection), *searches));
          }),
      config_(config),
      searches_(searches) {}

void PulsarSink::report(spi::SinkReport& out) {
    ConfirmedSink::report(out);
    searches_->news.report(out);
}

const spi::SinkCapabilities& PulsarSink::capabilities() const {
    return kCapabilities;
}

// Whether its namespace is there, too, as far as we may see that.
Status PulsarSink::check() {
    const auto connection = Connection::open_any(config_, 0);
    if (!connection.ok()) return connection.error();
    const auto fault =
        (*connection)->look_up(full_name("outbox-check", config_.home()), config_.connect_timeout);
    if (!fault || fault->name == "AuthorizationError") return {};
    return to_error(*fault, (*connection)->name() + ", " + config_.home());
}

// Another host at the end of the URL leads to the same cluster.
Result<std::string> PulsarSink::destination() {
    return name_of_host(config_.hosts.front()) + ", " + config_.home();
}

}  // namespace outbox::pulsar
