#include <outbox/consumer/message.h>

#include "brokers/webhook/sink.h"
#include "core/system_clock.h"
#include "tests/conformance/sink_suite.h"
#include "tests/webhook/rig.h"

namespace outbox::test {
namespace {

// Receivers that answer nothing, so that every delivery stays in the table.
class Silent final : public webhook::Sender {
  public:
    void start(std::uint64_t /*token*/, const webhook::Endpoint& /*endpoint*/,
               const webhook::Delivery& /*delivery*/) override {}
    void poll(std::chrono::milliseconds max_wait, int /*wake_fd*/,
              std::vector<webhook::Attempted>& /*out*/) override {
        std::this_thread::sleep_for(std::min(max_wait, std::chrono::milliseconds(1)));
    }
    void cancel(std::uint64_t /*token*/) override {}
};

// The deliveries of one endpoint, read back with plain SQL. It is one topic's.
class WebhookFixture : public SinkFixture {
  public:
    std::unique_ptr<spi::Sink> open(bool /*small*/) override {
        return webhook::make_webhook_sink({open_inlet(database().url()),
                                           open_outlet(database().url()),
                                           std::make_unique<Silent>(),
                                           clock_,
                                           {}});
    }
    std::string new_topic() override {
        if (topics_ == 0) {
            EXPECT_EQ(Rig::text(open_inlet(database().url())->prepare()), "");
            database().connect()->exec(
                "INSERT INTO outbox_webhook_endpoints (endpoint_id, url, secrets) VALUES ('all', "
                "'https://example.com', 'sealed')");
        }
        return "topic-" + std::to_string(++topics_);
    }
    std::vector<Arrived> arrived(const std::string& /*topic*/, std::size_t /*count*/) override {
        std::vector<Arrived> out;
        for (const auto& row : database().connect()->query(
                 "SELECT event_id, key, " + database().payload_text() +
                 ", headers FROM outbox_webhook_deliveries ORDER BY position")) {
            Message message;
            if (row[3]) message.headers_json = *row[3];
            out.push_back({row[0].value_or(""), row[1], row[2], message.headers()});
        }
        return out;
    }
    [[nodiscard]] bool takes_any_header_name() const override { return false; }

  protected:
    virtual const Database& database() const = 0;

  private:
    core::SystemClock clock_;
    int topics_ = 0;
};

class PostgresWebhooks : public WebhookFixture {
  protected:
    const Database& database() const override { return database_; }

  private:
    PostgresDatabase database_;
};

class PostgresWebhooksOutage final : public WebhookFixture {
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
class SqliteWebhooks final : public WebhookFixture {
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

INSTANTIATE_TEST_SUITE_P(WebhookPostgres, SinkConformance,
                         testing::Values(factory<PostgresWebhooks>()));
INSTANTIATE_TEST_SUITE_P(WebhookPostgres, SinkReadBack,
                         testing::Values(factory<PostgresWebhooks>()));
INSTANTIATE_TEST_SUITE_P(WebhookPostgres, SinkOutage,
                         testing::Values(factory<PostgresWebhooksOutage>()));
INSTANTIATE_TEST_SUITE_P(WebhookSqlite, SinkConformance,
                         testing::Values(factory<SqliteWebhooks>()));
INSTANTIATE_TEST_SUITE_P(WebhookSqlite, SinkReadBack, testing::Values(factory<SqliteWebhooks>()));
INSTANTIATE_TEST_SUITE_P(WebhookSqlite, SinkOutage, testing::Values(factory<SqliteWebhooks>()));

}  // namespace
}  // namespace outbox::test
