#include <iostream>
#include <optional>

#include "commands.h"
#include "consumer/operate.h"
#include "print.h"
#include "registry.h"
#include "runtime/exit_codes.h"

namespace outbox::app {
namespace {

constexpr std::size_t kPruneBatch = 1'000;

int print_count(const runtime::Invocation& invocation, const spi::Source& source,
                std::string_view key, std::string_view verb, std::int64_t count) {
    if (invocation.options.flag("json")) {
        std::cout << "{\"" << key << "\": " << count << "}\n";
    } else {
        std::cout << verb << " " << with_commas(count) << " published rows older than "
                  << invocation.options.text("retention") << " from " << source.table_name()
                  << "\n";
    }
    return runtime::kExitOk;
}

// None: this database has no consumer's tables.
Result<std::optional<PrunedInbox>> prune_inbox(const runtime::SourceConfig& config,
                                               std::int64_t retention_s) {
    const auto operations =
        consumer::open_operations(config.url, static_cast<int>(config.connect_timeout.count()));
    if (!operations.ok()) return operations.error();
    const auto there = (*operations)->has_tables();
    if (!there.ok()) return there.error();
    if (!*there) return std::optional<PrunedInbox>();
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

int print_removed(const runtime::Invocation& invocation, const spi::Source* source,
                  std::int64_t rows, const std::optional<PrunedInbox>& inbox) {
    if (invocation.options.flag("json")) {
        std::cout << "{\"removed\": " << rows;
        if (inbox) {
            std::cout << ", \"inbox\": " << inbox->messages << ", \"keys\": " << inbox->keys
                      << ", \"sagas\": " << inbox->sagas;
        }
        std::cout << "}\n";
        return runtime::kExitOk;
    }
    if (source != nullptr) print_count(invocation, *source, "removed", "removed", rows);
    if (inbox) {
        std::cout << "removed " << with_commas(inbox->messages) << " ids older than "
                  << invocation.options.text("inbox-retention") << " from outbox_inbox and "
                  << with_commas(inbox->keys) << " expired keys from outbox_idempotency\n";
        if (inbox->sagas > 0) {
            std::cout << "removed " << with_commas(inbox->sagas)
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
    std::optional<PrunedInbox> inbox;
    if (!dry_run) {
        auto pruned = prune_inbox(*config, invocation.options.duration("inbox-retention").count());
        if (!pruned.ok()) return report(pruned.error());
        inbox = *pruned;
    }
    // A database may have the consumer's side only.
    if (!source.ok() && inbox && source.error().code == ErrorCode::kNoSuchTable) {
        return print_removed(invocation, nullptr, 0, inbox);
    }
    if (!source.ok()) return report(source.error());
    const auto recorder = (*source)->open_recorder();
    if (!recorder.ok()) return report(recorder.error());
    if (dry_run) {
        const auto count = (*recorder)->prunable(invocation.options.duration("retention"));
        if (!count.ok()) return report(count.error());
        return print_count(invocation, **source, "would_remove", "would remove", *count);
    }
    std::size_t removed = 0;
    while (true) {
        const auto batch =
            (*recorder)->prune(invocation.options.duration("retention"), kPruneBatch);
        if (!batch.ok()) return report(batch.error());
        removed += *batch;
        if (*batch < kPruneBatch) break;
    }
    return print_removed(invocation, source->get(), static_cast<std::int64_t>(removed), inbox);
}

}  // namespace outbox::app
