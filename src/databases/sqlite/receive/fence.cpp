#include "consumer/fence.h"

#include <outbox/adapters/sqlite_fence.h>

#include "consumer/message_time.h"
#include "databases/sqlite/receive/transaction.h"

namespace outbox {
namespace {

// As the SQL function outbox_wait of PostgreSQL, where it is explained. One statement: one
// snapshot.
constexpr const char* kLookForEvents =
    "WITH RECURSIVE boxes(mailbox) AS (SELECT min(mailbox) FROM outbox_mailbox UNION ALL "
    "  SELECT (SELECT min(m.mailbox) FROM outbox_mailbox m WHERE m.mailbox > b.mailbox) "
    "  FROM boxes b WHERE b.mailbox IS NOT NULL), "
    "asked AS (SELECT key AS n, value ->> 0 AS id, value ->> 1 AS made FROM json_each(?2)) "
    "SELECT a.id, CASE "
    "  WHEN d.retry_requested_at IS NOT NULL THEN 'retry_requested' "
    "  WHEN d.message_id IS NOT NULL THEN 'dead_letter' "
    "  WHEN i.message_id IS NOT NULL THEN CASE WHEN i.discarded THEN 'discarded' ELSE '' END "
    "  WHEN EXISTS (SELECT 1 FROM boxes b CROSS JOIN outbox_mailbox m "
    "    WHERE m.mailbox = b.mailbox AND m.id = a.id) THEN 'in_mailbox' "
    "  WHEN f.floor IS NULL THEN 'not_seen' "
    "  WHEN a.made IS NULL THEN 'perhaps_forgotten' "
    "  WHEN a.made < f.floor THEN 'forgotten' ELSE 'not_seen' END "
    "FROM asked a "
    "LEFT JOIN outbox_inbox i ON i.consumer = ?1 AND i.message_id = a.id "
    "LEFT JOIN outbox_inbox_dead_letters d ON d.consumer = ?1 AND d.message_id = a.id "
    "LEFT JOIN outbox_inbox_floor f ON f.consumer = ?1 AND f.floor > -9223372036854775807 "
    "ORDER BY a.n";

// [["018f2d3c-...", 1716000000000000], ["...", null]]
std::string asked_as_json(const std::vector<std::string>& ids) {
    std::string json = "[";
    for (const std::string& id : ids) {
        const auto made = consumer::uuidv7_time_us(id);
        json.append(json.size() > 1 ? ",[\"" : "[\"").append(id).append("\",");
        json.append(made ? std::to_string(*made) : "null").append("]");
    }
    return json + "]";
}

}  // namespace

FenceLook look_for(sqlite3* connection, std::string_view consumer, std::string_view token) {
    const std::string asked = asked_as_json(consumer::fenced_ids(consumer, token));
    sqlite::Statement look = consumer::callers_statement(connection, kLookForEvents,
                                                         "looking for events in outbox_inbox");
    look.lend(consumer).lend(asked);
    consumer::FenceVerdict verdict;
    while (look.step()) verdict.add(look.string(0), look.string(1));
    return std::move(verdict).look();
}

}  // namespace outbox
