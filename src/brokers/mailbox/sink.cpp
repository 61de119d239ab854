#include "brokers/mailbox/sink.h"

#include <string>
#include <utility>

#include "backend/backends.h"
#include "mailbox/config.h"
#include "mailbox/table_sink.h"
#include "mailbox/writer.h"

namespace outbox::mailbox {
namespace {

Result<std::unique_ptr<Client>> make_client(std::string_view url, int connect_timeout_s,
                                            const MailboxOptions& options) {
    const Result<MailboxConfig> config = parse_mailbox_url(url, connect_timeout_s, options);
    if (!config.ok()) return config.error();
    const auto database = find_database(config->target);
    if (!database.ok()) return database.error();
    if ((*database)->open_mailbox != nullptr) return (*database)->open_mailbox(*config);
    return ErrorInfo{ErrorCode::kUnsupported, Advice::kStop, "",
                     std::string((*database)->name) + " holds no mailboxes"};
}

}  // namespace

Result<std::unique_ptr<spi::Sink>> make_mailbox_sink(std::string_view url, int connect_timeout_s,
                                                     const MailboxOptions& options) {
    Result<std::unique_ptr<Client>> client = make_client(url, connect_timeout_s, options);
    if (!client.ok()) return client.error();
    return std::unique_ptr<spi::Sink>(
        std::make_unique<TableSink>(*std::move(client), kCapabilities));
}

Status look_at_mailbox(std::string_view url, int connect_timeout_s, const MailboxOptions& options) {
    const Result<std::unique_ptr<Client>> client = make_client(url, connect_timeout_s, options);
    return client.ok() ? (*client)->look() : client.status();
}

}  // namespace outbox::mailbox
