#include <iostream>
#include <nlohmann/json.hpp>

#include <outbox/producer/migrate.h>

#include "commands.h"
#include "print.h"
#include "runtime/exit_codes.h"
#include "runtime/options.h"

namespace outbox::app {
namespace {

using nlohmann::ordered_json;

const char* layout_name(TableLayoutKind layout) {
    return layout == TableLayoutKind::kKeep ? "keep" : "delete";
}

MigrateOptions options_of(const runtime::OptionValues& values) {
    MigrateOptions options;
    const std::string side = values.text("only");
    if (side == "producer") options.side = MigrationSide::kProducer;
    if (side == "consumer") options.side = MigrationSide::kConsumer;
    const std::string payload = values.text("payload");
    if (values.given("payload")) {
        options.payload = payload == "json"    ? PayloadType::kJson
                          : payload == "text"  ? PayloadType::kText
                          : payload == "bytea" ? PayloadType::kBytea
                                               : PayloadType::kJsonb;
    }
    const std::string layout = values.text("after-publish");
    if (layout == "keep") options.layout = TableLayoutKind::kKeep;
    if (layout == "delete") options.layout = TableLayoutKind::kDelete;
    if (values.given("max-payload")) options.max_payload_bytes = values.integer("max-payload");
    if (values.given("schema")) options.schema = values.text("schema");
    options.connect_timeout = std::chrono::seconds(values.integer("connect-timeout-s"));
    options.owners = values.list("owner");
    options.note = [](std::string_view text) { std::cerr << "note: " << text << "\n"; };
    return options;
}

}  // namespace

int run_migrate(const runtime::Invocation& invocation) {
    const auto source = runtime::make_source_config(invocation);
    if (!source.ok()) return report(source.error());
    const MigrateOptions options = options_of(invocation.options);
    const bool print = invocation.options.flag("print");
    const bool json = invocation.options.flag("json");
    if (print && json) {
        return report(runtime::config_error(invocation.options.where("json"),
                                            "--print prints SQL; leave out one"));
    }
    if (invocation.options.text("after-publish") == "mark") {
        return report(runtime::config_error(
            invocation.options.where("after-publish"),
            "'mark' is for a table of your own, which migrate does not make; use keep or delete"));
    }
    if (invocation.options.flag("uninstall")) {
        for (const std::string_view name : {"payload", "max-payload", "after-publish"}) {
            if (!invocation.options.given(name)) continue;
            return report(ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                                    "--" + std::string(name) + ": nothing is made by --uninstall"});
        }
        if (print) {
            std::cout << uninstall_sql(source->url, options);
            return runtime::kExitOk;
        }
        const auto removed = uninstall(source->url, options);
        if (json) {
            print_json({{"removed", removed}});
            return runtime::kExitOk;
        }
        for (const std::string& name : removed) std::cout << "removed " << name << "\n";
        std::cout << (removed.empty() ? "nothing to do: there are no tables of outbox\n"
                                      : "the tables are removed\n");
        return runtime::kExitOk;
    }
    if (print) {
        std::cout << migration_sql(source->url, options);
        return runtime::kExitOk;
    }
    const auto applied = migrate(source->url, options);
    const bool limits = options.max_payload_bytes && options.side != MigrationSide::kConsumer;
    if (json) {
        ordered_json list = ordered_json::array();
        for (const Migration& migration : applied) {
            list.push_back({{"side", migration.side},
                            {"version", migration.version},
                            {"name", migration.name}});
        }
        ordered_json done{{"applied", list}};
        if (limits) done["max_payload"] = *options.max_payload_bytes;
        print_json(done);
        return runtime::kExitOk;
    }
    for (const Migration& migration : applied) {
        std::cout << "applied " << migration.side << " " << migration.version << " "
                  << migration.name << "\n";
    }
    if (limits) {
        std::cout << "outbox_events takes payloads of up to " << *options.max_payload_bytes
                  << " bytes from now on\n";
    }
    if (options.layout && options.side != MigrationSide::kConsumer) {
        std::cout << "outbox_events is laid out for after_publish = "
                  << layout_name(*options.layout) << "\n";
        return runtime::kExitOk;
    }
    std::cout << (applied.empty() && !limits ? "nothing to do: the tables are up to date\n"
                                             : "the tables are up to date\n");
    return runtime::kExitOk;
}

}  // namespace outbox::app
