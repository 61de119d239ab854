#include <algorithm>
#include <string>
#include <vector>

#include "backend/backends.h"
#include "runtime/command_line.h"
#include "runtime/options.h"

namespace outbox::runtime {
namespace {

constexpr std::size_t kWidth = 100;
constexpr std::size_t kTextColumn = 30;

void append_wrapped(std::string& out, std::string_view text, std::size_t indent,
                    std::size_t column) {
    std::size_t pos = 0;
    while (pos < text.size()) {
        const std::size_t end = std::min(text.find(' ', pos), text.size());
        const std::string_view word = text.substr(pos, end - pos);
        if (column > indent && column + 1 + word.size() > kWidth) {
            out.append("\n").append(indent, ' ');
            column = indent;
        } else if (column > indent) {
            out += ' ';
            ++column;
        }
        out.append(word);
        column += word.size();
        pos = end + 1;
    }
    out += '\n';
}

std::string option_help(const OptionSpec& spec) {
    std::string text = help_of(spec);
    std::vector<std::string> facts;
    if (spec.type == OptionType::kChoice) {
        std::string choices(spec.choices);
        for (std::size_t at = choices.find('|'); at != std::string::npos;
             at = choices.find('|', at)) {
            choices.replace(at, 1, ", ");
        }
        facts.push_back(choices);
    }
    if (!spec.unit.empty()) facts.emplace_back(spec.unit);
    if (!spec.fallback.empty()) facts.push_back("default " + std::string(spec.fallback));
    if (!facts.empty()) {
        text += " (";
        for (std::size_t i = 0; i < facts.size(); ++i) text += (i == 0 ? "" : "; ") + facts[i];
        text += ')';
    }
    return text;
}

void append_option(std::string& out, const OptionSpec& spec) {
    std::string left = "  --" + std::string(spec.name);
    if (!spec.value.empty()) left += " " + std::string(spec.value);
    if (left.size() + 2 > kTextColumn) {
        out += left + "\n" + std::string(kTextColumn, ' ');
    } else {
        out += left + std::string(kTextColumn - left.size(), ' ');
    }
    append_wrapped(out, option_help(spec), kTextColumn, kTextColumn);
}

void append_options(std::string& out, const CommandSpec& command) {
    std::vector<std::string_view> groups;
    for (const OptionSpec& spec : option_table()) {
        if ((spec.commands & command.command) == 0) continue;
        if (std::find(groups.begin(), groups.end(), spec.group) == groups.end()) {
            groups.push_back(spec.group);
        }
    }
    for (const std::string_view group : groups) {
        out += "\n" + std::string(group) + ":\n";
        for (const OptionSpec& spec : option_table()) {
            if (spec.group == group && (spec.commands & command.command) != 0) {
                append_option(out, spec);
            }
        }
    }
}

// Of the destinations that the command may be given.
void append_broker_options(std::string& out, const CommandSpec& command) {
    if (find_option("to", command.command) == nullptr) return;
    out +=
        "\nOptions of destinations, in the URL (?NAME=VALUE) or under [route.DESTINATION] in the "
        "file\n(`outbox sinks` says what they mean):\n";
    for (const Broker* broker : brokers()) {
        if (!broker->has_options()) continue;
        std::string names(broker->other_options);
        for (const BackendOption& option : broker->options) {
            names += (names.empty() ? "" : ", ") + std::string(option.name);
        }
        std::string left = "  " + std::string(broker->name);
        out += left + std::string(kTextColumn - left.size(), ' ');
        append_wrapped(out, names, kTextColumn, kTextColumn);
    }
}

}  // namespace

std::string help_text() {
    std::string out =
        "outbox carries every committed event from a database to its destinations.\n\nCommands:\n";
    for (const CommandSpec& spec : command_table()) {
        out += "  " + std::string(spec.name);
        out.append(std::max<std::size_t>(2, 18 - spec.name.size()), ' ');
        out += std::string(spec.summary) + "\n";
    }
    out +=
        "\nStart here:\n"
        "  outbox migrate --db postgresql://app@localhost/shop\n"
        "  outbox relay --from postgresql://app@localhost/shop --to kafka://localhost:9092\n"
        "\n`outbox COMMAND --help` describes a command's options. Each may also be given in the\n"
        "environment (--batch-size as OUTBOX_BATCH_SIZE) and most in outbox.toml.\n";
    return out;
}

std::string help_text(const CommandSpec& command) {
    std::string out = "Usage: outbox " + std::string(command.name);
    if (!command.positional.empty()) out += " " + std::string(command.positional);
    out += " [options]\n\n";
    append_wrapped(out, command.details, 0, 0);
    append_options(out, command);
    append_broker_options(out, command);
    out += "\nExamples:\n";
    std::string_view examples = command.examples;
    while (!examples.empty()) {
        const std::size_t end = std::min(examples.find('\n'), examples.size());
        out.append("  ").append(examples.substr(0, end)).append("\n");
        examples.remove_prefix(std::min(end + 1, examples.size()));
    }
    return out;
}

}  // namespace outbox::runtime
