#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <outbox/error.h>
#include <outbox/result.h>

#include "runtime/config.h"

namespace outbox::app {

/// Each runs one command and gives its exit code (runtime/exit_codes.h). Results go to stdout,
/// everything else to stderr.
/// `again` reads arguments, environment and file anew.
int run_relay(const runtime::Invocation& invocation,
              const std::function<Result<runtime::Invocation>()>& again);
int run_migrate(const runtime::Invocation& invocation);
int run_roles(const runtime::Invocation& invocation);
int run_doctor(const runtime::Invocation& invocation);
int run_status(const runtime::Invocation& invocation);
int run_top(const runtime::Invocation& invocation);
int run_explain(const runtime::Invocation& invocation);
int run_wait(const runtime::Invocation& invocation);
int run_dashboard(const runtime::Invocation& invocation);
int run_replay(const runtime::Invocation& invocation);
int run_replay_list(const runtime::Invocation& invocation);
int run_replay_resume(const runtime::Invocation& invocation);
int run_replay_cancel(const runtime::Invocation& invocation);
int run_dead_list(const runtime::Invocation& invocation);
int run_dead_show(const runtime::Invocation& invocation);
int run_dead_retry(const runtime::Invocation& invocation);
int run_dead_discard(const runtime::Invocation& invocation);
int run_dead_edit(const runtime::Invocation& invocation);
int run_dead_export(const runtime::Invocation& invocation);
int run_scheduled_list(const runtime::Invocation& invocation);
int run_scheduled_cancel(const runtime::Invocation& invocation);
int run_routes_list(const runtime::Invocation& invocation);
int run_routes_accept(const runtime::Invocation& invocation);
int run_routes_rename(const runtime::Invocation& invocation);
int run_routes_retire(const runtime::Invocation& invocation);
int run_routes_continue(const runtime::Invocation& invocation);
int run_routes_begin(const runtime::Invocation& invocation);
int run_tenant_list(const runtime::Invocation& invocation);
int run_tenant_pause(const runtime::Invocation& invocation);
int run_tenant_drain(const runtime::Invocation& invocation);
int run_tenant_resume(const runtime::Invocation& invocation);
int run_prune(const runtime::Invocation& invocation);
int run_saga_list(const runtime::Invocation& invocation);
int run_saga_show(const runtime::Invocation& invocation);
int run_saga_resume(const runtime::Invocation& invocation);
int run_saga_abort(const runtime::Invocation& invocation);
int run_webhook_add(const runtime::Invocation& invocation);
int run_webhook_list(const runtime::Invocation& invocation);
int run_webhook_test(const runtime::Invocation& invocation);
int run_webhook_rotate(const runtime::Invocation& invocation);
int run_webhook_disable(const runtime::Invocation& invocation);
int run_webhook_enable(const runtime::Invocation& invocation);
int run_webhook_delete(const runtime::Invocation& invocation);
int run_sinks(const runtime::Invocation& invocation);
int run_import_debezium(const runtime::Invocation& invocation);
int run_version(const runtime::Invocation& invocation);
int run_verify(const runtime::Invocation& invocation);

/// "outbox dead list", as its errors name it.
[[nodiscard]] std::string command_of(const runtime::Invocation& invocation);

/// Prints the error to stderr, without secrets, and gives its exit code.
int report(const ErrorInfo& error);

/// The role has no right to something, which others may have: what it may do can be done without.
[[nodiscard]] bool lacks_rights(const ErrorInfo& error);

}  // namespace outbox::app
