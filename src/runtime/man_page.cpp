#include "runtime/man_page.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "backend/backends.h"
#include "runtime/exit_codes.h"
#include "runtime/option_table.h"
#include "runtime/options.h"

namespace outbox::runtime {
namespace {

// As roff prints it: a hyphen that is one, no escape, no request at the start of a line.
std::string roff(std::string_view text) {
    std::string out;
    if (text.starts_with('.') || text.starts_with('\'')) out += "\\&";
    for (const char c : text) {
        if (c == '\\') {
            out += "\\e";
        } else if (c == '-') {
            out += "\\-";
        } else {
            out += c;
        }
    }
    return out;
}

std::string bold(std::string_view text) {
    return "\\fB" + roff(text) + "\\fR";
}

void append_commands(std::string& out) {
    out += ".SH COMMANDS\n";
    for (const CommandSpec& command : command_table()) {
        out += ".TP\n" + bold("outbox " + std::string(command.name));
        if (!command.positional.empty()) out += " \\fI" + roff(command.positional) + "\\fR";
        out += "\n" + roff(command.details) + "\n";
    }
}

std::string facts_of(const OptionSpec& option) {
    std::string out;
    if (option.type == OptionType::kChoice) {
        out += " One of " + roff(option.choices) + ".";
    } else if (option.type == OptionType::kInteger) {
        out += " " + std::to_string(option.min) + " to " + std::to_string(option.max) +
               (option.unit.empty() ? "" : " " + std::string(option.unit)) + ".";
    }
    if (!option.fallback.empty()) out += " Default: " + roff(option.fallback) + ".";
    if (!option.argument_only) out += " Environment: " + bold(environment_name(option.name)) + ".";
    if (!option.file_key.empty()) out += " In the file: " + bold(option.file_key) + ".";
    return out;
}

void append_options(std::string& out) {
    out +=
        ".SH OPTIONS\nAn argument wins over the environment, the environment over the file, the "
        "file over the default. \\fBoutbox\\fR \\fIcommand\\fR \\fB\\-\\-help\\fR lists those "
        "that a command takes.\n";
    std::string_view group;
    for (const OptionSpec& option : option_table()) {
        if (option.group != group) {
            group = option.group;
            out += ".SS " + roff(group) + "\n";
        }
        out += ".TP\n" + bold("--" + std::string(option.name));
        if (!option.value.empty()) out += " \\fI" + roff(option.value) + "\\fR";
        out += "\n" + roff(help_of(option)) + "." + facts_of(option) + "\n";
    }
}

// From the brokers that this program has.
void append_destinations(std::string& out) {
    out += ".SH DESTINATIONS\n";
    for (const Broker* broker : brokers()) {
        out += ".TP\n" + bold(broker->name) + "\n" + roff(broker->urls) + ".";
        std::string names(broker->other_options);
        for (const BackendOption& option : broker->options) {
            names += (names.empty() ? "" : ", ") + std::string(option.name);
        }
        out += names.empty() ? "\n" : " Options: " + roff(names) + ".\n";
    }
    out +=
        ".PP\nOptions stand in the URL or in the table of the route that bears the "
        "destination's name; \\fBoutbox sinks\\fR says what each means.\n";
}

void append_exit_status(std::string& out) {
    out += ".SH EXIT STATUS\n";
    for (const ExitCodeSpec& spec : exit_code_table()) {
        out += ".TP\n" + bold(std::to_string(spec.code)) + "\n" + roff(spec.meaning) + "\n";
    }
}

void append_all_examples(std::string& out) {
    out += ".SH EXAMPLES\n.nf\n";
    for (const CommandSpec& command : command_table()) {
        std::string_view examples = command.examples;
        while (!examples.empty()) {
            const std::size_t end = std::min(examples.find('\n'), examples.size());
            out += roff(examples.substr(0, end)) + "\n";
            examples.remove_prefix(std::min(end + 1, examples.size()));
        }
    }
    out += ".fi\n";
}

}  // namespace

std::string man_page() {
    std::string out =
        ".\\\" Made from the declarations in src/runtime by `write_reference`; edit those.\n"
        ".TH OUTBOX 1 \"\" Outbox \"User Commands\"\n"
        ".SH NAME\noutbox \\- carries every committed event from a database to its brokers\n"
        ".SH SYNOPSIS\n.B outbox\n.I command\n.RI [ options ]\n"
        ".SH DESCRIPTION\nA service writes its events into a table, in the transaction that makes "
        "them true. \\fBoutbox relay\\fR sends each of them to its destinations: none is lost, and "
        "those of one key arrive in order. The other commands show what it does and let operators "
        "act.\n";
    append_destinations(out);
    append_commands(out);
    append_options(out);
    append_exit_status(out);
    out +=
        ".SH FILES\n.TP\n.I outbox.toml\nOptions, where \\fB\\-\\-config\\fR names no other "
        "file.\n";
    append_all_examples(out);
    return out;
}

}  // namespace outbox::runtime
