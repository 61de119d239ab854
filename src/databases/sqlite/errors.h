#pragma once

#include <string>
#include <string_view>

#include <outbox/error.h>

namespace outbox::sqlite {

/// SQLite's (extended) result code as our error.
[[nodiscard]] ErrorInfo sqlite_error(int code, std::string_view message, const std::string& path);

/// Of a statement over one row of the owner's: a constraint, a type or a trigger of the owner's is
/// in the way of that row alone. The statement has changed nothing.
[[nodiscard]] bool refuses_row(const ErrorInfo& error);

}  // namespace outbox::sqlite
