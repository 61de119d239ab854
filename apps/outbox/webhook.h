#pragma once

#include <memory>
#include <string>

#include "runtime/config.h"
#include "webhook/registry.h"
#include "webhook/sealed_secrets.h"

namespace outbox::app {

/// The table of endpoints in the database that --db names.
Result<std::unique_ptr<webhook::Registry>> open_webhooks(const runtime::Invocation& invocation);

/// What --NAME says, or where it is not given the key of that name in a [route.webhook] of the
/// configuration file.
std::string webhook_setting(const runtime::Invocation& invocation, std::string_view option,
                            std::string_view file_key);
bool webhooks_in_clear(const runtime::Invocation& invocation);

Result<webhook::KeyRing> read_webhook_keys(const runtime::Invocation& invocation);

/// The endpoint whose id is the one argument. Errors: kConfigInvalid where there is another number
/// of arguments, kRecordRefused where there is no such endpoint.
Result<webhook::EndpointReport> named_endpoint(const runtime::Invocation& invocation,
                                               webhook::Registry& registry);

}  // namespace outbox::app
