#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <outbox/limits.h>
#include <outbox/result.h>
#include <outbox/spi/sink.h>

namespace outbox::mailbox {

inline const spi::SinkCapabilities kCapabilities{"mailbox", spi::Guarantee::kExactlyOnceKept,
                                                 /*fail_stop_order=*/true};

/// Of the table [route.mailbox].
using MailboxOptions = std::map<std::string, std::string>;

/// A sink that delivers into the table `outbox_mailbox` of a PostgreSQL or SQLite database, which
/// is created if it is missing and may be. `url` as in config.h; `connect_timeout_s` > 0 also
/// bounds the wait for another writer of an SQLite file.
///
/// Exactly once for as long as the message is in the mailbox, and with the inbox always. Errors:
/// kConfigInvalid/stop for the URL; the database is not contacted yet.
Result<std::unique_ptr<spi::Sink>> make_mailbox_sink(std::string_view url,
                                                     int connect_timeout_s = kConnectTimeoutS,
                                                     const MailboxOptions& options = {});

/// `check` of such a sink without making the table: connects and changes nothing. A database file
/// that is not there is an error, as its path may be a wrong one.
Status look_at_mailbox(std::string_view url, int connect_timeout_s = kConnectTimeoutS,
                       const MailboxOptions& options = {});

}  // namespace outbox::mailbox
