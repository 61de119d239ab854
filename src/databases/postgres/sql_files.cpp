#include "databases/postgres/sql_files.h"

#include <utility>

namespace outbox::postgres {

std::string fill_sql(std::string_view text, std::string_view schema,
                     std::vector<TemplateValue> values) {
    std::string escaped;
    for (const char c : schema) escaped.append(c == '\'' || c == '\\' ? 2 : 1, c);
    values.push_back({"schema", std::string(schema)});
    values.push_back({"schema_text", std::move(escaped)});
    // A schema's name must not end the quotes of a function's body.
    std::string quotes = "$$";
    while (schema.find(quotes) != std::string_view::npos) quotes.insert(1, "x");
    std::string quoted(text);
    for (auto at = quoted.find("$$"); at != std::string::npos;
         at = quoted.find("$$", at + quotes.size())) {
        quoted.replace(at, 2, quotes);
    }
    return fill_template(quoted, values);
}

}  // namespace outbox::postgres
