#pragma once

#include <map>
#include <string>
#include <vector>

#include <outbox/result.h>

#include "runtime/option_table.h"

namespace outbox::runtime {

/// What stands on the command line, not yet checked against types.
struct CommandLine {
    Command command = kVersion;
    std::map<std::string, std::vector<std::string>> options;  ///< By option name.
    std::vector<std::string> positionals;
    std::string help;  ///< Not empty: print this and exit 0.
};

/// `arguments` are those after the program's name. Errors: kConfigInvalid for an unknown command
/// or option, with the closest one there is.
Result<CommandLine> parse_command_line(const std::vector<std::string>& arguments);

/// --help of the binary and of one command.
[[nodiscard]] std::string help_text();
[[nodiscard]] std::string help_text(const CommandSpec& command);

}  // namespace outbox::runtime
