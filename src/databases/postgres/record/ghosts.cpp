#include "databases/postgres/record/ghosts.h"

#include <algorithm>
#include <map>
#include <string>

#include "core/sql_text.h"
#include "databases/postgres/replication.h"

namespace outbox::postgres {
namespace {

// Where the new server's log left the old one's.
Result<Lsn> parting(const PostgresSourceConfig& config, Connection& connection,
                    std::int64_t old_timeline) {
    Result<ReplicationStream> stream =
        ReplicationStream::open(config.url, config.connect_timeout_s);
    if (stream.ok()) {
        const Result<std::string> history = stream->history();
        if (history.ok()) {
            if (const auto lsn = end_of_timeline(*history, old_timeline)) return *lsn;
        }
    }
    const Result<Rows> rows = connection.query("SELECT pg_current_wal_flush_lsn()");
    if (!rows.ok()) return rows.status();
    return pgoutput::parse_lsn(rows->text(0, 0)).value_or(0);
}

}  // namespace

Result<std::vector<spi::Ghost>> find_ghosts(const PostgresSourceConfig& config, const Table& table,
                                            Identity& identity) {
    const std::int64_t old_timeline = identity.left_timeline();
    // Without lasting positions nothing is known of what was removed.
    if (old_timeline == 0 || !table.by_position) return std::vector<spi::Ghost>{};
    Result<Connection> connection = Connection::open(config.url, config.connect_timeout_s);
    if (!connection.ok()) return connection.status();
    const Result<Lsn> end = parting(config, *connection, old_timeline);
    if (!end.ok()) return end.status();
    std::vector<spi::Ghost> ghosts = identity.removed_behind(*end);
    std::vector<spi::Position> positions;
    positions.reserve(ghosts.size());
    for (const spi::Ghost& ghost : ghosts) positions.push_back(ghost.position);
    // A position may have been given anew: the id tells.
    const Result<Rows> rows =
        connection->query("SELECT t." + quote_identifier(table.position) + ", " +
                              table.quoted("id") + "::text FROM " + table.sql + " t WHERE t." +
                              quote_identifier(table.position) + " = ANY($1)",
                          Params().integers(positions));
    if (!rows.ok()) return rows.status();
    std::map<spi::Position, std::string> there;
    for (int row = 0; row < rows->size(); ++row) {
        there.emplace(rows->integer(row, 0), rows->string(row, 1));
    }
    std::erase_if(ghosts, [&](const spi::Ghost& ghost) {
        const auto found = there.find(ghost.position);
        return found != there.end() && ghost.id.ends_with(found->second);
    });
    identity.forget_change();
    return ghosts;
}

}  // namespace outbox::postgres
