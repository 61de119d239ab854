#include "databases/postgres/emit_errors.h"

#include <string_view>

#include "core/transport.h"
#include "core/url.h"

namespace outbox::producer {
namespace {

bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

bool succeeded(const PGresult* result) {
    const auto status = PQresultStatus(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

ErrorInfo connect_error(PGconn* connection, const std::string& url) {
    const std::string reason = redacted_line(PQerrorMessage(connection));
    const std::string where = "cannot connect to " + redact(url) + ": " + reason;
    if (contains(reason, "authentication failed") || contains(reason, "no password supplied") ||
        contains(reason, "pg_hba.conf")) {
        return {ErrorCode::kAuthFailed, Advice::kStop, "",
                where + "; check user, password and pg_hba.conf"};
    }
    if (contains(reason, "database \"") && contains(reason, "does not exist")) {
        return {ErrorCode::kNoSuchDatabase, Advice::kStop, "",
                where + "; create it, or correct the URL"};
    }
    std::string_view remedy = certificate_remedy(reason);
    if (remedy.empty()) remedy = "check that the server runs and that host and port are right";
    return {ErrorCode::kConnectFailed, Advice::kRetryDestination, "",
            where + "; " + std::string(remedy)};
}

}  // namespace outbox::producer
