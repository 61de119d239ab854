// The SQL that gives each kind of role what it needs, and no more.
#include <array>
#include <iostream>

#include "backend/backends.h"
#include "commands.h"
#include "runtime/exit_codes.h"

namespace outbox::app {
namespace {

struct RoleOption {
    std::string_view option;
    RoleKind kind;
    std::string_view fallback;
    std::string_view purpose;
};

constexpr std::array kRoles{
    RoleOption{"writer", RoleKind::kWriter, "outbox_writer", "writes events"},
    RoleOption{"relay", RoleKind::kRelay, "outbox_relay",
               "`outbox relay` and `doctor`; also the role in the URL of a route to a mailbox"},
    RoleOption{"consumer", RoleKind::kConsumer, "outbox_consumer",
               "a service with an inbox, Idempotency-Keys or sagas, which writes events, too"},
    RoleOption{"operator", RoleKind::kOperator, "outbox_operator",
               "every other command of `outbox` but `migrate`; reads every payload"},
};

RolesConfig config_of(const runtime::OptionValues& options) {
    bool named = false;
    for (const RoleOption& role : kRoles) named = named || options.given(role.option);
    RolesConfig config;
    for (const RoleOption& role : kRoles) {
        if (named && !options.given(role.option)) continue;
        config.roles.push_back({role.kind,
                                named ? options.text(role.option) : std::string(role.fallback),
                                role.purpose});
    }
    config.side = options.text("only");
    if (options.given("schema")) config.schema = options.text("schema");
    if (options.given("table")) config.adopted = options.text("table");
    return config;
}

}  // namespace

int run_roles(const runtime::Invocation& invocation) {
    const RolesConfig config = config_of(invocation.options);
    // Of each that has roles, as nothing names one.
    for (const Database* database : databases()) {
        if (database->roles_sql != nullptr) std::cout << database->roles_sql(config);
    }
    return runtime::kExitOk;
}

}  // namespace outbox::app
