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

Result<std::int64_t> prune_rows(spi::Source& source, std::chrono::seconds retention, bool dry_run) {
    const auto recorder = source.open_recorder();
    if (!recorder.ok()) return recorder.error();
    if (dry_run) return (*recorder)->prunable(retention);
    std::int64_t removed = 0;
    while (true) {
        const auto batch = (*recorder)->prune(retention, kPruneBatch);
        if (!batch.ok()) return batch.error();
        removed += static_cast<std::int64_t>(*batch);
        if (*batch < kPruneBatch) return removed;
    }
}

bool may_be_absent(const SourceConfig& config, const ErrorInfo& error) {
    if (error.code != ErrorCode::kNoSuchTable) return lacks_rights(error);
    const auto operations = open_consumer_operations(config);
    return !operations.ok() || is_consumers_side_only(**operations, error);
}

// One that may look at the inbox and not prune it was forgotten something; one that may not even
// look has the rights of the other side.
bool is_of_the_other_side(const SourceConfig& config, const ErrorInfo& error) {
    if (!lacks_rights(error)) return false;
    const auto operations = open_consumer_operations(config);
    if (!operations.ok()) return lacks_rights(operations.error());
    const auto seen = (*operations)->consumers();
    return !seen.ok() && lacks_rights(seen.error());
}

// As above, of the table's rows.
bool may_look_at_rows(spi::Source& source, std::chrono::seconds retention) {
    const auto recorder = source.open_recorder();
    if (!recorder.ok()) return !lacks_rights(recorder.error());
    const auto seen = (*recorder)->prunable(retention);
    return seen.ok() || !lacks_rights(seen.error());
}

// `rows`: none where it could not be done; without `source` there is no table of them.
void print_result(const runtime::Invocation& invocation, const spi::Source* source,
                  std::optional<std::int64_t> rows, const std::optional<PrunedInbox>& inbox) {
    const bool dry_run = invocation.options.flag("dry-run");
    if (invocation.options.flag("json")) {
        nlohmann::ordered_json out{
            {dry_run ? "would_remove" : "removed", rows ? nlohmann::ordered_json(*rows) : nullptr}};
        if (inbox) {
            out["inbox"] = inbox->messages;
            out["keys"] = inbox->keys;
            out["sagas"] = inbox->sagas;
        }
        print_json(out);
        return;
    }
    const char* verb = dry_run ? "would remove " : "removed ";
    if (source != nullptr) {
        std::cout << verb << with_commas(*rows) << " published rows older than "
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
}

}  // namespace

int run_prune(const runtime::Invocation& invocation) {
    const auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return report(config.error());
    const auto source = make_source(*config);
    const bool dry_run = invocation.options.flag("dry-run");
    // Nothing is removed where a table was named that is not there.
    if (!source.ok() &&
        (invocation.options.given("table") || !may_be_absent(*config, source.error()))) {
        return report(source.error());
    }
    const auto rows = source.ok()
                          ? prune_rows(**source, invocation.options.duration("retention"), dry_run)
                          : Result<std::int64_t>(source.error());
    if (!rows.ok() && !may_be_absent(*config, rows.error())) return report(rows.error());
    const auto inbox =
        prune_inbox(*config, invocation.options.duration("inbox-retention").count(), dry_run);
    // A database may have one side only, and a role rights to one only.
    const bool may_not = !rows.ok() && lacks_rights(rows.error());
    if (!inbox.ok() && (!rows.ok() || !is_of_the_other_side(*config, inbox.error()))) {
        if (may_not) report(rows.error());
        return report(inbox.error());
    }
    if (!rows.ok() && !*inbox) return report(rows.error());
    if (!inbox.ok()) report(inbox.error());
    print_result(invocation, rows.ok() ? source->get() : nullptr,
                 rows.ok() ? std::optional(*rows)
                 : may_not ? std::nullopt
                           : std::optional(std::int64_t{0}),
                 inbox.ok() ? *inbox : std::optional<PrunedInbox>());
    const int code = may_not ? report(rows.error()) : runtime::kExitOk;
    const bool is_forgotten = may_not && source.ok() &&
                              may_look_at_rows(**source, invocation.options.duration("retention"));
    return is_forgotten ? code : runtime::kExitOk;
}

}  // namespace outbox::app
