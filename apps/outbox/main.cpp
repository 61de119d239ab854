#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "commands.h"
#include "core/redact.h"
#include "registry.h"
#include "runtime/command_line.h"
#include "runtime/exit_codes.h"

namespace outbox::app {
namespace {

int run(const runtime::Invocation& invocation) {
    switch (invocation.command) {
        case runtime::kRelay:
            return run_relay(invocation);
        case runtime::kMigrate:
            return run_migrate(invocation);
        case runtime::kRoles:
            return run_roles(invocation);
        case runtime::kStatus:
            return run_status(invocation);
        case runtime::kDeadList:
            return run_dead_list(invocation);
        case runtime::kDeadShow:
            return run_dead_show(invocation);
        case runtime::kDeadRetry:
            return run_dead_retry(invocation);
        case runtime::kDeadDiscard:
            return run_dead_discard(invocation);
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
        case runtime::kVersion:
            std::cout << "outbox " OUTBOX_VERSION "\n";
            return runtime::kExitOk;
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
    const auto invocation = runtime::resolve(*line, runtime::read_environment());
    if (!invocation.ok()) return report(invocation.error());
    for (const std::string& warning : invocation->warnings) {
        std::cerr << "outbox: warning: " << redact(warning) << "\n";
    }
    if (const Status way = check_transport(*invocation); !way.ok()) return report(way.error());
    return run(*invocation);
}

}  // namespace

int report(const ErrorInfo& error) {
    std::cerr << "outbox: " << redact(describe(error)) << "\n";
    return runtime::exit_code_of(error.code);
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
        std::cerr << "outbox: " << outbox::redact(error.what()) << "\n";
        return outbox::runtime::kExitFailed;
    }
}
