#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "commands.h"
#include "core/redact.h"
#include "core/url.h"
#include "core/utf8.h"
#include "registry.h"
#include "runtime/command_line.h"
#include "runtime/exit_codes.h"
#include "runtime/signals.h"

namespace outbox::app {
namespace {

int run(const runtime::Invocation& invocation,
        const std::function<Result<runtime::Invocation>()>& again) {
    switch (invocation.command) {
        case runtime::kRelay:
            return run_relay(invocation, again);
        case runtime::kMigrate:
            return run_migrate(invocation);
        case runtime::kRoles:
            return run_roles(invocation);
        case runtime::kStatus:
            return run_status(invocation);
        case runtime::kTop:
            return run_top(invocation);
        case runtime::kDoctor:
            return run_doctor(invocation);
        case runtime::kExplain:
            return run_explain(invocation);
        case runtime::kWait:
            return run_wait(invocation);
        case runtime::kDashboard:
            return run_dashboard(invocation);
        case runtime::kReplay:
            return run_replay(invocation);
        case runtime::kReplayList:
            return run_replay_list(invocation);
        case runtime::kReplayResume:
            return run_replay_resume(invocation);
        case runtime::kReplayCancel:
            return run_replay_cancel(invocation);
        case runtime::kDeadList:
            return run_dead_list(invocation);
        case runtime::kDeadShow:
            return run_dead_show(invocation);
        case runtime::kDeadRetry:
            return run_dead_retry(invocation);
        case runtime::kDeadDiscard:
            return run_dead_discard(invocation);
        case runtime::kDeadEdit:
            return run_dead_edit(invocation);
        case runtime::kDeadExport:
            return run_dead_export(invocation);
        case runtime::kScheduledList:
            return run_scheduled_list(invocation);
        case runtime::kScheduledCancel:
            return run_scheduled_cancel(invocation);
        case runtime::kRoutesList:
            return run_routes_list(invocation);
        case runtime::kRoutesAccept:
            return run_routes_accept(invocation);
        case runtime::kRoutesRename:
            return run_routes_rename(invocation);
        case runtime::kRoutesRetire:
            return run_routes_retire(invocation);
        case runtime::kRoutesContinue:
            return run_routes_continue(invocation);
        case runtime::kRoutesBegin:
            return run_routes_begin(invocation);
        case runtime::kTenantList:
            return run_tenant_list(invocation);
        case runtime::kTenantPause:
            return run_tenant_pause(invocation);
        case runtime::kTenantDrain:
            return run_tenant_drain(invocation);
        case runtime::kTenantResume:
            return run_tenant_resume(invocation);
        case runtime::kPrune:
            return run_prune(invocation);
        case runtime::kVerify:
            return run_verify(invocation);
        case runtime::kSagaList:
            return run_saga_list(invocation);
        case runtime::kSagaShow:
            return run_saga_show(invocation);
        case runtime::kSagaResume:
            return run_saga_resume(invocation);
        case runtime::kSagaAbort:
            return run_saga_abort(invocation);
        case runtime::kWebhookAdd:
            return run_webhook_add(invocation);
        case runtime::kWebhookList:
            return run_webhook_list(invocation);
        case runtime::kWebhookTest:
            return run_webhook_test(invocation);
        case runtime::kWebhookRotate:
            return run_webhook_rotate(invocation);
        case runtime::kWebhookDisable:
            return run_webhook_disable(invocation);
        case runtime::kWebhookEnable:
            return run_webhook_enable(invocation);
        case runtime::kWebhookDelete:
            return run_webhook_delete(invocation);
        case runtime::kSinks:
            return run_sinks(invocation);
        case runtime::kImportDebezium:
            return run_import_debezium(invocation);
        case runtime::kVersion:
            return run_version(invocation);
    }
    return runtime::kExitUsage;
}

// The relay warns of each of its ways; the others only do as they are told.
Status check_transport(const runtime::Invocation& invocation) {
    const bool has_database = (runtime::find_option("db")->commands & invocation.command) != 0;
    if (!has_database || !invocation.options.flag("require-tls")) return {};
    const std::string weakness = weakness_of_database(invocation.options.text("db"));
    if (weakness.empty()) return {};
    return {ErrorCode::kConfigInvalid, Advice::kStop, "the database " + weakness};
}

int start(const std::vector<std::string>& arguments) {
    tell_secret_options();
    for (const std::string& argument : arguments) remember_secrets_of(argument);
    const auto line = runtime::parse_command_line(arguments);
    if (!line.ok()) return report(line.error());
    if (!line->help.empty()) {
        std::cout << line->help;
        return runtime::kExitOk;
    }
    // What asks for the file anew may come while it is read first.
    if (line->command == runtime::kRelay) runtime::block_stop_signals();
    const auto read = [&] { return runtime::resolve(*line, runtime::read_environment()); };
    const auto invocation = read();
    if (!invocation.ok()) return report(invocation.error());
    for (const std::string& warning : invocation->warnings) {
        std::cerr << "outbox: warning: " << to_printable(redact(warning)) << "\n";
    }
    if (const Status way = check_transport(*invocation); !way.ok()) return report(way.error());
    return run(*invocation, read);
}

}  // namespace

std::string command_of(const runtime::Invocation& invocation) {
    return "outbox " + std::string(runtime::command_spec(invocation.command).name);
}

int report(const ErrorInfo& error) {
    std::cerr << "outbox: " << to_printable(redact(describe(error)), true) << "\n";
    return runtime::exit_code_of(error.code);
}

bool lacks_rights(const ErrorInfo& error) {
    constexpr std::string_view kInsufficientPrivilege = "42501";
    return error.code == ErrorCode::kNoRights && error.backend_code == kInsufficientPrivilege;
}

}  // namespace outbox::app

int main(int count, char** words) {
    try {
        const int code = outbox::app::start({words + 1, words + count});
        std::cout.flush();
        if (code == 0 && !std::cout) {
            std::cerr << "outbox: standard output could not be written\n";
            return outbox::runtime::kExitFailed;
        }
        return code;
    } catch (const outbox::Error& error) {
        return outbox::app::report(error.info());
    } catch (const std::exception& error) {
        std::cerr << "outbox: " << outbox::to_printable(outbox::redact(error.what()), true) << "\n";
        return outbox::runtime::kExitFailed;
    }
}
