#include "databases/postgres/stream/row_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <outbox/producer/migrate.h>

#include "core/sql_text.h"
#include "tests/databases/postgres/decoder_support.h"
#include "tests/databases/postgres/random_rows.h"
#include "tests/support/full_run.h"

namespace outbox::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class DecodedTable : public testing::Test {
  protected:
    postgres::PostgresSourceConfig config(const std::string& table = "outbox_events") const {
        postgres::PostgresSourceConfig config;
        config.url = url_;
        config.table = table;
        return config;
    }
    LoggedTable logged(const std::string& table = "outbox_events") {
        return LoggedTable(url_, config(table));
    }

    std::string url_ = shared_postgres().create_database();
    Pg pg_{url_};
};

class NativePayload : public DecodedTable, public testing::WithParamInterface<PayloadType> {};

TEST_P(NativePayload, GivesWhatTheReaderGives) {
    MigrateOptions options;
    options.payload = GetParam();
    migrate(url_, options);
    LoggedTable logged(url_, config());
    auto decoder = logged.decoder();
    EXPECT_THAT(logged.described().obstacles, IsEmpty());
    pg_.exec(
        "SELECT outbox_emit(topic => 't', payload => '{\"b\": [1, 2.50, null], \"a\": \"ü\"}', "
        "headers => '{\"x\": \"1\"}', traceparent => '00-1', aggregate_type => 'Order', "
        "aggregate_id => 'o-1', event_type => 'Made', key => 'k', tenant_id => 'acme', "
        "routing_key => '', schema_id => '7', schema_version => '1.2'); "
        "INSERT INTO outbox_events (topic, payload) SELECT 't', NULL FROM generate_series(1, 5); "
        "INSERT INTO outbox_events (topic, occurred_at) VALUES ('t', 'infinity'), "
        "('t', '-infinity'), ('t', '1969-12-31 23:59:59.999999+00'), ('t', '294276-12-31+00')");
    const Decoded decoded = logged.decode(decoder);
    ASSERT_TRUE(decoded.status.ok()) << describe(decoded.status.error());
    EXPECT_EQ(shown(decoded.batch), shown(logged.read()));
    EXPECT_EQ(decoded.batch.size(), 10U);
}

INSTANTIATE_TEST_SUITE_P(, NativePayload,
                         testing::Values(PayloadType::kJsonb, PayloadType::kJson,
                                         PayloadType::kText, PayloadType::kBytea));

// Everything that a table read by position may have mapped, of every type that the decoder takes.
class RandomTable : public DecodedTable {
  protected:
    struct Column {
        std::string field;
        std::string name;
        std::string type;
    };

    void SetUp() override {
        pg_.exec(
            "CREATE EXTENSION citext; CREATE TYPE mood AS ENUM ('sad', 'ok', 'très \"heureux\"'); "
            "CREATE DOMAIN label AS text; CREATE DOMAIN short_label_base AS varchar(40); "
            "CREATE DOMAIN short_label AS short_label_base CHECK (length(VALUE) <= 40); "
            "CREATE DOMAIN amount AS numeric; CREATE DOMAIN document AS jsonb; "
            "CREATE DOMAIN blob AS bytea; CREATE DOMAIN moment AS timestamp");
    }

    // A table of its own for each seed, with every field or without.
    void create(RandomValues& random) {
        const std::vector<std::string> texts{
            "text",    "varchar", "varchar(40)", "char(12)",    "name",  "uuid",  "smallint",
            "integer", "bigint",  "boolean",     "numeric",     "json",  "jsonb", "numeric(12,3)",
            "mood",    "citext",  "label",       "short_label", "amount"};
        std::vector<std::string> contents = texts;
        for (const char* type : {"bytea", "document", "blob", "jsonb", "json"}) {
            contents.emplace_back(type);
        }
        columns_.clear();
        config_ = config("events");
        const auto add = [&](const std::string& field, const std::string& type) {
            columns_.push_back({field, "c " + field + (random.one_in(2) ? "\"Ü" : ""), type});
            config_.mapping.columns[field] = columns_.back().name;
        };
        add("id", random.pick<std::string>({"uuid", "text", "bigint", "char(12)", "citext"}));
        add("payload", random.pick(contents));
        if (!random.one_in(3)) add("headers", random.pick(contents));
        for (const char* field : {"aggregate_type", "aggregate_id", "event_type", "schema_id",
                                  "schema_version", "topic", "key", "routing_key"}) {
            if (!random.one_in(5)) add(field, random.pick(texts));
        }
        if (!random.one_in(3)) {
            add("tenant_id", random.pick<std::string>({"text", "char(12)", "citext", "label"}));
            if (random.one_in(2)) config_.tenants = {"acme", "other"};
            config_.default_tenant = random.pick<std::string>({"acme", "default"});
        }
        if (!random.one_in(5)) {
            add("occurred_at",
                random.pick<std::string>({"timestamptz", "timestamp", "date", "moment"}));
        }
        config_.mapping.metadata_as_text = random.one_in(2);
        for (int i = random.below(4); i > 0; --i) {
            std::string type = random.pick(texts);
            if (type == "json") type = "jsonb";
            columns_.push_back({"",
                                "meta" + std::string(static_cast<std::size_t>(i), 'z') +
                                    (random.one_in(2) ? "\"\\" : ""),
                                type});
            config_.mapping.metadata_columns.push_back(columns_.back().name);
        }
        columns_.push_back({"", "unmapped", random.pick<std::string>({"text", "jsonb", "date"})});
        const std::string position = random.pick<std::string>({"bigint", "integer", "smallint"});
        std::string sql = "DROP TABLE IF EXISTS events; CREATE TABLE events (";
        for (const Column& column : columns_) {
            sql += quote_identifier(column.name) + " " + column.type + ", ";
        }
        pg_.exec(sql + "position " + position + " GENERATED ALWAYS AS IDENTITY)");
    }

    void insert(RandomValues& random) {
        std::string names;
        std::string places;
        std::vector<std::optional<std::string>> values;
        for (const Column& column : columns_) {
            names += (names.empty() ? "" : ", ") + quote_identifier(column.name);
            places += (places.empty() ? "$" : ", $") + std::to_string(values.size() + 1);
            places += "::" + column.type;
            if (column.field != "id" && random.one_in(5)) {
                values.emplace_back();
            } else if (column.field == "tenant_id") {
                values.emplace_back(random.pick<std::string>({"acme", "beta", ""}));
            } else if (column.field == "id" && column.type == "text" && random.one_in(2)) {
                values.emplace_back(random.uuid());
            } else {
                values.emplace_back(random.value(column.type));
            }
        }
        std::vector<const char*> pointers;
        for (const auto& value : values) pointers.push_back(value ? value->c_str() : nullptr);
        const std::string sql = "INSERT INTO events (" + names + ") VALUES (" + places + ")";
        const std::unique_ptr<PGresult, decltype(&PQclear)> result(
            PQexecParams(pg_.handle(), sql.c_str(), static_cast<int>(values.size()), nullptr,
                         pointers.data(), nullptr, nullptr, 0),
            PQclear);
        if (PQresultStatus(result.get()) != PGRES_COMMAND_OK) {
            throw std::runtime_error(PQerrorMessage(pg_.handle()) + sql);
        }
    }

    std::vector<Column> columns_;
    postgres::PostgresSourceConfig config_;
};

TEST_F(RandomTable, ComesOutOfTheLogAsTheReaderGivesIt) {
    const std::uint64_t tables = full_run() ? 40 : 20;
    constexpr int kRows = 50;
    for (std::uint64_t seed = 1; seed <= tables; ++seed) {
        RandomValues random(seed);
        create(random);
        SCOPED_TRACE("seed " + std::to_string(seed));
        LoggedTable logged(url_, config_);
        ASSERT_THAT(logged.described().obstacles, IsEmpty());
        auto decoder = logged.decoder();
        pg_.exec("BEGIN");
        for (int row = 0; row < kRows; ++row) insert(random);
        pg_.exec("COMMIT");
        const Decoded decoded = logged.decode(decoder);
        ASSERT_TRUE(decoded.status.ok()) << describe(decoded.status.error());
        const spi::EventBatch read = logged.read();
        EXPECT_EQ(decoded.batch.size() + decoded.other_tenants.size(), std::size_t{kRows});
        const auto from_log = shown(decoded.batch);
        const auto from_table = shown(read);
        ASSERT_EQ(from_log.size(), from_table.size());
        for (std::size_t i = 0; i < from_log.size(); ++i) ASSERT_EQ(from_log[i], from_table[i]);
    }
}

class ChangedTable : public DecodedTable {
  protected:
    void SetUp() override {
        migrate(url_);
        pg_.exec("DROP VIEW outbox_status");  // holds the columns fast
    }

    void insert(const std::string& columns = "topic, payload",
                const std::string& values = "'t', '{}'") {
        pg_.exec("INSERT INTO outbox_events (" + columns + ") VALUES (" + values + ")");
    }
    // What comes out of the log is what a reader that was started after the change reads.
    void expect_same(LoggedTable& logged, postgres::RowDecoder& decoder, std::size_t events) {
        const Decoded decoded = logged.decode(decoder);
        ASSERT_TRUE(decoded.status.ok()) << describe(decoded.status.error());
        EXPECT_EQ(decoded.batch.size(), events);
        EXPECT_EQ(shown(decoded.batch), shown(logged.read()));
    }
};

TEST_F(ChangedTable, IsFollowedThroughChangesOfColumns) {
    LoggedTable logged(url_, config());
    auto decoder = logged.decoder();
    insert("topic, key", "'t', 'k1'");
    pg_.exec("BEGIN; ALTER TABLE outbox_events ADD COLUMN note text DEFAULT 'x'");
    insert("topic, note, key", "'t', 'seen by nobody', 'k2'");
    pg_.exec("COMMIT; ALTER TABLE outbox_events RENAME COLUMN note TO remark");
    insert("topic, remark", "'t', 'y'");
    pg_.exec("ALTER TABLE outbox_events ALTER COLUMN key TYPE varchar(100)");
    insert("topic, key", "'t', 'k3'");
    pg_.exec("BEGIN");
    insert("topic, key", "'t', '18'");
    pg_.exec(
        "ALTER TABLE outbox_events DROP COLUMN remark; "
        "ALTER TABLE outbox_events ALTER COLUMN occurred_at TYPE timestamp; "
        "CREATE DOMAIN tag AS text; ALTER TABLE outbox_events ALTER COLUMN schema_id TYPE tag");
    insert("topic, key, schema_id", "'t', 'k4', 's'");
    pg_.exec("COMMIT");
    expect_same(logged, decoder, 6);
}

TEST_F(ChangedTable, GivesAPayloadInTheFormItHasNow) {
    LoggedTable logged(url_, config());
    auto decoder = logged.decoder();
    insert("topic, payload", "'t', '{\"b\":1,\"a\":2}'");
    pg_.exec(
        "ALTER TABLE outbox_events DROP CONSTRAINT outbox_payload_size; "
        "ALTER TABLE outbox_events ALTER COLUMN payload TYPE json");
    insert("topic, payload", "'t', '{\"b\":1,\"a\":2}'");
    const Decoded decoded = logged.decode(decoder);
    ASSERT_TRUE(decoded.status.ok()) << describe(decoded.status.error());
    ASSERT_EQ(decoded.batch.size(), 2U);
    EXPECT_EQ(decoded.batch.events()[0].payload, "{\"a\": 2, \"b\": 1}");
    EXPECT_EQ(decoded.batch.events()[1].payload, "{\"b\":1,\"a\":2}");
}

TEST_F(ChangedTable, SaysThatAMappedColumnWasRenamedAfterAllRowsBeforeThat) {
    LoggedTable logged(url_, config());
    auto decoder = logged.decoder();
    insert();
    insert();
    pg_.exec("ALTER TABLE outbox_events RENAME COLUMN headers TO extra");
    insert();
    const Decoded decoded = logged.decode(decoder);
    EXPECT_EQ(decoded.batch.size(), 2U);
    ASSERT_FALSE(decoded.status.ok());
    EXPECT_EQ(decoded.status.error().code, ErrorCode::kTableShape);
    EXPECT_THAT(decoded.status.error().message, HasSubstr("no column 'headers'"));
}

TEST_F(ChangedTable, SaysThatItWasReplaced) {
    LoggedTable logged(url_, config());
    auto decoder = logged.decoder();
    insert();
    pg_.exec(
        "ALTER TABLE outbox_events RENAME TO outbox_old; CREATE TABLE outbox_events (LIKE "
        "outbox_old INCLUDING ALL); ALTER PUBLICATION outbox ADD TABLE outbox_events");
    insert();
    const Decoded decoded = logged.decode(decoder);
    EXPECT_EQ(decoded.batch.size(), 1U);
    ASSERT_FALSE(decoded.status.ok());
    EXPECT_THAT(decoded.status.error().message, HasSubstr("was replaced by another"));
}

TEST_F(ChangedTable, LeavesOutTheRowsOfOtherTablesAndWhatWasRolledBack) {
    pg_.exec("CREATE TABLE other (position bigint, id uuid)");
    LoggedTable logged(url_, config());
    pg_.exec("ALTER PUBLICATION outbox ADD TABLE other");
    auto decoder = logged.decoder();
    pg_.exec("INSERT INTO other VALUES (1, NULL); BEGIN");
    insert();
    pg_.exec("ROLLBACK; BEGIN; SAVEPOINT s");
    insert();
    pg_.exec("ROLLBACK TO s");
    insert("topic", "'kept'");
    pg_.exec("COMMIT");
    expect_same(logged, decoder, 1);
}

class AnyTable : public DecodedTable {
  protected:
    // The obstacles of a table, in one text.
    std::string obstacles(const postgres::PostgresSourceConfig& config) {
        auto connection = value_of(postgres::Connection::open(url_, 60));
        const auto table = value_of(postgres::resolve_table(connection, config));
        std::string text;
        for (const std::string& obstacle :
             value_of(postgres::describe_for_stream(connection, table, config)).obstacles) {
            text += obstacle + "\n";
        }
        return text;
    }
    std::string obstacles_of(const std::string& columns,
                             const std::map<std::string, std::string>& mapped = {}) {
        pg_.exec(
            "DROP TABLE IF EXISTS events CASCADE; CREATE TABLE events (position bigint "
            "GENERATED ALWAYS AS IDENTITY, " +
            columns + ")");
        auto events = config("events");
        events.mapping.columns = mapped;
        events.mapping.columns["id"] = "id";
        return obstacles(events);
    }
};

TEST_F(AnyTable, IsNotStreamedWhereATypeCannotBeDecoded) {
    for (const char* type :
         {"float8", "float4", "\"char\"", "interval", "inet", "text[]", "xml", "money", "time",
          "oid", "int4range", "bit(3)", "timestamptz", "bytea"}) {
        EXPECT_THAT(obstacles_of(std::string("id uuid, payload jsonb, key ") + type),
                    HasSubstr("column \"key\" of \"public\".\"events\" (key) has type "))
            << type;
    }
    EXPECT_THAT(obstacles_of("id uuid, payload jsonb, key text"), IsEmpty());
    EXPECT_THAT(obstacles_of("id uuid, payload float8"), HasSubstr("(payload)"));
    EXPECT_THAT(obstacles_of("id uuid, payload bytea, other float8, unused text[]"), IsEmpty());
    auto metadata = config("events");
    metadata.mapping.columns["id"] = "id";
    metadata.mapping.metadata_columns = {"other"};
    EXPECT_THAT(obstacles(metadata), HasSubstr("(metadata) has type double precision"));
}

TEST_F(AnyTable, IsNotStreamedWhereTheLogHoldsLessOrOtherThanTheTable) {
    EXPECT_THAT(obstacles_of("id uuid, payload jsonb, a text GENERATED ALWAYS AS ('x') STORED"),
                IsEmpty());
    EXPECT_THAT(obstacles_of("id uuid, payload jsonb, status text, processed_at timestamptz",
                             {{"processed_at", "processed_at"}, {"status", ""}}),
                HasSubstr("rows that are marked"));
    obstacles_of("id uuid, payload jsonb");
    auto events = config("events");
    events.mapping.columns["id"] = "id";
    pg_.exec("ALTER TABLE events SET UNLOGGED");
    EXPECT_THAT(obstacles(events), HasSubstr("ALTER TABLE public.events SET LOGGED"));
    pg_.exec("ALTER TABLE events SET LOGGED; CREATE TABLE heir () INHERITS (events)");
    EXPECT_THAT(obstacles(events), HasSubstr("inherit from it"));
    pg_.exec("DROP TABLE heir");
    EXPECT_THAT(obstacles(events), IsEmpty());
}

TEST_F(AnyTable, IsStreamedWithGeneratedColumnsWhereTheServerPublishesThem) {
    const std::string columns =
        "id uuid DEFAULT gen_random_uuid(), payload jsonb, n int, key text GENERATED ALWAYS AS ("
        "(n + 1)::text) ";
    if (pg_.number("SHOW server_version_num") < 180'000) {
        EXPECT_THAT(obstacles_of(columns + "STORED"),
                    HasSubstr("(key) is generated; the log holds such columns from PostgreSQL 18"));
        return;
    }
    EXPECT_THAT(obstacles_of(columns + "VIRTUAL"), HasSubstr("virtual generated column"));
    EXPECT_THAT(obstacles_of(columns + "STORED"), IsEmpty());
    auto events = config("events");
    events.mapping.columns["id"] = "id";
    LoggedTable logged(url_, events);
    auto decoder = logged.decoder();
    EXPECT_TRUE(logged.described().needs_generated_columns);
    pg_.exec(
        "ALTER PUBLICATION outbox SET (publish_generated_columns = stored); "
        "INSERT INTO events (payload, n) VALUES ('1', 1), ('2', NULL)");
    const Decoded decoded = logged.decode(decoder);
    ASSERT_TRUE(decoded.status.ok()) << describe(decoded.status.error());
    EXPECT_EQ(decoded.batch.size(), 2U);
    EXPECT_EQ(shown(decoded.batch), shown(logged.read()));
}

TEST_F(AnyTable, IsStreamedByItsRootWhereItIsPartitioned) {
    pg_.exec(
        "CREATE TABLE events (position bigint GENERATED ALWAYS AS IDENTITY, id uuid DEFAULT "
        "gen_random_uuid(), payload jsonb, key text) PARTITION BY RANGE (position); "
        "CREATE TABLE events_1 (key text, payload jsonb, id uuid, gone int, position bigint NOT "
        "NULL); ALTER TABLE events_1 DROP COLUMN gone; "
        "ALTER TABLE events ATTACH PARTITION events_1 FOR VALUES FROM (1) TO (3); "
        "CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (3) TO (100)");
    auto events = config("events");
    events.mapping.columns["id"] = "id";
    LoggedTable logged(url_, events);
    ASSERT_TRUE(logged.table().by_position);
    const postgres::StreamTable described = logged.described();
    EXPECT_TRUE(described.needs_partition_root);
    EXPECT_THAT(described.obstacles, IsEmpty());
    postgres::RowDecoder decoder(described);
    pg_.exec(
        "INSERT INTO events (payload, key) SELECT to_jsonb(n), n FROM generate_series(1, 5) n");
    const Decoded decoded = logged.decode(decoder);
    ASSERT_TRUE(decoded.status.ok()) << describe(decoded.status.error());
    EXPECT_EQ(decoded.batch.size(), 5U);
    EXPECT_EQ(shown(decoded.batch), shown(logged.read()));
    pg_.exec("CREATE UNLOGGED TABLE events_3 PARTITION OF events FOR VALUES FROM (100) TO (200)");
    EXPECT_THAT(obstacles(events), HasSubstr("ALTER TABLE public.events_3 SET LOGGED"));
}

}  // namespace
}  // namespace outbox::test
