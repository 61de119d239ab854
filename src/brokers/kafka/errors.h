#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <outbox/error.h>

namespace outbox::kafka {

/// What librdkafka reports, in its own words.
struct Fault {
    std::string name;  ///< "MSG_SIZE_TOO_LARGE"; names of local errors begin with "_".
    std::string text;
    std::string remedy = {};  ///< Better than the table's; empty: the table's.
};

/// The one table from librdkafka's errors to ours. `what` says what failed ("topic orders").
ErrorInfo to_error(const Fault& fault, std::string_view what);

/// Where the fault lies.
enum class Scope : std::uint8_t { kRecord, kTopic, kPartition, kDestination };
Scope scope_of(const Fault& fault);

/// The topic does not exist.
bool is_unknown_topic(const Fault& fault);

}  // namespace outbox::kafka
