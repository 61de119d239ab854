#include "databases/postgres/uninstall.h"

#include "core/sql_text.h"
#include "databases/postgres/schema_objects.h"
#include "producer/uninstall.h"

namespace outbox::postgres {
namespace {

// What is counted in a table before it goes.
struct Waiting {
    std::string_view table;
    std::string where;
    std::string_view what;
};

std::string array_of(const std::vector<std::string_view>& names) {
    std::string list;
    for (const std::string_view name : names) {
        list += (list.empty() ? "" : ", ") + quote_literal(name);
    }
    return "ARRAY[" + list + "]::name[]";
}

std::string count_block(const Waiting& waiting, const std::string& place, bool mine_only) {
    const std::string table = place + "." + std::string(waiting.table);
    return "        IF " + std::string(mine_only ? "mine AND " : "") + "to_regclass(" +
           quote_literal(table) + ") IS NOT NULL THEN\n            EXECUTE " +
           quote_literal("SELECT count(*) FROM " + table + " e" + waiting.where) +
           " INTO n;\n            IF n > 0 THEN found := concat_ws(', ', found, n || " +
           quote_literal(" " + std::string(waiting.what)) + "); END IF;\n        END IF;\n";
}

// What is written but not committed is waited for, and then counted.
std::string lock_block(const std::string& name, const std::string& place) {
    const std::string table = place + "." + name;
    return "        IF pass = 2 AND to_regclass(" + quote_literal(table) +
           ") IS NOT NULL THEN EXECUTE " +
           quote_literal("LOCK TABLE " + table + " IN ACCESS EXCLUSIVE MODE") + "; END IF;\n";
}

}  // namespace

std::string uninstall_body(std::string_view schema, std::string_view quoted_schema,
                           MigrationSide side) {
    const bool producer = side != MigrationSide::kConsumer;
    const bool consumer = side != MigrationSide::kProducer;
    const std::string place(quoted_schema);
    const auto wanted = [&](const SchemaObject& object) {
        return object.side == "producer" ? producer : object.side == "consumer" && consumer;
    };
    std::string tables;
    std::vector<std::string_view> functions;
    for (const SchemaObject& object : schema_objects()) {
        if (!wanted(object)) continue;
        if (object.kind == SchemaObject::Kind::kFunction) functions.push_back(object.name);
        if (object.kind != SchemaObject::Kind::kTable || object.name == "outbox_events") continue;
        tables += (tables.empty() ? "" : ", ") + place + "." + std::string(object.name);
    }
    const std::string events = quote_literal(place + ".outbox_events");
    std::string sql =
        "SET LOCAL lock_timeout = '10s';\n"
        "DO $uninstall$\nDECLARE\n    n bigint;\n    found text;\n    f regprocedure;\n"
        "    -- An outbox_events of another shape is its owner's.\n"
        "    mine boolean := (SELECT count(*) = 6 FROM pg_attribute WHERE attrelid = to_regclass(" +
        events +
        ")\n        AND attname IN ('position', 'headers', 'key', 'tenant_id', "
        "'aggregate_type', 'occurred_at') AND NOT attisdropped);\nBEGIN\n"
        "    -- Counted again when nobody can write any more.\n"
        "    FOR pass IN 1..2 LOOP\n";
    if (producer) {
        for (const std::string_view table : {"outbox_events", "outbox_scheduled"}) {
            const std::string name = place + "." + std::string(table);
            sql += "        IF pass = 2 AND mine AND to_regclass(" + quote_literal(name) +
                   ") IS NOT NULL THEN EXECUTE " +
                   quote_literal("LOCK TABLE " + name + " IN ACCESS EXCLUSIVE MODE") +
                   "; END IF;\n";
        }
        sql += lock_block("outbox_dead_letters", place) + lock_block("outbox_lease", place);
        // Rows that every route has finished only wait for their removal.
        const std::string finished =
            " WHERE NOT EXISTS (SELECT FROM " + place +
            ".outbox_ledger l WHERE split_part(l.source, '/', 1) = " +
            quote_literal(std::string(schema) + ".outbox_events") +
            " AND l.segment = e.position / 65536 AND get_bit(l.done, (e.position % "
            "65536)::integer) = 1 GROUP BY l.source HAVING count(*) >= (SELECT count(*) FROM " +
            place + ".outbox_routes r WHERE r.source = l.source))";
        const std::string ledger = place + ".outbox_ledger";
        const std::string routes = place + ".outbox_routes";
        sql += "        IF to_regclass(" + quote_literal(ledger) + ") IS NULL OR to_regclass(" +
               quote_literal(routes) + ") IS NULL THEN\n" +
               count_block({"outbox_events", "", "events"}, place, true) + "        ELSE\n" +
               count_block({"outbox_events", finished, "events"}, place, true) +
               "        END IF;\n" +
               count_block({"outbox_scheduled", "", "delayed events"}, place, false) +
               count_block({"outbox_dead_letters", "", "dead letters"}, place, false) +
               count_block(
                   {"outbox_lease", " WHERE owner IS NOT NULL AND expires_at > clock_timestamp()",
                    "running relays"},
                   place, false);
    }
    if (consumer) {
        for (const char* table : {"outbox_mailbox", "outbox_inbox_dead_letters", "outbox_saga",
                                  "outbox_webhook_deliveries"}) {
            sql += lock_block(table, place);
        }
        sql +=
            count_block({"outbox_mailbox", "", "messages in mailboxes"}, place, false) +
            count_block({"outbox_inbox_dead_letters", "", "dead letters of consumers"}, place,
                        false) +
            count_block({"outbox_saga", " WHERE finished_at IS NULL", "open sagas"}, place, false) +
            count_block({"outbox_webhook_deliveries", "", "webhooks to be delivered"}, place,
                        false);
    }
    sql += "        IF found IS NOT NULL THEN\n            RAISE EXCEPTION USING ERRCODE = '" +
           std::string(producer::kStillNeededState) +
           "', MESSAGE = found;\n        END IF;\n    END LOOP;\n";
    if (producer) {
        sql +=
            "    -- A publication that somebody else extended stays.\n"
            "    IF EXISTS (SELECT FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid "
            "= p.oid\n        WHERE p.pubname = 'outbox' GROUP BY p.oid\n        HAVING "
            "bool_and(r.prrelid = to_regclass(" +
            events +
            "))) THEN\n        BEGIN\n            DROP PUBLICATION outbox;\n        EXCEPTION "
            "WHEN insufficient_privilege THEN\n            RAISE NOTICE 'publication outbox "
            "stays: %', SQLERRM;\n        END;\n    END IF;\n    DROP VIEW IF EXISTS " +
            place + ".outbox_status;\n    IF mine THEN EXECUTE " +
            quote_literal("DROP TABLE " + place + ".outbox_events") + "; END IF;\n";
    }
    return sql + "    DROP TABLE IF EXISTS " + tables +
           ";\n    FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = (SELECT oid FROM "
           "pg_namespace WHERE nspname = " +
           quote_literal(schema) + ")\n        AND proname = ANY (" + array_of(functions) +
           ") LOOP\n        EXECUTE 'DROP FUNCTION ' || f;\n    END LOOP;\n"
           "    IF to_regclass(" +
           quote_literal(place + ".outbox_migrations") +
           ") IS NOT NULL THEN\n        DELETE FROM " + place +
           ".outbox_migrations WHERE side IN (" +
           (producer && consumer ? "'producer', 'consumer'"
            : producer           ? "'producer'"
                                 : "'consumer'") +
           ");\n        IF NOT EXISTS (SELECT FROM " + place +
           ".outbox_migrations) THEN\n            DROP TABLE " + place +
           ".outbox_migrations;\n        END IF;\n    END IF;\n"
           "    -- Both sides write into it.\n    IF to_regclass(" +
           quote_literal(place + ".outbox_migrations") +
           ") IS NULL THEN\n        DROP TABLE IF EXISTS " + place +
           ".outbox_audit;\n        DROP FUNCTION IF EXISTS " + place +
           ".outbox_refuse_change();\n    END IF;\nEND\n$uninstall$;\n";
}

}  // namespace outbox::postgres
