#include "runtime/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "core/suggest.h"
#include "runtime/options.h"

namespace outbox::runtime {
namespace {

constexpr int kMaxFiles = 10'000;

// CLI11 only splits words; types, ranges and choices are checked in one place for arguments,
// environment and file alike.
struct Parser {
    CLI::App app;
    std::map<std::string, std::vector<std::string>> texts;
    std::map<std::string, bool> flags;
    std::vector<std::string> positionals;

    explicit Parser(const CommandSpec& command) {
        app.set_help_flag();
        app.allow_extras(false);
        for (const OptionSpec& spec : option_table()) {
            if ((spec.commands & command.command) == 0) continue;
            const std::string name(spec.name);
            if (spec.type == OptionType::kFlag) {
                app.add_flag("--" + name, flags[name]);
            } else if (spec.repeatable && spec.type == OptionType::kPath) {
                // What a shell makes of a pattern: --produced *.jsonl
                app.add_option("--" + name, texts[name])->expected(1, kMaxFiles);
            } else {
                app.add_option("--" + name, texts[name])
                    ->expected(1)
                    ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
                    ->allow_extra_args(false);
            }
        }
        if (!command.positional.empty()) {
            app.add_option("arguments", positionals);
        }
    }
};

std::vector<std::string_view> option_names(const CommandSpec& command) {
    std::vector<std::string_view> names{"help"};
    for (const OptionSpec& spec : option_table()) {
        if ((spec.commands & command.command) != 0) names.push_back(spec.name);
    }
    return names;
}

ErrorInfo unknown_argument(const CommandSpec& command, const std::string& argument) {
    const std::string help = "; see `outbox " + std::string(command.name) + " --help`";
    if (!argument.starts_with('-')) {
        return config_error(
            argument, "unexpected argument of `outbox " + std::string(command.name) + "`" + help);
    }
    const std::string name = argument.substr(0, argument.find('='));
    const auto bare =
        std::string_view(name).substr(std::min(name.find_first_not_of('-'), name.size()));
    const OptionSpec* elsewhere = find_option(bare);
    if (elsewhere != nullptr) {
        return config_error(
            name, "is not an option of `outbox " + std::string(command.name) + "`" + help);
    }
    const auto suggestion = closest(bare, option_names(command));
    return config_error(
        name,
        "unknown option" +
            (suggestion.empty() ? help : "; did you mean '--" + std::string(suggestion) + "'?"));
}

ErrorInfo unknown_command(const std::string& word) {
    std::vector<std::string_view> names;
    for (const CommandSpec& spec : command_table()) names.push_back(spec.name);
    const std::string hint = did_you_mean(word, names);
    return config_error(word, "unknown command" + (hint.empty() ? "; see `outbox --help`" : hint));
}

// Finds the command at the front and removes its words.
const CommandSpec* take_command(std::vector<std::string>& words) {
    for (const std::size_t count : {std::size_t{2}, std::size_t{1}}) {
        if (words.size() < count) continue;
        const std::string name = count == 2 ? words[0] + " " + words[1] : words[0];
        const CommandSpec* spec = find_command(name);
        if (spec != nullptr) {
            words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(count));
            return spec;
        }
    }
    return nullptr;
}

bool asks_for_help(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
        if (word == "--") return false;
        if (word == "--help" || word == "-h") return true;
    }
    return false;
}

std::string group_help(std::string_view group) {
    std::string text;
    for (const CommandSpec& spec : command_table()) {
        if (!spec.name.starts_with(std::string(group) + " ")) continue;
        text += "  outbox " + std::string(spec.name);
        text.append(std::max<std::size_t>(2, 18 - spec.name.size()), ' ');
        text += std::string(spec.summary) + "\n";
    }
    return text.empty() ? text : "Usage:\n" + text + "\nEach takes --help.\n";
}

// "--from --to null:" leaves --to without its name: say which option has no value.
std::optional<ErrorInfo> missing_value(const Parser& parser) {
    for (const auto& [name, texts] : parser.texts) {
        for (const std::string& text : texts) {
            if (!text.starts_with("--") || find_option(text.substr(2)) == nullptr) continue;
            return config_error("--" + name, "needs a value before " + text);
        }
    }
    return std::nullopt;
}

Result<CommandLine> parse_options(const CommandSpec& command, std::vector<std::string> words) {
    CommandLine line;
    line.command = command.command;
    if (asks_for_help(words)) {
        line.help = help_text(command);
        return line;
    }
    Parser parser(command);
    try {
        std::reverse(words.begin(), words.end());  // as CLI11 wants them
        parser.app.parse(words);
    } catch (const CLI::ExtrasError&) {
        if (const auto missing = missing_value(parser)) return *missing;
        return unknown_argument(command, parser.app.remaining().front());
    } catch (const CLI::ParseError& error) {
        return config_error("outbox " + std::string(command.name), error.what());
    }
    if (const auto missing = missing_value(parser)) return *missing;
    for (auto& [name, texts] : parser.texts) {
        if (!texts.empty()) line.options[name] = std::move(texts);
    }
    for (const auto& [name, on] : parser.flags) {
        if (on) line.options[name] = {"true"};
    }
    line.positionals = std::move(parser.positionals);
    return line;
}

}  // namespace

Result<CommandLine> parse_command_line(const std::vector<std::string>& arguments) {
    std::vector<std::string> words = arguments;
    if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
        CommandLine line;
        line.help = help_text();
        return line;
    }
    if (words[0] == "--version") return CommandLine{};
    const std::string first = words[0];
    const CommandSpec* command = take_command(words);
    if (command != nullptr) return parse_options(*command, std::move(words));
    const std::string group = group_help(first);
    if (group.empty()) return unknown_command(first);
    if (words.size() > 1 && !asks_for_help(words)) return unknown_command(first + " " + words[1]);
    if (words.size() == 1) return config_error(first, "which? " + group);
    CommandLine line;
    line.help = group;
    return line;
}

}  // namespace outbox::runtime
