#include <stdexcept>

#include <outbox/adapters/sqlite.h>
#include <outbox/producer/migrate.h>

#include "databases/sqlite/source/source.h"
#include "tests/conformance/source_suite.h"
#include "tests/support/files.h"
#include "tests/support/sqlite.h"

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
};

const Layout kNative{"INSERT INTO outbox_events (id, aggregate_type, key, payload, headers, topic)",
                     "SELECT count(*) FROM outbox_events"};

// A team's own table: other names, a state that is marked, times as text.
const Layout kMarked{"INSERT INTO \"My Outbox\" (uid, kind, key, body, headers, topic)",
                     "SELECT count(*) FROM \"My Outbox\" WHERE state IN ('new', 'retry')", false};

constexpr const char* kMarkedTable =
    "CREATE TABLE \"My Outbox\" (uid TEXT PRIMARY KEY, kind TEXT, key TEXT, body TEXT, headers "
    "TEXT, topic TEXT, state TEXT NOT NULL DEFAULT 'new', tries INTEGER DEFAULT 0, created_at TEXT "
    "DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))); CREATE INDEX by_state ON \"My Outbox\" "
    "(state)";

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

class SqliteTransaction final : public SuiteTransaction {
  public:
    SqliteTransaction(const std::string& path, const Layout& layout)
        : layout_(layout), connection_(path) {
        connection_.exec("BEGIN IMMEDIATE");
    }
    void emit(const SuiteEvent& event) override {
        connection_.exec(layout_.insert + " VALUES (" + values(event) + ")");
    }
    void savepoint() override { connection_.exec("SAVEPOINT s"); }
    void rollback_to_savepoint() override { connection_.exec("ROLLBACK TO s"); }
    void commit() override { connection_.exec("COMMIT"); }
    void rollback() override { connection_.exec("ROLLBACK"); }

  private:
    const Layout& layout_;
    Sqlite connection_;
};

class SqliteFixture final : public SourceFixture {
  public:
    explicit SqliteFixture(const Layout& layout) : layout_(layout), admin_(path_) {
        admin_.exec("PRAGMA journal_mode = WAL");
        if (layout.native) {
            migrate("sqlite://" + path_);
        } else {
            admin_.exec(kMarkedTable);
        }
    }

    SourceTraits traits() const override {
        SourceTraits traits;
        traits.concurrent_writers = false;
        traits.scheduled = layout_.native;
        return traits;
    }

    std::unique_ptr<spi::Source> open() override {
        sqlite::SqliteSourceConfig config;
        config.url = "sqlite://" + path_;
        if (!layout_.native) {
            config.table = "My Outbox";
            config.mapping = marked_mapping();
        }
        auto source = sqlite::make_sqlite_source(config);
        if (!source.ok()) throw std::runtime_error(describe(source.error()));
        return std::move(*source);
    }

    std::unique_ptr<SuiteTransaction> begin() override {
        return std::make_unique<SqliteTransaction>(path_, layout_);
    }

    void schedule_due(const SuiteEvent& event) override {
        admin_.exec(
            "INSERT INTO outbox_scheduled (available_at, occurred_at, id, aggregate_type, key, "
            "payload, headers, topic) VALUES (1000000 * (strftime('%s', 'now') - 1), 1000000 * "
            "(strftime('%s', 'now') - 86400), " +
            values(event) + ")");
    }

    void request_retry(std::int64_t dead_id) override {
        admin_.exec("UPDATE outbox_dead_letters SET retry_requested_at = 1 WHERE dead_id = " +
                    std::to_string(dead_id));
    }

    std::int64_t unfinished_rows() override { return admin_.number(layout_.unfinished); }

  private:
    const Layout& layout_;
    TemporaryFolder folder_{"source"};
    std::string path_ = folder_ / "shop.db";
    Sqlite admin_;
};

std::unique_ptr<SourceFixture> native() {
    return std::make_unique<SqliteFixture>(kNative);
}

std::unique_ptr<SourceFixture> marked() {
    return std::make_unique<SqliteFixture>(kMarked);
}

INSTANTIATE_TEST_SUITE_P(Sqlite, SourceSuite, testing::Values(native));
INSTANTIATE_TEST_SUITE_P(SqliteMarked, SourceSuite, testing::Values(marked));

}  // namespace
}  // namespace outbox::test
