#pragma once

#include <string>
#include <string_view>

#include <outbox/producer/migrate.h>

namespace outbox::postgres {

/// The statements between the lock and COMMIT. Raises `producer::kStillNeededState` while events
/// wait or a relay runs; the message is a list of what.
std::string uninstall_body(std::string_view schema, std::string_view quoted_schema,
                           MigrationSide side);

}  // namespace outbox::postgres
