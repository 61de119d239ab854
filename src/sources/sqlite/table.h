#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

namespace outbox::sqlite {

/// The outbox table as reader, recorder and lease need it.
struct Table {
    std::string path;  ///< Of the database file.
    std::string name;
    std::string sql;     ///< The name, quoted.
    std::string source;  ///< The `source` column of the side tables: name[/tenant,...]
    std::vector<std::string> tenants;
    int busy_timeout_ms = 0;

    [[nodiscard]] bool wants(std::string_view tenant) const {
        return tenants.empty() ||
               std::find(tenants.begin(), tenants.end(), tenant) != tenants.end();
    }
};

/// The file that a sqlite:///path URL names.
Result<std::string> database_path(const std::string& url);

}  // namespace outbox::sqlite
