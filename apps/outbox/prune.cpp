#include <iostream>

#include "commands.h"
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

}  // namespace

int run_prune(const runtime::Invocation& invocation) {
    const auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return report(config.error());
    const auto source = make_source(*config);
    if (!source.ok()) return report(source.error());
    const auto recorder = (*source)->open_recorder();
    if (!recorder.ok()) return report(recorder.error());
    if (invocation.options.flag("dry-run")) {
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
    return print_count(invocation, **source, "removed", "removed",
                       static_cast<std::int64_t>(removed));
}

}  // namespace outbox::app
