#pragma once

#include <memory>

#include <outbox/result.h>

#include "mailbox/writer.h"

namespace outbox::mailbox {

/// Errors: kConfigInvalid for a URL without a path, or with a parameter.
Result<std::unique_ptr<Client>> open_sqlite_mailbox(const MailboxConfig& config);

}  // namespace outbox::mailbox
