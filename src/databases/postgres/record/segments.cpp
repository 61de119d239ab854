#include "databases/postgres/record/segments.h"

#include <algorithm>
#include <string>
#include <thread>

#include "core/sql_text.h"

namespace outbox::postgres {
namespace {

// So many parts of `retention` are current one after another: rows stay for one part more at most.
constexpr int kParts = 4;
// Each one costs a read a look.
constexpr std::int64_t kMostSegments = 64;
constexpr std::chrono::milliseconds kWritersEvery{20};
constexpr int kWritersLooks = 25;
// A segment may be large, and its rows are read once.
constexpr const char* kBegin = "BEGIN; SET LOCAL statement_timeout = '1h'";

}  // namespace

Segments::Segments(const Table& table)
    : table_(table), place_(quote_identifier(table.schema) + "."), writers_(table) {}

Result<std::size_t> Segments::turn(Connection& connection, std::chrono::seconds retention) {
    // In a transaction of its own: only what is committed may be named to writers.
    const auto spare = connection.query("SELECT " + place_ + "outbox_segment_spare($1::integer)",
                                        Params().integer(kMostSegments));
    if (!spare.ok()) return spare.status();
    const auto turned =
        connection.query("SELECT " + place_ + "outbox_segment_turn($1 * interval '1 second' / " +
                             std::to_string(kParts) + ")",
                         Params().integer(retention.count()));
    if (!turned.ok()) return turned.status();
    const auto numbers = due(connection, retention);
    if (!numbers.ok()) return numbers.status();
    if (Status waited = wait_for_writers(connection, *numbers); !waited.ok()) return waited;
    std::size_t removed = 0;
    for (const spi::Position segment : *numbers) {
        if (!left_.contains(segment)) continue;
        const auto rows = empty(connection, segment, retention);
        if (!rows.ok()) return rows.status();
        removed += *rows;
    }
    // Told when all else is done: what is emptied is what can be written to next.
    if (spare->text(0, 0).data() == nullptr) return removed;
    return ErrorInfo{ErrorCode::kQueryFailed, Advice::kRetryEvent, "",
                     "no segment can be added to " + table_.sql + ": " + spare->string(0, 0) +
                         ". Writers go on, and the one that they write to grows"};
}

Result<Segments::Numbers> Segments::due(Connection& connection, std::chrono::seconds retention) {
    const Result<Rows> rows = connection.query(
        "SELECT segment::bigint FROM " + place_ +
            "outbox_segments WHERE left_at <= clock_timestamp() - $1 * interval '1 second' ORDER "
            "BY segment",
        Params().integer(retention.count()));
    if (!rows.ok()) return rows.status();
    Numbers out;
    for (int row = 0; row < rows->size(); ++row) out.push_back(rows->integer(row, 0));
    return out;
}

// Who began to write while a segment was current may still come to it with a row, and would wait
// for the lock that emptying takes: those have ended first. Most have long ago.
Status Segments::wait_for_writers(Connection& connection, const Numbers& due) {
    std::erase_if(
        left_, [&](spi::Position one) { return !std::binary_search(due.begin(), due.end(), one); });
    const Numbers watched = leaving_.positions();
    Numbers fresh;
    std::copy_if(due.begin(), due.end(), std::back_inserter(fresh), [&](spi::Position one) {
        return !left_.contains(one) && !std::binary_search(watched.begin(), watched.end(), one);
    });
    leaving_.add(fresh);
    for (int look = 0; look < kWritersLooks && !leaving_.empty(); ++look) {
        if (look > 0) std::this_thread::sleep_for(kWritersEvery);
        const auto writers = writers_.ask(connection);
        if (!writers.ok()) return writers.status();
        leaving_.writers_now(*writers);
        const Numbers gone = leaving_.looked({});
        left_.insert(gone.begin(), gone.end());
    }
    return {};
}

Result<std::size_t> Segments::empty(Connection& connection, spi::Position segment,
                                    std::chrono::seconds retention) {
    Status status = connection.execute(kBegin);
    if (!status.ok()) return status;
    const Result<Rows> rows =
        connection.query("SELECT removed, why FROM " + place_ +
                             "outbox_segment_empty($1::integer, $2 * interval '1 second')",
                         Params().integer(segment).integer(retention.count()));
    status = connection.execute(rows.ok() ? "COMMIT" : "ROLLBACK");
    if (!rows.ok()) return rows.status();
    if (!status.ok()) return status;
    if (rows->text(0, 1) == "unfinished") {
        return ErrorInfo{ErrorCode::kQueryFailed, Advice::kRetryEvent, "",
                         "segment " + std::to_string(segment) + " of " + table_.sql +
                             " has a row that was written where all was settled (numbered by "
                             "hand?). It is sent now"};
    }
    if (rows->text(0, 0).data() == nullptr) return std::size_t{0};
    left_.erase(segment);
    return static_cast<std::size_t>(rows->integer(0, 0));
}

Result<std::int64_t> Segments::rows_due(Connection& connection, std::chrono::seconds retention) {
    const auto numbers = due(connection, retention);
    if (!numbers.ok()) return numbers.status();
    const Result<Rows> rows =
        connection.query("SELECT count(*) FROM " + table_.sql +
                             " WHERE segment = ANY($1) AND position <= (SELECT coalesce(min("
                             "settled), 0) FROM " +
                             table_.side + "outbox_routes WHERE split_part(source, '/', 1) = $2)",
                         Params().integers(*numbers).text(table_.schema + "." + table_.name));
    if (!rows.ok()) return rows.status();
    return rows->integer(0, 0);
}

}  // namespace outbox::postgres
