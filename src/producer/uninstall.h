#pragma once

#include <string>
#include <string_view>

namespace outbox::producer {

inline constexpr std::string_view kStillNeededState = "OB004";

/// The error of an uninstallation that would lose something. `what`: "3 events, 1 dead letter".
[[noreturn]] void refuse_uninstall(const std::string& where, const std::string& what);

}  // namespace outbox::producer
