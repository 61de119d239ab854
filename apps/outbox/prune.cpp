#include <iostream>

#include "commands.h"
#include "print.h"
#include "registry.h"
#include "runtime/exit_codes.h"

namespace outbox::app {
namespace {

constexpr std::size_t kPruneBatch = 1'000;

}  // namespace

int run_prune(const runtime::Invocation& invocation) {
    const auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return report(config.error());
    const auto source = make_source(*config);
    if (!source.ok()) return report(source.error());
    const auto recorder = (*source)->open_recorder();
    if (!recorder.ok()) return report(recorder.error());
    std::size_t removed = 0;
    while (true) {
        const auto batch =
            (*recorder)->prune(invocation.options.duration("retention"), kPruneBatch);
        if (!batch.ok()) return report(batch.error());
        removed += *batch;
        if (*batch < kPruneBatch) break;
    }
    const auto count = static_cast<std::int64_t>(removed);
    if (invocation.options.flag("json")) {
        std::cout << "{\"removed\": " << count << "}\n";
    } else {
        std::cout << "removed " << with_commas(count) << " published rows older than "
                  << invocation.options.text("retention") << " from " << (*source)->table_name()
                  << "\n";
    }
    return runtime::kExitOk;
}

}  // namespace outbox::app
