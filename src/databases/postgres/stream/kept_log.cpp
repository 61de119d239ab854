#include "databases/postgres/stream/kept_log.h"

namespace outbox::postgres {
namespace {

constexpr std::chrono::seconds kLookEvery{1};

}  // namespace

Status KeptLog::look() {
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ < kLookEvery) return {};
    looked_ = now;
    const Result<Rows> rows = connection_.query(
        "SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)), 0)::bigint "
        "FROM pg_replication_slots WHERE temporary AND database = current_database() "
        "AND starts_with(slot_name::text, $1)",
        Params().text(slot_prefix_));
    if (!rows.ok()) return rows.status();
    bytes_ = rows->integer(0, 0);
    if (bytes_ <= max_bytes_) return {};
    return {ErrorCode::kUnsupported, Advice::kRetryDestination,
            "the server keeps " + std::to_string(bytes_ >> 20) +
                " MiB of its log for the stream; end the oldest transaction of the cluster "
                "(pg_stat_activity by xact_start, pg_prepared_xacts)"};
}

}  // namespace outbox::postgres
