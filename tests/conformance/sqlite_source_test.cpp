#include <stdexcept>

#include <outbox/adapters/sqlite.h>
#include <outbox/producer/migrate.h>

#include "sources/sqlite/source.h"
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

class SqliteTransaction final : public SuiteTransaction {
  public:
    explicit SqliteTransaction(const std::string& path) : connection_(path) {
        connection_.exec("BEGIN IMMEDIATE");
    }
    void emit(const SuiteEvent& event) override {
        connection_.exec(
            "INSERT INTO outbox_events (id, aggregate_type, key, payload, headers, "
            "topic) VALUES (" +
            values(event) + ")");
    }
    void savepoint() override { connection_.exec("SAVEPOINT s"); }
    void rollback_to_savepoint() override { connection_.exec("ROLLBACK TO s"); }
    void commit() override { connection_.exec("COMMIT"); }
    void rollback() override { connection_.exec("ROLLBACK"); }

  private:
    Sqlite connection_;
};

class SqliteFixture final : public SourceFixture {
  public:
    SqliteFixture() : admin_((migrate("sqlite://" + path_), path_)) {}

    SourceTraits traits() const override {
        SourceTraits traits;
        traits.concurrent_writers = false;
        return traits;
    }

    std::unique_ptr<spi::Source> open() override {
        sqlite::SqliteSourceConfig config;
        config.url = "sqlite://" + path_;
        auto source = sqlite::make_sqlite_source(config);
        if (!source.ok()) throw std::runtime_error(describe(source.error()));
        return std::move(*source);
    }

    std::unique_ptr<SuiteTransaction> begin() override {
        return std::make_unique<SqliteTransaction>(path_);
    }

    void schedule_due(const SuiteEvent& event) override {
        admin_.exec(
            "INSERT INTO outbox_scheduled (available_at, id, aggregate_type, key, payload, "
            "headers, topic) VALUES (1000, " +
            values(event) + ")");
    }

    void request_retry(std::int64_t dead_id) override {
        admin_.exec("UPDATE outbox_dead_letters SET retry_requested_at = 1 WHERE dead_id = " +
                    std::to_string(dead_id));
    }

    std::int64_t unfinished_rows() override {
        return admin_.number("SELECT count(*) FROM outbox_events");
    }

  private:
    TemporaryFolder folder_{"source"};
    std::string path_ = folder_ / "shop.db";
    Sqlite admin_;
};

INSTANTIATE_TEST_SUITE_P(Sqlite, SourceSuite, testing::Values([] {
                             return std::unique_ptr<SourceFixture>(new SqliteFixture);
                         }));

}  // namespace
}  // namespace outbox::test
