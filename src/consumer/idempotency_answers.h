#pragma once

#include <string>
#include <string_view>

#include <outbox/consumer/idempotency.h>

namespace outbox::consumer {

/// The stored answer; `headers_json` is null where none were stored.
[[nodiscard]] IdempotentAnswer repeat_of(int status, std::string_view headers_json,
                                         std::string_view body);
[[nodiscard]] IdempotentAnswer answer_not_kept();
[[nodiscard]] IdempotentAnswer still_running();
[[nodiscard]] IdempotentAnswer other_request();

/// The headers that may be stored, as a JSON object; what has one name is one array.
[[nodiscard]] std::string storable_headers(const Headers& headers);

/// Throws `Error` kConfigInvalid for options out of range.
void check_claim(const ClaimOptions& options);

/// The error of a completion that came too late.
[[noreturn]] void throw_lease_lost(const IdempotentRequest& request);

}  // namespace outbox::consumer
