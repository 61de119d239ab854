// Read your writes across services: what is said of a fence token, by each of the ways to ask.
#include <atomic>
#include <future>
#include <gmock/gmock.h>
#include <mutex>
#include <regex>
#include <thread>

#include <outbox/adapters/libpq.h>
#include <outbox/adapters/libpq_fence.h>
#include <outbox/adapters/sqlite.h>
#include <outbox/adapters/sqlite_fence.h>
#include <outbox/producer/emit.h>

#include "tests/cli/routes.h"
#include "tests/support/sqlite.h"
#include "tests/support/stopped_backend.h"

namespace outbox::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kStock = "stock";
constexpr auto kWaitDeadline = 120s;

Event an_event(const std::string& key) {
    Event event;
    event.topic = "orders";
    event.key = key;
    event.payload = "{}";
    return event;
}

// A connection to the consumer's database, with which a service asks and reads.
class Asker {
  public:
    explicit Asker(const std::string& url) {
        if (url.starts_with("sqlite://")) {
            sqlite_.emplace(url.substr(std::string("sqlite://").size()));
        } else {
            pg_.emplace(url);
        }
    }
    FenceLook look(const std::string& token, const std::string& consumer = kStock) {
        return pg_ ? look_for(pg_->handle(), consumer, token)
                   : look_for(sqlite_->handle(), consumer, token);
    }
    std::vector<Pg::Row> query(const std::string& sql) {
        return pg_ ? pg_->query(sql) : sqlite_->query(sql);
    }
    long long number(const std::string& sql) { return std::stoll(query(sql)[0][0].value_or("0")); }
    PGconn* postgres() { return pg_->handle(); }

  private:
    std::optional<Pg> pg_;
    std::optional<Sqlite> sqlite_;
};

// What a service writes in one unit of work, and its token.
class Shop {
  public:
    explicit Shop(const std::string& url) : on_sqlite_(url.starts_with("sqlite://")) {
        if (on_sqlite_) {
            sqlite_.emplace(url.substr(std::string("sqlite://").size()));
        } else {
            pg_.emplace(url);
        }
    }
    std::string write(int events, bool keep = true) {
        UnitOfWork unit =
            on_sqlite_ ? begin_unit_of_work(sqlite_->handle()) : begin_unit_of_work(pg_->handle());
        for (int n = 0; n < events; ++n) unit.emit(an_event("k" + std::to_string(n)));
        unit.flush();
        std::string token = unit.fence();
        if (keep) unit.commit();
        return token;
    }

  private:
    bool on_sqlite_;
    std::optional<Pg> pg_;
    std::optional<Sqlite> sqlite_;
};

std::string quoted_ids(const std::string& token) {
    std::string list;
    for (const std::string& id : fence_ids(token)) list += (list.empty() ? "'" : ", '") + id + "'";
    return list;
}

class Wait : public Routes {
  protected:
    void SetUp() override {
        Routes::SetUp();
        stock_ = subscriber("inventory");
        sql(stock_, on_sqlite() ? "CREATE TABLE effects (seq integer PRIMARY KEY, id text)"
                                : "CREATE TABLE effects (seq bigint GENERATED ALWAYS AS IDENTITY, "
                                  "id text)");
    }
    Process member() { return Process({{FENCE_MEMBER, stock_}}); }
    Process relay_to_stock() {
        return relay({mailbox("stock", stock_)}, {"--lease-ttl-ms", "1000"});
    }
    Finished wait(const std::string& token, std::vector<std::string> more = {},
                  const std::string& consumer = kStock) {
        more.insert(more.begin(), {"wait", token, "--consumer-db", stock_});
        more.insert(more.end(), {"--consumer", consumer});
        return outbox_.run(more);
    }
    json waited(const std::string& token, int code, const std::string& timeout = "0s",
                const std::string& consumer = kStock) {
        const Finished ended = wait(token, {"--timeout", timeout, "--json"}, consumer);
        EXPECT_EQ(ended.status.code, code) << ended.out << ended.err;
        return json::parse(ended.out.empty() ? "null" : ended.out);
    }
    // "waiting/in_mailbox unknown/not_seen", by each of the ways to ask, which say the same.
    std::string said(const std::string& token, int code) {
        const json by_command = waited(token, code);
        std::string out;
        for (const json& event : by_command["events"]) {
            out += (out.empty() ? "" : " ") + event["state"].get<std::string>();
            if (!event["why"].is_null()) out += "/" + event["why"].get<std::string>();
        }
        Asker asker(stock_);
        const FenceLook look = asker.look(token);
        EXPECT_EQ(by_command["state"], fenced_name(look.state));
        std::string by_library;
        for (const FencedEvent& event : look.events) {
            by_library += (by_library.empty() ? "" : " ") + std::string(fenced_name(event.state));
            if (!event.why.empty()) by_library += "/" + event.why;
        }
        EXPECT_EQ(by_library, out);
        if (on_sqlite()) return out;
        const auto row =
            asker.query("SELECT state, events FROM outbox_wait('stock', '" + token + "')")[0];
        EXPECT_EQ(row[0], fenced_name(look.state));
        EXPECT_EQ(json::parse(row[1].value_or("")), by_command["events"]);
        return out;
    }
    void bury(const std::string& id) {
        sql(stock_,
            "INSERT INTO outbox_inbox (consumer, message_id) VALUES ('stock', '" + id + "')");
        sql(stock_,
            "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, attempts, "
            "error_code, error) VALUES ('stock', '" +
                id + "', 'orders', 5, 'OB_HANDLER_FAILED', 'no stock')");
    }
    static std::string token_of(const std::vector<std::string>& ids) { return fence_token(ids); }

    std::string stock_;
};

INSTANTIATE_TEST_SUITE_P(Databases, Wait, testing::Values(kPostgres, kSqlite));

TEST_P(Wait, EachStateOfAnEventIsToldBySqlLibraryAndCommandAlike) {
    const std::string token = token_of({id("01"), id("02"), id("03")});
    EXPECT_EQ(said(token, 6), "unknown/not_seen unknown/not_seen unknown/not_seen");
    for (const char* box : {"default", "other"}) {
        sql(stock_, std::string("INSERT INTO outbox_mailbox (mailbox, id, topic) VALUES ('") + box +
                        "', '" + id(box == std::string("other") ? "02" : "01") + "', 'orders')");
    }
    EXPECT_EQ(said(token, 6), "waiting/in_mailbox waiting/in_mailbox unknown/not_seen");
    sql(stock_, "DELETE FROM outbox_mailbox");
    // Another consumer's inbox says nothing of this one.
    sql(stock_, "INSERT INTO outbox_inbox (consumer, message_id) VALUES ('billing', '" + id("01") +
                    "'), ('stock', '" + id("02") + "')");
    EXPECT_EQ(said(token, 6), "unknown/not_seen applied unknown/not_seen");
    bury(id("01"));
    EXPECT_EQ(said(token, 7), "dead/dead_letter applied unknown/not_seen");
    EXPECT_EQ(
        outbox_.run({"dead", "retry", "--all", "--consumer", "stock", "--db", stock_}).status.code,
        0);
    EXPECT_EQ(said(token, 6), "waiting/retry_requested applied unknown/not_seen");
    // Tried once more, and done.
    sql(stock_, "DELETE FROM outbox_inbox_dead_letters");
    sql(stock_,
        "INSERT INTO outbox_inbox (consumer, message_id) VALUES ('stock', '" + id("03") + "')");
    EXPECT_EQ(said(token, 0), "applied applied applied");
    EXPECT_EQ(said(token_of({}), 0), "");
}

TEST_P(Wait, AMessageWhoseDeadLetterWasDiscardedWasNeverApplied) {
    const std::string token = token_of({id("01"), id("02")});
    bury(id("01"));
    bury(id("02"));
    ASSERT_EQ(outbox_.run({"dead", "discard", id("01"), "--consumer", "stock", "--db", stock_})
                  .status.code,
              0);
    EXPECT_EQ(said(token, 7), "dead/discarded dead/dead_letter");
    EXPECT_EQ(sql(stock_, "SELECT count(*) FROM outbox_inbox_dead_letters"), "1");
    EXPECT_THAT(wait(token, {"--timeout", "0s"}).out, HasSubstr("never will be applied"));
}

TEST_P(Wait, WhatTheInboxMayHaveForgottenIsSaidToBeSo) {
    const std::string now = new_event_id();
    const std::string random = "00000000-0000-4000-8000-000000000001";
    const std::string token = token_of({id("01"), now, random});
    EXPECT_EQ(said(token, 6), "unknown/not_seen unknown/not_seen unknown/not_seen");
    sql(stock_, "INSERT INTO outbox_inbox (consumer, message_id, message_time) VALUES ('stock', '" +
                    id("01") + "', " + (on_sqlite() ? "0)" : "to_timestamp(0))") + ", ('stock', '" +
                    new_event_id() + "', " + (on_sqlite() ? "unixepoch() * 1000000)" : "now())"));
    EXPECT_EQ(said(token, 6), "applied unknown/not_seen unknown/not_seen");
    ASSERT_EQ(outbox_.run({"prune", "--inbox-retention", "30d", "--db", stock_}).status.code, 0);
    EXPECT_EQ(said(token, 8), "unknown/forgotten unknown/not_seen unknown/perhaps_forgotten");
    const Finished text = wait(token, {"--timeout", "60s"});
    EXPECT_EQ(text.status.code, 8) << "it waits for what cannot come";
    EXPECT_THAT(text.out, HasSubstr("older than what this inbox remembers"));
    // What waits here is known all the same.
    sql(stock_, "INSERT INTO outbox_mailbox (id, topic) VALUES ('" + id("01") + "', 'orders')");
    EXPECT_EQ(said(token, 6), "waiting/in_mailbox unknown/not_seen unknown/perhaps_forgotten");
}

TEST_P(Wait, WhatIsNoTokenIsRefusedByEachWay) {
    const std::string good = token_of({id("01")});
    for (const std::string& bad :
         {std::string("x"), good.substr(0, good.size() - 1), good + "A",
          good.substr(0, 8) + "x" + good.substr(9), std::string("obf1.")}) {
        const Finished ended = wait(bad);
        EXPECT_EQ(ended.status.code, 2) << bad;
        EXPECT_THAT(ended.err, HasSubstr("no fence token"));
        Asker asker(stock_);
        EXPECT_THROW(asker.look(bad), Error) << bad;
        EXPECT_EQ(asker.number("SELECT 1"), 1);
        if (on_sqlite()) continue;
        EXPECT_THROW(asker.query("SELECT outbox_wait('stock', '" + bad + "')"), std::runtime_error)
            << bad;
    }
    EXPECT_THAT(wait(fence_token({})).out, HasSubstr("the token names no event"));
    EXPECT_EQ(outbox_.run({"wait"}).status.code, 2);
    EXPECT_EQ(wait(good, {}, "").status.code, 2);
    EXPECT_EQ(outbox_.run({"wait", good, "--consumer", "stock"}).status.code, 2);
    EXPECT_EQ(outbox_.run({"wait", good, "--consumer", "stock", "--consumer-db", url_}).status.code,
              6)
        << "tables of both sides, and nothing in them";
    Asker asker(stock_);
    EXPECT_THROW(asker.look(good, ""), Error);
}

TEST_P(Wait, ATokenOfATransactionThatWasRolledBackIsWaitedForInVain) {
    const std::string token = Shop(url_).write(2, false);
    const json out = waited(token, 6, "1s");
    EXPECT_EQ(out["state"], "unknown");
    EXPECT_EQ(out["timed_out"], true);
    EXPECT_EQ(out["consumer_known"], false);
    EXPECT_GE(out["waited_s"].get<double>(), 1.0);
    const Finished text = wait(token, {"--timeout", "0s"}, "stokc");
    EXPECT_THAT(text.out, HasSubstr("rolled back"));
    EXPECT_THAT(text.out, HasSubstr("no consumer 'stokc' has ever recorded anything"));
}

TEST_P(Wait, ADatabaseWithoutAConsumersTablesIsNamed) {
    const std::string empty = database("empty");
    if (on_sqlite())
        Sqlite(empty.substr(std::string("sqlite://").size())).exec("CREATE TABLE t (a)");
    const std::string token = token_of({id("01")});
    const Finished ended =
        outbox_.run({"wait", token, "--consumer", "stock", "--consumer-db", empty});
    EXPECT_EQ(ended.status.code, 4) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("outbox migrate"));
    Asker asker(empty);
    try {
        static_cast<void>(asker.look(token));
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kNoSuchTable) << error.what();
    }
}

TEST_P(Wait, WhatIsNotCommittedIsNotApplied) {
    const std::string token = token_of({id("01")});
    Asker applier(stock_);
    Asker asker(stock_);
    applier.query("BEGIN");
    applier.query("INSERT INTO effects (id) VALUES ('" + id("01") + "')");
    applier.query("INSERT INTO outbox_inbox (consumer, message_id) VALUES ('stock', '" + id("01") +
                  "')");
    EXPECT_EQ(asker.look(token).state, Fenced::kUnknown);
    applier.query("COMMIT");
    EXPECT_EQ(asker.look(token).state, Fenced::kApplied);
}

// A snapshot that does not see the effect does not say that it is applied.
TEST_P(Wait, ASnapshotFromBeforeTheEffectSaysNothingOfIt) {
    const std::string token = token_of({id("01")});
    Asker asker(stock_);
    asker.query(on_sqlite() ? "BEGIN" : "BEGIN ISOLATION LEVEL REPEATABLE READ");
    EXPECT_EQ(asker.number("SELECT count(*) FROM effects"), 0);
    sql(stock_, "INSERT INTO effects (id) VALUES ('" + id("01") + "')");
    sql(stock_,
        "INSERT INTO outbox_inbox (consumer, message_id) VALUES ('stock', '" + id("01") + "')");
    EXPECT_EQ(asker.look(token).state, Fenced::kUnknown);
    EXPECT_EQ(asker.number("SELECT count(*) FROM effects"), 0);
    asker.query("COMMIT");
    EXPECT_EQ(asker.look(token).state, Fenced::kApplied);
}

/// Several services that write, ask until it is applied, and then look for the effect.
class Readers {
  public:
    Readers(const std::string& shop, const std::string& stock, int count) {
        for (int n = 0; n < count; ++n) {
            threads_.emplace_back([this, shop, stock, n] {
                try {
                    read(shop, stock, n);
                } catch (const std::exception& error) {
                    const std::lock_guard lock(mutex_);
                    fault_ = error.what();
                }
            });
        }
    }
    ~Readers() { stop(); }
    int seen() const { return seen_; }
    std::string stop() {
        stopped_ = true;
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
        const std::lock_guard lock(mutex_);
        return fault_;
    }

  private:
    void read(const std::string& shop_url, const std::string& stock_url, int n) {
        Shop shop(shop_url);
        Asker asker(stock_url);
        const bool by_sql = !stock_url.starts_with("sqlite:") && n % 2 == 1;
        while (!stopped_) {
            const int events = 1 + n * 3;
            const std::string token = shop.write(events);
            const std::string effects =
                "SELECT count(*) FROM effects WHERE id IN (" + quoted_ids(token) + ")";
            long long found = -1;
            while (found < 0) {
                if (stopped_) return;
                if (by_sql) {  // in one statement, which has one snapshot
                    const auto row = asker.query("SELECT (" + effects +
                                                 "), (SELECT state FROM outbox_wait('stock', '" +
                                                 token + "'))")[0];
                    if (row[1] == "applied") found = std::stoll(row[0].value_or("0"));
                    if (row[1] == "dead") throw std::runtime_error("dead");
                } else {
                    const Fenced state = asker.look(token).state;
                    if (state == Fenced::kApplied) found = asker.number(effects);
                    if (state == Fenced::kDead) throw std::runtime_error("dead");
                }
                if (found < 0) std::this_thread::sleep_for(1ms);
            }
            if (found != events) {
                throw std::runtime_error("applied, with " + std::to_string(found) + " of " +
                                         std::to_string(events) + " effects");
            }
            ++seen_;
        }
    }

    std::vector<std::thread> threads_;
    std::atomic<bool> stopped_ = false;
    std::atomic<int> seen_ = 0;
    std::mutex mutex_;
    std::string fault_;
};

TEST_P(Wait, WhatIsAppliedIsSeenUnderLoadAndWhileRelayAndConsumerAreKilled) {
    Process leader = relay_to_stock();
    std::optional<Process> member(this->member());
    Readers readers(url_, stock_, on_sqlite() ? 2 : 3);
    const auto goes_on = [&] {
        const int before = readers.seen();
        return eventually(kWaitDeadline, "tokens are applied", [&] {
            EXPECT_TRUE(member->running()) << member->stderr_text();
            return readers.seen() >= before + 6 || HasFailure();
        });
    };
    ASSERT_TRUE(goes_on()) << leader.stderr_text() << member->stderr_text();
    Process standby = relay_to_stock();
    ASSERT_TRUE(eventually(kWaitDeadline, "a second relay stands by", [&] {
        return standby.stderr_text().find("event=standby") != std::string::npos;
    })) << standby.stderr_text();
    member->kill(SIGKILL);
    const std::string pending = Shop(url_).write(3);
    std::thread waiting([&] {
        const json out = waited(pending, 0, "120s");
        EXPECT_EQ(out["state"], "applied");
        EXPECT_EQ(Asker(stock_).number("SELECT count(*) FROM effects WHERE id IN (" +
                                       quoted_ids(pending) + ")"),
                  3);
    });
    member.emplace(this->member());
    const auto after_member = goes_on();
    leader.kill(SIGKILL);
    const auto after_failover = goes_on();
    waiting.join();
    EXPECT_TRUE(after_member) << member->stderr_text();
    EXPECT_TRUE(after_failover) << standby.stderr_text();
    EXPECT_EQ(readers.stop(), "");
    EXPECT_EQ(standby.stop(), (ExitStatus{0, 0})) << standby.stderr_text();
    EXPECT_EQ(member->stop(), (ExitStatus{0, 0})) << member->stderr_text();
    EXPECT_EQ(sql(stock_,
                  "SELECT count(*) FROM (SELECT id FROM effects GROUP BY id HAVING "
                  "count(*) > 1) twice"),
              "0");
}

class WaitOnPostgres : public Wait {};

// It waits for a lock, and meanwhile the effect is committed.
TEST_P(WaitOnPostgres, AStatementFromBeforeTheEffectSaysNothingOfIt) {
    Asker asker(stock_);
    Asker other(stock_);
    other.query("SELECT pg_advisory_lock(4711)");
    std::thread asking([&] {
        const auto row = asker.query(
            "WITH begun AS MATERIALIZED (SELECT count(*) AS n FROM effects WHERE id = '" +
            id("02") +
            "'), held AS MATERIALIZED (SELECT pg_advisory_lock(4711), n FROM begun) SELECT h.n, "
            "(SELECT w.state FROM outbox_wait('stock', '" +
            token_of({id("02")}) + "') w) FROM held h")[0];
        EXPECT_EQ(row[0], "0");
        EXPECT_EQ(row[1], "unknown");
    });
    const auto held = eventually(60s, "the statement has begun", [&] {
        return other.number(
                   "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT "
                   "granted") > 0;
    });
    other.query("BEGIN");
    other.query("INSERT INTO effects (id) VALUES ('" + id("02") + "')");
    other.query("INSERT INTO outbox_inbox (consumer, message_id) VALUES ('stock', '" + id("02") +
                "')");
    other.query("COMMIT");
    other.query("SELECT pg_advisory_unlock(4711)");
    asking.join();
    EXPECT_TRUE(held);
    EXPECT_EQ(asker.look(token_of({id("02")})).state, Fenced::kApplied);
}
INSTANTIATE_TEST_SUITE_P(Databases, WaitOnPostgres, testing::Values(kPostgres));

// Of the sessions that wait for a lock in the consumer's database, one that is not `but`.
std::string who_waits(Pg& look, const std::string& but = "0") {
    return look.value(
        "SELECT coalesce(min(pid), 0) FROM pg_locks WHERE NOT granted AND database = "
        "(SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> " +
        but);
}

TEST_P(WaitOnPostgres, EndsInTimeWhereItsSessionHangsWhileOthersAreAnswered) {
    Pg look(stock_);
    Pg holder(stock_);
    holder.exec("BEGIN; LOCK outbox_inbox");
    auto waiting = std::async(
        std::launch::async, [&] { return wait(token_of({new_event_id()}), {"--timeout", "10s"}); });
    std::string pid;
    ASSERT_TRUE(
        eventually(kWaitDeadline, "it looks", [&] { return (pid = who_waits(look)) != "0"; }));
    const StoppedBackend hangs(pid);
    holder.exec("COMMIT");
    const Finished ended = waiting.get();
    EXPECT_EQ(ended.status.code, 3) << ended.out << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("gave no answer within"));
    EXPECT_THAT(ended.err, Not(HasSubstr("within 65 s"))) << "the limit of other commands";
}

TEST_P(WaitOnPostgres, WaitsAlsoWhereItsFirstLookMeetsALock) {
    const std::string id = new_event_id();
    sql(stock_, "INSERT INTO outbox_inbox (consumer, message_id) VALUES ('stock', '" + id + "')");
    Pg look(stock_);
    Pg holder(stock_);
    holder.exec("BEGIN; LOCK outbox_inbox");
    auto waiting =
        std::async(std::launch::async, [&] { return wait(token_of({id}), {"--timeout", "120s"}); });
    std::string first;
    EXPECT_TRUE(
        eventually(kWaitDeadline, "it looks", [&] { return (first = who_waits(look)) != "0"; }));
    EXPECT_TRUE(
        eventually(kWaitDeadline, "it looks again", [&] { return who_waits(look, first) != "0"; }));
    holder.exec("COMMIT");
    const Finished ended = waiting.get();
    EXPECT_EQ(ended.status.code, 0) << ended.out << ended.err;
}

// Which says who holds it: the tables of a function are not named where it is called.
TEST_P(WaitOnPostgres, ALockThatIsHeldForLongerThanItWaitsIsNamed) {
    Pg holder(stock_);
    holder.exec("SET application_name = 'a backup'");
    holder.exec("BEGIN; LOCK outbox_inbox");
    const Finished ended = wait(token_of({new_event_id()}), {"--timeout", "5s"});
    EXPECT_THAT(ended.err, HasSubstr("OB_CONFLICT"));
    EXPECT_THAT(ended.err, HasSubstr("probably pid " + holder.value("SELECT pg_backend_pid()") +
                                     " (a backup, "));
}

TEST_P(WaitOnPostgres, WhatItHasSeenIsToldAlsoWhereTheConsumersNameCannotBeLookedUp) {
    Pg holder(stock_);
    holder.exec("BEGIN; LOCK outbox_inbox_stats");
    const std::string token = token_of({new_event_id()});
    const Finished ended = wait(token, {"--timeout", "4s"});
    EXPECT_EQ(ended.status.code, 6) << ended.out << ended.err;
    const std::string said = std::regex_replace(ended.out, std::regex("\n +"), " ");
    EXPECT_THAT(said, HasSubstr("unknown nothing here knows it"));
    EXPECT_THAT(said, HasSubstr("could not be looked up: another transaction has held"));
    EXPECT_THAT(said, HasSubstr("probably pid " + holder.value("SELECT pg_backend_pid()")));
    EXPECT_THAT(waited(token, 6)["consumer_known"], nullptr);
}

TEST_P(WaitOnPostgres, TokensOfSqlAndOfTheLibraryAreTheSame) {
    std::vector<std::string> ids;
    for (int n = 0; n < 101; ++n) ids.push_back(new_event_id());
    for (const std::size_t count : {1U, 2U, 3U, 10U, 100U}) {
        const std::vector<std::string> some(ids.begin(), ids.begin() + static_cast<long>(count));
        std::string array;
        for (const std::string& id : some) array += (array.empty() ? "" : ",") + id;
        EXPECT_EQ(sql("SELECT outbox_fence(VARIADIC '{" + array + "}'::uuid[])"),
                  fence_token(some));
        EXPECT_EQ(sql(stock_, "SELECT json_array_length(events) FROM outbox_wait('stock', '" +
                                  fence_token(some) + "')"),
                  std::to_string(count));
    }
    EXPECT_EQ(sql("SELECT outbox_fence(VARIADIC '{}'::uuid[])"), fence_token({}));
    EXPECT_EQ(sql("SELECT outbox_fence('" + ids[1] + "', '" + ids[0] + "', '" + ids[1] + "')"),
              token_of({ids[1], ids[0]}));
    std::string all;
    for (const std::string& id : ids) all += (all.empty() ? "" : ",") + id;
    EXPECT_THROW(sql("SELECT outbox_fence(VARIADIC '{" + all + "}'::uuid[])"), std::runtime_error);
    // From what outbox_emit gives.
    const std::string token = sql(
        "SELECT outbox_fence(outbox_emit(topic => 'orders', payload => '1'), outbox_emit(topic => "
        "'orders', payload => '2'))");
    EXPECT_EQ(sql("SELECT string_agg(id::text, ' ' ORDER BY position) FROM outbox_events"),
              fence_ids(token)[0] + " " + fence_ids(token)[1]);
}

TEST_P(WaitOnPostgres, WhoReadsNeedsTheDocumentedRightsAndNoMore) {
    Pg admin(stock_);
    admin.exec(
        "DO $$ BEGIN CREATE ROLE wait_reader LOGIN PASSWORD 'test'; EXCEPTION WHEN "
        "duplicate_object THEN END $$");
    admin.exec("GRANT USAGE ON SCHEMA public TO wait_reader");
    sql(stock_, "INSERT INTO outbox_mailbox (id, topic) VALUES ('" + id("01") + "', 'orders')");
    const std::string token = token_of({id("01")});
    std::string url = stock_;
    url.replace(url.find("postgres@"), 8, "wait_reader");
    const auto refused = [&] {
        try {
            static_cast<void>(Asker(url).look(token));
        } catch (const Error& error) {
            return error.code();
        }
        return ErrorCode::kInternal;
    };
    EXPECT_EQ(refused(), ErrorCode::kNoRights);
    admin.exec("GRANT SELECT ON outbox_inbox, outbox_inbox_floor TO wait_reader");
    EXPECT_EQ(refused(), ErrorCode::kNoRights) << "a dead letter would be taken for applied";
    admin.exec("GRANT SELECT ON outbox_inbox_dead_letters TO wait_reader");
    EXPECT_EQ(Asker(url).look(token).events[0].why, "not_seen");
    admin.exec("GRANT SELECT ON outbox_mailbox TO wait_reader");
    EXPECT_EQ(Asker(url).look(token).events[0].why, "in_mailbox");
}

TEST_P(WaitOnPostgres, ARefusedTokenLeavesTheTransactionAsItIs) {
    Asker asker(stock_);
    asker.query("BEGIN");
    EXPECT_THROW(asker.look("obf1.nonsense"), Error);
    EXPECT_EQ(asker.look(token_of({id("01")})).state, Fenced::kUnknown);
    asker.query("INSERT INTO effects (id) VALUES ('x')");
    asker.query("COMMIT");
    EXPECT_EQ(asker.number("SELECT count(*) FROM effects"), 1);
    asker.query("BEGIN");
    EXPECT_THROW(asker.query("SELECT nonsense"), std::runtime_error);
    try {
        static_cast<void>(asker.look(token_of({id("01")})));
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kNoTransaction);
    }
}

// 300,000 messages wait in two mailboxes: each id is still found by an index.
TEST_P(WaitOnPostgres, ALookReadsNoTableWhole) {
    Pg admin(stock_);
    admin.exec(
        "INSERT INTO outbox_mailbox (mailbox, id, topic) SELECT 'box' || n % 2, "
        "gen_random_uuid()::text, 'orders' FROM generate_series(1, 300000) n");
    admin.exec(
        "INSERT INTO outbox_inbox (consumer, message_id) SELECT 'stock', "
        "gen_random_uuid()::text FROM generate_series(1, 100000)");
    admin.exec("ANALYZE");
    std::vector<std::string> ids;
    for (int n = 0; n < 100; ++n) ids.push_back(new_event_id());
    admin.exec("SET statement_timeout = '5s'");
    admin.exec("BEGIN");
    EXPECT_EQ(admin.value("SELECT state FROM outbox_wait('stock', '" + fence_token(ids) + "')"),
              "unknown");
    EXPECT_EQ(admin.value("SELECT sum(seq_tup_read) < 1000 FROM pg_stat_xact_user_tables "
                          "WHERE relname IN ('outbox_mailbox', 'outbox_inbox')"),
              "t");
}

}  // namespace
}  // namespace outbox::test
