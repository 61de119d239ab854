#pragma once

namespace outbox {

/// What the options `table` and `default_tenant` are declared with, for those who read an outbox
/// without the program's options.
inline constexpr const char* kEventTable = "outbox_events";
inline constexpr const char* kDefaultTenant = "default";

}  // namespace outbox
