#include "core/operations.h"

namespace outbox {

ErrorInfo relay_is_running(const std::string& owner) {
    return {
        ErrorCode::kConflict,
        Advice::kStop,
        {},
        "relay " + owner +
            " (host:process) is running on this table; stop it and those that stand by first: "
            "kill -TERM its process, it hands over at once; then do this, and start them again"};
}

ErrorInfo two_letters(const std::string& one, const std::string& other) {
    return {ErrorCode::kConflict,
            Advice::kStop,
            {},
            "routes '" + one + "' and '" + other +
                "' have dead letters of one event, which would become one: discard one of them, "
                "outbox dead discard ID --route NAME"};
}

}  // namespace outbox
