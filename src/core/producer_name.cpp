#include "core/producer_name.h"

#include <string_view>

namespace outbox {

// The source is last: it alone may hold what stands between the parts.
std::string producer_name(const LedgerLife& life) {
    constexpr std::string_view kBetween = "|";
    std::string name = life.database;
    name.append(kBetween).append(life.table);
    name.append(kBetween).append(std::to_string(life.since_us));
    return name.append(kBetween).append(life.source);
}

}  // namespace outbox
