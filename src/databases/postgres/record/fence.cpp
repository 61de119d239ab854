#include "databases/postgres/record/fence.h"

#include <utility>

namespace outbox::postgres {

ErrorInfo Fence::lease_lost(std::uint64_t epoch) const {
    return {ErrorCode::kLeaseLost,
            Advice::kStop,
            {},
            "another relay took the lease of " + source_ + " after epoch " + std::to_string(epoch)};
}

// KEY SHARE lets the owner renew beside it; who takes the lease over locks the row FOR UPDATE.
Status Fence::commit(Connection& connection, std::uint64_t epoch,
                     std::vector<Connection::Statement> statements,
                     std::vector<std::int64_t>* affected) const {
    statements.push_back(
        {"SELECT FROM " + lease_ + " WHERE source = $1 AND epoch = $2 FOR KEY SHARE",
         Params().text(source_).integer(static_cast<std::int64_t>(epoch))});
    std::vector<std::int64_t> counts;
    if (Status status = connection.run_pipeline(statements, &counts); !status.ok()) return status;
    const bool ours = counts.back() != 0;
    counts.pop_back();
    if (affected != nullptr) *affected = std::move(counts);
    if (ours) return connection.execute("COMMIT");
    if (Status status = connection.execute("ROLLBACK"); !status.ok()) return status;
    return lease_lost(epoch);
}

}  // namespace outbox::postgres
