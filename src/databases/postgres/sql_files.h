#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/embedded_sql.h"

namespace outbox::postgres {

/// The text of a file for PostgreSQL with `values`, `{{schema}}` and, for what stands in E'...',
/// `{{schema_text}}` filled in. `schema` is quoted where it needs that, and may have any
/// characters. To be run behind `kCatalogPath`.
[[nodiscard]] std::string fill_sql(std::string_view text, std::string_view schema,
                                   std::vector<TemplateValue> values = {});

/// With a path that names a schema, an operator or function of somebody else there whose arguments
/// fit exactly is chosen before the server's own that needs a cast, wherever it stands in the path.
inline constexpr std::string_view kCatalogPath = "SET LOCAL search_path = pg_catalog, pg_temp;\n";

}  // namespace outbox::postgres
