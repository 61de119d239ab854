#include "mailbox/errors.h"

#include <algorithm>
#include <utility>

#include "core/url.h"

namespace outbox::mailbox {

ErrorInfo destination_error(ErrorCode code, Advice advice, std::string backend_code,
                            std::string_view message, std::string_view remedy) {
    return {code, advice, std::move(backend_code),
            redacted_line(message) + "; " + std::string(remedy)};
}

ErrorInfo no_table(const std::string& where, const ErrorInfo& cause, std::string_view sql) {
    std::string statements;
    while (!sql.empty()) {
        const auto end = sql.find('\n');
        std::string_view line = sql.substr(0, end);
        sql = end == std::string_view::npos ? "" : sql.substr(end + 1);
        if (line.starts_with("--") || line.empty()) continue;
        line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
        statements.append(statements.empty() ? "" : " ").append(line);
    }
    return {ErrorCode::kNoSuchTable, Advice::kRetryDestination, cause.backend_code,
            "outbox_mailbox does not exist in " + where +
                " and cannot be created: " + cause.message + "; have it created: " + statements};
}

}  // namespace outbox::mailbox
