#include <stdexcept>

#include <outbox/producer/migrate.h>

#include "databases/postgres/source/source.h"
#include "tests/conformance/source_suite.h"
#include "tests/support/eventually.h"
#include "tests/support/full_run.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

std::string literal(const std::optional<std::string>& text) {
    if (!text) return "NULL";
    std::string out = "'";
    for (const char c : *text) out += c == '\'' ? std::string("''") : std::string(1, c);
    return out + "'";
}

std::string values(const SuiteEvent& event) {
    return literal(event.id) + ", " + literal(event.aggregate_type) + ", " + literal(event.key) +
           ", " + literal(event.payload) + ", " + literal(event.headers) + ", " +
           literal(event.topic);
}

// One table that the suite runs against.
struct Layout {
    std::string insert;      // INSERT INTO table (columns of `values`)
    std::string unfinished;  // counts the rows that are not published
    bool native = true;
    postgres::Mode mode = postgres::Mode::kPolling;
    std::optional<TableLayoutKind> kind = {};
};

const Layout kNative{"INSERT INTO outbox_events (id, aggregate_type, key, payload, headers, topic)",
                     "SELECT count(*) FROM outbox_events"};
const Layout kStreamed{kNative.insert, kNative.unfinished, true, postgres::Mode::kStream};

// Rows stay when they are published.
const std::string kUnsent =
    "SELECT count(*) FROM outbox_status WHERE status IN ('PENDING', 'RETRYING')";
const Layout kKept{kNative.insert, kUnsent, true, postgres::Mode::kPolling, TableLayoutKind::kKeep};
const Layout kKeptStreamed{kNative.insert, kUnsent, true, postgres::Mode::kStream,
                           TableLayoutKind::kKeep};

// A team's own table: other names, a state that is marked, no number to order by.
const Layout kMarked{"INSERT INTO \"My Outbox\" (uid, kind, key, body, headers, topic)",
                     "SELECT count(*) FROM \"My Outbox\" WHERE state IN ('new', 'retry')", false};

constexpr const char* kMarkedTable =
    "CREATE TABLE \"My Outbox\" (uid text PRIMARY KEY, kind text, key varchar(50), body json, "
    "headers jsonb, topic text, state text NOT NULL DEFAULT 'new', tries integer DEFAULT 0, "
    "created_at timestamptz DEFAULT clock_timestamp()); "
    "CREATE INDEX ON \"My Outbox\" (created_at, uid) WHERE state = 'new'; "
    "CREATE INDEX ON \"My Outbox\" (created_at, uid) WHERE state = 'retry'";

TableMapping marked_mapping() {
    TableMapping mapping;
    mapping.columns = {{"id", "uid"},
                       {"aggregate_type", "kind"},
                       {"payload", "body"},
                       {"status", "state"},
                       {"retry_count", "tries"}};
    mapping.pending_values = {"new"};
    mapping.sent_value = "sent";
    mapping.failed_value = "retry";
    mapping.dead_value = "dead";
    return mapping;
}

class PostgresTransaction final : public SuiteTransaction {
  public:
    PostgresTransaction(const std::string& url, const Layout& layout)
        : layout_(layout), connection_(url) {
        connection_.exec("BEGIN");
    }
    void emit(const SuiteEvent& event) override {
        connection_.exec(layout_.insert + " VALUES (" + values(event) + ")");
    }
    void savepoint() override { connection_.exec("SAVEPOINT s"); }
    void rollback_to_savepoint() override { connection_.exec("ROLLBACK TO SAVEPOINT s"); }
    void commit() override { connection_.exec("COMMIT"); }
    void rollback() override { connection_.exec("ROLLBACK"); }

  private:
    const Layout& layout_;
    Pg connection_;
};

class PostgresFixture final : public SourceFixture {
  public:
    explicit PostgresFixture(const Layout& layout)
        : layout_(layout), url_(shared_postgres().create_database()), admin_(url_) {
        if (layout.native) {
            MigrateOptions options;
            options.layout = layout.kind;
            migrate(url_, options);
        } else {
            admin_.exec(kMarkedTable);
        }
    }

    SourceTraits traits() const override {
        SourceTraits traits;
        traits.scheduled = layout_.native;
        return traits;
    }

    std::unique_ptr<spi::Source> open() override {
        postgres::PostgresSourceConfig config;
        config.url = url_;
        config.mode = layout_.mode;
        if (!layout_.native) {
            config.table = "My Outbox";
            config.mapping = marked_mapping();
        }
        auto source = postgres::make_postgres_source(config);
        if (!source.ok()) throw std::runtime_error(describe(source.error()));
        return std::move(*source);
    }

    void settle(spi::Reader& reader) override {
        if (layout_.mode != postgres::Mode::kStream) return;
        EXPECT_TRUE(eventually(std::chrono::seconds(60), "the reader is on the stream", [&] {
            spi::EventBatch none;
            const Status status = reader.read({1000, std::size_t{1} << 20}, none);
            EXPECT_TRUE(status.ok() && none.empty());
            const auto path = reader.new_path();
            return path && path->path == "stream";
        }));
    }

    std::unique_ptr<SuiteTransaction> begin() override {
        return std::make_unique<PostgresTransaction>(url_, layout_);
    }

    void schedule_due(const SuiteEvent& event) override {
        admin_.exec(
            "INSERT INTO outbox_scheduled (available_at, occurred_at, id, aggregate_type, key, "
            "payload, headers, topic) VALUES (now() - interval '1 second', now() - interval "
            "'1 day', " +
            values(event) + ")");
    }

    void request_retry(std::int64_t dead_id) override {
        admin_.exec("UPDATE outbox_dead_letters SET retry_requested_at = now() WHERE dead_id = " +
                    std::to_string(dead_id));
    }

    std::int64_t unfinished_rows() override { return admin_.number(layout_.unfinished); }

  private:
    const Layout& layout_;
    std::string url_;
    Pg admin_;
};

std::unique_ptr<SourceFixture> native() {
    return std::make_unique<PostgresFixture>(kNative);
}

std::unique_ptr<SourceFixture> streamed() {
    return std::make_unique<PostgresFixture>(kStreamed);
}

// None: PostgreSQL 14 has one layout.
std::unique_ptr<SourceFixture> where_rows_can_stay(const Layout& layout) {
    Pg pg(shared_postgres().url());
    if (pg.number("SHOW server_version_num") < 150000) return nullptr;
    return std::make_unique<PostgresFixture>(layout);
}

std::unique_ptr<SourceFixture> kept() {
    return where_rows_can_stay(kKept);
}

std::unique_ptr<SourceFixture> kept_and_streamed() {
    return where_rows_can_stay(kKeptStreamed);
}

std::unique_ptr<SourceFixture> marked() {
    return std::make_unique<PostgresFixture>(kMarked);
}

INSTANTIATE_TEST_SUITE_P(Postgres, SourceSuite, testing::Values(native));
INSTANTIATE_TEST_SUITE_P(PostgresStreamed, SourceSuite, testing::Values(streamed));
INSTANTIATE_TEST_SUITE_P(PostgresKept, SourceSuite, testing::Values(kept));
INSTANTIATE_TEST_SUITE_P(
    PostgresKeptStreamed, SourceSuite,
    testing::ValuesIn(and_in_full<SourceSuite::ParamType>({}, {kept_and_streamed})));
INSTANTIATE_TEST_SUITE_P(PostgresMarked, SourceSuite, testing::Values(marked));

}  // namespace
}  // namespace outbox::test
