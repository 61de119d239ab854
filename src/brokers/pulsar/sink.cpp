#include "brokers/pulsar/sink.h"

#include <memory>
#include <utility>

#include "brokers/pulsar/connection.h"
#include "brokers/pulsar/link.h"
#include "brokers/pulsar/topic.h"

namespace outbox::pulsar {

PulsarSink::PulsarSink(const PulsarConfig& config)
    : ConfirmedSink(
          {config.max_records, config.max_bytes, config.stuck_after}, "topic ",
          [config](std::size_t host) -> Result<std::unique_ptr<net::ConfirmedLink>> {
              auto connection = Connection::open_any(config, host);
              if (!connection.ok()) return connection.error();
              return std::unique_ptr<net::ConfirmedLink>(new Link(config, std::move(*connection)));
          }),
      config_(config) {}

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
