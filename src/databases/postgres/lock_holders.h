#pragma once

#include <string>
#include <string_view>

namespace outbox::postgres {

/// The state of a statement that waited for a lock for as long as its session may.
inline constexpr std::string_view kNoLockState = "55P03";

/// Who has had locks on tables of an outbox: one text, or NULL where nobody is to be seen. $1: for
/// how many seconds at least; $2: the schema of the tables, empty for any; $3: the statement that
/// names the tables, empty for any. Those that wait for others themselves, as a relay may, stand
/// behind those that do not; the details of others are NULL to who may not see them.
[[nodiscard]] std::string_view lock_holders_sql();

/// What a command says where a lock was not to be had. `waited`: "for over 3 s"; `who`: by
/// `lock_holders_sql`, or empty.
[[nodiscard]] std::string no_lock_message(const std::string& waited, const std::string& who);

}  // namespace outbox::postgres
