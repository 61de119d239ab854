#pragma once

namespace outbox {

/// How long a connection may take to be made, in seconds, where nobody says otherwise: the default
/// of each `connect_timeout` and `connect_timeout_s` of this library and of the program's option.
inline constexpr int kConnectTimeoutS = 5;

}  // namespace outbox
