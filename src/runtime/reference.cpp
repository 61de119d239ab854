#include "runtime/reference.h"

#include <vector>

#include "backend/backends.h"
#include "codec/formats.h"
#include "runtime/exit_codes.h"
#include "runtime/metrics.h"
#include "runtime/option_table.h"
#include "runtime/options.h"
#include "runtime/toml_file.h"

namespace outbox::runtime {
namespace {

constexpr std::string_view kGenerated =
    "<!-- Made from the declarations in src/runtime by `write_reference`; edit those. -->\n\n";

std::string code(std::string_view text) {
    return "`" + std::string(text) + "`";
}

// Text for a cell of a table.
std::string cell(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '|') out += '\\';
        out += c;
    }
    return out;
}

// Commands of several words that are named together where an option is all of theirs.
struct Group {
    std::string_view name;
    std::uint64_t commands;
    Command first;
};
constexpr Group kGroups[] = {
    {"dead", kDeadList | kDeadShow | kDeadRetry | kDeadDiscard | kDeadEdit | kDeadExport,
     kDeadList},
    {"scheduled", kScheduledList | kScheduledCancel, kScheduledList},
    {"routes",
     kRoutesList | kRoutesAccept | kRoutesRename | kRoutesRetire | kRoutesContinue | kRoutesBegin,
     kRoutesList},
    {"tenant", kTenantList | kTenantPause | kTenantDrain | kTenantResume, kTenantList},
    {"saga", kSagaList | kSagaShow | kSagaResume | kSagaAbort, kSagaList},
    {"webhook",
     kWebhookAdd | kWebhookList | kWebhookTest | kWebhookRotate | kWebhookDisable | kWebhookEnable |
         kWebhookDelete,
     kWebhookAdd},
};

std::string commands_of(const OptionSpec& option) {
    std::string text;
    for (const CommandSpec& command : command_table()) {
        if ((option.commands & command.command) == 0) continue;
        std::string_view name = command.name;
        bool named = false;
        for (const Group& group : kGroups) {
            if ((group.commands & command.command) == 0) continue;
            if ((option.commands & group.commands) != group.commands) continue;
            name = group.name;
            named = command.command != group.first;
        }
        if (named) continue;
        text.append(text.empty() ? "" : ", ").append(name);
    }
    return text;
}

std::string type_of(const OptionSpec& option) {
    switch (option.type) {
        case OptionType::kFlag:
            return "flag";
        case OptionType::kInteger:
            return std::to_string(option.min) + " to " + std::to_string(option.max) + " " +
                   std::string(option.unit);
        case OptionType::kText:
            return option.repeatable ? "texts" : "text";
        case OptionType::kUrl:
            return option.repeatable ? "URLs" : "URL";
        case OptionType::kDestination:
            return "URLs, each as `URL` or `NAME=URL`";
        case OptionType::kChoice: {
            std::string text;
            for (const char c : option.choices)
                text += c == '|' ? std::string(", ") : std::string(1, c);
            return text;
        }
        case OptionType::kDuration:
            return "time: 30s, 15m, 12h, 7d";
        case OptionType::kPath:
            return option.repeatable ? "files" : "file";
    }
    return {};
}

void append_command_section(std::string& out) {
    out += "## Commands\n\n| command | does |\n| --- | --- |\n";
    for (const CommandSpec& command : command_table()) {
        out += "| `outbox " + std::string(command.name) + "` | " + cell(command.details) + " |\n";
    }
}

void append_option_section(std::string& out) {
    out +=
        "\n## Options\n\nWhere an option is given more than once, the argument wins over the "
        "environment, the environment\nover the file, the file over the default. A repeatable "
        "option is one variable with the values\nseparated by spaces, and a list in the file.\n";
    std::string_view group;
    for (const OptionSpec& option : option_table()) {
        if (option.group != group) {
            group = option.group;
            out += "\n### " + std::string(group) +
                   "\n\n| option | environment | file | value | default | commands | meaning |\n"
                   "| --- | --- | --- | --- | --- | --- | --- |\n";
        }
        out += "| " + code("--" + std::string(option.name)) + " | " +
               (option.argument_only ? "" : code(environment_name(option.name))) + " | " +
               (option.file_key.empty() ? "" : code(option.file_key)) + " | " +
               cell(type_of(option)) + " | " +
               (option.fallback.empty() ? "" : code(cell(option.fallback))) + " | " +
               commands_of(option) + " | " + cell(help_of(option)) + " |\n";
    }
}

void append_route_section(std::string& out) {
    out +=
        "\n## Routes\n\nEach `[[route]]` in the file is an independent pipeline. An event goes to "
        "every route that takes it;\na route without `aggregate_type`, `event_type`, `topic` and "
        "`tenant` takes every event.\n\n| key | value | meaning |\n| --- | --- | --- |\n";
    for (const RouteKeySpec& key : route_key_table()) {
        std::string help(key.help);
        if (help.empty()) help = "as `--" + std::string(key.option) + "`, for this route";
        out += "| " + code(key.name) + " | " + (key.list ? "text or list" : "text") + " | " +
               cell(help) + " |\n";
    }
    for (const Broker* broker : brokers()) {
        if (!broker->has_options()) continue;
        const std::string table = "[route." + std::string(broker->name) + "]";
        out += "| `" + table + "` | table | ";
        out += broker->options.empty() ? std::string(broker->other_options)
                                       : "[below](#route" + std::string(broker->name) + ")";
        out += ", for example `" + std::string(broker->example_option) + "` |\n";
    }
    for (const codec::Format& format : codec::formats()) {
        if (format.options.empty()) continue;
        out += "| `[route." + std::string(format.table) + "]` | table | " +
               std::string(format.options) + "; as `[" + std::string(format.table) +
               "]` for every route of the format |\n";
    }
}

void append_broker_section(std::string& out) {
    out +=
        "\n## Options of destinations\n\nThey stand in the URL (`?name=value`) or in the table of "
        "the route, which wins.\n";
    for (const Broker* broker : brokers()) {
        if (broker->options.empty()) continue;
        out += "\n### `[route." + std::string(broker->name) + "]`\n\n" + broker_options(*broker);
    }
}

void append_table_section(std::string& out) {
    out +=
        "\n## Adopted tables\n\n`[source.table.columns]` names the columns of a table that is not "
        "of a known shape;\n`[source.table.status]` the values of its status column: `pending` "
        "and `sending` (texts), `sent`,\n`failed`, `dead`. `metadata_columns` under "
        "`[source.table]` lists columns that become headers (`name?` where the table may lack it), "
        "with `metadata_as = \"text\"` as the "
        "database prints\nthem (format debezium).\n\n| key | column |\n| --- | --- |\n";
    for (const ColumnKeySpec& key : column_key_table()) {
        out += "| " + code(key.name) + " | " + std::string(key.help) + " |\n";
    }
}

void append_exit_codes(std::string& out) {
    out += "\n## Exit codes\n\n| code | meaning |\n| --- | --- |\n";
    for (const ExitCodeSpec& spec : exit_code_table()) {
        out += "| " + std::to_string(spec.code) + " | " + std::string(spec.meaning) + " |\n";
    }
}

struct ErrorText {
    ErrorCode code;
    std::string_view meaning;
};

constexpr ErrorText kErrorTexts[] = {
    {ErrorCode::kConfigInvalid, "an option or the configuration file is wrong"},
    {ErrorCode::kConnectFailed, "the server cannot be reached"},
    {ErrorCode::kAuthFailed, "the server refused the user or the password"},
    {ErrorCode::kNoSuchDatabase, "the server has no such database"},
    {ErrorCode::kNoSuchTable, "the database has no such table; `outbox migrate` makes ours"},
    {ErrorCode::kTableShape, "columns are missing or of an unusable type"},
    {ErrorCode::kNoRights, "a right is missing; the message names the GRANT"},
    {ErrorCode::kMigrationRefused,
     "the database is newer, a migration was changed, or a lock that it needs was not to be had"},
    {ErrorCode::kQueryFailed, "the database refused a statement"},
    {ErrorCode::kConnectionLost, "the connection broke; the relay makes a new one"},
    {ErrorCode::kLeaseLost,
     "another relay holds the lease now; of a replay: another process has the run, or the database "
     "has forgotten it"},
    {ErrorCode::kServerChanged,
     "the database failed over or was restored; the relay drops what it remembers and begins anew"},
    {ErrorCode::kWrongServer, "another database cluster answers at the address; the relay stops"},
    {ErrorCode::kDestinationChanged,
     "a route leads to another destination than its ledger holds for; the route waits until "
     "`outbox routes accept NAME`, or a name of its own"},
    {ErrorCode::kRouteGone,
     "a route that has not finished all events is not configured any more; the relay does not "
     "start until `outbox routes retire NAME` or `rename`"},
    {ErrorCode::kTableReset,
     "the outbox table was replaced, or its positions begin anew; the relay stops, a run "
     "of `outbox replay` fails, and what goes by its ledgers is refused until a relay has gone on"},
    {ErrorCode::kNoTransaction, "an event was written outside a transaction"},
    {ErrorCode::kInvalidEvent, "a field of the event is not valid"},
    {ErrorCode::kPayloadTooLarge,
     "the payload is larger than allowed; store it elsewhere and send "
     "a reference"},
    {ErrorCode::kTopicInvalid, "not a valid topic name, or one that the route does not allow"},
    {ErrorCode::kTopicUnknown, "the broker has no such topic"},
    {ErrorCode::kRecordRefused, "the destination refused this record"},
    {ErrorCode::kObjectGone,
     "the payload is kept elsewhere and is not there any more: it was removed before the message "
     "was handled, or is in another store than the consumer's"},
    {ErrorCode::kObjectAltered,
     "the payload is kept elsewhere, and what is there is not what was written"},
    {ErrorCode::kSchemaUnknown,
     "the schema registry has no such schema, or none that payloads can be checked by; its events "
     "wait"},
    {ErrorCode::kSchemaViolated, "the payload is not as its schema in the registry says"},
    {ErrorCode::kSinkUnavailable, "the destination is down or out of reach"},
    {ErrorCode::kSinkRebuilt, "the producer was rebuilt; its records go again"},
    {ErrorCode::kSinkTimeout, "no answer in time; the outcome is unknown, the record goes again"},
    {ErrorCode::kSinkClosed, "the destination is gone for good, for example a closed pipe"},
    {ErrorCode::kGuaranteeRefused, "the configuration asks for more than the destination promises"},
    {ErrorCode::kDiskFull, "the disk is full"},
    {ErrorCode::kQuarantined, "a message too old or too far ahead to be known as new"},
    {ErrorCode::kHandlerFailed, "the consumer's handler threw"},
    {ErrorCode::kConflict,
     "a version check failed, a key is in use, or a lock was held for too long"},
    {ErrorCode::kUnsupported, "not possible with this backend or version"},
    {ErrorCode::kInternal, "a defect in Outbox; please report it"},
};

void append_example_value(std::string& out, const OptionSpec& option, std::string_view key) {
    std::string text(option.fallback);
    if (option.type == OptionType::kUrl) text = "postgresql://app@localhost/shop";
    if (option.name == "schema-registry") text = "https://registry.example.com:8081";
    if (option.type == OptionType::kDestination) text = "orders=kafka://localhost:9092";
    if (option.name == "password-file") text = "/run/secrets/outbox";
    if (option.name == "admin-token-file") text = "/run/secrets/outbox-admin";
    if (option.name == "schema") text = "outbox";
    if (text.empty() && option.type == OptionType::kChoice) {
        text = std::string(option.choices.substr(0, option.choices.find('|')));
    }
    if (option.type != OptionType::kInteger) text = "\"" + text + "\"";
    if (option.repeatable) {
        text = option.type == OptionType::kDestination ? "[" + text + "]" : "[]";
    }
    out += "# " + help_of(option) + "\n# " + std::string(key) + " = " + text + "\n";
}

// The keys of one table, "" being the top of the file.
void append_example_table(std::string& out, std::string_view prefix) {
    std::string_view last;
    for (const OptionSpec& option : option_table()) {
        if (!option.file_key.starts_with(prefix) || option.file_key == last) continue;
        const std::string_view key = option.file_key.substr(prefix.size());
        if (key.empty() || key.find('.') != std::string_view::npos) continue;
        last = option.file_key;
        append_example_value(out, option, key);
    }
}

}  // namespace

std::string broker_options(const Broker& broker) {
    std::string out = "| option | value | default | meaning |\n| --- | --- | --- | --- |\n";
    for (const BackendOption& option : broker.options) {
        const std::string fallback = option.required           ? "required"
                                     : option.fallback.empty() ? std::string()
                                                               : code(cell(option.fallback));
        out += "| " + code(option.name) + " | " + cell(values_of(option)) + " | " + fallback +
               " | " + cell(option.help) + " |\n";
    }
    return out;
}

std::string with_broker_options(const Broker& broker, std::string page) {
    const std::string begin =
        "<!-- options: made from the declarations of src/brokers by `write_reference` -->\n";
    constexpr std::string_view kEnd = "<!-- end of options -->";
    const std::size_t from = page.find(begin);
    const std::size_t to = from == std::string::npos ? from : page.find(kEnd, from);
    if (to == std::string::npos) return {};
    const std::size_t at = from + begin.size();
    return page.replace(at, to - at, "\n" + broker_options(broker) + "\n");
}

std::string options_page() {
    std::string out = "# Commands, options, exit codes\n\n" + std::string(kGenerated);
    append_command_section(out);
    append_option_section(out);
    append_route_section(out);
    append_broker_section(out);
    append_table_section(out);
    append_exit_codes(out);
    return out;
}

std::string errors_page() {
    std::string out = "# Errors\n\n" + std::string(kGenerated) +
                      "The codes are stable. Each error also carries an advice that the relay "
                      "follows: `retry_destination`\n(the destination is down, no attempt is "
                      "counted), `retry_event`, `dead_letter` or `stop`.\n\n| code | meaning | "
                      "exit code of a command |\n| --- | --- | --- |\n";
    for (const ErrorText& error : kErrorTexts) {
        out += "| " + code(error_code_name(error.code)) + " | " + std::string(error.meaning) +
               " | " + std::to_string(exit_code_of(error.code)) + " |\n";
    }
    return out;
}

std::string metrics_page() {
    std::string out =
        "# Metrics of the relay\n\n" + std::string(kGenerated) +
        "Served by `outbox relay` at `/metrics` in Prometheus' text format. Every "
        "metric has the label `source`,\nthe outbox table, with `--tenant` as "
        "`public.outbox_events/acme,globex`; `route` has at most " +
        std::to_string(kMaxRouteLabels) +
        " values. A service shows those of its consumers (`outbox_inbox_…`,\n"
        "[Receiving](../receiving.md)) and sagas (`outbox_sagas`, "
        "[Sagas](../sagas.md)) on a page of its own.\n\n| name | type | more labels | meaning |\n"
        "| --- | --- | --- | --- |\n";
    for (const MetricSpec& metric : metric_table()) {
        out += "| " + code(metric.name) + " | " + std::string(metric.type) + " | " +
               std::string(metric.labels) + " | " + std::string(metric.help) + " |\n";
    }
    return out;
}

std::string example_file() {
    std::string out =
        "# Every key of outbox.toml with its default. Copy what you change.\n"
        "# Made from the declarations in src/runtime by `write_reference`.\n\n";
    append_example_table(out, "");
    out += "\n[source]\n";
    append_example_table(out, "source.");
    out += "\n[source.table]\n";
    append_example_table(out, "source.table.");
    out +=
        "# metadata_columns = [\"request_id\"]\n\n"
        "# Only for a table of your own of no known shape.\n# [source.table.columns]\n"
        "# id = \"event_uuid\"\n# payload = \"body\"\n# status = \"state\"\n\n"
        "# [source.table.status]\n# pending = [\"NEW\"]\n# sent = \"SENT\"\n\n"
        "# Instead of `to`: one table for each route.\n# [[route]]\n# name = \"billing\"\n"
        "# to = \"kafka://localhost:9092\"\n# aggregate_type = [\"Order\", \"Invoice\"]\n"
        "# topic_template = \"{aggregate_type}.{event_type}\"\n"
        "# allowed_topics = [\"Order.*\", \"Invoice.*\"]\n# on_dead_letter = \"block_key\"\n";
    for (const Broker* broker : brokers()) {
        if (broker->example_option.empty()) continue;
        out += "# [route." + std::string(broker->name) + "]\n# " +
               std::string(broker->example_option) + "\n";
    }
    for (const codec::Format& format : codec::formats()) {
        if (format.example_option.empty()) continue;
        out += "# [route." + std::string(format.table) + "]\n# " +
               std::string(format.example_option) + "\n";
    }
    return out;
}

}  // namespace outbox::runtime
