#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::runtime {

struct Property {
    std::string name;
    std::string value;
    std::size_t line = 0;  ///< Of the file, where it begins; the first is 1.
};

/// What java.util.Properties reads: one property a line, `=`, `:` or a blank behind its name, lines
/// that a backslash continues, comments, escapes. In the order of the file; a name that comes again
/// counts with its last value, which is up to the caller.
[[nodiscard]] std::vector<Property> read_properties(std::string_view text);

}  // namespace outbox::runtime
