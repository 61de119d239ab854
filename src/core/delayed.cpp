#include "core/delayed.h"

namespace outbox::core {

spi::Finding judge_delayed(std::int64_t count, const std::string& id) {
    using enum spi::Finding::Grade;
    if (count == 0) return {kOk, "delayed events: none is overdue", {}};
    return {kWarn,
            "delayed events: " + std::to_string(count) + (count == kMaxOverdue ? " or more" : "") +
                (count == 1 ? " was" : " were") + " due more than " +
                std::to_string(kOverdueS / 60) +
                " minutes ago and not moved into the outbox table. Where a relay leads, the table "
                "refuses them (a constraint, a trigger, --max-payload): event=delayed_refused in "
                "its log has the error; and outbox explain " +
                id,
            {}};
}

}  // namespace outbox::core
