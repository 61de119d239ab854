#include <stdexcept>

#include <outbox/producer/migrate.h>

#include "sources/postgres/source.h"
#include "tests/conformance/source_suite.h"
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

class PostgresTransaction final : public SuiteTransaction {
  public:
    explicit PostgresTransaction(const std::string& url) : connection_(url) {
        connection_.exec("BEGIN");
    }
    void emit(const SuiteEvent& event) override {
        connection_.exec(
            "INSERT INTO outbox_events (id, aggregate_type, key, payload, headers, "
            "topic) VALUES (" +
            values(event) + ")");
    }
    void savepoint() override { connection_.exec("SAVEPOINT s"); }
    void rollback_to_savepoint() override { connection_.exec("ROLLBACK TO SAVEPOINT s"); }
    void commit() override { connection_.exec("COMMIT"); }
    void rollback() override { connection_.exec("ROLLBACK"); }

  private:
    Pg connection_;
};

class PostgresFixture final : public SourceFixture {
  public:
    PostgresFixture() : url_(shared_postgres().create_database()), admin_((migrate(url_), url_)) {}

    SourceTraits traits() const override { return {}; }

    std::unique_ptr<spi::Source> open() override {
        postgres::PostgresSourceConfig config;
        config.url = url_;
        auto source = postgres::make_postgres_source(config);
        if (!source.ok()) throw std::runtime_error(describe(source.error()));
        return std::move(*source);
    }

    std::unique_ptr<SuiteTransaction> begin() override {
        return std::make_unique<PostgresTransaction>(url_);
    }

    void schedule_due(const SuiteEvent& event) override {
        admin_.exec(
            "INSERT INTO outbox_scheduled (available_at, id, aggregate_type, key, payload, "
            "headers, topic) VALUES (now() - interval '1 second', " +
            values(event) + ")");
    }

    void request_retry(std::int64_t dead_id) override {
        admin_.exec("UPDATE outbox_dead_letters SET retry_requested_at = now() WHERE dead_id = " +
                    std::to_string(dead_id));
    }

    std::int64_t unfinished_rows() override {
        return admin_.number("SELECT count(*) FROM outbox_events");
    }

  private:
    std::string url_;
    Pg admin_;
};

INSTANTIATE_TEST_SUITE_P(Postgres, SourceSuite, testing::Values([] {
                             return std::unique_ptr<SourceFixture>(new PostgresFixture);
                         }));

}  // namespace
}  // namespace outbox::test
