#include "consumer/workers/delivery.h"

#include "consumer/debezium.h"
#include "consumer/message_time.h"
#include "core/utf8.h"

namespace outbox::consumer {

std::string fault_of_id(std::string_view id) {
    if (id.empty()) return "has no id, so a repeat could not be told from a new one";
    if (id.size() > kMaxIdBytes) {
        return "has an id of " + std::to_string(id.size()) + " bytes; an id has at most 255";
    }
    const bool has_nul = id.find('\0') != std::string_view::npos;
    return has_nul || !is_utf8(id) ? "has an id that is not UTF-8 or holds a NUL" : "";
}

std::vector<std::string> other_ids(std::string_view header_id, std::string_view id) {
    std::vector<std::string> others;
    const auto text = debezium_id(header_id);
    if (!text) return others;
    for (const std::string_view one : {header_id, std::string_view(*text)}) {
        if (one != id && fault_of_id(one).empty()) others.emplace_back(one);
    }
    return others;
}

std::optional<OffsetStep> Origin::step_after(const spi::EventView& /*event*/) const {
    return std::nullopt;
}

void Origin::moved_to(std::int64_t /*next*/) {}

}  // namespace outbox::consumer
