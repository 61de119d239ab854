#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include <outbox/result.h>

#include "core/operations.h"

namespace outbox::app {

/// What somebody wants done to dead letters from the dashboard.
struct Change {
    DeadFilter filter;
    std::string actor;
    std::string reason;
    std::int64_t expected = 0;
    std::int64_t retrying = 0;  ///< Of those, as counted.
};

/// Reads the body of a request. Errors: kConfigInvalid.
Result<Change> change_of(const std::string& body);

/// Retries them, else discards them, where as many match as were counted, and gives the answer to
/// the page. Blocks on the database. Errors: kConflict where others match, or their route is gone:
/// nothing was changed.
Result<nlohmann::ordered_json> change_letters(Operations& operations, const Change& change,
                                              bool retry);

/// A text that every database can hold.
[[nodiscard]] bool is_storable(const std::string& text);

/// A question that the page does not ask: kConfigInvalid.
[[nodiscard]] ErrorInfo wrong(const std::string& what);

}  // namespace outbox::app
