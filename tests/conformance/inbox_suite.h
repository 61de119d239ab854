#pragma once

#include <chrono>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <outbox/consumer/inbox.h>
#include <outbox/consumer/mailbox.h>

namespace outbox::test {

// One database under the inbox suite. Tables of the consumer's side are there, and a table
// `effects (id text, key text, attempt integer)` for what handlers do.
class InboxBackend {
  public:
    using Row = std::vector<std::optional<std::string>>;

    // A connection with which a test plays application; also what a handler gets.
    class Session {
      public:
        virtual ~Session() = default;
        virtual std::vector<Row> query(const std::string& sql) = 0;
        virtual bool accept(std::string_view consumer, std::string_view id,
                            MessageTime time = {}) = 0;
        virtual bool accept(const InboxTable& table, std::string_view consumer,
                            std::string_view id) = 0;
        virtual std::vector<bool> accept_batch(std::string_view consumer,
                                               std::span<const InboxEntry> messages) = 0;
        virtual SequenceResult accept_sequence(std::string_view consumer, std::string_view key,
                                               std::int64_t sequence) = 0;
        virtual std::optional<std::int64_t> next_offset(std::string_view consumer) = 0;
        virtual bool accept_offset(std::string_view consumer, std::optional<std::int64_t> expected,
                                   std::int64_t next) = 0;
        void exec(const std::string& sql) { query(sql); }
    };
    using Handler = std::function<void(Session& transaction, const Message& message)>;

    virtual ~InboxBackend() = default;
    virtual std::unique_ptr<Session> connect() = 0;
    virtual MailboxConsumer consumer(Handler handler, MailboxOptions options) = 0;
    // What begins a transaction that is going to write.
    virtual std::string begin() const = 0;
    using BatchHandler =
        std::function<void(Session& transaction, std::span<const Message> messages)>;
    virtual MailboxConsumer batch_consumer(BatchHandler handler, MailboxOptions options) = 0;
    // Sets a consumer's floor this long before now.
    virtual std::string raise_floor(const std::string& consumer, std::chrono::hours back) const = 0;
    // Makes all that members said of themselves an hour old.
    virtual std::string age_figures() const = 0;
    // A consumer of a database without the tables.
    virtual MailboxConsumer consumer_without_tables() = 0;
};

using InboxBackendFactory = std::function<std::unique_ptr<InboxBackend>()>;

struct InboxBackendParam {
    std::string name;
    InboxBackendFactory make;
};

// The promises of `accept` and `MailboxConsumer`, the same for every database.
class InboxSuite : public testing::TestWithParam<InboxBackendParam> {
  protected:
    void SetUp() override {
        backend_ = GetParam().make();
        db_ = backend_->connect();
    }

    // Puts a message into the mailbox as the relay does.
    void put(const std::string& id, const std::string& key = {}, const std::string& payload = "{}",
             const std::string& mailbox = "default") {
        db_->exec("INSERT INTO outbox_mailbox (mailbox, id, topic, key, payload) VALUES ('" +
                  mailbox + "', '" + id + "', 'order-events', " +
                  (key.empty() ? "NULL" : "'" + key + "'") + ", '" + payload + "')");
    }
    std::string value(const std::string& sql) {
        const auto rows = db_->query(sql);
        return rows.empty() ? "no row" : rows[0].at(0).value_or("NULL");
    }
    std::vector<std::string> column(const std::string& sql) {
        std::vector<std::string> out;
        for (const auto& row : db_->query(sql)) out.push_back(row[0].value_or("NULL"));
        return out;
    }
    // Ids in the order in which their effects were made.
    std::vector<std::string> effects() { return column("SELECT id FROM effects ORDER BY seq"); }
    std::vector<std::string> effects_of(const std::string& key) {
        return column("SELECT id FROM effects WHERE key = '" + key + "' ORDER BY seq");
    }
    std::string waiting() { return value("SELECT count(*) FROM outbox_mailbox"); }

    // The effect of a well-behaved handler.
    static void apply(InboxBackend::Session& transaction, const Message& message) {
        transaction.exec("INSERT INTO effects (id, key) VALUES ('" + std::string(message.id) +
                         "', '" + std::string(message.key) + "')");
    }
    MailboxConsumer consumer(InboxBackend::Handler handler = apply, MailboxOptions options = {}) {
        if (!options.on_report) {
            options.on_report = [this](const ConsumerReport& report) {
                using What = ConsumerReport::What;
                const bool done = report.what == What::kApplied || report.what == What::kRepeat;
                (done ? done_ : reports_)
                    .push_back({report.what, report.error,
                                report.message ? std::string(report.message->id) : ""});
            };
        }
        return backend_->consumer(std::move(handler), std::move(options));
    }
    static MailboxOptions quick_retries() {
        MailboxOptions options;
        options.retry_base_ms = 1;
        options.retry_max_ms = 2;
        return options;
    }

    struct Report {
        ConsumerReport::What what;
        ErrorInfo error;
        std::string id;
    };
    std::unique_ptr<InboxBackend> backend_;
    std::unique_ptr<InboxBackend::Session> db_;
    std::vector<Report> done_;     // messages applied and dropped
    std::vector<Report> reports_;  // everything else
};

}  // namespace outbox::test
