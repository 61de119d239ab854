#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <outbox/producer/migrate.h>

#include "tests/producer/migrate_error.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using testing::HasSubstr;

class MigrateBesideOthers : public testing::Test {
  protected:
    std::string url_ = shared_postgres().create_database();
    Pg db_{url_};
};

// `mallory` may create in the schema and waits for someone with more rights.
class MigrateBesideMallory : public MigrateBesideOthers {
  protected:
    MigrateBesideMallory() {
        db_.exec(
            "DO $$ BEGIN CREATE ROLE mallory LOGIN PASSWORD 'test'; EXCEPTION WHEN "
            "duplicate_object THEN END $$;"
            "DO $$ BEGIN CREATE ROLE app LOGIN PASSWORD 'test'; EXCEPTION WHEN duplicate_object "
            "THEN END $$;"
            "GRANT CREATE, USAGE ON SCHEMA public TO mallory, app;"
            "CREATE TABLE caught (who text); GRANT INSERT, SELECT ON caught TO PUBLIC");
        as_mallory(
            "CREATE FUNCTION caught() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF current_user <> 'mallory' THEN INSERT INTO public.caught VALUES (current_user); "
            "END IF; RETURN NEW; END $$;");
    }
    void as_mallory(const std::string& sql) { Pg(url_of("mallory")).exec(sql); }
    std::string url_of(const std::string& role) const {
        std::string url = url_;
        return url.replace(url.find("postgres@"), 8, role);
    }
    std::string caught() { return db_.value("SELECT string_agg(DISTINCT who, ' ') FROM caught"); }
};

TEST_F(MigrateBesideMallory, ATableThatAnotherRoleMadeFirstIsRefusedWithItsOwner) {
    as_mallory(
        "CREATE TABLE outbox_migrations (side text, version integer, name text, checksum text, "
        "applied_at timestamptz DEFAULT now()); CREATE TRIGGER t BEFORE INSERT ON "
        "outbox_migrations FOR EACH ROW EXECUTE FUNCTION caught()");
    for (const std::string& url : {url_, url_of("app")}) {
        const auto error = migrate_error(url);
        EXPECT_EQ(error.code, ErrorCode::kMigrationRefused) << error.message;
        EXPECT_THAT(error.message, HasSubstr("table outbox_migrations belongs to role mallory"));
        EXPECT_THAT(error.message, HasSubstr("--owner"));
    }
    EXPECT_EQ(caught(), "");
    EXPECT_EQ(db_.value("SELECT to_regclass('outbox_events')"), "");
}

TEST_F(MigrateBesideMallory, EachTableViewAndFunctionIsLookedAt) {
    const std::vector<std::pair<std::string, std::string>> traps{
        {"TABLE outbox_lease", "(source text PRIMARY KEY)"},
        {"TABLE outbox_mailbox", "(id text)"},
        {"VIEW outbox_migrations",
         "AS SELECT 'producer'::text AS side, 1 AS version, ''::text AS name, ''::text AS "
         "checksum"},
        {"VIEW outbox_status", "AS SELECT 1"},
        {"FUNCTION outbox_emit(text)", "RETURNS int LANGUAGE sql AS 'SELECT 1'"},
        {"FUNCTION inbox_accept(int)", "RETURNS int LANGUAGE sql AS 'SELECT 1'"}};
    for (const auto& [what, rest] : traps) {
        as_mallory("CREATE " + what + " " + rest);
        const auto error = migrate_error(url_);
        EXPECT_EQ(error.code, ErrorCode::kMigrationRefused) << what << ": " << error.message;
        EXPECT_THAT(error.message, HasSubstr("belongs to role mallory")) << what;
        as_mallory("DROP " + what);
    }
    EXPECT_FALSE(migrate(url_).empty());
}

TEST_F(MigrateBesideMallory, WhatMigratePrintsRefusesItAsWell) {
    as_mallory("CREATE TABLE outbox_lease (source text PRIMARY KEY)");
    EXPECT_THROW(db_.exec(migration_sql(url_)), std::runtime_error);
    db_.exec("ROLLBACK");
    EXPECT_EQ(db_.value("SELECT to_regclass('outbox_events')"), "");
}

TEST_F(MigrateBesideMallory, FunctionsOfTheSchemaAreNotTakenForTheServersOwn) {
    // Each fits the arguments better than the one of pg_catalog.
    as_mallory(
        "CREATE FUNCTION spy() RETURNS void LANGUAGE sql AS $$ INSERT INTO public.caught "
        "SELECT current_user WHERE current_user <> 'mallory' $$;"
        "CREATE FUNCTION hashtextextended(text, integer) RETURNS bigint LANGUAGE sql AS "
        "$$ SELECT spy(); SELECT 1::bigint $$;"
        "CREATE FUNCTION quote_ident(name) RETURNS text LANGUAGE sql AS "
        "$$ SELECT spy(); SELECT $1::text $$;"
        "CREATE FUNCTION jsonb_build_object(text, text) RETURNS jsonb LANGUAGE sql AS "
        "$$ SELECT spy(); SELECT '{}'::jsonb $$;"
        "CREATE FUNCTION unnest(text[]) RETURNS SETOF text LANGUAGE sql AS "
        "$$ SELECT spy(); SELECT 'x' $$;"
        "CREATE FUNCTION accum(json, text, text) RETURNS json LANGUAGE sql AS "
        "$$ SELECT spy(); SELECT $1 $$;"
        "CREATE AGGREGATE json_object_agg(text, text) (sfunc = accum, stype = json)");
    migrate(url_);
    db_.exec(
        "SET search_path = public; SELECT outbox_emit('orders', '{}', aggregate_id => 'k', "
        "traceparent => '00-1', lock_key => true);"
        "BEGIN; SELECT idempotency_claim('s', 'k', 'f'); SELECT idempotency_complete('s', 'k', 1, "
        "200, '{\"Set-Cookie\": \"a\", \"B\": \"b\"}'); COMMIT");
    EXPECT_EQ(caught(), "");
}

TEST_F(MigrateBesideMallory, ARoleThatIsNamedMayOwnThem) {
    migrate(url_of("app"));
    const auto refused = migrate_error(url_of("mallory"));
    EXPECT_EQ(refused.code, ErrorCode::kMigrationRefused);
    EXPECT_THAT(refused.message, HasSubstr("belongs to role app"));
    EXPECT_TRUE(migrate_error(url_).message.find("--owner") != std::string::npos);
    MigrateOptions options;
    options.owners = {"app"};
    EXPECT_TRUE(migrate(url_, options).empty());
}

// Operators of mallory's for all pairs of these types: those that the server has, too, and those
// whose arguments fit better than the ones that it has. Whose one runs is counted, and fails.
constexpr const char* kHostileOperators = R"sql(
CREATE SEQUENCE calls;
GRANT USAGE ON calls TO PUBLIC;
DO $do$
DECLARE
    types text[] := ARRAY['text', 'name', 'varchar', '"char"', 'oid', 'regclass', 'regtype', 'int2',
        'int4', 'int8', 'numeric', 'float8', 'bytea', 'json', 'jsonb', 'bit', 'varbit', 'uuid', 'xid',
        'timestamptz', 'timestamp', 'interval', 'bool', 'text[]', 'int8[]', 'name[]', 'tid'];
    l text;
    r text;
    o text;
BEGIN
    FOREACH l IN ARRAY types LOOP
        FOREACH r IN ARRAY types LOOP
            EXECUTE format('CREATE FUNCTION hostile(%s, %s) RETURNS boolean LANGUAGE plpgsql AS $f$ '
                'BEGIN PERFORM pg_catalog.nextval(''public.calls''); RAISE EXCEPTION '
                '''an operator of mallory runs with (%s, %s)''; END $f$', l, r, l, r);
            FOREACH o IN ARRAY ARRAY['=', '<>', '<', '>', '<=', '>=', '||', '+', '-', '*', '/', '%',
                    '^', '->', '->>', '~', '~*', '!~', '~~', '@>'] LOOP
                EXECUTE format('CREATE OPERATOR %s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = hostile)',
                               o, l, r);
            END LOOP;
        END LOOP;
    END LOOP;
END $do$)sql";

// Every function, the view, the defaults and the checks of the schema. `schema`: quoted.
void use_everything(Pg& db, const std::string& schema) {
    const std::string s = schema + ".";
    const std::string message = "INSERT INTO " + s +
                                "outbox_mailbox (id, topic, key, headers) VALUES "
                                "(gen_random_uuid()::text, 't', 'k', "
                                "'{\"occurred_at\": \"2020-01-01T00:00:00Z\"}'), (" +
                                s + "outbox_uuidv7()::text, 't', 'l', '{}')";
    const std::string take_and_end = "SELECT " + s +
                                     "outbox_mailbox_done('c', 'default', VARIADIC ARRAY(SELECT "
                                     "position FROM " +
                                     s + "outbox_mailbox_take('c')))";
    for (const std::string& sql : {
             "SELECT " + s +
                 "outbox_emit('t', '{}', key => 'k', headers => '{\"a\": 1}', "
                 "traceparent => '00-1', lock_key => true)",
             "SELECT " + s + "outbox_emit('t', '{}', available_at => '2100-01-01')",
             "INSERT INTO " + s + "outbox_events (topic, payload) VALUES ('t', '{}')",
             "INSERT INTO " + s +
                 "outbox_dead_letters (source, route, position, id, payload, attempts, error_code, "
                 "error) VALUES (" +
                 s +
                 "outbox_source(), 'r', 1000000, 'x', '{}', 1, 'E', 'e') ON CONFLICT DO NOTHING",
             "SELECT * FROM " + s + "outbox_status",
             message,
             take_and_end,
             message,
             "SELECT " + s + "outbox_mailbox_failed('c', 'default', position, 'e') FROM " + s +
                 "outbox_mailbox",
             "SELECT " + s + "outbox_mailbox_failed('c', 'default', position, 'e', 1) FROM " + s +
                 "outbox_mailbox",
             "UPDATE " + s + "outbox_inbox_dead_letters SET retry_requested_at = now()",
             take_and_end,
             "DELETE FROM " + s + "outbox_inbox_floor",
             "SELECT " + s + "inbox_accept('c', gen_random_uuid()::text, '2020-01-01')",
             "SELECT " + s + "inbox_prune('3 hours')",
             message,
             "SELECT " + s + "outbox_mailbox_take('c')",  // what is from before the floor
             "SELECT " + s + "idempotency_claim('s', 'k', 'f', lease => '1 hour')",
             "SELECT " + s + "idempotency_release('s', 'k', 1)",
             "SELECT " + s + "idempotency_claim('s', 'k', 'f')",
             "SELECT " + s +
                 "idempotency_complete('s', 'k', 2, 200, '{\"Set-Cookie\": \"a\", \"B\": \"b\"}')",
             "DELETE FROM " + s + "outbox_idempotency",
             "SELECT " + s + "idempotency_prune()",
             "SELECT " + s + "saga_prune('1 day')",
         }) {
        EXPECT_NO_THROW(db.exec(sql)) << sql;
    }
    for (const char* values : {"'not valid', '{}'", "'t', to_jsonb(repeat('x', 1048577))"}) {
        try {
            db.exec("INSERT INTO " + s + "outbox_events (topic, payload) VALUES (" + values + ")");
            ADD_FAILURE() << values;
        } catch (const std::exception& error) {
            EXPECT_THAT(error.what(), HasSubstr("OB_")) << values;
        }
    }
    EXPECT_ANY_THROW(db.exec("DELETE FROM " + s + "outbox_audit"));
}

TEST_F(MigrateBesideMallory, OperatorsOfTheSchemaAreNotTakenForTheServersOwn) {
    as_mallory(kHostileOperators);
    migrate(url_);
    for (const char* path : {"public", "pg_catalog", "public, pg_catalog"}) {
        db_.exec(std::string("SET search_path = ") + path);
        use_everything(db_, "public");
    }
    db_.exec("SET search_path = pg_catalog");
    EXPECT_EQ(db_.value("SELECT is_called FROM public.calls"), "f");
    db_.exec(
        "DELETE FROM public.outbox_events; DELETE FROM public.outbox_scheduled; DELETE FROM "
        "public.outbox_dead_letters; DELETE FROM public.outbox_mailbox; DELETE FROM "
        "public.outbox_inbox_dead_letters");
    uninstall(url_);
    db_.exec("SET search_path = public");
    db_.exec(migration_sql(url_));
    db_.exec("SET search_path = pg_catalog");
    EXPECT_EQ(db_.value("SELECT is_called FROM public.calls"), "f");
}

TEST_F(MigrateBesideMallory, EachFunctionHasItsOwnSearchPath) {
    migrate(url_);
    EXPECT_EQ(db_.value("SELECT string_agg(p.oid::regprocedure::text, ' ') FROM pg_proc p WHERE "
                        "p.pronamespace = 'public'::regnamespace AND p.proname <> 'caught' AND "
                        "('search_path=pg_catalog, pg_temp' = ANY (p.proconfig)) IS NOT TRUE"),
              // The default of a column: all that it uses is named in full.
              "outbox_uuidv7()");
}

TEST_F(MigrateBesideMallory, TheSchemaMayHaveAnyName) {
    const std::string name = R"(It's "a" \ $$ $x$ {{schema}})";
    const std::string quoted = R"("It's ""a"" \ $$ $x$ {{schema}}")";
    MigrateOptions options;
    options.schema = name;
    Pg printed(shared_postgres().create_database());
    printed.exec("CREATE SCHEMA " + quoted);
    printed.exec(migration_sql(url_, options));
    use_everything(printed, quoted);
    db_.exec("CREATE SCHEMA " + quoted +
             "; DO $do$ BEGIN EXECUTE format('ALTER DATABASE %I SET "
             "search_path = %I', current_database(), '" +
             std::string(R"(It''s "a" \ $$ $x$ {{schema}})") + "'); END $do$");
    migrate(url_);
    use_everything(db_, quoted);
    db_.exec("SET search_path = " + quoted +
             "; DELETE FROM outbox_events; DELETE FROM "
             "outbox_scheduled; DELETE FROM outbox_dead_letters; DELETE FROM outbox_mailbox; "
             "DELETE FROM outbox_inbox_dead_letters");
    uninstall(url_);
    EXPECT_EQ(db_.value("SELECT count(*) FROM pg_class WHERE relname LIKE 'outbox%'"), "0");
}

// Each of our indexes that belongs to no constraint: its name, its table, what makes it.
constexpr const char* kIndexes =
    "SELECT i.indexrelid::regclass, i.indrelid::regclass, pg_get_indexdef(i.indexrelid) FROM "
    "pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = "
    "'public'::regnamespace AND c.relname LIKE 'outbox%' AND NOT EXISTS (SELECT FROM pg_constraint "
    "k WHERE k.conindid = i.indexrelid)";

TEST_F(MigrateBesideOthers, AnIndexThatWasRemovedIsNamed) {
    migrate(url_);
    const auto indexes = db_.query(kIndexes);
    ASSERT_GE(indexes.size(), 10U);
    for (const auto& index : indexes) {
        db_.exec("DROP INDEX " + *index[0]);
        const auto error = migrate_error(url_);
        EXPECT_EQ(error.code, ErrorCode::kMigrationRefused) << *index[0];
        EXPECT_THAT(error.message, HasSubstr(*index[0] + " is missing"));
        db_.exec(*index[2]);
    }
    db_.exec("DROP TABLE outbox_lease");
    EXPECT_THAT(migrate_error(url_).message, HasSubstr("outbox_lease is missing"));
}

TEST_F(MigrateBesideOthers, ANameOfAnIndexThatIsTakenIsRefused) {
    Pg clean(shared_postgres().create_database());
    clean.exec(migration_sql(url_));
    db_.exec("CREATE SCHEMA app; CREATE TABLE \"My table\" (a int)");
    for (const auto& index : clean.query(kIndexes)) {
        const std::string& name = *index[0];
        db_.exec("CREATE INDEX " + name + " ON \"My table\" (a)");
        const auto error = migrate_error(url_);
        EXPECT_EQ(error.code, ErrorCode::kMigrationRefused) << error.message;
        EXPECT_THAT(error.message, HasSubstr("index " + name +
                                             " is of table public.\"My table\", "
                                             "not of " +
                                             *index[1]));
        db_.exec("DROP INDEX " + name + "; CREATE VIEW " + name + " AS SELECT 1");
        EXPECT_THAT(migrate_error(url_).message,
                    HasSubstr("relation " + name + " is no index of " + *index[1]));
        EXPECT_EQ(db_.value("SELECT to_regclass('outbox_events')"), "");
        db_.exec("DROP VIEW " + name + "; CREATE TABLE app." + name + " (a int)");
    }
    db_.exec("CREATE INDEX outbox_dead_letters_event ON \"My table\" (a)");
    EXPECT_THROW(db_.exec(migration_sql(url_)), std::runtime_error);
    db_.exec("ROLLBACK; DROP INDEX outbox_dead_letters_event");
    EXPECT_FALSE(migrate(url_).empty());
    // Indexes keep their names where their table gets another one.
    db_.exec("ALTER TABLE outbox_dead_letters RENAME TO letters_2025");
    EXPECT_THAT(migrate_error(url_).message,
                HasSubstr("is of table public.letters_2025, not of outbox_dead_letters"));
}

TEST_F(MigrateBesideOthers, ConstraintsOfOursMayHaveAnotherName) {
    db_.exec("CREATE TABLE mine (a int); CREATE INDEX outbox_inbox_stats_pkey ON mine (a)");
    migrate(url_);
    use_everything(db_, "public");
}

}  // namespace
}  // namespace outbox::test
