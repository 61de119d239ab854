#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/backend_options.h"

namespace outbox::runtime {

/// The commands of the binary, as bits: an option names all that take it.
enum Command : std::uint64_t {
    kRelay = 1ULL << 0,
    kMigrate = 1ULL << 1,
    kStatus = 1ULL << 2,
    kDeadList = 1ULL << 3,
    kDeadShow = 1ULL << 4,
    kDeadRetry = 1ULL << 5,
    kDeadDiscard = 1ULL << 6,
    kPrune = 1ULL << 7,
    kVerify = 1ULL << 8,
    kVersion = 1ULL << 9,
    kSagaList = 1ULL << 10,
    kSagaShow = 1ULL << 11,
    kSagaResume = 1ULL << 12,
    kSagaAbort = 1ULL << 13,
    kRoutesList = 1ULL << 14,
    kRoutesAccept = 1ULL << 15,
    kRoutesRename = 1ULL << 16,
    kRoutesRetire = 1ULL << 17,
    kRoutesContinue = 1ULL << 18,
    kRoutesBegin = 1ULL << 19,
    kRoles = 1ULL << 20,
    kDeadEdit = 1ULL << 21,
    kDeadExport = 1ULL << 22,
    kScheduledList = 1ULL << 23,
    kScheduledCancel = 1ULL << 24,
    kSinks = 1ULL << 25,
    kWebhookAdd = 1ULL << 26,
    kWebhookList = 1ULL << 27,
    kWebhookTest = 1ULL << 28,
    kWebhookRotate = 1ULL << 29,
    kWebhookDisable = 1ULL << 30,
    kWebhookEnable = 1ULL << 31,
    kWebhookDelete = 1ULL << 32,
    kImportDebezium = 1ULL << 33,
    kExplain = 1ULL << 34,
    kDoctor = 1ULL << 35,
    kWait = 1ULL << 36,
    kTop = 1ULL << 37,
    kDashboard = 1ULL << 38,
    kReplay = 1ULL << 39,
    kReplayList = 1ULL << 40,
    kReplayResume = 1ULL << 41,
    kReplayCancel = 1ULL << 42,
    kTenantList = 1ULL << 43,
    kTenantPause = 1ULL << 44,
    kTenantDrain = 1ULL << 45,
    kTenantResume = 1ULL << 46,
};

struct CommandSpec {
    Command command;
    std::string_view name;        ///< "relay", "dead list".
    std::string_view summary;     ///< One line.
    std::string_view details;     ///< What it does, for --help.
    std::string_view positional;  ///< What may stand without an option, as --help shows it; or "".
    std::string_view examples;    ///< One per line.
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
    std::uint64_t commands = 0;  ///< Of `Command`.
    std::string_view group = {};
    std::string_view help = {};  ///< With {brokers} and {databases}: see `help_of`.
};

[[nodiscard]] std::span<const CommandSpec> command_table();
[[nodiscard]] std::span<const OptionSpec> option_table();

/// Its help, with the URLs of the backends that this program has.
[[nodiscard]] std::string help_of(const OptionSpec& option);

/// Null when there is none.
[[nodiscard]] const OptionSpec* find_option(std::string_view name, std::uint64_t commands = ~0ULL);
[[nodiscard]] const CommandSpec* find_command(std::string_view name);
[[nodiscard]] const CommandSpec& command_spec(Command command);

}  // namespace outbox::runtime
