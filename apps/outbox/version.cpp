#include <iostream>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "print.h"
#include "runtime/exit_codes.h"

namespace outbox::app {

int run_version(const runtime::Invocation& invocation) {
    if (invocation.options.flag("json")) {
        print_json({{"version", OUTBOX_VERSION}});
    } else {
        std::cout << "outbox " OUTBOX_VERSION "\n";
    }
    return runtime::kExitOk;
}

}  // namespace outbox::app
