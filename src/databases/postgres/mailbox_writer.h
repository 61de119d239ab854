#pragma once

#include <memory>

#include <outbox/result.h>

#include "mailbox/writer.h"

namespace outbox::mailbox {

/// Errors: kConfigInvalid when libpq cannot read the URL; the message shows no part of a secret.
Result<std::unique_ptr<Client>> open_postgres_mailbox(const MailboxConfig& config);

}  // namespace outbox::mailbox
