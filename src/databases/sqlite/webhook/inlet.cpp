#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/utf8.h"
#include "databases/sqlite/webhook/store.h"
#include "mailbox/errors.h"

namespace outbox::sqlite {
namespace {

constexpr const char* kInsert =
    "INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id, event_type, key, headers, "
    "payload, occurred_at) SELECT ?1, ?2, ?3, ?4, ?5, ?6, nullif(?7, 0) WHERE EXISTS (SELECT 1 "
    "FROM outbox_webhook_endpoints WHERE endpoint_id = ?1) "
    "ON CONFLICT (endpoint_id, event_id) DO NOTHING";

// A row that is made anew differs by its time.
constexpr const char* kVersion =
    "SELECT count(*) || ' ' || coalesce(max(created_at), 0) || ' ' || coalesce(sum(revision), 0) "
    "|| ' ' || coalesce(sum((created_at + revision * 1000003) % 1000000007), 0) FROM "
    "outbox_webhook_endpoints";
constexpr const char* kQueued =
    "SELECT count(*) FROM (SELECT 1 FROM outbox_webhook_deliveries WHERE endpoint_id = ?1 LIMIT "
    "?2)";
constexpr const char* kMissed =
    "UPDATE outbox_webhook_endpoints SET missed_total = missed_total + ?3 WHERE endpoint_id = ?1 "
    "AND "
    "created_at = ?2";

class SqliteInlet final : public webhook::Inlet {
  public:
    SqliteInlet(std::string path, int busy_timeout_s)
        : path_(std::move(path)), busy_timeout_s_(busy_timeout_s) {}

    Status prepare() override {
        if (version_ && !database_->has_moved()) return {};
        close();
        bool there = false;
        auto opened = open_webhook_file(path_, busy_timeout_s_, true, there);
        if (!opened.ok()) return opened.status();
        database_ = std::move(*opened);
        Status status = database_->execute(kDurable);
        if (status.ok()) {
            insert_.emplace(*database_, kInsert, Statement::Use::kKept);
            status = insert_->status();
        }
        if (status.ok()) {
            version_.emplace(*database_, kVersion, Statement::Use::kKept);
            status = version_->status();
        }
        if (!status.ok()) close();
        return status;
    }

    Result<std::vector<webhook::Endpoint>> look() override {
        bool there = false;
        auto opened = open_webhook_file(path_, busy_timeout_s_, false, there);
        if (!opened.ok()) return opened.status();
        if (!there) return std::vector<webhook::Endpoint>();
        return read_endpoints(**opened);
    }

    // Makes nothing: who only looks asks it, too.
    Result<std::string> destination() override {
        bool there = false;
        const auto opened = open_webhook_file(path_, busy_timeout_s_, false, there);
        if (!opened.ok()) return opened.status();
        return "sqlite " + (*opened)->file() + ", webhooks";
    }

    Result<std::string> version() override {
        if (Status status = prepare(); !status.ok()) return status;
        const Run version(*version_);
        if (version->step()) return version->string(0);
        Status status = version->status();
        close();
        return status;
    }

    Result<std::vector<webhook::Endpoint>> endpoints() override {
        if (Status status = prepare(); !status.ok()) return status;
        auto read = read_endpoints(*database_);
        if (!read.ok()) close();
        return read;
    }

    Result<std::int64_t> queued(std::string_view endpoint, std::int64_t most) override {
        if (Status status = prepare(); !status.ok()) return status;
        Statement count(*database_, kQueued);
        count.bind(endpoint).bind(most);
        if (count.step()) return count.integer(0);
        Status status = count.status();
        close();
        return status;
    }

    Result<std::vector<webhook::LeftOut>> insert(
        std::span<const webhook::Event> events, std::span<const std::string_view> endpoints,
        std::span<const webhook::Target> targets) override {
        if (Status status = prepare(); !status.ok()) return status;
        std::vector<webhook::LeftOut> left_out;
        Status status = database_->begin();
        for (const webhook::Target& target : targets) {
            if (!status.ok()) break;
            status = insert_one(endpoints[target.endpoint], events[target.event]);
            if (database_->changes() == 0) left_out.push_back({target.endpoint, 1});
        }
        status = finish(std::move(status));
        if (!status.ok()) return status;
        return left_out;
    }

    Result<std::vector<std::string>> count_missed(
        std::span<const webhook::Missed> missed) override {
        if (Status status = prepare(); !status.ok()) return status;
        Status status = database_->begin();
        for (const webhook::Missed& one : missed) {
            if (!status.ok()) break;
            Statement add(*database_, kMissed);
            add.bind(one.endpoint_id).bind(one.created_at_us).bind(one.events);
            status = add.run();
        }
        status = finish(std::move(status));
        if (!status.ok()) return status;
        return std::vector<std::string>();
    }

  private:
    // The transaction, as it went so far.
    Status finish(Status status) {
        if (status.ok()) status = database_->execute("COMMIT");
        if (status.ok()) status = database_->require_unmoved();
        if (status.ok()) return status;
        // What is open dies with the connection at the latest.
        if (database_->in_transaction()) static_cast<void>(database_->execute("ROLLBACK"));
        if (!mailbox::blames_a_message(status.error().advice)) close();
        return status;
    }

    Status insert_one(std::string_view endpoint, const webhook::Event& event) {
        const Run insert(*insert_);
        insert->lend(endpoint).lend(event.id).lend(event.type);
        insert->lend_or_null(event.key).lend_or_null(event.headers);
        // Text, so that SQLite's JSON functions read it; bytes that are none stay as they are.
        if (is_utf8(event.payload) && event.payload.find('\0') == std::string_view::npos) {
            insert->lend_or_null(event.payload);
        } else {
            insert->lend_blob(event.payload);
        }
        insert->bind(event.occurred_at_us);
        return insert->run();
    }

    void close() {
        version_.reset();
        insert_.reset();
        database_.reset();
    }

    const std::string path_;
    const int busy_timeout_s_;
    std::unique_ptr<Database> database_;
    std::optional<Statement> insert_;  // these go before the connection does
    std::optional<Statement> version_;
};

}  // namespace

Result<std::unique_ptr<webhook::Inlet>> open_webhook_inlet(const webhook::StoreConfig& config) {
    auto path = webhook_path(config);
    if (!path.ok()) return path.error();
    return std::unique_ptr<webhook::Inlet>(
        std::make_unique<SqliteInlet>(*std::move(path), config.connect_timeout_s));
}

}  // namespace outbox::sqlite
