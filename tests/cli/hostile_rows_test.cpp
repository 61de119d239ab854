// What concerns one row is that row's dead letter, or stands in the relay's own tables: whatever
// stands in its columns, and whatever the owner's triggers and constraints say to it, every other
// event is delivered and recorded once, and the relay goes on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/adopted_tables.h"
#include "tests/support/eventually.h"
#include "tests/support/full_run.h"
#include "tests/support/http_client.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

constexpr std::chrono::seconds kDeadline{120};

struct Shape {
    const char* name;
    const char* create;
    const char* table;   // as SQL has it
    const char* option;  // as --table has it
    const char* id;
    const char* insert;      // $N: the row's number
    const char* unfinished;  // a condition
};

constexpr const char* kUuidOfRow = "('018f2d3c-0000-7000-8000-' || lpad($N::text, 12, '0'))::uuid";

const std::vector<Shape> kShapes{
    {"PendingPublished", kPendingPublishedTable, "outbox", "outbox", "id",
     "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES "
     "($ID, 'Order', 'o-$N', 'Made', '{}')",
     "status = 'PENDING'"},
    {"NewSent", kNewSentTable, "events_out", "events_out", "id",
     "INSERT INTO events_out (id, tenant_id, aggregate_type, aggregate_id, topic, payload, "
     "event_metadata, event_type) VALUES ('e-$N', 'default', 'Order', 'o-$N', 'orders', '{}', "
     "'{\"by\": \"me\"}', 'Made')",
     "status IN ('NEW', 'PUBLISHING', 'FAILED')"},
    {"NewSentWithJson",
     "CREATE TABLE events_out (id text, tenant_id text, aggregate_type text, aggregate_id text, "
     "topic text, occurred_at timestamp DEFAULT now(), payload json, event_metadata json, "
     "routing_key text, schema_id text, schema_version text, status text DEFAULT 'NEW', "
     "retry_count integer DEFAULT 0, retry_after timestamp, error_message text, created_at date "
     "DEFAULT now(), event_type text)",
     "events_out", "events_out", "id",
     "INSERT INTO events_out (id, tenant_id, aggregate_type, aggregate_id, topic, payload, "
     "event_metadata, event_type) VALUES ('e-$N', 'default', 'Order', 'o-$N', 'orders', '{}', "
     "'{\"by\": \"me\"}', 'Made')",
     "id IS NOT NULL AND status IN ('NEW', 'PUBLISHING', 'FAILED')"},
    {"ProcessedAt", kProcessedAtTable, "outbox_messages", "outbox_messages", "id",
     "INSERT INTO outbox_messages (id, aggregate_type, aggregate_id, event_type, payload) VALUES "
     "($ID, 'Order', 'o-$N', 'Made', '{}')",
     "processed_at IS NULL"},
    {"DeletedWhenSent", kDeleteWhenSentTable, "outbox", "outbox", "id",
     "INSERT INTO outbox (id, event_type, payload) VALUES ($ID, 'Made', '{}')", "true"},
    {"CamelCase", kCamelCaseTable, "\"OutboxMessages\"", "OutboxMessages", "\"Id\"",
     "INSERT INTO \"OutboxMessages\" (\"Id\", \"EventType\", \"Payload\") VALUES ($N, 'Made', "
     "'{}')",
     "NOT \"Processed\""},
    {"Debezium", kDebeziumTable, "shop.outboxevent", "shop.outboxevent", "id",
     "INSERT INTO shop.outboxevent VALUES ($ID, 'Order', 'o-$N', 'Made', '{}')", "true"},
};

// SQL expressions; those that a column does not take are no rows.
const std::vector<std::string> kHostile{
    "NULL",
    "''",
    "E'\\x01'",
    "E'\\x1b[31m\\n\\r\\t\"\\\\'''",
    "repeat('x', 10000)",
    "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 83) i)",
    "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 320) i)",
    "repeat('x', 10000000)",
    "'not json'",
    "'[1, 2]'",
    "'{\"a\": \"\\u0000\"}'",
    "'{\"a\\u0000b\": 1}'",
    "'{\"a\": \"\\ud800\"}'",
    "'{\"a\": 1e999999}'",
    "repeat('[', 3000) || repeat(']', 3000)",
    "'{\"id\": \"other\", \"\": null, \"a b\": [null]}'",
    "'-5'",
    "'2147483647'",
    "'-2147483648'",
    "'infinity'",
    "'-infinity'",
    "'294276-12-31 23:59:59.999999'",
    "'290000-01-01'",
    "'4714-11-24 00:00:00 BC'",
    "'5874897-12-31'",
    "'WEIRD'",
    "'__system'",
};

std::string filled(std::string text, int number) {
    const auto replace = [&](const std::string& name, const std::string& value) {
        for (auto at = text.find(name); at != std::string::npos; at = text.find(name)) {
            text.replace(at, name.size(), value);
        }
    };
    replace("$ID", kUuidOfRow);
    replace("$N", std::to_string(number));
    return text;
}

class HostileRows : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(outbox_.run({"migrate", "--db", url_, "--only", "consumer"}).status.code, 0);
    }
    Process relay(const std::string& table, const std::string& mode = "auto",
                  const std::string& admin = "off") {
        return outbox_.start_relay({"--from", url_, "--to",
                                    "mailbox+postgresql" + url_.substr(url_.find(':')), "--table",
                                    table, "--mode", mode, "--admin", admin, "--retry-base-ms",
                                    "10", "--retry-max-ms", "10", "--log-format", "json"});
    }
    bool try_exec(const std::string& sql) {
        try {
            pg_.exec(sql);
            return true;
        } catch (const std::exception&) {
            return false;
        }
    }
    testing::AssertionResult becomes(const std::string& sql, const std::string& wanted,
                                     const Process& running) {
        auto result = eventually(kDeadline, sql + " gives " + wanted,
                                 [&] { return pg_.value(sql) == wanted; });
        if (result) return result;
        const std::string log = running.stderr_text();
        return testing::AssertionResult(result)
               << "\nit gives " << pg_.value(sql) << "\n"
               << log.substr(log.size() - std::min<std::size_t>(log.size(), 4'000));
    }

    OutboxBinary outbox_;
    std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
};

class HostileValues : public HostileRows, public testing::WithParamInterface<Shape> {};

TEST_P(HostileValues, ConcernTheirOwnRowsAlone) {
    const Shape& shape = GetParam();
    pg_.exec(shape.create);
    std::vector<std::string> columns;
    for (const auto& row :
         pg_.query("SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = '" +
                   std::string(shape.table) + "'::regclass AND attnum > 0 AND NOT attisdropped")) {
        columns.push_back(row[0].value());
    }
    pg_.exec("CREATE TABLE good (n integer)");
    int number = 0;
    int hostile = 0;
    for (const std::string& column : columns) {
        for (const std::string& value : kHostile) {
            ASSERT_TRUE(try_exec(filled(shape.insert, ++number)));
            // The number is known by the row that was written last.
            const std::string last = "ctid = (SELECT ctid FROM " + std::string(shape.table) +
                                     " ORDER BY xmin::text::bigint DESC LIMIT 1)";
            if (try_exec("UPDATE " + std::string(shape.table) + " SET " + column + " = " + value +
                         " WHERE " + last)) {
                ++hostile;
            }
            ASSERT_TRUE(try_exec(filled(shape.insert, ++number)));
            pg_.exec("INSERT INTO good VALUES (" + std::to_string(number) + ")");
        }
    }
    ASSERT_GT(hostile, 8);
    Process running = relay(shape.option);
    const std::string good =
        "SELECT count(DISTINCT m.id) FROM good g JOIN outbox_mailbox m ON m.id IN "
        "('018f2d3c-0000-7000-8000-' || lpad(g.n::text, 12, '0'), 'public.events_out:e-' || g.n, "
        "'public.OutboxMessages:' || g.n)";
    ASSERT_TRUE(becomes(good, pg_.value("SELECT count(*) FROM good"), running));
    EXPECT_TRUE(
        becomes("SELECT count(*) FROM " + std::string(shape.table) + " WHERE " + shape.unfinished,
                "0", running));
    EXPECT_EQ(pg_.value("SELECT count(*) FROM outbox_route_done"), "0") << "nothing is owed";
    // The commands of the night show them.
    const Finished dead =
        outbox_.run({"dead", "list", "--db", url_, "--table", shape.option, "--json"});
    EXPECT_EQ(dead.status.code, 0) << dead.err;
    const Finished retried =
        outbox_.run({"dead", "retry", "--all", "--db", url_, "--table", shape.option});
    EXPECT_EQ(retried.status.code, 0) << retried.err;
    pg_.exec(filled(shape.insert, ++number));
    pg_.exec("INSERT INTO good VALUES (" + std::to_string(number) + ")");
    EXPECT_TRUE(becomes(good, pg_.value("SELECT count(*) FROM good"), running));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
}

INSTANTIATE_TEST_SUITE_P(Shapes, HostileValues, testing::ValuesIn(kShapes),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

// The owner's rules refuse the change of some rows, each in another way.
class RefusedRows : public HostileRows, public testing::WithParamInterface<const char*> {
  protected:
    static std::string action(const std::string& moment) {
        if (moment == "returning NULL") return "RETURN NULL";
        if (moment == "returning OLD") return "RETURN OLD";
        if (moment == "a table that is gone") return "INSERT INTO gone VALUES (1)";
        if (moment == "a right") return "RAISE EXCEPTION 'not yours' USING ERRCODE = '42501'";
        if (moment == "a deadlock") return "RAISE EXCEPTION 'both' USING ERRCODE = '40P01'";
        if (moment == "a server elsewhere") return "RAISE EXCEPTION 'away' USING ERRCODE = '08001'";
        if (moment == "a server that stops") return "RAISE EXCEPTION 'x' USING ERRCODE = '57P01'";
        if (moment == "a slow trigger") return "RAISE EXCEPTION 'slow' USING ERRCODE = '57014'";
        return "RAISE EXCEPTION 'the owner wants this row as it is'";
    }
    void refuse(const std::string& table, const std::string& row, const std::string& moment) {
        pg_.exec("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF " + row +
                 " THEN " + action(moment) + "; END IF; RETURN coalesce(NEW, OLD); END $$");
        const bool deferred = moment == "at the commit";
        pg_.exec(std::string("CREATE ") + (deferred ? "CONSTRAINT " : "") + "TRIGGER refuse " +
                 (deferred ? "AFTER" : "BEFORE") + " UPDATE OR DELETE ON " + table +
                 (deferred ? " DEFERRABLE INITIALLY DEFERRED" : "") +
                 " FOR EACH ROW EXECUTE FUNCTION refuse()");
    }
};

TEST_P(RefusedRows, AreOwedTheirMarkAndTheRestGoesOn) {
    pg_.exec(kPendingPublishedTable);
    for (int n = 1; n <= 200; ++n) {
        pg_.exec(filled(kShapes[0].insert, n));
    }
    const std::string moment = GetParam();
    const std::string third = "right(OLD.id::text, 1) = '3'";
    if (moment == "a check") {
        pg_.exec("ALTER TABLE outbox ADD CHECK (right(id::text, 1) <> '3' OR status = 'PENDING')");
    } else {
        refuse("outbox", third, moment);
    }
    {
        Process running = relay("outbox");
        ASSERT_TRUE(becomes("SELECT count(*) FROM outbox_mailbox", "200", running));
        EXPECT_TRUE(
            becomes("SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'", "180", running));
        EXPECT_TRUE(
            becomes("SELECT count(*) FROM outbox_route_done WHERE route = ''", "20", running));
        ASSERT_TRUE(eventually(kDeadline, "it says so", [&] {
            return running.stderr_text().find("rows_refused") != std::string::npos;
        })) << running.stderr_text();
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
    }
    Process running = relay("outbox");
    pg_.exec(filled(kShapes[0].insert, 201));
    ASSERT_TRUE(becomes("SELECT count(*) FROM outbox_mailbox", "201", running));
    pg_.exec(moment == "a check" ? "ALTER TABLE outbox DROP CONSTRAINT outbox_check"
                                 : "DROP TRIGGER refuse ON outbox");
    EXPECT_TRUE(becomes("SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'", "201", running));
    EXPECT_TRUE(becomes("SELECT count(*) FROM outbox_route_done", "0", running));
    EXPECT_EQ(pg_.value("SELECT count(*) FROM outbox_mailbox"), "201") << "none went again";
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
}

INSTANTIATE_TEST_SUITE_P(By, RefusedRows,
                         testing::ValuesIn(and_in_full<const char*>(
                             {"a trigger", "at the commit", "a right", "a slow trigger"},
                             {"a check", "returning NULL", "returning OLD", "a table that is gone",
                              "a deadlock", "a server elsewhere", "a server that stops"})),
                         [](const auto& chosen) {
                             std::string name(chosen.param);
                             std::erase(name, ' ');
                             return name;
                         });

TEST_F(HostileRows, ADeadRowThatTakesNoChangeHasItsDeadLetter) {
    pg_.exec(kNewSentTable);
    pg_.exec("ALTER TABLE events_out ADD CHECK (id <> 'e-2' OR status = 'NEW')");
    for (int n = 1; n <= 3; ++n) pg_.exec(filled(kShapes[1].insert, n));
    pg_.exec("UPDATE events_out SET topic = 'not valid' WHERE id = 'e-2'");
    Process running = relay("events_out");
    EXPECT_TRUE(becomes("SELECT count(*) FROM events_out WHERE status = 'SENT'", "2", running));
    EXPECT_TRUE(becomes("SELECT count(*) FROM outbox_dead_letters", "1", running));
    EXPECT_TRUE(becomes("SELECT event_id FROM outbox_route_done", "e-2", running));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
}

// Whoever may number rows by hand could put one where no other ever comes after it.
TEST_F(HostileRows, ARowNumberedByHandIsLeftOutAndTheRestGoesOn) {
    ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
    const auto write = [&](int count) {
        pg_.exec("SELECT outbox_emit('orders', '{}', key => 'k-' || i) FROM generate_series(1, " +
                 std::to_string(count) + ") i");
    };
    long long sent = 0;
    const std::map<std::string, std::vector<std::string>> cases{
        {"polling", {"9223372036854775807", "10000000"}}, {"stream", {"1000000000000000", "-5"}}};
    for (const auto& [mode, positions] : cases) {
        for (const std::string& position : positions) {
            Process running = relay("outbox_events", mode);
            write(50);
            sent += 50;
            ASSERT_TRUE(
                becomes("SELECT count(*) FROM outbox_mailbox", std::to_string(sent), running));
            pg_.exec(
                "INSERT INTO outbox_events (position, topic, payload) OVERRIDING SYSTEM VALUE "
                "VALUES (" +
                position + ", 'orders', '{}')");
            write(50);
            sent += 50;
            ASSERT_TRUE(
                becomes("SELECT count(*) FROM outbox_mailbox", std::to_string(sent), running));
            ASSERT_TRUE(eventually(kDeadline, "it says so", [&] {
                return running.stderr_text().find("at position " + position) != std::string::npos;
            })) << running.stderr_text();
            EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
            EXPECT_EQ(pg_.value("SELECT string_agg(position::text, ' ') FROM outbox_events"),
                      position);
            pg_.exec("DELETE FROM outbox_events WHERE position = " + position);
        }
    }
    EXPECT_EQ(pg_.value("SELECT count(*) FROM outbox_mailbox"), std::to_string(sent));
}

class KeptRows : public RefusedRows {};
TEST_P(KeptRows, OfTheNativeTableWaitAloneAndNothingWaitsForThemAtTheEnd) {
    ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
    refuse("outbox_events", "OLD.key IN ('k-7', 'k-50')", GetParam());
    pg_.exec("SELECT outbox_emit('orders', '{}', key => 'k-' || i) FROM generate_series(1, 99) i");
    Process running = relay("outbox_events");
    ASSERT_TRUE(becomes("SELECT count(*) FROM outbox_events", "2", running));
    ASSERT_TRUE(eventually(kDeadline, "it says so", [&] {
        return running.stderr_text().find("rows_refused") != std::string::npos;
    })) << running.stderr_text();
    pg_.exec("SELECT outbox_emit('orders', '{}', key => 'k-7')");
    ASSERT_TRUE(becomes("SELECT count(*) FROM outbox_mailbox", "100", running));
    pg_.exec("DROP TRIGGER refuse ON outbox_events");
    ASSERT_TRUE(becomes("SELECT count(*) FROM outbox_events", "0", running));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
    EXPECT_EQ(pg_.value("SELECT count(*) FROM outbox_mailbox"), "100") << "none went again";
}
INSTANTIATE_TEST_SUITE_P(By, KeptRows,
                         testing::Values("a trigger", "returning NULL", "a table that is gone",
                                         "a right", "a slow trigger", "a server elsewhere"),
                         [](const auto& chosen) {
                             std::string name(chosen.param);
                             std::erase(name, ' ');
                             return name;
                         });

// Of the native table it is the removal that is refused.
TEST_F(HostileRows, ARowThatAForeignKeyKeepsIsNotSentAgainAndRemovedLater) {
    ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
    const auto write = [&](int count) {
        pg_.exec("SELECT outbox_emit('orders', '{}', key => 'k-' || i) FROM generate_series(1, " +
                 std::to_string(count) + ") i");
    };
    write(100);
    pg_.exec(
        "CREATE TABLE audit (of bigint REFERENCES outbox_events (position)); "
        "INSERT INTO audit VALUES (7), (50)");
    for (const char* arrived : {"150", "200"}) {
        Process running = relay("outbox_events");
        write(50);
        ASSERT_TRUE(becomes("SELECT count(*) FROM outbox_mailbox", arrived, running));
        ASSERT_TRUE(becomes("SELECT count(*) FROM outbox_events", "2", running));
        ASSERT_TRUE(eventually(kDeadline, "it says so", [&] {
            return running.stderr_text().find("rows_refused") != std::string::npos;
        })) << running.stderr_text();
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
    }
    Process running = relay("outbox_events");
    pg_.exec("DROP TABLE audit");
    ASSERT_TRUE(becomes("SELECT count(*) FROM outbox_events", "0", running));
    EXPECT_EQ(pg_.value("SELECT count(*) FROM outbox_mailbox"), "200");
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
}

// While it runs, and by the database alone.
TEST_F(HostileRows, RowsThatAreSentAndThatTheTableKeepsAreOwedAndNoBacklog) {
    ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
    const auto status = [&] {
        return nlohmann::json::parse(outbox_.run({"status", "--db", url_, "--json"}).out);
    };
    pg_.exec(
        "SELECT outbox_emit('orders', '{}', key => 'k-' || i) FROM generate_series(1, 9) i; "
        "UPDATE outbox_events SET occurred_at = now() - interval '1 hour'");
    EXPECT_EQ(status()["backlog"], 9);
    EXPECT_GT(status()["oldest_age_s"], 3'000.0);
    pg_.exec(
        "CREATE TABLE audit (of bigint REFERENCES outbox_events (position)); "
        "INSERT INTO audit VALUES (2), (5)");
    const int port = free_port();
    Process running = relay("outbox_events", "auto", "127.0.0.1:" + std::to_string(port));
    ASSERT_TRUE(becomes("SELECT count(*) FROM outbox_events", "2", running));
    const auto shows = [&](const std::string& figure) {
        const std::string page = http(port, "GET", "/metrics").body;
        const auto [name, value] =
            std::pair(figure.substr(0, figure.find(' ')), figure.substr(figure.find(' ')));
        return page.find(name + "{source=\"public.outbox_events\"}" + value + "\n") !=
               std::string::npos;
    };
    ASSERT_TRUE(eventually(kDeadline, "they are owed", [&] {
        return shows("outbox_owed 2") && shows("outbox_oldest_age_seconds 0") &&
               shows("outbox_backlog 0");
    })) << http(port, "GET", "/metrics").body;
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
    pg_.exec("SELECT outbox_emit('orders', '{}', key => 'k-1')");
    const nlohmann::json waiting = status();
    EXPECT_EQ(waiting["backlog"], 1);
    EXPECT_LT(waiting["oldest_age_s"], 3'000.0);
    // Nor is a number that somebody wrote by hand in its way.
    pg_.exec(
        "INSERT INTO outbox_events (position, aggregate_type, aggregate_id, event_type, "
        "occurred_at) "
        "OVERRIDING SYSTEM VALUE VALUES (-5, 'Order', 'o', 'Made', now() - interval '1 hour')");
    EXPECT_EQ(status()["backlog"], 2);
}

// Each relay knows its own alone; who asks for all of them has the view.
TEST_F(HostileRows, RowsThatTheTableKeepsOfTenantsWithRelaysOfTheirOwnAreNoBacklog) {
    ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
    pg_.exec(
        "SELECT outbox_emit('orders', '{}', tenant_id => t) FROM unnest(ARRAY['acme', 'globex']) "
        "t, "
        "generate_series(1, 5); UPDATE outbox_events SET occurred_at = now() - interval '1 hour'; "
        "CREATE TABLE audit (of bigint REFERENCES outbox_events (position)); "
        "INSERT INTO audit SELECT min(position) FROM outbox_events GROUP BY tenant_id");
    for (const char* tenant : {"acme", "globex"}) {
        const std::string left = tenant == std::string("acme") ? "6" : "2";
        Process running = outbox_.start_relay({"--from", url_, "--to",
                                               "mailbox+postgresql" + url_.substr(url_.find(':')),
                                               "--admin", "off", "--tenant", tenant});
        ASSERT_TRUE(becomes("SELECT count(*) FROM outbox_events", left, running));
        EXPECT_EQ(running.stop().code, 0);
    }
    const auto status = [&] {
        return nlohmann::json::parse(outbox_.run({"status", "--db", url_, "--json"}).out);
    };
    EXPECT_EQ(status()["backlog"], 0);
    EXPECT_EQ(status()["oldest_age_s"], 0.0);
    pg_.exec("SELECT outbox_emit('orders', '{}', tenant_id => 'globex')");
    EXPECT_EQ(status()["backlog"], 1);
}

TEST_F(HostileRows, ARouteInThePlaceOfTheOnlyOneIsNotSentWhatTheTableKeeps) {
    ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
    pg_.exec(
        "SELECT outbox_emit('orders', '{}') FROM generate_series(1, 9); "
        "CREATE TABLE audit (of bigint REFERENCES outbox_events (position)); "
        "INSERT INTO audit VALUES (2), (5)");
    const auto relay_by = [&](const std::string& name) {
        return outbox_.start_relay(
            {"--from", url_, "--to",
             name + "=mailbox+postgresql" + url_.substr(url_.find(':')) + "?mailbox=" + name,
             "--admin", "off"});
    };
    Process first = relay_by("first");
    ASSERT_TRUE(becomes("SELECT count(*) FROM outbox_events", "2", first));
    EXPECT_EQ(first.stop().code, 0);
    Process second = relay_by("second");
    ASSERT_TRUE(becomes("SELECT route FROM outbox_routes", "second", second));
    pg_.exec("SELECT outbox_emit('orders', '{}')");
    ASSERT_TRUE(
        becomes("SELECT count(*) FROM outbox_mailbox WHERE mailbox = 'second'", "1", second));
    EXPECT_EQ(second.stop().code, 0);
    EXPECT_EQ(pg_.value("SELECT count(*) FROM outbox_mailbox WHERE mailbox = 'second'"), "1");
}

TEST_F(HostileRows, ADelayedEventThatTheOutboxRefusesWaitsAlone) {
    ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
    pg_.exec(
        "SELECT outbox_emit('orders', '{}', key => 'k-' || i, event_type => 'T' || i, "
        "available_at => now() - interval '1 second' * (100 - i)) FROM generate_series(1, 30) i");
    pg_.exec(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.event_type "
        "= 'T1' THEN RAISE EXCEPTION 'not this one'; ELSIF NEW.event_type = 'T7' THEN RAISE "
        "EXCEPTION 'not this one' USING ERRCODE = '42501'; ELSIF NEW.event_type = 'T9' THEN RAISE "
        "EXCEPTION 'not this one' USING ERRCODE = '08001'; END IF; RETURN NEW; END $$; CREATE "
        "TRIGGER refuse BEFORE INSERT ON outbox_events FOR EACH ROW EXECUTE FUNCTION refuse()");
    Process running = relay("outbox_events");
    ASSERT_TRUE(becomes("SELECT count(*) FROM outbox_mailbox", "27", running));
    EXPECT_EQ(pg_.value("SELECT string_agg(event_type, ' ' ORDER BY 1) FROM outbox_scheduled"),
              "T1 T7 T9");
    ASSERT_TRUE(eventually(kDeadline, "it says so", [&] {
        return running.stderr_text().find("not this one") != std::string::npos;
    })) << running.stderr_text();
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
}

// As where a trigger hangs until `statement_timeout`.
TEST_F(HostileRows, AnEventForWhichAMailboxesServerEndsTheStatementIsADeadLetterAlone) {
    ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
    pg_.exec(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.key = 'bad' "
        "THEN RAISE EXCEPTION 'slow' USING ERRCODE = '57014'; END IF; RETURN NEW; END $$; CREATE "
        "TRIGGER slow BEFORE INSERT ON outbox_mailbox FOR EACH ROW EXECUTE FUNCTION slow()");
    const auto emit = [&](const std::string& key) {
        pg_.exec("SELECT outbox_emit('orders', '{}', key => '" + key + "')");
    };
    Process running = relay("outbox_events");
    emit("bad");
    int others = 0;
    ASSERT_TRUE(eventually(kDeadline, "it is given up on, while others pass", [&] {
        emit("k-" + std::to_string(++others));
        return pg_.value("SELECT count(*) FROM outbox_dead_letters") == "1";
    })) << running.stderr_text();
    EXPECT_TRUE(becomes("SELECT count(*) FROM outbox_mailbox", std::to_string(others), running));
    EXPECT_EQ(pg_.value("SELECT attempts FROM outbox_dead_letters"), "5");
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0})) << running.stderr_text();
}

}  // namespace
}  // namespace outbox::test
