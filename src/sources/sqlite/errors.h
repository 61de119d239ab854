#pragma once

#include <string>
#include <string_view>

#include <outbox/error.h>

namespace outbox::sqlite {

/// SQLite's (extended) result code as our error.
[[nodiscard]] ErrorInfo sqlite_error(int code, std::string_view message, const std::string& path);

}  // namespace outbox::sqlite
