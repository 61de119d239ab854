// The rules of Idempotency-Key, the same on every database.

#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <thread>

#include <outbox/adapters/libpq_idempotency.h>
#include <outbox/adapters/sqlite_idempotency.h>
#include <outbox/consumer/idempotency.h>
#include <outbox/error.h>
#include <outbox/producer/migrate.h>

#include "tests/consumer/database.h"
#include "tests/consumer/operations.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;
using What = IdempotentAnswer::What;

// A connection with the three calls of its database.
class KeySession {
  public:
    virtual ~KeySession() = default;
    virtual std::vector<Database::Row> query(const std::string& sql) = 0;
    virtual IdempotencyClaim claim(const IdempotentRequest& request,
                                   const ClaimOptions& options) = 0;
    virtual void complete(const IdempotentRequest& request, const IdempotencyClaim& claim,
                          const IdempotentAnswer& answer) = 0;
    virtual void release(const IdempotentRequest& request, const IdempotencyClaim& claim) = 0;
    virtual void begin() = 0;
    void exec(const std::string& sql) { query(sql); }
    std::string value(const std::string& sql) {
        const auto rows = query(sql);
        return rows.empty() ? "no row" : rows[0].at(0).value_or("NULL");
    }
};

template <typename Connection>
struct KeySessionOn final : KeySession {
    KeySessionOn(const std::string& where, std::string begin_with)
        : connection(where), begin_sql(std::move(begin_with)) {}
    std::vector<Database::Row> query(const std::string& sql) override {
        return connection.query(sql);
    }
    IdempotencyClaim claim(const IdempotentRequest& request, const ClaimOptions& options) override {
        return claim_key(connection.handle(), request, options);
    }
    void complete(const IdempotentRequest& request, const IdempotencyClaim& claim,
                  const IdempotentAnswer& answer) override {
        complete_key(connection.handle(), request, claim, answer);
    }
    void release(const IdempotentRequest& request, const IdempotencyClaim& claim) override {
        release_key(connection.handle(), request, claim);
    }
    void begin() override { connection.exec(begin_sql); }
    Connection connection;
    std::string begin_sql;
};
using PgKeySession = KeySessionOn<Pg>;
using SqliteKeySession = KeySessionOn<Sqlite>;

class IdempotencyKey : public testing::TestWithParam<Backend> {
  protected:
    IdempotencyKey() : database_(make_database(GetParam())) {
        MigrateOptions consumer_side;
        consumer_side.side = MigrationSide::kConsumer;
        migrate(database_->url(), consumer_side);
        db_ = connect();
        db_->exec("CREATE TABLE effects (id text)");
    }
    std::unique_ptr<KeySession> connect() const {
        if (GetParam() == Backend::kPostgres)
            return std::make_unique<PgKeySession>(database_->url(), "BEGIN");
        return std::make_unique<SqliteKeySession>(
            static_cast<const SqliteDatabase&>(*database_).path(), "BEGIN IMMEDIATE");
    }
    static IdempotentRequest request(std::string_view key = "key-1",
                                     std::string_view body = R"({"amount":1})",
                                     std::string_view scope = "user-1") {
        return {.scope = scope, .key = key, .operation = "POST /api/orders", .body = body};
    }
    static IdempotentAnswer created(const std::string& id = "o-1") {
        return {What::kFirst, 201, {{"Location", "/api/orders/" + id}}, R"({"id":")" + id + "\"}"};
    }
    // One request as an application does it.
    IdempotentAnswer work(KeySession& session, const IdempotentRequest& request,
                          const ClaimOptions& options = {}) const {
        session.begin();
        const auto claim = session.claim(request, options);
        if (!claim.is_new) {
            session.exec("ROLLBACK");
            return claim.answer;
        }
        session.exec("INSERT INTO effects VALUES ('" + std::string(request.key) + "')");
        const IdempotentAnswer answer =
            created(std::to_string(std::hash<std::thread::id>()(std::this_thread::get_id())));
        session.complete(request, claim, answer);
        session.exec("COMMIT");
        return answer;
    }
    std::string effects() { return db_->value("SELECT count(*) FROM effects"); }

    std::unique_ptr<Database> database_;
    std::unique_ptr<KeySession> db_;
};

INSTANTIATE_TEST_SUITE_P(Databases, IdempotencyKey,
                         testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& test) { return backend_name(test.param); });

TEST_P(IdempotencyKey, ARepeatGetsTheStoredAnswerAndDoesNothing) {
    const IdempotentAnswer first = work(*db_, request());
    const IdempotentAnswer repeat = work(*db_, request());
    EXPECT_EQ(first.what, What::kFirst);
    EXPECT_EQ(repeat.what, What::kRepeat);
    EXPECT_EQ(repeat.status, 201);
    EXPECT_EQ(repeat.body, first.body);
    EXPECT_EQ(repeat.headers, first.headers);
    EXPECT_EQ(effects(), "1");
}

TEST_P(IdempotencyKey, AnswersOfAnyBytesAndNoneComeBackAsTheyWere) {
    for (const std::string& body : {std::string("\0\xff binary", 9), std::string()}) {
        const std::string key = "key-" + std::to_string(body.size());
        db_->begin();
        const auto claim = db_->claim(request(key), {});
        db_->complete(request(key), claim, {What::kFirst, 204, {}, body});
        db_->exec("COMMIT");
        const auto repeat = work(*db_, request(key));
        EXPECT_EQ(repeat.what, What::kRepeat);
        EXPECT_EQ(repeat.body, body);
        EXPECT_TRUE(repeat.headers.empty());
    }
}

TEST_P(IdempotencyKey, NeverStoresHeadersThatBelongToOneSession) {
    IdempotentAnswer answer = created();
    answer.headers.emplace_back("Set-Cookie", "session=secret");
    answer.headers.emplace_back("AUTHORIZATION", "Bearer secret");
    answer.headers.emplace_back("ETag", "\"7\"");
    db_->begin();
    db_->complete(request(), db_->claim(request(), {}), answer);
    db_->exec("COMMIT");
    EXPECT_THAT(work(*db_, request()).headers,
                UnorderedElementsAre(Pair("Location", "/api/orders/o-1"), Pair("ETag", "\"7\"")));
    EXPECT_THAT(db_->value("SELECT headers FROM outbox_idempotency"),
                testing::Not(HasSubstr("secret")));
}

TEST_P(IdempotencyKey, AnotherBodyOrOperationUnderTheKeyIs422) {
    work(*db_, request());
    auto other = request("key-1", R"({"amount":2})");
    EXPECT_EQ(work(*db_, other).status, 422);
    other = request();
    other.operation = "POST /api/refunds";
    const auto answer = work(*db_, other);
    EXPECT_EQ(answer.what, What::kOtherRequest);
    EXPECT_EQ(answer.status, 422);
    EXPECT_EQ(effects(), "1");
}

TEST_P(IdempotencyKey, EachScopeHasItsOwnKeys) {
    EXPECT_EQ(work(*db_, request("k", "{}", "user-1")).what, What::kFirst);
    EXPECT_EQ(work(*db_, request("k", "{}", "user-2")).what, What::kFirst);
    EXPECT_EQ(work(*db_, request("1k", "{}", "user-")).what, What::kFirst);
    EXPECT_EQ(effects(), "3");
}

TEST_P(IdempotencyKey, ARolledBackClaimLeavesNothingAndTheRepeatIsDone) {
    db_->begin();
    EXPECT_TRUE(db_->claim(request(), {}).is_new);
    db_->exec("ROLLBACK");
    EXPECT_EQ(db_->value("SELECT count(*) FROM outbox_idempotency"), "0");
    EXPECT_EQ(work(*db_, request()).what, What::kFirst);
}

TEST_P(IdempotencyKey, AnExpiredKeyIsNewAgainAlsoForAnotherBody) {
    work(*db_, request());
    const std::string past = GetParam() == Backend::kPostgres ? "clock_timestamp()" : "1";
    db_->exec("UPDATE outbox_idempotency SET expires_at = " + past);
    EXPECT_EQ(work(*db_, request("key-1", "{}")).what, What::kFirst);
    EXPECT_EQ(work(*db_, request("key-1", "{}")).what, What::kRepeat);
    EXPECT_EQ(effects(), "2");
}

TEST_P(IdempotencyKey, ARequestCommittedWithoutAnAnswerIsNotDoneAgain) {
    db_->begin();
    EXPECT_TRUE(db_->claim(request(), {}).is_new);
    db_->exec("COMMIT");
    const auto repeat = work(*db_, request());
    EXPECT_EQ(repeat.what, What::kNoAnswer);
    EXPECT_EQ(repeat.status, 409);
}

TEST_P(IdempotencyKey, RefusesToClaimOutsideATransaction) {
    try {
        db_->claim(request(), {});
        FAIL() << "claimed";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kNoTransaction);
    }
}

TEST_P(IdempotencyKey, ALeasedClaimIsRunningUntilItIsCompleted) {
    ClaimOptions leased;
    leased.lease_ms = 60'000;
    db_->begin();
    const auto claim = db_->claim(request(), leased);
    EXPECT_TRUE(claim.is_new);
    EXPECT_EQ(claim.attempt, 1U);
    db_->exec("COMMIT");
    const auto meanwhile = work(*db_, request(), leased);
    EXPECT_EQ(meanwhile.what, What::kRunning);
    EXPECT_EQ(meanwhile.status, 409);
    EXPECT_THAT(meanwhile.headers, testing::Contains(Pair("Retry-After", "1")));
    db_->begin();
    db_->complete(request(), claim, created());
    db_->exec("COMMIT");
    EXPECT_EQ(work(*db_, request(), leased).what, What::kRepeat);
    EXPECT_EQ(effects(), "0");
}

TEST_P(IdempotencyKey, ALeaseThatRanOutIsTakenOverAndItsFirstOwnerIsRefused) {
    ClaimOptions leased;
    leased.lease_ms = 60'000;
    db_->begin();
    const auto first = db_->claim(request(), leased);
    db_->exec("COMMIT");
    const std::string past = GetParam() == Backend::kPostgres ? "'-infinity'" : "1";
    db_->exec("UPDATE outbox_idempotency SET lease_until = " + past);
    db_->begin();
    const auto second = db_->claim(request(), leased);
    db_->exec("COMMIT");
    EXPECT_TRUE(second.is_new);
    EXPECT_EQ(second.attempt, 2U);
    db_->begin();
    try {
        db_->complete(request(), first, created("late"));
        ADD_FAILURE() << "the first owner completed";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kConflict);
        EXPECT_EQ(error.advice(), Advice::kStop);
        EXPECT_THAT(error.what(), HasSubstr("lease"));
    }
    db_->exec("ROLLBACK");
    db_->begin();
    db_->complete(request(), second, created("o-2"));
    db_->exec("COMMIT");
    EXPECT_EQ(work(*db_, request()).body, R"({"id":"o-2"})");
}

// What the first one did under the key is unknown: no other request may be its second attempt.
TEST_P(IdempotencyKey, ALeaseThatRanOutIsNotTakenOverByAnotherRequest) {
    ClaimOptions leased;
    leased.lease_ms = 60'000;
    db_->begin();
    db_->claim(request(), leased);
    db_->exec("COMMIT");
    const std::string past = GetParam() == Backend::kPostgres ? "'-infinity'" : "1";
    db_->exec("UPDATE outbox_idempotency SET lease_until = " + past);
    const auto other = work(*db_, request("key-1", R"({"amount":2})"), leased);
    EXPECT_EQ(other.what, What::kOtherRequest);
    EXPECT_EQ(other.status, 422);
    EXPECT_EQ(effects(), "0");
    EXPECT_EQ(work(*db_, request(), leased).status, 201);
    EXPECT_EQ(effects(), "1");
}

TEST_P(IdempotencyKey, ALeaseLongerThanTheRetentionKeepsItsKey) {
    ClaimOptions leased;
    leased.lease_ms = 3'600'000;
    leased.retention_s = 1;
    const auto claim = [&] {
        db_->begin();
        auto made = db_->claim(request(), leased);
        db_->exec("COMMIT");
        return made;
    };
    const auto prune = [&] {
        const auto operations = operations_of(database_->url());
        return operations->prune(86'400).value_or_throw().keys;
    };
    const auto first = claim();
    const bool postgres = GetParam() == Backend::kPostgres;
    EXPECT_EQ(db_->value("SELECT expires_at >= lease_until FROM outbox_idempotency"),
              postgres ? "t" : "1");
    // The lease has run out, and the retention with it: whatever its owner did is unknown.
    const std::string hour_ago =
        postgres ? "clock_timestamp() - interval '1 hour'" : "(unixepoch() - 3600) * 1000000";
    const std::string all_past =
        "UPDATE outbox_idempotency SET lease_until = " + hour_ago + ", expires_at = " + hour_ago;
    db_->exec(all_past);
    EXPECT_EQ(prune(), 0);
    const auto second = claim();
    EXPECT_TRUE(second.is_new);
    EXPECT_EQ(second.attempt, 2U);
    db_->begin();
    EXPECT_THROW(db_->complete(request(), first, created("late")), Error);
    db_->exec("ROLLBACK");
    db_->begin();
    db_->complete(request(), second, created());
    db_->exec("COMMIT");
    // Answered and expired: new, and yet not the attempt that never came back.
    db_->exec("UPDATE outbox_idempotency SET expires_at = " + hour_ago);
    EXPECT_EQ(claim().attempt, 3U);
    db_->exec(all_past);
    EXPECT_EQ(prune(), 0);
    db_->exec(
        "UPDATE outbox_idempotency SET expires_at = " +
        std::string(postgres ? "expires_at - interval '8 days'" : "expires_at - 691200000000"));
    EXPECT_EQ(prune(), 1);
}

TEST_P(IdempotencyKey, HeadersOfOneNameAllComeBack) {
    db_->begin();
    const auto claim = db_->claim(request(), {});
    IdempotentAnswer answer = created();
    answer.headers = {{"Link", "</a>; rel=next"},
                      {"Set-Cookie", "secret"},
                      {"ETag", "x"},
                      {"Link", "</b>; rel=prev"},
                      {"Link", "</c>; rel=last"}};
    db_->complete(request(), claim, answer);
    db_->exec("COMMIT");
    EXPECT_THAT(work(*db_, request()).headers,
                testing::ElementsAre(Pair("Link", "</a>; rel=next"), Pair("Link", "</b>; rel=prev"),
                                     Pair("Link", "</c>; rel=last"), Pair("ETag", "x")));
}

TEST_P(IdempotencyKey, AReleasedLeaseIsFreeAtOnce) {
    ClaimOptions leased;
    leased.lease_ms = 60'000;
    db_->begin();
    const auto first = db_->claim(request(), leased);
    db_->exec("COMMIT");
    db_->begin();
    db_->release(request(), first);
    db_->exec("COMMIT");
    EXPECT_EQ(work(*db_, request(), leased).what, What::kFirst);
}

TEST_P(IdempotencyKey, AnExistingTableOfKeysWorksAsItIs) {
    const bool postgres = GetParam() == Backend::kPostgres;
    db_->exec(postgres
                  ? "CREATE TABLE idempotency (user_id bigint NOT NULL, request_id uuid NOT NULL, "
                    "created_at timestamptz DEFAULT now(), PRIMARY KEY (user_id, request_id))"
                  : "CREATE TABLE idempotency (user_id integer NOT NULL, request_id text NOT NULL, "
                    "PRIMARY KEY (user_id, request_id))");
    const std::string known = "00000000-0000-4000-8000-000000000001";
    const std::string fresh = "00000000-0000-4000-8000-000000000002";
    db_->exec("INSERT INTO idempotency (user_id, request_id) VALUES (7, '" + known + "')");
    ClaimOptions options;
    options.adopted.table = "idempotency";
    EXPECT_EQ(work(*db_, request(known, "{}", "7"), options).what, What::kNoAnswer);
    EXPECT_EQ(work(*db_, request(fresh, "{}", "7"), options).what, What::kFirst);
    EXPECT_EQ(work(*db_, request(fresh, "{}", "7"), options).what, What::kRepeat);
    EXPECT_EQ(effects(), "1");
    EXPECT_EQ(db_->value("SELECT count(*) FROM idempotency"), "2");
}

TEST_P(IdempotencyKey, WhatAnExistingTableOfKeysKnowsIsNoLeaseThatEnds) {
    db_->exec(
        "CREATE TABLE idempotency (user_id text, request_id text, "
        "PRIMARY KEY (user_id, request_id))");
    db_->exec("INSERT INTO idempotency VALUES ('user-1', 'key-1')");
    ClaimOptions options;
    options.adopted.table = "idempotency";
    options.lease_ms = 60'000;
    for (int i = 0; i < 2; ++i) {
        db_->begin();
        EXPECT_EQ(db_->claim(request(), options).answer.what, What::kNoAnswer);
        db_->exec("COMMIT");
        EXPECT_EQ(db_->value("SELECT lease_until FROM outbox_idempotency"), "NULL");
    }
}

// ---- the gate ----

TEST_P(IdempotencyKey, AThousandRequestsWithOneKeyHaveOneEffectAndOneAnswer) {
    constexpr int kRequests = 1'000;
    constexpr int kConnections = 4;
    IdempotencyOptions options;
    options.wait_ms = 120'000;
    Idempotency gate(options);
    std::mutex mutex;
    std::condition_variable freed;
    std::vector<std::unique_ptr<KeySession>> pool;
    for (int i = 0; i < kConnections; ++i) pool.push_back(connect());
    const auto work_with_a_connection = [&] {
        std::unique_ptr<KeySession> session;
        {
            std::unique_lock lock(mutex);
            freed.wait(lock, [&] { return !pool.empty(); });
            session = std::move(pool.back());
            pool.pop_back();
        }
        const IdempotentAnswer answer = work(*session, request());
        {
            const std::lock_guard lock(mutex);
            pool.push_back(std::move(session));
        }
        freed.notify_one();
        return answer;
    };
    std::vector<IdempotentAnswer> answers(kRequests);
    std::latch start(kRequests);
    std::vector<std::thread> threads;
    for (int i = 0; i < kRequests; ++i) {
        threads.emplace_back([&, i] {
            start.arrive_and_wait();
            answers[i] = gate.answer(request(), work_with_a_connection);
        });
    }
    for (auto& thread : threads) thread.join();
    int firsts = 0;
    for (const auto& answer : answers) {
        EXPECT_EQ(answer.status, 201);
        EXPECT_EQ(answer.body, answers[0].body);
        EXPECT_EQ(answer.headers, answers[0].headers);
        firsts += answer.what == What::kFirst ? 1 : 0;
    }
    EXPECT_EQ(firsts, 1);
    EXPECT_EQ(effects(), "1");
}

TEST_P(IdempotencyKey, RepeatsOfAnAnsweredRequestAllGetItsAnswerHoweverManyComeAtOnce) {
    work(*db_, request());
    IdempotencyOptions options;
    options.while_running = IdempotencyOptions::WhileRunning::kConflict;
    for (const bool tries : {false, true}) {
        Idempotency gate(options);
        constexpr int kRepeats = 20;
        std::atomic<int> inside = 0;
        std::atomic<int> answered = 0;
        std::vector<std::thread> threads;
        for (int i = 0; i < kRepeats; ++i) {
            threads.emplace_back([&] {
                const auto session = connect();
                const auto ask = [&] {
                    ++inside;
                    EXPECT_TRUE(eventually(60s, "all are inside before the first leaves",
                                           [&] { return inside == kRepeats; }));
                    return work(*session, request());
                };
                const auto answer =
                    tries ? gate.try_answer(request(), ask) : gate.answer(request(), ask);
                if (answer.what == What::kRepeat && answer.status == 201) ++answered;
            });
        }
        for (auto& thread : threads) thread.join();
        ASSERT_EQ(answered, kRepeats);
    }
    EXPECT_EQ(effects(), "1");
}

TEST_P(IdempotencyKey, AWaitingRequestRunsNoWorkAndGetsTheAnswerInTheEnd) {
    IdempotencyOptions options;
    options.wait_ms = 120'000;
    Idempotency gate(options);
    std::latch inside(1);
    std::latch go_on(1);
    std::atomic<int> runs = 0;
    std::thread first([&] {
        gate.answer(request(), [&] {
            const auto session = connect();
            ++runs;
            inside.count_down();
            go_on.wait();
            return work(*session, request());
        });
    });
    inside.wait();
    // One asks whether there is an answer; who comes after it knows.
    int asked = 0;
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(gate.try_answer(request(),
                                  [&] {
                                      ++asked;
                                      return problem_answer(What::kRunning, 409, "running", "");
                                  })
                      .what,
                  What::kRunning);
    }
    EXPECT_EQ(asked, 1);
    IdempotentAnswer second;
    std::thread other(
        [&] { second = gate.answer(request(), [&] { return work(*connect(), request()); }); });
    EXPECT_EQ(runs, 1);
    go_on.count_down();
    first.join();
    other.join();
    EXPECT_EQ(second.what, What::kRepeat);
    EXPECT_EQ(effects(), "1");
}

TEST(IdempotencyGate, WaitsUpToItsBoundThenAnswers409WithRetryAfter) {
    const IdempotentRequest request{.scope = "u", .key = "k", .operation = {}, .body = {}};
    IdempotencyOptions options;
    options.wait_ms = 120'000;
    Idempotency patient(options);
    int tries = 0;
    EXPECT_EQ(patient
                  .answer(request,
                          [&] {
                              if (++tries == 3) return IdempotentAnswer{What::kRepeat, 201, {}, ""};
                              return problem_answer(What::kRunning, 409, "running elsewhere", "");
                          })
                  .status,
              201);
    EXPECT_EQ(tries, 3);
    options.wait_ms = 500;
    Idempotency gate(options);
    const auto answer = gate.answer(
        request, [] { return problem_answer(What::kRunning, 409, "running elsewhere", ""); });
    EXPECT_EQ(answer.status, 409);
    EXPECT_EQ(gate.next_pause_ms(options.wait_ms), 0);
}

TEST(IdempotencyGate, InConflictModeASecondRequestIs409AtOnce) {
    IdempotencyOptions options;
    options.while_running = IdempotencyOptions::WhileRunning::kConflict;
    Idempotency gate(options);
    const IdempotentRequest request{.scope = "u", .key = "k", .operation = {}, .body = {}};
    IdempotentAnswer inner;
    gate.answer(request, [&] {
        std::thread([&] {
            inner = gate.answer(request, [] {
                return problem_answer(What::kRunning, 409, "says the database", "");
            });
            inner = gate.answer(request, [] {
                ADD_FAILURE() << "asked again";
                return IdempotentAnswer{};
            });
        }).join();
        return IdempotentAnswer{};
    });
    EXPECT_EQ(inner.what, What::kRunning);
    EXPECT_THAT(inner.headers, testing::Contains(Pair("Retry-After", "1")));
    EXPECT_THAT(inner.headers, testing::Contains(Pair("Content-Type", "application/problem+json")));
}

TEST(IdempotencyGate, RefusesWhatIsNoKeyAndAMissingOneWhereItIsRequired) {
    Idempotency gate;
    IdempotencyOptions options;
    options.required = true;
    Idempotency strict(options);
    const auto status = [](Idempotency& asked, const std::string& key) {
        const IdempotentRequest request{.scope = "u", .key = key, .operation = {}, .body = {}};
        return asked.answer(request, [] { return IdempotentAnswer{What::kFirst, 201, {}, ""}; })
            .status;
    };
    EXPECT_EQ(status(gate, ""), 201);
    EXPECT_EQ(status(strict, ""), 400);
    EXPECT_EQ(status(gate, std::string(255, 'k')), 201);
    EXPECT_EQ(status(gate, std::string(256, 'k')), 400);
    EXPECT_EQ(status(gate, std::string(10'240, 'k')), 400);
    EXPECT_EQ(status(gate, "tab\there"), 400);
    EXPECT_EQ(status(gate, "zürich"), 400);
}

TEST(IdempotencyGate, ReadsTheKeyInBothFormsOfTheHeader) {
    EXPECT_EQ(idempotency_key("\"8e03978e-40d5\""), "8e03978e-40d5");
    EXPECT_EQ(idempotency_key("  8e03978e-40d5 "), "8e03978e-40d5");
    EXPECT_EQ(idempotency_key("\""), "\"");
}

// It asks for one effect, and would have had one each time.
TEST(IdempotencyGate, AHeaderWithoutAKeyIsRefusedAndNoHeaderIsNone) {
    Idempotency gate;
    const auto answer = [&](std::optional<std::string_view> header) {
        const std::string key = idempotency_key(header);
        const IdempotentRequest request{.scope = "u", .key = key, .operation = {}, .body = {}};
        return gate.answer(request, [] { return IdempotentAnswer{What::kFirst, 201, {}, ""}; });
    };
    EXPECT_EQ(answer(std::nullopt).status, 201);
    for (const char* header : {"", " \t ", "\"\"", " \"\" "}) {
        EXPECT_EQ(answer(header).status, 400) << header;
        EXPECT_THAT(answer(header).body, testing::HasSubstr("1 to 255 printable"));
    }
}

TEST(IdempotencyGate, AWorkThatThrowsFreesTheKeyAndAConflictRunsItAgain) {
    Idempotency gate;
    const IdempotentRequest request{.scope = "u", .key = "k", .operation = {}, .body = {}};
    EXPECT_THROW(
        gate.answer(request, []() -> IdempotentAnswer { throw std::runtime_error("no stock"); }),
        std::runtime_error);
    int runs = 0;
    const auto answer = gate.answer(request, [&] {
        if (++runs < 3) throw Error(ErrorCode::kConflict, Advice::kRetryEvent, "40001");
        return IdempotentAnswer{What::kFirst, 201, {}, ""};
    });
    EXPECT_EQ(answer.status, 201);
    EXPECT_EQ(runs, 3);
}

// ---- what only PostgreSQL shows ----

class IdempotencyOnPostgres : public IdempotencyKey {};
INSTANTIATE_TEST_SUITE_P(Database, IdempotencyOnPostgres, testing::Values(Backend::kPostgres),
                         [](const auto& test) { return backend_name(test.param); });

TEST_P(IdempotencyOnPostgres, AClaimOfAnOpenTransactionIsRunningForOthersWithoutWaiting) {
    const auto other = connect();
    db_->begin();
    ASSERT_TRUE(db_->claim(request(), {}).is_new);
    other->begin();
    EXPECT_EQ(other->claim(request(), {}).answer.what, What::kRunning);
    EXPECT_TRUE(other->claim(request("another key"), {}).is_new);
    other->exec("ROLLBACK");
    db_->exec("ROLLBACK");
    EXPECT_EQ(work(*other, request()).what, What::kFirst);
}

TEST_P(IdempotencyOnPostgres, AClaimWithoutAScopeOrAKeyIsNotRunningForEver) {
    for (const char* arguments : {"NULL, 'k', 'f'", "'alice', NULL, 'f'", "'alice', 'k', NULL"}) {
        EXPECT_ANY_THROW(db_->exec(std::string("SELECT idempotency_claim(") + arguments + ")"))
            << arguments;
    }
}

TEST_P(IdempotencyOnPostgres, AClaimDiesWithItsSession) {
    auto doomed = connect();
    doomed->begin();
    ASSERT_TRUE(doomed->claim(request(), {}).is_new);
    db_->exec("SELECT pg_terminate_backend(" + doomed->value("SELECT pg_backend_pid()") + ")");
    ASSERT_TRUE(eventually(60s, "the claim is gone",
                           [&] { return work(*db_, request()).what == What::kFirst; }));
}

TEST_P(IdempotencyOnPostgres, UnderStricterIsolationAConcurrentRepeatRunsAgain) {
    for (const char* level : {"REPEATABLE READ", "SERIALIZABLE"}) {
        std::string key = level;
        Idempotency gate;
        const auto other = connect();
        int runs = 0;
        const auto once_more = [&] {
            other->exec(std::string("BEGIN ISOLATION LEVEL ") + level + "; SELECT 1");
            if (++runs == 1) {
                other->exec("SELECT count(*) FROM outbox_idempotency");  // takes the snapshot
                work(*db_, request(key));
            }
            try {
                const auto claim = other->claim(request(key), {});
                other->exec("ROLLBACK");
                return claim.answer;
            } catch (...) {
                other->exec("ROLLBACK");
                throw;
            }
        };
        IdempotentAnswer answer;
        ASSERT_TRUE(eventually(60s, "the first run takes less than the two seconds", [&] {
            key += "+";
            runs = 0;
            try {
                answer = gate.answer(request(key), once_more);
                return true;
            } catch (const Error& error) {
                EXPECT_EQ(error.code(), ErrorCode::kConflict) << error.what();
                return false;
            }
        }));
        EXPECT_EQ(answer.what, What::kRepeat) << level;
        EXPECT_EQ(runs, 2) << level;
    }
}

TEST_P(IdempotencyOnPostgres, TheSqlFunctionsServeAnyLanguage) {
    const auto claim = [&](KeySession& session, const std::string& fingerprint) {
        return session.query(
            "SELECT state, attempt, status, headers::text, "
            "convert_from(body, 'UTF8') FROM idempotency_claim('u', 'k', '" +
            fingerprint + "')")[0];
    };
    db_->begin();
    EXPECT_EQ(claim(*db_, "f")[0], "new");
    const auto other = connect();
    EXPECT_EQ(claim(*other, "f")[0], "running");
    EXPECT_EQ(db_->value("SELECT idempotency_complete('u', 'k', 1, 201, "
                         "'{\"Location\":\"/o/1\",\"Set-Cookie\":\"s\"}', '{}')"),
              "t");
    db_->exec("COMMIT");
    const auto repeat = claim(*other, "f");
    EXPECT_EQ(repeat[0], "repeat");
    EXPECT_EQ(repeat[2], "201");
    EXPECT_EQ(repeat[3], R"({ "Location" : "/o/1" })");
    EXPECT_EQ(repeat[4], "{}");
    EXPECT_EQ(claim(*other, "g")[0], "mismatch");
    EXPECT_EQ(db_->value("SELECT idempotency_complete('u', 'k', 1, 500)"), "f");
}

TEST_P(IdempotencyOnPostgres, TheSqlFunctionsSeeThroughEscapesInTheNameOfAHeader) {
    db_->begin();
    db_->exec("SELECT idempotency_claim('u', 'k', 'f')");
    db_->exec("SELECT idempotency_complete('u', 'k', 1, 200, '{\"set\\u002dcookie\":\"s\"}')");
    EXPECT_EQ(db_->value("SELECT headers IS NULL FROM idempotency_claim('u', 'k', 'f')"), "t");
    db_->exec("SELECT idempotency_claim('u', 'k2', 'f')");
    db_->exec(
        "SELECT idempotency_complete('u', 'k2', 1, 200, "
        "'{\"Set-Cookie\":\"s\",\"Link\":[\"a\",\"b\"]}')");
    EXPECT_EQ(db_->value("SELECT headers -> 'Link' ->> 1 FROM idempotency_claim('u', 'k2', 'f')"),
              "b");
    db_->exec("COMMIT");
}

// Neither an error that leaves the work undone, nor a key that stays claimed.
TEST_P(IdempotencyOnPostgres, AHeaderThatNoTextHoldsIsKeptWithoutIt) {
    db_->exec("SELECT idempotency_claim('u', 'k', 'f', lease => '1 hour')");
    EXPECT_EQ(
        db_->value(
            "SELECT idempotency_complete('u', 'k', 1, 200, "
            R"('{"A\u0000B":"x\u0000y","C":"\ud800","D":"\\\\u0000","set\u002dcookie":"s"}'))"),
        "t");
    EXPECT_EQ(db_->value("SELECT string_agg(key || '=' || value, ' ' ORDER BY key) FROM "
                         "idempotency_claim('u', 'k', 'f') c, json_each_text(c.headers)"),
              R"(A?B=x?y C=? D=\\u0000)");
}

// A late owner's completion that is not committed yet: it may be the answer.
TEST_P(IdempotencyOnPostgres, AClaimDoesNotWaitForACompletionThatIsNotCommitted) {
    db_->exec("SELECT idempotency_claim('u', 'k', 'f', lease => '1 hour')");
    db_->exec("UPDATE outbox_idempotency SET lease_until = '-infinity'");
    db_->begin();
    EXPECT_EQ(db_->value("SELECT idempotency_complete('u', 'k', 1, 200)"), "t");
    const auto other = connect();
    other->exec("SET statement_timeout = '20s'");
    EXPECT_EQ(other->value("SELECT state FROM idempotency_claim('u', 'k', 'f', lease => '1 h')"),
              "running");
    db_->exec("COMMIT");
    EXPECT_EQ(other->value("SELECT state FROM idempotency_claim('u', 'k', 'f', lease => '1 h')"),
              "repeat");
}

TEST_P(IdempotencyOnPostgres, PruningReadsOnlyWhatHasExpired) {
    db_->exec(
        "INSERT INTO outbox_idempotency (scope, key, fingerprint, expires_at) SELECT 'u', 'k' || "
        "n, "
        "'f', now() + (n - 5.5) * interval '1 hour' FROM generate_series(1, 5000) n");
    db_->exec("ANALYZE outbox_idempotency");
    db_->begin();
    EXPECT_EQ(db_->value("SELECT idempotency_prune()"), "5");
    EXPECT_LT(std::stoi(db_->value("SELECT seq_tup_read + idx_tup_fetch FROM "
                                   "pg_stat_xact_user_tables WHERE relname = "
                                   "'outbox_idempotency'")),
              100);
    db_->exec("COMMIT");
}

class IdempotencyInTwoTrips : public IdempotencyKey {
  protected:
    PGconn* connection() { return static_cast<PgKeySession&>(*db_).connection.handle(); }
    // Claim with BEGIN, completion with COMMIT.
    IdempotentAnswer work_in_two_trips(const IdempotentRequest& request,
                                       const ClaimOptions& options = {}) {
        const auto claim = begin_and_claim_key(connection(), request, options);
        if (!claim.is_new) {
            db_->exec("ROLLBACK");
            return claim.answer;
        }
        db_->exec("INSERT INTO effects VALUES ('" + std::string(request.key) + "')");
        complete_key_and_commit(connection(), request, claim, created());
        return created();
    }
    ErrorInfo error_of(const std::function<void()>& call) {
        try {
            call();
        } catch (const Error& error) {
            return error.info();
        }
        ADD_FAILURE() << "nothing was thrown";
        return {};
    }
    bool is_idle() { return PQtransactionStatus(connection()) == PQTRANS_IDLE; }
};
INSTANTIATE_TEST_SUITE_P(Database, IdempotencyInTwoTrips, testing::Values(Backend::kPostgres),
                         [](const auto& test) { return backend_name(test.param); });

TEST_P(IdempotencyInTwoTrips, ARepeatGetsTheStoredAnswerAndDoesNothing) {
    EXPECT_EQ(work_in_two_trips(request()).what, What::kFirst);
    EXPECT_TRUE(is_idle());
    const IdempotentAnswer repeat = work_in_two_trips(request());
    EXPECT_EQ(repeat.what, What::kRepeat);
    EXPECT_EQ(repeat.body, created().body);
    EXPECT_EQ(repeat.headers, created().headers);
    EXPECT_EQ(work_in_two_trips(request("key-1", "{}")).status, 422);
    EXPECT_EQ(effects(), "1");
    // The one-by-one calls know the same keys.
    EXPECT_EQ(work(*db_, request()).what, What::kRepeat);
}

TEST_P(IdempotencyInTwoTrips, GoesOnWhereTheSessionForgetsItsPreparedStatements) {
    EXPECT_EQ(work_in_two_trips(request("a")).what, What::kFirst);
    EXPECT_EQ(db_->value("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'outbox%'"),
              "2");
    db_->exec("DISCARD ALL");
    EXPECT_EQ(work_in_two_trips(request("b")).what, What::kFirst);
    EXPECT_EQ(work_in_two_trips(request("b")).what, What::kRepeat);
    EXPECT_TRUE(is_idle());
    EXPECT_EQ(effects(), "2");
}

TEST_P(IdempotencyInTwoTrips, ARequestWithoutAKeyIsATransactionLikeAnyOther) {
    EXPECT_EQ(work_in_two_trips(request("")).what, What::kFirst);
    EXPECT_EQ(work_in_two_trips(request("")).what, What::kFirst);
    EXPECT_EQ(effects(), "2");
    EXPECT_EQ(db_->value("SELECT count(*) FROM outbox_idempotency"), "0");
}

TEST_P(IdempotencyInTwoTrips, NothingIsCommittedWhereTheClaimIsAnothersByNow) {
    ClaimOptions leased;
    leased.lease_ms = 60'000;
    const auto first = begin_and_claim_key(connection(), request(), leased);
    db_->exec("COMMIT");
    db_->exec("UPDATE outbox_idempotency SET lease_until = '-infinity'");
    db_->begin();
    EXPECT_TRUE(db_->claim(request(), leased).is_new);
    db_->exec("COMMIT");
    db_->begin();
    db_->exec("INSERT INTO effects VALUES ('late')");
    const ErrorInfo error =
        error_of([&] { complete_key_and_commit(connection(), request(), first, created("late")); });
    EXPECT_EQ(error.code, ErrorCode::kConflict);
    EXPECT_EQ(error.advice, Advice::kStop);
    EXPECT_THAT(error.message, HasSubstr("lease"));
    EXPECT_TRUE(is_idle());
    EXPECT_EQ(effects(), "0");
}

TEST_P(IdempotencyInTwoTrips, ADeferredConstraintThatRefusesLeavesNoClaim) {
    db_->exec(
        "ALTER TABLE effects ADD UNIQUE (id) DEFERRABLE INITIALLY DEFERRED; "
        "INSERT INTO effects VALUES ('key-1')");
    EXPECT_EQ(error_of([&] { work_in_two_trips(request()); }).backend_code, "23505");
    EXPECT_TRUE(is_idle());
    EXPECT_EQ(db_->value("SELECT count(*) FROM outbox_idempotency"), "0");
    db_->exec("DELETE FROM effects");
    EXPECT_EQ(work_in_two_trips(request()).what, What::kFirst);
}

TEST_P(IdempotencyInTwoTrips, BeginsOnlyOnAnIdleConnectionAndLeavesItIdleAfterAnError) {
    db_->begin();
    EXPECT_EQ(error_of([&] { begin_and_claim_key(connection(), request()); }).code,
              ErrorCode::kConflict);
    db_->exec("ROLLBACK");
    EXPECT_EQ(
        error_of([&] { complete_key_and_commit(connection(), request(), {}, created()); }).code,
        ErrorCode::kNoTransaction);
    ClaimOptions adopted;
    adopted.adopted.table = "no_such_table";
    EXPECT_EQ(error_of([&] { begin_and_claim_key(connection(), request(), adopted); }).code,
              ErrorCode::kNoSuchTable);
    EXPECT_TRUE(is_idle());
    db_->exec("DROP TABLE outbox_idempotency");
    EXPECT_EQ(error_of([&] { begin_and_claim_key(connection(), request()); }).code,
              ErrorCode::kNoSuchTable);
    EXPECT_TRUE(is_idle());
}

TEST_P(IdempotencyOnPostgres, AKeyThatTheAdoptedColumnsDoNotTakeIsNamed) {
    db_->exec(
        "CREATE TABLE idempotency (user_id bigint, request_id uuid, "
        "UNIQUE (user_id, request_id))");
    ClaimOptions options;
    options.adopted.table = "idempotency";
    try {
        work(*db_, request("no uuid", "{}", "7"), options);
        FAIL() << "taken";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidEvent);
        EXPECT_THAT(error.what(), HasSubstr("uuid"));
    }
}

}  // namespace
}  // namespace outbox::test
