#include "producer/uninstall.h"

#include <outbox/error.h>

namespace outbox::producer {

void refuse_uninstall(const std::string& where, const std::string& what) {
    throw Error(ErrorCode::kMigrationRefused, Advice::kStop,
                where + " still has: " + what +
                    ". Nothing was changed. Let a relay deliver the events and consumers take "
                    "their messages, settle dead letters (`outbox dead retry` or `discard`), stop "
                    "the relays, and try again. No option removes what waits: what is to be lost "
                    "has to be deleted from its table first.");
}

}  // namespace outbox::producer
