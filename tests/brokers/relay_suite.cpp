#include "tests/brokers/relay_suite.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/chaos/load.h"
#include "tests/support/eventually.h"
#include "tests/support/pg.h"
#include "tests/support/process.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {

using namespace std::chrono_literals;

namespace {

constexpr int kKeys = 50;

std::string journal_of(const std::vector<core::JournalLine>& lines) {
    std::string journal;
    for (const core::JournalLine& line : lines) {
        nlohmann::json fields{{"id", line.id}, {"key", line.key}, {"n", line.n.value()}};
        if (line.state == core::JournalState::kIntent) fields["state"] = "intent";
        journal += fields.dump() + "\n";
    }
    return journal;
}

std::vector<core::JournalLine> lines_of(const std::vector<Arrived>& arrived) {
    std::vector<core::JournalLine> lines;
    for (const Arrived& record : arrived) {
        core::JournalLine line;
        line.id = record.id;
        line.key = record.key.value();
        line.n = nlohmann::json::parse(record.value.value()).at("n").get<std::int64_t>();
        lines.push_back(std::move(line));
    }
    return lines;
}

}  // namespace

RelaySuite::RelaySuite() {
    const Finished migrated = outbox_.run({"migrate", "--db", url_});
    EXPECT_EQ(migrated.status.code, 0) << migrated.err;
}

std::vector<std::string> RelaySuite::arguments(const std::string& to) const {
    return {"--from", url_, "--to", to, "--admin", "off"};
}

void RelaySuite::write(const std::string& topic, int events, int from) {
    const auto rows = Sqlite(path_).query(
        "WITH RECURSIVE n(i) AS (SELECT " + std::to_string(from) +
        " UNION ALL SELECT i + 1 FROM n WHERE i + 1 < " + std::to_string(from + events) +
        ") INSERT INTO outbox_events (topic, aggregate_type, event_type, key, payload) SELECT "
        "nullif('" +
        topic + "', ''), 'A', 'T', 'key-' || (i % " + std::to_string(kKeys) +
        "), json_object('n', i + 1) FROM n RETURNING id, key, payload ->> 'n'");
    for (const Sqlite::Row& row : rows) {
        core::JournalLine line;
        line.id = row[0].value();
        line.key = row[1].value();
        line.n = std::stoll(row[2].value());
        produced_.push_back(std::move(line));
    }
}

void RelaySuite::publish_one(const std::string& to, const std::string& topic,
                             const std::string& format, const std::string& payload) {
    // The table's payloads are JSON; those of others may be text.
    Sqlite(path_).exec(
        "PRAGMA ignore_check_constraints = ON; "
        "INSERT INTO outbox_events (id, topic, aggregate_type, aggregate_id, event_type, payload, "
        "headers, tenant_id, schema_id, schema_version, occurred_at) VALUES ('" +
        std::string(kEventId) + "', '" + topic + "', 'Order', '" + kAggregateId +
        "', 'OrderPlaced', '" + payload +
        R"(', '{"traceparent":"00-ab-cd-01","x-request-id":"r 1"}', )" +
        "'t-1', 'orders-value', '3', 1700000000000042)");
    auto words = arguments(to);
    words.insert(words.end(), {"--format", format});
    Process relay = outbox_.start_relay(words);
    ASSERT_TRUE(eventually(60s, "it is published", [&] { return left() == 0; }));
    EXPECT_EQ(relay.stop().code, 0);
}

void RelaySuite::publish_and_replay(const std::string& to, const std::string& topic, int events) {
    const std::string path = outbox_.file("kept.db").string();
    Sqlite(path).exec(
        "PRAGMA journal_mode = WAL; CREATE TABLE outbox (id text PRIMARY KEY, aggregate_type text, "
        "aggregate_id text, event_type text, payload text, topic text, created_at text, "
        "published_at text, retry_count integer DEFAULT 0, status text DEFAULT 'PENDING'); "
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " +
        std::to_string(events) +
        ") INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, topic, payload) "
        "SELECT 'e-' || i, 'A', 'k', 'T', '" +
        topic + "', i FROM n");
    const std::vector<std::string> route{"--from", "sqlite://" + path, "--table", "outbox",
                                         "--to",   "kept=" + to};
    auto words = route;
    words.insert(words.end(), {"--admin", "off"});
    Process relay = outbox_.start_relay(words);
    ASSERT_TRUE(eventually(60s, "all are published", [&] {
        return Sqlite(path).number("SELECT count(*) FROM outbox WHERE status <> 'PUBLISHED'") == 0;
    })) << relay.stderr_text();
    EXPECT_EQ(relay.stop().code, 0);
    words = route;
    words.insert(words.begin(), "replay");
    words.insert(words.end(), {"--yes", "--reason", "r"});
    for (int run = 0; run < 2; ++run) {
        const Finished ended = outbox_.run(words);
        EXPECT_EQ(ended.status.code, 0) << ended.err;
    }
}

long long RelaySuite::left() {
    const std::string count = "SELECT count(*) FROM outbox_events";
    return url_.starts_with("sqlite:") ? Sqlite(path_).number(count) : Pg(url_).number(count);
}

void RelaySuite::publish_all_through_a_kill(const std::string& to, const std::string& topic,
                                            int events) {
    publish_all_through_a_kill(to, to, topic, events, [] {});
}

void RelaySuite::publish_all_through_a_kill_and_a_rename(const std::string& to,
                                                         const std::string& topic) {
    publish_all_through_a_kill("old=" + to, "new=" + to, topic, kEvents, [&] {
        const Finished renamed = outbox_.run({"routes", "rename", "old", "new", "--db", url_});
        EXPECT_EQ(renamed.status.code, 0) << renamed.err;
    });
}

void RelaySuite::publish_all_through_a_kill(const std::string& first, const std::string& second,
                                            const std::string& topic, int events,
                                            const std::function<void()>& between) {
    int written = 0;
    // One that has published all before it is looked at was not in mid-flight: another is.
    while (left() == 0) {
        const int some = (events - written) / 2;
        ASSERT_GT(some, 0) << "it was always too late";
        write(topic, some, written);
        written += some;
        Process relay = outbox_.start_relay(arguments(first));
        ASSERT_TRUE(eventually(60s, "some are published", [&] { return left() < some; }));
        relay.kill(SIGKILL);
        relay.wait(60s);
    }
    write(topic, events - written, written);
    between();
    Process relay = outbox_.start_relay(arguments(second));
    ASSERT_TRUE(eventually(120s, "all are published", [&] { return left() == 0; }));
    EXPECT_EQ(relay.stop().code, 0);
}

void RelaySuite::retire_and_begin_anew(const std::string& to, const std::string& topic,
                                       const Count& count) {
    constexpr int kSome = 100;
    write(topic, kSome);
    // The other route holds the events.
    auto words = arguments("first=" + to);
    words.insert(words.end(), {"--to", "second=redis://127.0.0.1:1"});
    for (const std::size_t sent : {std::size_t{1}, std::size_t{2}}) {
        Process relay = outbox_.start_relay(words);
        EXPECT_TRUE(eventually(60s, "all are sent", [&] { return count() == sent * kSome; }));
        EXPECT_EQ(relay.stop().code, 0);
        const Finished retired = outbox_.run({"routes", "retire", "first", "--db", url_});
        EXPECT_EQ(retired.status.code, 0) << retired.err;
    }
}

void RelaySuite::replace_the_file(const std::string& to, const Count& count) {
    constexpr int kSome = 100;
    const std::string path = outbox_.file("adopted.db").string();
    std::vector<std::string> words{
        "--from", "sqlite://" + path, "--table", "OutboxMessages", "--to", to, "--admin", "off"};
    for (const std::size_t sent : {std::size_t{1}, std::size_t{2}}) {
        for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(path + end);
        Sqlite(path).exec(
            "CREATE TABLE \"OutboxMessages\" (\"Id\" INTEGER PRIMARY KEY, \"EventType\" TEXT NOT "
            "NULL, \"Payload\" TEXT NOT NULL, \"CreatedAt\" TEXT NOT NULL DEFAULT "
            "CURRENT_TIMESTAMP, \"Processed\" INTEGER NOT NULL DEFAULT 0); WITH RECURSIVE n(i) AS "
            "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) INSERT INTO "
            "\"OutboxMessages\" (\"EventType\", \"Payload\") SELECT 'Made', '{}' FROM n");
        Process relay = outbox_.start_relay(words);
        EXPECT_TRUE(eventually(60s, "all are marked", [&] {
            return Sqlite(path).number(
                       "SELECT count(*) FROM \"OutboxMessages\" WHERE NOT \"Processed\"") == 0;
        }));
        EXPECT_EQ(relay.stop().code, 0);
        EXPECT_EQ(count(), sent * kSome);
    }
}

void RelaySuite::publish_a_load_through_kills(const std::string& to, const std::string& topic,
                                              const std::string& mode) {
    constexpr int kKills = 3;
    constexpr long long kBetween = 100;
    url_ = shared_postgres().create_database();
    const Finished migrated = outbox_.run({"migrate", "--db", url_});
    ASSERT_EQ(migrated.status.code, 0) << migrated.err;
    auto words = arguments(to);
    // The next one waits for the lease of the one that was killed.
    words.insert(words.end(),
                 {"--topic-template", topic, "--mode", mode, "--lease-ttl-ms", "2000"});
    Load load(url_, kKeys);
    load.start(4);
    const auto published = [&] {
        const long long before = load.committed();
        return before - left();
    };
    for (int killed = 0; killed < kKills; ++killed) {
        Process relay = outbox_.start_relay(words);
        const long long target = std::max(published(), 0LL) + kBetween;
        ASSERT_TRUE(eventually(120s, "some are published", [&] { return published() >= target; }))
            << relay.stderr_text();
        relay.kill(SIGKILL);
        relay.wait(60s);
    }
    load.stop();
    produced_ = load.produced();
    Process relay = outbox_.start_relay(words);
    ASSERT_TRUE(eventually(120s, "all are published", [&] { return left() == 0; }))
        << relay.stderr_text();
    EXPECT_EQ(relay.stop().code, 0);
}

std::map<std::string, std::string> RelaySuite::keys() const {
    std::map<std::string, std::string> keys;
    for (const core::JournalLine& line : produced_) keys.emplace(line.id, line.key);
    return keys;
}

void RelaySuite::expect_all(const std::vector<Arrived>& arrived, std::size_t most_repeats) {
    const auto produced = outbox_.write("produced.jsonl", journal_of(produced_));
    const auto received = outbox_.write("received.jsonl", journal_of(lines_of(arrived)));
    // Without --db: a dead letter is a loss here.
    const Finished judged = outbox_.run(
        {"verify", "--produced", produced.string(), "--received", received.string(), "--json"});
    EXPECT_EQ(judged.status.code, 0) << judged.out << judged.err;
    const auto verdict = nlohmann::json::parse(judged.out);
    EXPECT_EQ(verdict.at("produced"), committed());
    EXPECT_EQ(verdict.at("received"), arrived.size());
    EXPECT_EQ(verdict.at("uncertain"), 0);
    EXPECT_GT(committed(), 0U);
    EXPECT_LE(verdict.at("repeats"), most_repeats);
}

std::pair<int, std::string> RelaySuite::check(const std::string& to) {
    const Finished done = outbox_.run({"relay", "--check", "--from", url_, "--to", to});
    EXPECT_EQ(done.out.find("s3cret"), std::string::npos);
    EXPECT_EQ(done.err.find("s3cret"), std::string::npos);
    return {done.status.code, done.out + done.err};
}

}  // namespace outbox::test
