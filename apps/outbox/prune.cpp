#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "consumer/operate.h"
#include "print.h"
#include "registry.h"
#include "runtime/exit_codes.h"

namespace outbox::app {
namespace {

constexpr std::size_t kPruneBatch = 1'000;

// None: this database has no consumer's tables.
Result<std::optional<PrunedInbox>> prune_inbox(const SourceConfig& config, std::int64_t retention_s,
                                               bool dry_run) {
    const auto operations = open_consumer_operations(config);
    if (!operations.ok()) return operations.error();
    const auto there = (*operations)->has_tables();
    if (!there.ok()) return there.error();
    if (!*there) return std::optional<PrunedInbox>();
    if (dry_run) {
        const auto all = (*operations)->prunable(retention_s);
        if (!all.ok()) return all.error();
        return std::optional<PrunedInbox>(*all);
    }
    PrunedInbox total;
    while (true) {
        const auto some = (*operations)->prune(retention_s);
        if (!some.ok()) return some.error();
        total.messages += some->messages;
        total.keys += some->keys;
        total.sagas += some->sagas;
        if (some->messages == 0 && some->keys == 0 && some->sagas == 0)
            return std::optional<PrunedInbox>(total);
    }
}

int print_result(const runtime::Invocation& invocation, const spi::Source* source,
                 std::int64_t rows, const std::optional<PrunedInbox>& inbox) {
    const bool dry_run = invocation.options.flag("dry-run");
    if (invocation.options.flag("json")) {
        nlohmann::ordered_json out{{dry_run ? "would_remove" : "removed", rows}};
        if (inbox) {
            out["inbox"] = inbox->messages;
            out["keys"] = inbox->keys;
            out["sagas"] = inbox->sagas;
        }
        print_json(out);
        return runtime::kExitOk;
    }
    const char* verb = dry_run ? "would remove " : "removed ";
    if (source != nullptr) {
        std::cout << verb << with_commas(rows) << " published rows older than "
                  << invocation.options.text("retention") << " from " << source->table_name()
                  << "\n";
    }
    if (inbox) {
        std::cout << verb << with_commas(inbox->messages) << " ids older than "
                  << invocation.options.text("inbox-retention") << " from outbox_inbox and "
                  << with_commas(inbox->keys) << " expired keys from outbox_idempotency\n";
        if (inbox->sagas > 0) {
            std::cout << verb << with_commas(inbox->sagas)
                      << " finished sagas and remembered steps\n";
        }
    }
    return runtime::kExitOk;
}

}  // namespace

int run_prune(const runtime::Invocation& invocation) {
    const auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return report(config.error());
    const auto source = make_source(*config);
    const bool dry_run = invocation.options.flag("dry-run");
    const bool no_table = !source.ok() && source.error().code == ErrorCode::kNoSuchTable;
    // Nothing is removed where a table was named that is not there.
    if (!source.ok() && (!no_table || invocation.options.given("table"))) {
        return report(source.error());
    }
    const auto inbox =
        prune_inbox(*config, invocation.options.duration("inbox-retention").count(), dry_run);
    if (!inbox.ok()) return report(inbox.error());
    // A database may have the consumer's side only.
    if (no_table && *inbox) return print_result(invocation, nullptr, 0, *inbox);
    if (no_table) return report(source.error());
    const auto recorder = (*source)->open_recorder();
    if (!recorder.ok()) return report(recorder.error());
    if (dry_run) {
        const auto count = (*recorder)->prunable(invocation.options.duration("retention"));
        if (!count.ok()) return report(count.error());
        return print_result(invocation, source->get(), *count, *inbox);
    }
    std::size_t removed = 0;
    while (true) {
        const auto batch =
            (*recorder)->prune(invocation.options.duration("retention"), kPruneBatch);
        if (!batch.ok()) return report(batch.error());
        removed += *batch;
        if (*batch < kPruneBatch) break;
    }
    return print_result(invocation, source->get(), static_cast<std::int64_t>(removed), *inbox);
}

}  // namespace outbox::app
