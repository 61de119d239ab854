#include "databases/postgres/schema_objects.h"

#include <array>

#include "core/sql_text.h"

namespace outbox::postgres {
namespace {

constexpr auto kTable = SchemaObject::Kind::kTable;
constexpr auto kView = SchemaObject::Kind::kView;
constexpr auto kFunction = SchemaObject::Kind::kFunction;
constexpr auto kIndex = SchemaObject::Kind::kIndex;
constexpr std::string_view kProducer = "producer";
constexpr std::string_view kConsumer = "consumer";
constexpr std::string_view kAll = "SELECT, INSERT, UPDATE, DELETE";
constexpr std::string_view kExecute = "EXECUTE";
// All columns but the position: with that one a role could number a row by hand, beyond all others.
constexpr std::string_view kWrite =
    "INSERT (id, aggregate_type, aggregate_id, event_type, payload, headers, tenant_id, schema_id, "
    "schema_version, occurred_at, topic, key, routing_key, available_at)";

constexpr SchemaObject index(std::string_view side, bool beside_adopted, std::string_view name,
                             std::string_view table, bool needed = false) {
    return {kIndex, side, beside_adopted, name, "", "", "", "", table, needed};
}

// Kind, side, beside an adopted table, name, then the rights of writer, relay, consumer, operator.
constexpr std::array kObjects{
    SchemaObject{kTable, "", false, "outbox_migrations", "", "SELECT", "", "SELECT"},
    SchemaObject{kTable, kProducer, false, "outbox_events", kWrite,
                 "SELECT, INSERT, UPDATE, DELETE", kWrite, "SELECT, INSERT"},
    SchemaObject{kTable, kProducer, false, "outbox_scheduled", kWrite, "SELECT, DELETE", kWrite,
                 "SELECT, DELETE"},
    SchemaObject{kTable, kProducer, true, "outbox_lease", "", "SELECT, INSERT, UPDATE", "",
                 "SELECT, UPDATE"},
    SchemaObject{kTable, kProducer, true, "outbox_routes", "", kAll, "", "SELECT, UPDATE, DELETE"},
    SchemaObject{kTable, kProducer, true, "outbox_ledger", "", kAll, "", "SELECT, UPDATE, DELETE"},
    SchemaObject{kTable, kProducer, true, "outbox_route_done", "", kAll, "",
                 "SELECT, UPDATE, DELETE"},
    SchemaObject{kTable, kProducer, true, "outbox_delivery", "", kAll, "",
                 "SELECT, UPDATE, DELETE"},
    SchemaObject{kTable, kProducer, true, "outbox_dead_letters", "", kAll, "",
                 "SELECT, UPDATE, DELETE"},
    SchemaObject{kTable, kProducer, true, "outbox_route_stats", "", kAll, "", "SELECT, UPDATE"},
    SchemaObject{kTable, kProducer, true, "outbox_standbys", "", kAll, "", "SELECT"},
    SchemaObject{kTable, kProducer, false, "outbox_segments", "", "SELECT", "", "SELECT"},
    SchemaObject{kTable, kProducer, false, "outbox_replays", "", "", "", "SELECT, INSERT, UPDATE",
                 "", true, true},
    SchemaObject{kTable, kProducer, false, "outbox_paused_tenants", "", "SELECT", "",
                 "SELECT, INSERT, DELETE", "", true, true},
    SchemaObject{kTable, "", true, "outbox_audit", "", "", "", "SELECT, INSERT"},
    SchemaObject{kFunction, "", true, "outbox_refuse_change", "", "", "", ""},
    SchemaObject{kView, kProducer, false, "outbox_status", "", "", "", "SELECT"},
    SchemaObject{kFunction, kProducer, false, "outbox_uuidv7", kExecute, kExecute, kExecute,
                 kExecute},
    SchemaObject{kFunction, kProducer, false, "outbox_refuse_payload", kExecute, kExecute, kExecute,
                 kExecute},
    SchemaObject{kFunction, kProducer, false, "outbox_refuse_event", kExecute, kExecute, kExecute,
                 kExecute},
    SchemaObject{kFunction, kProducer, false, "outbox_source", "", "", "", kExecute},
    SchemaObject{kFunction, kProducer, false, "outbox_ledger_source", "", "", "", kExecute},
    SchemaObject{kFunction, kProducer, false, "outbox_unfinished", "", "", "", ""},
    SchemaObject{kFunction, kProducer, false, "outbox_segment_attached", "", "", "", ""},
    SchemaObject{kFunction, kProducer, false, "outbox_segment_spare", "", kExecute, "", kExecute},
    SchemaObject{kFunction, kProducer, false, "outbox_segment_turn", "", kExecute, "", kExecute},
    SchemaObject{kFunction, kProducer, false, "outbox_segment_empty", "", kExecute, "", kExecute},
    SchemaObject{kFunction, kProducer, false, "outbox_lock_keys", kExecute, "", kExecute, ""},
    SchemaObject{kFunction, kProducer, false, "outbox_emit", kExecute, "", kExecute, ""},
    SchemaObject{kFunction, kProducer, false, "outbox_fence", kExecute, "", kExecute, ""},
    SchemaObject{kTable, kConsumer, false, "outbox_mailbox", "", "SELECT, INSERT", kAll, "SELECT"},
    SchemaObject{kTable, kConsumer, false, "outbox_mailbox_tries", "", "", kAll, "SELECT"},
    SchemaObject{kFunction, kConsumer, false, "outbox_message_time", "", "", kExecute, ""},
    SchemaObject{kFunction, kConsumer, false, "outbox_mailbox_count", "", "", kExecute, ""},
    SchemaObject{kFunction, kConsumer, false, "outbox_mailbox_bury", "", "", kExecute, ""},
    SchemaObject{kFunction, kConsumer, false, "outbox_mailbox_take", "", "", kExecute, ""},
    SchemaObject{kFunction, kConsumer, false, "outbox_mailbox_done", "", "", kExecute, ""},
    SchemaObject{kFunction, kConsumer, false, "outbox_mailbox_failed", "", "", kExecute, ""},
    SchemaObject{kTable, kConsumer, false, "outbox_inbox", "", "", kAll, "SELECT, UPDATE, DELETE"},
    SchemaObject{kTable, kConsumer, false, "outbox_inbox_dead_letters", "", "", kAll,
                 "SELECT, UPDATE, DELETE"},
    SchemaObject{kTable, kConsumer, false, "outbox_inbox_floor", "", "", kAll,
                 "SELECT, INSERT, UPDATE"},
    SchemaObject{kTable, kConsumer, false, "outbox_inbox_sequences", "", "", kAll, "SELECT"},
    SchemaObject{kTable, kConsumer, false, "outbox_inbox_offsets", "", "", kAll, "SELECT"},
    SchemaObject{kTable, kConsumer, false, "outbox_inbox_stats", "", "", kAll, "SELECT"},
    SchemaObject{kTable, kConsumer, false, "outbox_inbox_begun", "", "", kAll, ""},
    SchemaObject{kTable, kConsumer, false, "outbox_idempotency", "", "", kAll,
                 "SELECT, UPDATE, DELETE"},
    SchemaObject{kTable, kConsumer, false, "outbox_saga", "", "", kAll, "SELECT, UPDATE, DELETE"},
    SchemaObject{kTable, kConsumer, false, "outbox_saga_steps", "", "", kAll,
                 "SELECT, UPDATE, DELETE"},
    SchemaObject{kFunction, kConsumer, false, "inbox_accept", "", "", kExecute, ""},
    SchemaObject{kFunction, kConsumer, false, "outbox_wait", "", "", kExecute, kExecute},
    SchemaObject{kFunction, kConsumer, false, "inbox_prune", "", "", kExecute, kExecute},
    SchemaObject{kFunction, kConsumer, false, "idempotency_claim", "", "", kExecute, ""},
    SchemaObject{kFunction, kConsumer, false, "idempotency_complete", "", "", kExecute, ""},
    SchemaObject{kFunction, kConsumer, false, "idempotency_release", "", "", kExecute, ""},
    SchemaObject{kFunction, kConsumer, false, "idempotency_prune", "", "", kExecute, kExecute},
    SchemaObject{kFunction, kConsumer, false, "saga_prune", "", "", kExecute, kExecute},
    SchemaObject{kTable, kConsumer, false, "outbox_webhook_endpoints", "", "SELECT, UPDATE", "",
                 kAll},
    SchemaObject{kTable, kConsumer, false, "outbox_webhook_deliveries", "", kAll, "",
                 "SELECT, UPDATE, DELETE"},
    SchemaObject{kTable, kConsumer, false, "outbox_webhook_lease", "", "SELECT, INSERT, UPDATE", "",
                 "SELECT"},
    index(kProducer, true, "outbox_route_done_owed", "outbox_route_done"),
    index(kProducer, true, "outbox_delivery_position", "outbox_delivery"),
    index(kProducer, true, "outbox_dead_letters_event", "outbox_dead_letters", true),
    index(kProducer, true, "outbox_dead_letters_retry", "outbox_dead_letters"),
    index(kConsumer, false, "outbox_inbox_dead_letters_retry", "outbox_inbox_dead_letters"),
    index(kConsumer, false, "outbox_inbox_age", "outbox_inbox"),
    index(kConsumer, false, "outbox_idempotency_expiry", "outbox_idempotency"),
    index(kConsumer, false, "outbox_saga_open", "outbox_saga"),
    index(kConsumer, false, "outbox_saga_finished", "outbox_saga"),
    index(kConsumer, false, "outbox_saga_steps_age", "outbox_saga_steps"),
    index(kConsumer, false, "outbox_webhook_failing", "outbox_webhook_deliveries"),
    index(kConsumer, false, "outbox_webhook_failing_keys", "outbox_webhook_deliveries"),
};

}  // namespace

std::span<const SchemaObject> schema_objects() {
    return kObjects;
}

std::vector<std::string_view> objects_of_side(std::string_view side) {
    std::vector<std::string_view> names;
    for (const SchemaObject& object : kObjects) {
        if (object.kind == kIndex) continue;
        if (side.empty() || object.side.empty() || object.side == side)
            names.push_back(object.name);
    }
    return names;
}

std::vector<std::string_view> objects_of_relay(bool with_events) {
    std::vector<std::string_view> names;
    for (const SchemaObject& object : kObjects) {
        if (object.kind == kIndex) continue;
        const bool events = with_events && object.side != kConsumer;
        const bool reads = object.on_demand && !object.relay.empty();
        if (events || object.beside_adopted || reads) names.push_back(object.name);
    }
    return names;
}

std::string unlogged_sql(std::span<const std::string_view> names, const std::string& place) {
    std::string list;
    for (const std::string_view name : names) {
        list.append(list.empty() ? "" : ", ").append("to_regclass(");
        list.append(quote_literal(place + std::string(name))).append(")");
    }
    return "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) FROM pg_class c JOIN "
           "pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND c.relpersistence = "
           "'u' AND c.oid IN (" +
           list + ") ORDER BY 1";
}

}  // namespace outbox::postgres
