// The relay with large payloads kept outside of their records, and a consumer behind it.

#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <outbox/adapters/libpq_consumer.h>
#include <outbox/consumer/queue.h>

#include "tests/claim/s3_server.h"
#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/sanitizer.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

class ClaimRelay : public testing::Test {
  protected:
    void SetUp() override {
        url_ = shared_postgres().create_database();
        database_ = std::make_unique<Pg>(url_);
        ASSERT_EQ(outbox_.run({"migrate", "--db", url_, "--payload", "text"}).status.code, 0);
        database_->exec("CREATE TABLE effects (n bigserial, id text, key text, payload text)");
        std::filesystem::create_directory(store_);
    }

    std::vector<std::string> arguments(const std::string& store) const {
        return {"--from",
                url_,
                "--to",
                "mailbox+postgresql" + url_.substr(url_.find(':')),
                "--claim-check",
                store,
                "--claim-check-above",
                "100",
                "--admin",
                "off"};
    }
    std::string folder() const { return "file://" + store_.string(); }
    Process relay(const std::string& store, const OutboxBinary::Variables& variables = {}) {
        return outbox_.start_relay(arguments(store), variables);
    }
    Finished check(const std::string& store) {
        auto all = arguments(store);
        all.insert(all.begin(), {"relay", "--check"});
        return outbox_.run(all);
    }

    // Events `from`.. of 10 keys; every other one is large.
    void emit(int from, int count) {
        database_->exec(
            "SELECT outbox_emit(topic => 'orders', key => 'key-' || n % 10, payload => n || ':' || "
            "repeat('x', CASE n % 2 WHEN 0 THEN 1000 ELSE 10 END)) FROM generate_series(" +
            std::to_string(from) + ", " + std::to_string(from + count - 1) + ") n");
    }
    long long arrived() { return database_->number("SELECT count(*) FROM outbox_mailbox"); }
    void await_mailbox(long long count) {
        ASSERT_TRUE(eventually(120s, std::to_string(count) + " messages",
                               [&] { return arrived() >= count; }));
    }
    // Applies what is there.
    void consume(const ClaimStore& claims) {
        MailboxOptions options;
        options.claims = claims;
        options.connect_timeout_s = 60;
        auto consumer = libpq_mailbox_consumer(
            url_,
            [](PGconn* connection, const Message& message) {
                const std::string id(message.id);
                const std::string key(message.key);
                const std::string payload(message.payload);
                const char* values[] = {id.c_str(), key.c_str(), payload.c_str()};
                PQclear(PQexecParams(connection,
                                     "INSERT INTO effects (id, key, payload) VALUES ($1, $2, $3)",
                                     3, nullptr, values, nullptr, nullptr, 0));
            },
            options);
        consumer.drain();
    }
    // Empty when the events 0.. are applied once each, whole, in the order of their keys.
    std::string what_is_wrong(int count) {
        const auto rows = database_->query("SELECT payload, key FROM effects ORDER BY n");
        std::map<std::string, int> last;
        for (const auto& row : rows) {
            const std::string payload = row[0].value_or("");
            const int n = std::stoi(payload);
            const std::size_t size = n % 2 == 0 ? 1'000 : 10;
            if (payload != std::to_string(n) + ":" + std::string(size, 'x'))
                return "not " + payload;
            const auto [place, is_first] = last.emplace(*row[1], n);
            if (!is_first && place->second >= n) return payload.substr(0, 8) + " came late";
            place->second = n;
        }
        return rows.size() == static_cast<std::size_t>(count)
                   ? ""
                   : std::to_string(rows.size()) + " were applied";
    }
    std::size_t objects() const {
        std::size_t files = 0;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(store_)) {
            // Not what a killed relay has left half-written.
            const bool whole = !entry.path().filename().string().starts_with('.');
            files += entry.is_regular_file() && whole ? 1 : 0;
        }
        return files;
    }
    void expect_nothing_counted() {
        EXPECT_EQ(database_->number("SELECT count(*) FROM outbox_dead_letters"), 0);
        EXPECT_EQ(database_->number("SELECT coalesce(max(attempts), 0) FROM outbox_delivery"), 0);
    }

    OutboxBinary outbox_;
    TemporaryFolder folder_{"claims"};
    std::filesystem::path store_ = folder_ / "store";
    std::string url_;
    std::unique_ptr<Pg> database_;
};

TEST_F(ClaimRelay, SendsLargePayloadsByReferenceAndConsumersSeeThemAll) {
    Process running = relay(folder());
    emit(0, 200);
    await_mailbox(200);
    EXPECT_EQ(objects(), 100U);
    EXPECT_EQ(database_->number("SELECT count(*) FROM outbox_mailbox WHERE headers->>'claim-check' "
                                "LIKE 'file://%' AND length(payload) < 500"),
              100);
    consume(file_claims(folder()));
    EXPECT_EQ(what_is_wrong(200), "");
}

TEST_F(ClaimRelay, AStoreThatIsAwayHoldsBackTheKeysThatNeedItAndNoOthers) {
    Process running = relay(folder());
    emit(0, 100);
    await_mailbox(100);
    std::filesystem::rename(store_, folder_ / "unmounted");
    emit(100, 100);  // keys with even numbers are large, the others small
    await_mailbox(150);
    EXPECT_TRUE(eventually(60s, "the log says what is away", [&] {
        return running.stderr_text().find("make the folder, or mount") != std::string::npos;
    }));
    EXPECT_EQ(arrived(), 150);
    expect_nothing_counted();
    std::filesystem::rename(folder_ / "unmounted", store_);
    await_mailbox(200);
    expect_nothing_counted();
    consume(file_claims(folder()));
    EXPECT_EQ(what_is_wrong(200), "");
}

TEST_F(ClaimRelay, AStoreOfS3ThatStopsAndStartsUnderLoadLosesNothing) {
    S3Server& server = shared_s3();
    Process running = relay(server.store());
    emit(0, 100);
    await_mailbox(100);
    server.stop();
    emit(100, 100);
    await_mailbox(150);
    server.start();
    await_mailbox(200);
    expect_nothing_counted();
    consume(s3_claims(server.store()));
    EXPECT_EQ(what_is_wrong(200), "");
}

TEST_F(ClaimRelay, ATableOfTheSourcesDatabaseIsAStore) {
    Process running = relay(url_);
    emit(0, 50);
    await_mailbox(50);
    EXPECT_EQ(database_->number("SELECT count(*) FROM outbox_objects"), 25);
    consume(libpq_claims(url_));
    EXPECT_EQ(what_is_wrong(50), "");
}

// Killed where the object is written and its record is not.
TEST_F(ClaimRelay, KilledBetweenObjectAndRecordItWritesTheSameObjectAgain) {
    {
        Process first = relay(folder());
        emit(1, 1);  // small: the mailbox is made
        await_mailbox(1);
        Pg locker(url_);
        locker.exec("BEGIN; LOCK TABLE outbox_mailbox IN ACCESS EXCLUSIVE MODE");
        emit(2, 1);
        ASSERT_TRUE(eventually(60s, "the object is there", [&] { return objects() == 1; }));
        first.kill(SIGKILL);
        ASSERT_TRUE(first.wait(30s));
        locker.exec("ROLLBACK");
    }
    Process second = relay(folder());
    await_mailbox(2);
    EXPECT_EQ(objects(), 1U);
    consume(file_claims(folder()));
    EXPECT_EQ(database_->value("SELECT string_agg(left(payload, 4), ' ' ORDER BY n) FROM effects"),
              "1:xx 2:xx");
}

TEST_F(ClaimRelay, CheckWritesAndReadsAnObject) {
    EXPECT_EQ(check(folder()).status.code, 0);
    EXPECT_EQ(objects(), 1U);
    std::filesystem::rename(store_, folder_ / "unmounted");
    const Finished missing = check(folder());
    EXPECT_NE(missing.status.code, 0);
    EXPECT_THAT(missing.out, HasSubstr("make the folder"));
    const Finished right = check(shared_s3().store());
    EXPECT_EQ(right.status.code, 0);
    EXPECT_THAT(right.out + right.err, HasSubstr("access key of the object store: the URL"));
    const Finished wrong = check(shared_s3().store("payloads", "wr0ng-secret"));
    EXPECT_NE(wrong.status.code, 0);
    EXPECT_THAT(wrong.out, HasSubstr("check the secret"));
    EXPECT_THAT(wrong.out + wrong.err, Not(HasSubstr("wr0ng-secret")));
}

TEST_F(ClaimRelay, AWrongKeyHoldsBackWhatNeedsTheStoreAndSaysWhy) {
    Process running = relay(shared_s3().store("payloads", "wr0ng-secret"));
    emit(0, 20);
    await_mailbox(10);
    EXPECT_TRUE(eventually(60s, "the log says what is wrong", [&] {
        return running.stderr_text().find("check the secret") != std::string::npos;
    }));
    expect_nothing_counted();
    EXPECT_EQ(arrived(), 10);
    EXPECT_THAT(running.stderr_text(), Not(HasSubstr("wr0ng-secret")));
}

TEST_F(ClaimRelay, EachRouteSaysForItselfWhatIsKeptOutside) {
    const std::string mailbox = "mailbox+postgresql" + url_.substr(url_.find(':'));
    outbox_.write("outbox.toml",
                  "[source]\nurl = \"" + url_ + "\"\n[[route]]\nname = \"outside\"\nto = \"" +
                      mailbox + "?mailbox=outside\"\nclaim_check = \"" + folder() +
                      "\"\nclaim_check_above = 100\n[[route]]\nname = \"whole\"\nto = "
                      "\"" +
                      mailbox + "?mailbox=whole\"\n");
    Process running = outbox_.start_relay({"--admin", "off"});
    emit(0, 2);
    await_mailbox(4);
    EXPECT_EQ(database_->value("SELECT string_agg(mailbox, ',') FROM outbox_mailbox WHERE "
                               "headers->>'claim-check' IS NOT NULL"),
              "outside");
}

TEST_F(ClaimRelay, RefusesAStoreThatIsNoneAtTheStart) {
    for (const std::string store : {"gopher://x", "file:relative", "s3://b?color=red"}) {
        auto all = arguments(store);
        all.insert(all.begin(), "relay");
        const Finished done = outbox_.run(all);
        EXPECT_EQ(done.status.code, 2) << store << done.err;
        EXPECT_THAT(done.err, HasSubstr("OB_CONFIG_INVALID")) << store;
    }
}

// Of kibibytes.
long high_water_mark(pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("VmHWM:")) return std::stol(line.substr(6));
    }
    return 0;
}

TEST_F(ClaimRelay, AnEventOf50MegabytesNeedsNoMoreMemoryThanFourTimesItsSizeAboveTheLimit) {
    constexpr long kEvent = 50'000'000;
    constexpr long kLimit = 16L << 20;  // max_in_flight_bytes
    // AddressSanitizer has a byte of its own for each eight.
    constexpr long kMost = (kLimit + 4 * kEvent) / 8 * (OUTBOX_ADDRESS_SANITIZER != 0 ? 9 : 8);
    ASSERT_EQ(
        outbox_.run({"migrate", "--db", url_, "--max-payload", std::to_string(kEvent)}).status.code,
        0);
    for (const std::string& store : {folder(), shared_s3().store(), url_}) {
        database_->exec("DELETE FROM outbox_mailbox");
        // A sanitizer keeps what was freed, which is not what is measured here.
        Process running = relay(store, {{"ASAN_OPTIONS", "quarantine_size_mb=1"}});
        emit(1, 1);
        await_mailbox(1);
        const long before = high_water_mark(running.pid());
        database_->exec(
            "SELECT outbox_emit(topic => 'orders', key => 'k', payload => repeat('x', " +
            std::to_string(kEvent) + "))");
        await_mailbox(2);
        const long grown = (high_water_mark(running.pid()) - before) * 1024;
        RecordProperty("grown", std::to_string(grown));
        std::cout << "grown by " << grown << " bytes\n";
        EXPECT_GT(before, 0);
        EXPECT_LE(grown, kMost) << store.substr(0, 5);
        EXPECT_EQ(database_->number("SELECT count(*) FROM outbox_mailbox WHERE "
                                    "headers->>'claim-check-size' = '50000000'"),
                  1);
        EXPECT_EQ(running.stop().code, 0);  // all is recorded: nothing comes again
    }
}

TEST(ClaimGuide, ThePageShowsThisCode) {
    // [guide]
    outbox::QueueConsumerOptions options;  // or KafkaConsumerOptions, MailboxOptions
    options.claims = outbox::s3_claims("s3://shop-payloads/outbox?region=eu-central-1");
    // [end]
    EXPECT_TRUE(options.claims.open);
    const std::string source = read_file(GUIDE_SOURCE);
    const auto start = source.find("// [guide]\n") + 11;
    std::istringstream lines(source.substr(start, source.find("// [end]", start) - start));
    std::string code;
    for (std::string line; std::getline(lines, line);) {
        const auto indent = line.find_first_not_of(' ');
        if (indent != std::string::npos) code += line.substr(indent) + "\n";
    }
    EXPECT_THAT(read_file(GUIDE_PAGE), HasSubstr("```cpp\n" + code + "```"));
}

}  // namespace
}  // namespace outbox::test
