#pragma once

namespace outbox::net::http_status {

// RFC 9110, and 429 of RFC 6585.

inline constexpr int kOk = 200;
inline constexpr int kUnauthorized = 401;
inline constexpr int kForbidden = 403;
inline constexpr int kNotFound = 404;
inline constexpr int kGone = 410;
inline constexpr int kContentTooLarge = 413;
inline constexpr int kTooManyRequests = 429;
inline constexpr int kServersFault = 500;  ///< And all above it.
inline constexpr int kBadGateway = 502;
inline constexpr int kServiceUnavailable = 503;
inline constexpr int kGatewayTimeout = 504;

}  // namespace outbox::net::http_status
