#include "tests/cli/outbox_binary.h"

#include <fstream>

namespace outbox::test {

ProcessOptions OutboxBinary::options(Arguments arguments, Variables variables) const {
    ProcessOptions made;
    made.command = {OUTBOX_BINARY};
    made.command.insert(made.command.end(), arguments.begin(), arguments.end());
    made.environment = std::move(variables);
    made.working_folder = folder_.path();
    return made;
}

Finished OutboxBinary::run(Arguments arguments, Variables variables) {
    return test::run(options(std::move(arguments), std::move(variables)));
}

Process OutboxBinary::start_relay(Arguments arguments, Variables variables) {
    arguments.insert(arguments.begin(), "relay");
    return Process(options(std::move(arguments), std::move(variables)));
}

std::filesystem::path OutboxBinary::write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
}

}  // namespace outbox::test
