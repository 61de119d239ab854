#pragma once

#include <string>
#include <string_view>

namespace outbox {

/// `name` as an SQL identifier: "a ""name""".
[[nodiscard]] std::string quote_identifier(std::string_view name);

/// `text` as an SQL literal: 'it''s'. PostgreSQL reads it so with standard_conforming_strings.
[[nodiscard]] std::string quote_literal(std::string_view text);

/// Whose a row is, as SQL: what `tenant` (SQL of the row's text) says, `by_default` where that is
/// NULL or ''. Every condition on tenants is made of it, so that readers and commands agree.
[[nodiscard]] std::string tenant_or(std::string_view tenant, std::string_view by_default);

}  // namespace outbox
