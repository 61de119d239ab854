#pragma once

#include <string>
#include <string_view>

#include <outbox/error.h>

namespace outbox::postgres {

/// A SELECT of the schema, quoted, in which there is a table of this name that the role may write
/// to; no row: there is none. For who is about to make one where its search path leads.
[[nodiscard]] std::string elsewhere_sql(std::string_view table);

/// The refusal to make `what` anew beside those in `schema`, which is what others read.
[[nodiscard]] ErrorInfo elsewhere(std::string_view what, std::string_view schema,
                                  std::string_view where);

}  // namespace outbox::postgres
