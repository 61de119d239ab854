#include "core/embedded_sql.h"

namespace outbox {

std::string_view embedded_sql_text(std::string_view path) {
    for (const EmbeddedSql& file : embedded_sql()) {
        if (file.path == path) return file.text;
    }
    return {};
}

}  // namespace outbox
