// A consumer whose messages say that their payloads are elsewhere.

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <poll.h>
#include <span>
#include <thread>

#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/sqlite_consumer.h>
#include <outbox/adapters/sqlite_queue.h>
#include <outbox/producer/migrate.h>

#include "claim/claim.h"
#include "claim/file_store.h"
#include "consumer/queue/inlet.h"
#include "net/sha256.h"
#include "tests/consumer/database.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using testing::HasSubstr;

class ClaimConsumer : public testing::Test {
  protected:
    ClaimConsumer() {
        migrate(database_.url());
        db_.exec("CREATE TABLE effects (n integer PRIMARY KEY, id text, payload text)");
        std::filesystem::create_directory(store_);
    }

    MailboxOptions options() const {
        MailboxOptions options;
        options.claims = file_claims("file://" + store_.string());
        options.retry_base_ms = 1;
        options.retry_max_ms = 2;
        options.max_attempts = 3;
        return options;
    }
    static void apply(sqlite3* transaction, const Message& message) {
        Sqlite::query(transaction, "INSERT INTO effects (id, payload) VALUES ('" +
                                       std::string(message.id) + "', '" +
                                       std::string(message.payload) + "')");
    }
    MailboxConsumer member(MailboxOptions options) {
        return sqlite_mailbox_consumer(database_.url(), apply, std::move(options));
    }
    MailboxConsumer member() { return member(options()); }

    // As a route with claim_check delivers it.
    void put(const std::string& id, const std::string& payload, const std::string& key = "k") {
        const auto store = claim::open_file_store("file://" + store_.string()).value_or_throw();
        const std::string hash = net::sha256_hex(payload);
        const std::string name = claim::object_name("t", id, hash);
        ASSERT_TRUE(store->put(name, payload, {}).ok());
        const claim::Claim claim{store->url() + "/" + name, payload.size(), hash};
        files_[id] = store_ / name.substr(0, 2) / name;
        put_message(id,
                    "{\"claim-check\":\"" + claim.reference + "\",\"claim-check-size\":\"" +
                        std::to_string(claim.size) + "\",\"claim-check-sha256\":\"" + hash + "\"}",
                    claim::note_of(claim), key);
    }
    void put_message(const std::string& id, const std::string& headers, const std::string& payload,
                     const std::string& key = "k") {
        db_.exec("INSERT INTO outbox_mailbox (id, topic, key, headers, payload) VALUES ('" + id +
                 "', 't', '" + key + "', '" + headers + "', '" + payload + "')");
    }
    std::string effects() {
        return db_.value(
            "SELECT coalesce(group_concat(id || '=' || payload, ' '), '') FROM "
            "(SELECT * FROM effects ORDER BY n)");
    }
    std::string dead() {
        return db_.value(
            "SELECT coalesce(group_concat(message_id || ' ' || error_code, ', '), '') "
            "FROM outbox_inbox_dead_letters");
    }
    // Until nothing is left, or a message waits.
    static std::size_t drain(MailboxConsumer& member) { return member.drain(); }

    TemporaryFolder folder_{"claims"};
    std::filesystem::path store_ = folder_ / "store";
    std::map<std::string, std::filesystem::path> files_;
    SqliteDatabase database_;
    Sqlite db_{database_.path()};
};

TEST_F(ClaimConsumer, HandlersSeeThePayloadWhereverItIs) {
    put("a", "large");
    put_message("b", "{}", "small");
    put("c", "large too");
    for (const std::size_t together : {std::size_t{1}, std::size_t{10}}) {
        auto chosen = options();
        chosen.transaction_size = together;
        auto one = member(chosen);
        drain(one);
        put("d" + std::to_string(together), "more");
    }
    EXPECT_EQ(effects(), "a=large b=small c=large too d1=more");
    EXPECT_EQ(dead(), "");
}

TEST_F(ClaimConsumer, WithoutAStoreHandlersSeeTheNote) {
    put("a", "large");
    auto chosen = options();
    chosen.claims = {};
    auto one = member(chosen);
    EXPECT_EQ(drain(one), 1U);
    EXPECT_THAT(effects(), HasSubstr("a={\"claim_check\":\"file://"));
}

TEST_F(ClaimConsumer, APayloadThatIsGoneOrAlteredIsADeadLetterUntilItIsThereAgain) {
    put("gone", "one", "k1");
    put("altered", "two", "k2");
    put("grown", "three", "k3");
    put("whole", "four", "k4");
    std::filesystem::rename(files_["gone"], folder_ / "kept");
    std::ofstream(files_["altered"]) << "twO";
    std::ofstream(files_["grown"], std::ios::app) << "!";
    {
        auto one = member();
        drain(one);
    }
    EXPECT_EQ(effects(), "whole=four");
    EXPECT_EQ(dead(), "gone OB_OBJECT_GONE, altered OB_OBJECT_ALTERED, grown OB_OBJECT_ALTERED");
    EXPECT_EQ(db_.number("SELECT max(attempts) FROM outbox_inbox_dead_letters"), 1)
        << "given up on at once";
    EXPECT_THAT(db_.value("SELECT error FROM outbox_inbox_dead_letters WHERE message_id = 'gone'"),
                HasSubstr(files_["gone"].filename().string()));
    EXPECT_THAT(
        db_.value("SELECT payload FROM outbox_inbox_dead_letters WHERE message_id = 'gone'"),
        HasSubstr("claim_check"))
        << "the letter has the reference";
    std::filesystem::rename(folder_ / "kept", files_["gone"]);
    db_.exec(
        "UPDATE outbox_inbox_dead_letters SET retry_requested_at = 0 WHERE message_id = 'gone'");
    auto later = member();
    drain(later);
    EXPECT_EQ(effects(), "whole=four gone=one");
}

TEST_F(ClaimConsumer, AStoreThatIsAwayIsAnOutageThatCountsNoAttemptAndKeepsOrder) {
    put("a", "first");
    put_message("b", "{}", "behind it");
    put_message("x", "{}", "of another key", "other");
    std::filesystem::rename(store_, folder_ / "unmounted");
    auto one = member();
    for (int i = 0; i < 10; ++i) drain(one);
    EXPECT_EQ(effects(), "x=of another key");
    EXPECT_EQ(one.stats().failed, 0U);
    EXPECT_EQ(dead(), "");
    std::filesystem::rename(folder_ / "unmounted", store_);
    while (db_.number("SELECT count(*) FROM outbox_mailbox") > 0) drain(one);
    EXPECT_EQ(effects(), "x=of another key a=first b=behind it");
    EXPECT_EQ(one.stats().failed, 0U);
}

// The store was changed while the message was under way: its payload was not removed, and the
// events behind it must not be applied before it.
TEST_F(ClaimConsumer, APayloadOfAnotherStoreIsWaitedForWithItsKey) {
    put("a", "first");
    put_message("b", "{}", "behind it");
    put_message("x", "{}", "of another key", "other");
    const std::filesystem::path later = folder_ / "later";
    std::filesystem::create_directory(later);
    std::ofstream(later / "other") << "of another message";
    std::vector<std::string> causes;
    auto chosen = options();
    chosen.claims = file_claims("file://" + later.string());
    chosen.on_report = [&](const ConsumerReport& report) {
        if (report.what == ConsumerReport::What::kRetry) causes.push_back(describe(report.error));
    };
    auto one = member(chosen);
    for (int i = 0; i < 10; ++i) drain(one);
    EXPECT_EQ(effects(), "x=of another key");
    EXPECT_EQ(dead(), "");
    EXPECT_EQ(one.stats().failed, 0U);
    ASSERT_FALSE(causes.empty());
    EXPECT_THAT(
        causes.front(),
        testing::AllOf(HasSubstr("OB_OBJECT_GONE"), HasSubstr("not in file://" + later.string()),
                       HasSubstr("it is in file://" + store_.string() + ";")));
    std::filesystem::copy(store_, later, std::filesystem::copy_options::recursive);
    while (db_.number("SELECT count(*) FROM outbox_mailbox") > 0) drain(one);
    EXPECT_EQ(effects(), "x=of another key a=first b=behind it");
}

TEST_F(ClaimConsumer, ARepeatNeedsNoPayload) {
    put("a", "once");
    auto one = member();
    drain(one);
    std::filesystem::remove(files_["a"]);
    put_message("a",
                db_.value("SELECT '{\"claim-check\":\"file:///f/" + std::string(64, 'a') +
                          "\",\"claim-check-size\":\"4\",\"claim-check-sha256\":\"" +
                          std::string(64, 'b') + "\"}'"),
                "note");
    drain(one);
    EXPECT_EQ(effects(), "a=once");
    EXPECT_EQ(dead(), "");
    EXPECT_EQ(one.stats().repeats, 1U);
}

TEST_F(ClaimConsumer, TakesNoPayloadAboveItsLimit) {
    put("a", std::string(1'001, 'l'));
    put("b", std::string(1'000, 'l'), "other");
    auto chosen = options();
    chosen.claims.max_bytes = 1'000;
    auto one = member(chosen);
    drain(one);
    EXPECT_EQ(dead(), "a OB_PAYLOAD_TOO_LARGE");
    EXPECT_EQ(db_.number("SELECT count(*) FROM effects WHERE id = 'b'"), 1);
}

TEST_F(ClaimConsumer, AReferenceThatIsNoneIsADeadLetter) {
    put_message("a", R"({"claim-check":"../../etc/passwd"})", "note");
    auto one = member();
    drain(one);
    EXPECT_EQ(dead(), "a OB_INVALID_EVENT");
    EXPECT_EQ(effects(), "");
}

// Asks a question whenever a payload is fetched.
class AskingStore final : public claim::ObjectStore {
  public:
    AskingStore(std::unique_ptr<claim::ObjectStore> store, std::function<void()> ask)
        : store_(std::move(store)), ask_(std::move(ask)) {}
    const std::string& url() const override { return store_->url(); }
    Status put(std::string_view name, std::string_view bytes,
               const std::stop_token& stop) override {
        return store_->put(name, bytes, stop);
    }
    Result<std::string> get(std::string_view name, std::size_t max_bytes,
                            const std::stop_token& stop) override {
        ask_();
        return store_->get(name, max_bytes, stop);
    }

  private:
    const std::unique_ptr<claim::ObjectStore> store_;
    const std::function<void()> ask_;
};

TEST_F(ClaimConsumer, NoTransactionIsOpenWhileAPayloadIsFetched) {
    int looks = 0;
    auto chosen = options();
    chosen.claims.open = [this, &looks] {
        return std::make_unique<AskingStore>(
            claim::open_file_store("file://" + store_.string()).value_or_throw(), [this, &looks] {
                // Somebody else can write.
                Sqlite(database_.path()).exec("PRAGMA busy_timeout = 0; BEGIN IMMEDIATE; COMMIT");
                ++looks;
            });
    };
    put_message("a", "{}", "small");
    put("b", "large");
    put("c", "large too");
    auto one = member(chosen);
    drain(one);
    EXPECT_EQ(effects(), "a=small b=large c=large too");
    EXPECT_EQ(looks, 2);
}

// A queue that hands over what it is given, again and again until it is told that it is done.
class GivenInlet final : public consumer::Inlet {
  public:
    explicit GivenInlet(std::vector<consumer::Arrival> given) : given_(std::move(given)) {}
    Status connect() override { return {}; }
    void disconnect() override {}
    Status fetch(consumer::Amount room, std::chrono::milliseconds most, int wake_fd,
                 std::vector<consumer::Arrival>& out) override {
        if (next_ == given_.size() || room.records == 0) {
            pollfd wake{wake_fd, POLLIN, 0};
            ::poll(&wake, 1, static_cast<int>(most.count()));
            return {};
        }
        out.push_back(given_[next_++]);
        return {};
    }
    Status acknowledge(std::span<const std::uint64_t>) override { return {}; }
    [[nodiscard]] std::string queue() const override { return "given"; }
    Result<std::optional<std::int64_t>> waiting() override {
        return std::optional<std::int64_t>(0);
    }

  private:
    const std::vector<consumer::Arrival> given_;
    std::size_t next_ = 0;
};

TEST_F(ClaimConsumer, AMemberOfAQueueFetchesPayloadsAndWaitsForTheirStore) {
    put("a", "large");  // its headers are what a queue would hand over
    const auto arrival = [](std::uint64_t number, const std::string& id, const std::string& key,
                            const std::string& payload) {
        consumer::Arrival out;
        out.number = number;
        out.id = id;
        out.topic = "t";
        out.key = key;
        out.payload = payload;
        return out;
    };
    std::vector<consumer::Arrival> given{arrival(1, "a", "k", "note"),
                                         arrival(2, "b", "k", "behind it"),
                                         arrival(3, "x", "other", "of another key")};
    given[0].headers = db_.value("SELECT headers FROM outbox_mailbox");
    QueueConsumerOptions options;
    options.consumer = "stock";
    options.claims = file_claims("file://" + store_.string());
    options.retry_base_ms = 1;
    options.retry_max_ms = 2;
    options.max_attempts = 3;
    std::atomic<int> retries = 0;
    options.on_report = [&](const ConsumerReport& report) {
        if (report.what == ConsumerReport::What::kRetry) ++retries;
    };
    std::filesystem::rename(store_, folder_ / "unmounted");
    auto member = sqlite_queue_consumer(
        database_.url(),
        Queue{.open = [&](const Queue::Limits&) { return std::make_unique<GivenInlet>(given); }},
        SqliteHandler(apply), options);
    std::thread running([&] { member.run(); });
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "it is tried more often than attempts go",
                           [&] { return retries > 10 && member.stats().applied == 1; }));
    EXPECT_EQ(member.stats().failed, 0U);
    std::filesystem::rename(folder_ / "unmounted", store_);
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "all are applied",
                           [&] { return member.stats().applied == 3; }));
    member.stop();
    running.join();
    EXPECT_EQ(effects(), "x=of another key a=large b=behind it");
    EXPECT_EQ(dead(), "");
    EXPECT_EQ(member.stats().failed, 0U);
}

// PostgreSQL begins with the next message where it commits the one before.
// A store that takes a while to fail, or hangs until it is told to stop.
class AwayStore final : public claim::ObjectStore {
  public:
    struct Life {
        std::atomic<int> asked = 0;
        std::atomic<bool> hangs = false;
        std::chrono::milliseconds takes{50};
    };
    explicit AwayStore(Life& life) : life_(life) {}
    [[nodiscard]] const std::string& url() const override { return url_; }
    Status put(std::string_view, std::string_view, const std::stop_token&) override { return {}; }
    Result<std::string> get(std::string_view, std::size_t, const std::stop_token& stop) override {
        ++life_.asked;
        do {
            std::this_thread::sleep_for(life_.takes);
        } while (life_.hangs && !stop.stop_requested());
        return ErrorInfo{ErrorCode::kSinkUnavailable, Advice::kRetryDestination, {}, "away"};
    }

  private:
    Life& life_;
    const std::string url_ = "file:///away";
};

class AwayQueue : public ClaimConsumer {
  protected:
    // `claims` messages that need the store, each of its own key, then as many small ones.
    std::vector<consumer::Arrival> given(std::size_t claims) {
        std::vector<consumer::Arrival> out;
        for (std::size_t i = 1; i <= 2 * claims; ++i) {
            consumer::Arrival one;
            one.number = i;
            one.id = "m" + std::to_string(i);
            one.topic = "t";
            one.key = one.id;
            one.payload = "p";
            if (i <= claims) {
                put(one.id, "large", one.id);
                one.headers =
                    db_.value("SELECT headers FROM outbox_mailbox WHERE id = '" + one.id + "'");
            }
            out.push_back(std::move(one));
        }
        return out;
    }
    QueueConsumer member_of(const std::vector<consumer::Arrival>& given) {
        QueueConsumerOptions options;
        options.consumer = "stock";
        options.claims.open = [this] { return std::make_unique<AwayStore>(life_); };
        options.retry_base_ms = 1;
        options.retry_max_ms = 2;
        options.workers = 1;
        options.on_report = [this](const ConsumerReport& report) {
            if (report.what == ConsumerReport::What::kRetry) ++retries_;
        };
        const auto open = [given](const Queue::Limits&) {
            return std::make_unique<GivenInlet>(given);
        };
        return sqlite_queue_consumer(database_.url(), Queue{.open = open}, SqliteHandler(apply),
                                     options);
    }

    AwayStore::Life life_;
    std::atomic<int> retries_ = 0;
};

// Each message of forty keys would cost what it takes to see that the store is away.
TEST_F(AwayQueue, AStoreThatIsSlowToFailIsAskedNowAndThenAndAllOthersGoOn) {
    constexpr std::size_t kClaims = 40;
    auto member = member_of(given(kClaims));
    std::thread running([&] { member.run(); });
    EXPECT_TRUE(eventually(
        std::chrono::seconds(60), "the others are applied, and it is tried on",
        [&] { return member.stats().applied == kClaims && retries_ > 400 && life_.asked > 2; }));
    member.stop();
    running.join();
    EXPECT_LT(life_.asked, retries_ / 4) << "one answer serves many";
    EXPECT_EQ(member.stats().failed, 0U);
    EXPECT_EQ(dead(), "");
}

TEST_F(AwayQueue, AStopEndsTheWaitForAStoreThatHangs) {
    life_.hangs = true;
    auto member = member_of(given(1));
    std::thread running([&] { member.run(); });
    EXPECT_TRUE(
        eventually(std::chrono::seconds(60), "it is asked", [&] { return life_.asked > 0; }));
    member.stop();
    running.join();  // for ever, otherwise
    EXPECT_EQ(life_.asked, 1);
    EXPECT_EQ(dead(), "");
}

TEST(ClaimConsumerOnPostgres, NoTransactionIsOpenWhileAPayloadIsFetched) {
    const PostgresDatabase database;
    migrate(database.url());
    Pg db(database.url());
    TemporaryFolder folder("claims");
    const auto store = [&] {
        return claim::open_file_store("file://" + folder.path().string()).value_or_throw();
    };
    for (const std::string id : {"a", "b", "c"}) {
        const std::string hash = net::sha256_hex(id);
        const std::string name = claim::object_name("t", id, hash);
        ASSERT_TRUE(store()->put(name, id, {}).ok());
        const std::string headers = R"({"claim-check":"file:///f/)" + name +
                                    R"(","claim-check-size":"1","claim-check-sha256":")" + hash +
                                    R"("})";
        db.exec("INSERT INTO outbox_mailbox (id, topic, key, headers, payload) VALUES ('" + id +
                "', 't', 'k', '" + (id == "a" ? "{}" : headers) + "', 'n')");
    }
    int looks = 0;
    int open = 0;
    MailboxOptions options;
    options.connect_timeout_s = 60;
    options.claims.open = [&] {
        return std::make_unique<AskingStore>(store(), [&] {
            ++looks;
            open += static_cast<int>(
                db.number("SELECT count(*) FROM pg_stat_activity WHERE datname = "
                          "current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT "
                          "NULL AND state <> 'active'"));
        });
    };
    std::string seen;
    auto member = libpq_mailbox_consumer(
        database.url(),
        [&](PGconn*, const Message& message) { seen += std::string(message.payload); }, options);
    EXPECT_EQ(member.drain(), 3U);
    EXPECT_EQ(seen, "nbc");
    EXPECT_EQ(looks, 2);
    EXPECT_EQ(open, 0);
}

}  // namespace
}  // namespace outbox::test
