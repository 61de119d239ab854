#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace outbox::runtime {

/// The commands of the binary, as bits: an option names all that take it.
enum Command : std::uint32_t {
    kRelay = 1U << 0,
    kMigrate = 1U << 1,
    kStatus = 1U << 2,
    kDeadList = 1U << 3,
    kDeadShow = 1U << 4,
    kDeadRetry = 1U << 5,
    kDeadDiscard = 1U << 6,
    kPrune = 1U << 7,
    kVerify = 1U << 8,
    kVersion = 1U << 9,
    kSagaList = 1U << 10,
    kSagaShow = 1U << 11,
    kSagaResume = 1U << 12,
    kSagaAbort = 1U << 13,
    kRoutesList = 1U << 14,
    kRoutesAccept = 1U << 15,
    kRoutesRename = 1U << 16,
    kRoutesRetire = 1U << 17,
    kRoutesContinue = 1U << 18,
    kRoutesBegin = 1U << 19,
    kRoles = 1U << 20,
    kDeadEdit = 1U << 21,
    kDeadExport = 1U << 22,
    kScheduledList = 1U << 23,
    kScheduledCancel = 1U << 24,
    kSinks = 1U << 25,
};

struct CommandSpec {
    Command command;
    std::string_view name;        ///< "relay", "dead list".
    std::string_view summary;     ///< One line.
    std::string_view details;     ///< What it does, for --help.
    std::string_view positional;  ///< What may stand without an option, as --help shows it; or "".
    std::string_view examples;    ///< One per line.
};

enum class OptionType : std::uint8_t {
    kFlag,
    kInteger,
    kText,
    kUrl,
    kDestination,  ///< A URL, or NAME=URL.
    kChoice,
    kDuration,  ///< A number and one of s, m, h, d.
    kPath,
};

/// One option, from which come the parser, --help, OUTBOX_*, outbox.toml, the reference page and
/// the example file. The environment name is OUTBOX_ and the name in capitals. Options of one name
/// have no command in common.
struct OptionSpec {
    std::string_view name = {};
    OptionType type = OptionType::kText;
    std::string_view file_key = {};  ///< Dotted key in outbox.toml; "": not in the file.
    std::string_view fallback = {};  ///< The default as text; "": none.
    std::string_view unit = {};      ///< "ms", "bytes", ...
    std::int64_t min = 0;            ///< For kInteger; for kDuration in seconds.
    std::int64_t max = 0;
    std::string_view choices = {};  ///< For kChoice: "a|b|c".
    std::string_view value = {};    ///< The value's name in --help.
    bool repeatable = false;
    bool may_be_empty = false;   ///< A text: empty says something, too.
    bool argument_only = false;  ///< Not from the environment: it belongs to one call.
    std::uint32_t commands = 0;  ///< Of `Command`.
    std::string_view group = {};
    std::string_view help = {};  ///< With {brokers} and {databases}: see `help_of`.
};

[[nodiscard]] std::span<const CommandSpec> command_table();
[[nodiscard]] std::span<const OptionSpec> option_table();

/// Its help, with the URLs of the backends that this program has.
[[nodiscard]] std::string help_of(const OptionSpec& option);

/// Null when there is none.
[[nodiscard]] const OptionSpec* find_option(std::string_view name, std::uint32_t commands = ~0U);
[[nodiscard]] const CommandSpec* find_command(std::string_view name);
[[nodiscard]] const CommandSpec& command_spec(Command command);

}  // namespace outbox::runtime
