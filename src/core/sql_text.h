#pragma once

#include <string>
#include <string_view>

namespace outbox {

/// `name` as an SQL identifier: "a ""name""".
[[nodiscard]] std::string quote_identifier(std::string_view name);

/// `text` as an SQL literal: 'it''s'. PostgreSQL reads it so with standard_conforming_strings.
[[nodiscard]] std::string quote_literal(std::string_view text);

}  // namespace outbox
