#pragma once

#include <string>
#include <string_view>

namespace outbox::schema {

/// What a URI reference means at a place whose URI is `base` (RFC 3986, section 5.2). A base may be
/// relative, too, or empty.
[[nodiscard]] std::string resolve_uri(std::string_view base, std::string_view reference);

}  // namespace outbox::schema
