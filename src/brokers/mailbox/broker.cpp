#include "backend/broker.h"

#include <string>

#include "backend/backends.h"
#include "brokers/mailbox/sink.h"
#include "mailbox/config.h"

namespace outbox {
namespace {

constexpr std::string_view kPrefix = "mailbox+";

int seconds_of(const Destination& destination) {
    return static_cast<int>(destination.connect_timeout.count());
}

Result<std::unique_ptr<spi::Sink>> make(const Destination& destination) {
    return mailbox::make_mailbox_sink(destination.url, seconds_of(destination),
                                      destination.options);
}

Status look(const Destination& destination) {
    return mailbox::look_at_mailbox(destination.url, seconds_of(destination), destination.options);
}

std::string weakness(const Destination& destination) {
    return weakness_of_database(destination.url.substr(kPrefix.size()));
}

TlsUse tls(const Destination& destination) {
    return tls_of_database(destination.url.substr(kPrefix.size()));
}

}  // namespace

const Broker& mailbox_broker() {
    static const UrlsOverDatabases urls(
        kPrefix, [](const Database& database) { return database.open_mailbox != nullptr; });
    static const Broker broker{
        .name = "mailbox",
        .schemes = urls.schemes(),
        .urls = urls.help(),
        .capabilities = &mailbox::kCapabilities,
        .drops_repeats = {.kind = RepeatsDropped::Kind::kWhileKept,
                          .note = "with the inbox for ever"},
        .options = mailbox::kOptions,
        .example_option = "mailbox = \"orders\"",
        .make = make,
        .look = look,
        .weakness = weakness,
        .tls = tls,
    };
    return broker;
}

}  // namespace outbox
