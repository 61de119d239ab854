#include "backend/broker.h"

#include <array>

#include "backend/backends.h"
#include "brokers/mailbox/sink.h"

namespace outbox {
namespace {

constexpr std::array<std::string_view, 2> kSchemes{"mailbox+postgresql", "mailbox+sqlite"};
constexpr std::string_view kPrefix = "mailbox+";

int seconds_of(const Destination& destination) {
    return static_cast<int>(destination.connect_timeout.count());
}

Result<std::unique_ptr<spi::Sink>> make(const Destination& destination) {
    return mailbox::make_mailbox_sink(destination.url, seconds_of(destination));
}

Status look(const Destination& destination) {
    return mailbox::look_at_mailbox(destination.url, seconds_of(destination));
}

std::string weakness(const Destination& destination) {
    const std::string url = destination.url.substr(kPrefix.size());
    const auto database = find_database(url);
    return database.ok() && (*database)->weakness != nullptr ? (*database)->weakness(url) : "";
}

}  // namespace

const Broker& mailbox_broker() {
    static const Broker broker{
        .name = "mailbox",
        .schemes = kSchemes,
        .urls = "mailbox+postgresql://..., mailbox+sqlite:///path",
        .make = make,
        .look = look,
        .weakness = weakness,
    };
    return broker;
}

}  // namespace outbox
