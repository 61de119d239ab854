#include "backend/broker.h"

#include <string>
#include <vector>

#include "backend/backends.h"
#include "brokers/mailbox/sink.h"

namespace outbox {
namespace {

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

// Of every database that holds mailboxes.
struct Urls {
    std::vector<std::string> schemes;
    std::vector<std::string_view> views;
    std::string help;
    Urls() {
        for (const Database* database : databases()) {
            if (database->open_mailbox == nullptr) continue;
            help.append(help.empty() ? "" : ", ").append(kPrefix).append(database->urls);
            for (const std::string_view scheme : database->schemes) {
                schemes.push_back(std::string(kPrefix).append(scheme));
            }
        }
        views.assign(schemes.begin(), schemes.end());
    }
};

}  // namespace

const Broker& mailbox_broker() {
    static const Urls urls;
    static const Broker broker{
        .name = "mailbox",
        .schemes = urls.views,
        .urls = urls.help,
        .capabilities = &mailbox::kCapabilities,
        .drops_repeats = "while the message is in the mailbox; with the inbox for ever",
        .make = make,
        .look = look,
        .weakness = weakness,
    };
    return broker;
}

}  // namespace outbox
