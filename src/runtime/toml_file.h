#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/result.h>

#include "core/table_mapping.h"
#include "runtime/options.h"

namespace outbox::runtime {

/// A key of `[[route]]`; the ones that are also options have the option's checks and default.
struct RouteKeySpec {
    std::string_view name;
    std::string_view option;  ///< The option of the same meaning, or "".
    bool list = false;
    std::string_view help;
};
[[nodiscard]] std::span<const RouteKeySpec> route_key_table();

/// A key of `[source.table.columns]`: a field of the event, or a column of the owner's state.
struct ColumnKeySpec {
    std::string_view name;
    std::string_view help;
};
[[nodiscard]] std::span<const ColumnKeySpec> column_key_table();

/// One `[[route]]`, checked; keys as in `route_key_table`.
struct RouteEntry {
    std::string where;  ///< "outbox.toml:12:1".
    std::map<std::string, std::vector<std::string>, std::less<>> values;
    std::map<std::string, std::string> sink_options;
    std::map<std::string, std::string> format_options;
};

/// What a configuration file says.
struct FileContent {
    std::string path;  ///< Empty: there is no file.
    std::vector<std::pair<const OptionSpec*, OptionValue>> options;
    std::vector<RouteEntry> routes;
    /// Of tables at the top that bear a format's name: for every route of that format.
    std::map<std::string, std::string> format_options;
    TableMapping mapping;
};

/// Errors: kConfigInvalid with file, line and column: a file that cannot be read, malformed TOML,
/// an unknown key (with the closest one), a value of the wrong kind.
Result<FileContent> read_toml_file(const std::string& path);

/// The same of a file's text.
Result<FileContent> read_toml(std::string_view text, const std::string& path);

}  // namespace outbox::runtime
