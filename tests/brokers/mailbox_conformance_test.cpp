#include <outbox/consumer/message.h>

#include "brokers/mailbox/sink.h"
#include "tests/conformance/sink_suite.h"
#include "tests/consumer/database.h"

namespace outbox::test {
namespace {

// A mailbox, read back with plain SQL.
class MailboxFixture : public SinkFixture {
  public:
    // Its batch limits are always low enough for `small`.
    std::unique_ptr<spi::Sink> open(bool /*small*/) override {
        return mailbox::make_mailbox_sink(database().mailbox_url()).value_or_throw();
    }
    std::string new_topic() override { return "topic-" + std::to_string(++topics_); }
    std::vector<Arrived> arrived(const std::string& topic, std::size_t /*count*/) override {
        std::vector<Arrived> out;
        for (const auto& row : database().connect()->query(
                 "SELECT id, key, " + database().payload_text() +
                 ", headers FROM outbox_mailbox WHERE topic = '" + topic + "' ORDER BY position")) {
            Message message;
            if (row[3]) message.headers_json = *row[3];
            out.push_back({row[0].value_or(""), row[1], row[2], message.headers()});
        }
        return out;
    }

  protected:
    virtual const Database& database() const = 0;

  private:
    int topics_ = 0;
};

class PostgresMailbox : public MailboxFixture {
  protected:
    const Database& database() const override { return database_; }

  private:
    PostgresDatabase database_;
};

class PostgresMailboxOutage final : public MailboxFixture {
  public:
    void go_down() override { server_.stop(PostgresServer::Stop::kImmediate); }
    void come_back() override { server_.start(); }

  protected:
    const Database& database() const override { return database_; }

  private:
    PostgresServer server_;
    PostgresDatabase database_{server_};
};

// It goes down when its folder is out of reach, as on a volume that is not mounted.
class SqliteMailbox final : public MailboxFixture {
  public:
    void go_down() override { std::filesystem::rename(folder(), away()); }
    void come_back() override { std::filesystem::rename(away(), folder()); }

  protected:
    const Database& database() const override { return database_; }

  private:
    std::filesystem::path folder() const {
        return std::filesystem::path(database_.path()).parent_path();
    }
    std::filesystem::path away() const { return folder().string() + ".away"; }

    SqliteDatabase database_;
};

template <typename Fixture>
SinkFixtureFactory factory() {
    return [] { return std::make_unique<Fixture>(); };
}

INSTANTIATE_TEST_SUITE_P(MailboxPostgres, SinkConformance,
                         testing::Values(factory<PostgresMailbox>()));
INSTANTIATE_TEST_SUITE_P(MailboxPostgres, SinkReadBack,
                         testing::Values(factory<PostgresMailbox>()));
INSTANTIATE_TEST_SUITE_P(MailboxPostgres, SinkOutage,
                         testing::Values(factory<PostgresMailboxOutage>()));
INSTANTIATE_TEST_SUITE_P(MailboxSqlite, SinkConformance, testing::Values(factory<SqliteMailbox>()));
INSTANTIATE_TEST_SUITE_P(MailboxSqlite, SinkReadBack, testing::Values(factory<SqliteMailbox>()));
INSTANTIATE_TEST_SUITE_P(MailboxSqlite, SinkOutage, testing::Values(factory<SqliteMailbox>()));

}  // namespace
}  // namespace outbox::test
