#pragma once

#include <outbox/spi/source.h>

#include "tests/support/eventually.h"

namespace outbox::test {

// The backlog as it was counted: a machine with much else to do gets an estimate at first.
inline std::int64_t counted_backlog(spi::Recorder& recorder) {
    std::int64_t backlog = -1;
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "the backlog is counted", [&] {
        const auto stats = recorder.stats();
        if (!stats.ok() || stats->estimated) return false;
        backlog = stats->backlog;
        return true;
    }));
    return backlog;
}

}  // namespace outbox::test
