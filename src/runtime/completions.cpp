#include "runtime/completions.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/option_table.h"

namespace outbox::runtime {
namespace {

constexpr std::string_view kMadeFrom =
    "Made from the declarations in src/runtime by `write_reference`; edit those.\n";

std::string spaced(std::string_view choices) {
    std::string out(choices);
    std::replace(out.begin(), out.end(), '|', ' ');
    return out;
}

// "dead" of "dead list", and "list".
std::pair<std::string, std::string> words_of(const CommandSpec& command) {
    const std::size_t space = std::min(command.name.find(' '), command.name.size());
    return {std::string(command.name.substr(0, space)),
            std::string(command.name.substr(std::min(space + 1, command.name.size())))};
}

std::vector<std::string> first_words() {
    std::vector<std::string> words;
    for (const CommandSpec& command : command_table()) {
        const std::string word = words_of(command).first;
        if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
    }
    return words;
}

std::map<std::string, std::string> second_words() {
    std::map<std::string, std::string> words;
    for (const CommandSpec& command : command_table()) {
        const auto [first, second] = words_of(command);
        if (second.empty()) continue;
        std::string& list = words[first];
        list += (list.empty() ? "" : " ") + second;
    }
    return words;
}

// "replay" is a command, and "replay list" another.
bool is_command_itself(const std::string& first) {
    return find_command(first) != nullptr;
}

// For fish: the words so far are this command's, and not one's that begins with its name.
std::string condition_of(const CommandSpec& command) {
    const std::string name(command.name);
    std::string condition = "__outbox_is " + name;
    for (const CommandSpec& other : command_table()) {
        if (!other.name.starts_with(name + " ")) continue;
        condition += "; and not __outbox_is " + std::string(other.name);
    }
    return condition;
}

std::string joined(const std::vector<std::string>& words) {
    std::string out;
    for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
    return out;
}

// In single quotes.
std::string in_quotes(std::string_view text) {
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? std::string("\\'") : std::string(1, c);
    return out + "'";
}

std::string with_bars(std::string words) {
    for (std::size_t at = 0; (at = words.find(' ', at)) != std::string::npos; at += 3) {
        words.replace(at, 1, " | ");
    }
    return words;
}

std::string_view short_help(const OptionSpec& option) {
    return option.help.substr(0, option.help.find_first_of(";:({"));
}

std::string zsh_quoted(std::string_view text) {
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
}

// In brackets of a specification, and between its colons.
std::string zsh_escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (std::string_view("[]:\\").find(c) != std::string_view::npos) out += '\\';
        out += c;
    }
    return out;
}

std::string zsh_value(std::string_view word, std::string_view meaning) {
    std::string value(word);
    if (!meaning.empty()) value += "[" + zsh_escaped(meaning) + "]";
    return zsh_quoted(value);
}

bool takes_file(const OptionSpec& option) {
    return option.type == OptionType::kPath;
}

std::string zsh_option(const OptionSpec& option) {
    std::string spec = (option.repeatable ? "*--" : "--") + std::string(option.name) + "[" +
                       zsh_escaped(short_help(option)) + "]";
    if (option.type == OptionType::kFlag) return zsh_quoted(spec);
    spec += ":" + zsh_escaped(option.value) + ":";
    if (option.type == OptionType::kChoice) spec += "(" + spaced(option.choices) + ")";
    if (takes_file(option)) spec += "_files";
    return zsh_quoted(spec);
}

// `kind` tells which options a line of the case is for.
template <typename Kind>
std::string options_pattern(const Kind& kind) {
    std::vector<std::string> names;
    for (const OptionSpec& option : option_table()) {
        std::string name = "--" + std::string(option.name);
        if (kind(option) && std::find(names.begin(), names.end(), name) == names.end()) {
            names.push_back(std::move(name));
        }
    }
    std::string out;
    for (const std::string& name : names) out += (out.empty() ? "" : " | ") + name;
    return out;
}

}  // namespace

std::string bash_completion() {
    std::string out = "# bash completion for outbox\n# " + std::string(kMadeFrom) +
                      "_outbox() {\n"
                      "    local word=$2 before=$3 command=${COMP_WORDS[1]-} at=2 words=\n"
                      "    COMPREPLY=()\n"
                      "    case $command in\n";
    std::string groups;
    std::string both;
    for (const auto& [first, second] : second_words()) {
        if (!is_command_itself(first)) {
            groups += (groups.empty() ? "" : " | ") + first;
            continue;
        }
        both += "        " + first + ")\n            case ${COMP_WORDS[2]-} in\n" +
                "                " + with_bars(second) +
                ")\n                    command+=\" ${COMP_WORDS[2]}\"\n" +
                "                    at=3\n                    ;;\n            esac\n" +
                "            ;;\n";
    }
    out += "        " + groups + ")\n            command+=\" ${COMP_WORDS[2]-}\"\n" +
           "            at=3\n            ;;\n" + both + "    esac\n    case $before in\n";
    out += "        " + options_pattern(takes_file) +
           ")\n            mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
           "            return\n            ;;\n";
    for (const OptionSpec& option : option_table()) {
        if (option.type != OptionType::kChoice) continue;
        out += "        --" + std::string(option.name) + ") words='" + spaced(option.choices) +
               "' ;;\n";
    }
    out += "        " + options_pattern([](const OptionSpec& option) {
               return option.type != OptionType::kFlag && option.type != OptionType::kChoice &&
                      !takes_file(option);
           }) +
           ") return ;;\n    esac\n    if [ -n \"$words\" ]; then\n        :\n"
           "    elif [ \"$COMP_CWORD\" -eq 1 ]; then\n        words='" +
           joined(first_words()) +
           " --help --version'\n    elif [ \"$COMP_CWORD\" -lt \"$at\" ]; then\n"
           "        case ${COMP_WORDS[1]} in\n";
    for (const auto& [first, second] : second_words()) {
        out += "            " + first + ") words='" + second + "' ;;\n";
    }
    out += "        esac\n    else\n        case $command in\n";
    const std::map<std::string, std::string> seconds = second_words();
    for (const CommandSpec& command : command_table()) {
        std::vector<std::string> options;
        const auto more = seconds.find(std::string(command.name));
        if (more != seconds.end()) options.push_back(more->second);
        for (const OptionSpec& option : option_table()) {
            if ((option.commands & command.command) != 0) {
                options.push_back("--" + std::string(option.name));
            }
        }
        options.emplace_back("--help");
        out +=
            "            '" + std::string(command.name) + "') words='" + joined(options) + "' ;;\n";
    }
    out +=
        "        esac\n    fi\n    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
        "}\ncomplete -o default -F _outbox outbox\n";
    return out;
}

std::string fish_completion() {
    std::string out =
        "# fish completion for outbox\n# " + std::string(kMadeFrom) +
        "function __outbox_is\n"
        "    set -l words (commandline -opc)\n"
        "    set -e words[1]\n"
        "    set -l many (count $argv)\n"
        "    test $many -eq 0; and return 0\n"
        "    test (count $words) -ge $many; and test \"$words[1..$many]\" = \"$argv\"\n"
        "end\n"
        "function __outbox_has\n"
        "    test (count (commandline -opc)) -eq $argv[1]; and __outbox_is $argv[2..]\n"
        "end\n"
        "complete -c outbox -f\n";
    std::map<std::string, bool> known;
    for (const CommandSpec& command : command_table()) {
        const auto [first, second] = words_of(command);
        if (!std::exchange(known[first], true)) {
            out += "complete -c outbox -n '__outbox_has 1' -a " + first +
                   (second.empty() ? " -d " + in_quotes(command.summary) : "") + "\n";
        }
        if (!second.empty()) {
            out += "complete -c outbox -n '__outbox_has 2 " + first + "' -a " + second + " -d " +
                   in_quotes(command.summary) + "\n";
        }
        const std::string is_it = condition_of(command);
        if (command.positional == "FILE") out += "complete -c outbox -n '" + is_it + "' -F\n";
        for (const OptionSpec& option : option_table()) {
            if ((option.commands & command.command) == 0) continue;
            out += "complete -c outbox -n '" + is_it + "' -l " + std::string(option.name);
            if (option.type != OptionType::kFlag) out += takes_file(option) ? " -rF" : " -x";
            if (option.type == OptionType::kChoice)
                out += " -a " + in_quotes(spaced(option.choices));
            out += " -d " + in_quotes(short_help(option)) + "\n";
        }
    }
    return out;
}

std::string zsh_completion() {
    std::string out = "#compdef outbox\n# zsh completion for outbox\n# " + std::string(kMadeFrom) +
                      "_outbox() {\n"
                      "    local command=${words[2]-}\n"
                      "    local -i at=2\n"
                      "    case $command in\n";
    for (const auto& [first, second] : second_words()) {
        const bool is_itself = is_command_itself(first);
        out += "        " + first + ")\n            case ${words[3]-} in\n                " +
               with_bars(second) +
               ")\n                    command+=\" $words[3]\"\n                    at=3\n"
               "                    ;;\n"
               "            esac\n"
               "            if (( CURRENT == 3 )); then\n"
               "                _values 'command'";
        for (const CommandSpec& command : command_table()) {
            const auto [group, word] = words_of(command);
            if (group == first && !word.empty()) out += " " + zsh_value(word, command.summary);
        }
        out += is_itself ? "\n                command=$words[2]\n                at=2\n"
                         : "\n                return\n";
        out += "            fi\n            ;;\n";
    }
    out += "    esac\n    if (( CURRENT == 2 )); then\n        _values 'command'";
    std::map<std::string, bool> known;
    for (const CommandSpec& command : command_table()) {
        const auto [first, second] = words_of(command);
        if (std::exchange(known[first], true)) continue;
        out += " " + zsh_value(first, second.empty() ? command.summary : std::string_view());
    }
    out +=
        " --help --version\n        return\n    fi\n"
        "    shift $(( at - 1 )) words\n    (( CURRENT -= at - 1 ))\n"
        "    case $command in\n";
    for (const CommandSpec& command : command_table()) {
        out += "        " + zsh_quoted(command.name) + ")\n            _arguments";
        for (const OptionSpec& option : option_table()) {
            if ((option.commands & command.command) == 0) continue;
            out += " \\\n                " + zsh_option(option);
        }
        out += " \\\n                '--help[say what it does]'";
        if (command.positional == "FILE") out += " \\\n                '*:FILE:_files'";
        out += "\n            ;;\n";
    }
    return out +
           "    esac\n}\n"
           "if [ \"$funcstack[1]\" = _outbox ]; then\n    _outbox \"$@\"\nelse\n"
           "    compdef _outbox outbox\nfi\n";
}

}  // namespace outbox::runtime
