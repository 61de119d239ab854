#include "databases/sqlite/source/source.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <outbox/adapters/sqlite.h>
#include <outbox/producer/migrate.h>

#include "databases/sqlite/source/lease.h"
#include "databases/sqlite/source/operations.h"
#include "tests/support/counted.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/process.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr spi::ReadLimits kAll{1000, std::size_t{1} << 20};

template <typename T>
T value_of(Result<T> result) {
    if (!result.ok()) throw std::runtime_error(describe(result.error()));
    return std::move(result).value();
}

// A disk without room: every write to a file of SQLite's fails as the kernel's ENOSPC does. And one
// with a bad sector: the next read of a page fails as the kernel's EIO does.
class FullDisk {
  public:
    static void install() {
        if (open_file != nullptr) return;
        static sqlite3_vfs vfs = *sqlite3_vfs_find(nullptr);
        open_file = vfs.xOpen;
        vfs.zName = "full-disk";
        vfs.xOpen = open_with_limit;
        sqlite3_vfs_register(&vfs, 1);
    }
    FullDisk() { full = true; }
    ~FullDisk() { full = false; }
    FullDisk(const FullDisk&) = delete;
    FullDisk& operator=(const FullDisk&) = delete;

    static void fail_next_read_at(sqlite3_int64 offset) { bad_sector = offset; }
    static bool has_failed() { return bad_sector == kNone; }

  private:
    static constexpr sqlite3_int64 kNone = -1;

    static int open_with_limit(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags,
                               int* flags_out) {
        const int result = open_file(vfs, name, file, flags, flags_out);
        if (result != SQLITE_OK || file->pMethods == nullptr) return result;
        write_file = file->pMethods->xWrite;
        read_file = file->pMethods->xRead;
        // SQLite has several tables of methods: one copy of each.
        static std::map<const sqlite3_io_methods*, sqlite3_io_methods> copies;
        sqlite3_io_methods& methods =
            copies.try_emplace(file->pMethods, *file->pMethods).first->second;
        methods.xWrite = [](sqlite3_file* target, const void* bytes, int size, sqlite3_int64 at) {
            return full ? SQLITE_FULL : write_file(target, bytes, size, at);
        };
        methods.xRead = [](sqlite3_file* target, void* bytes, int size, sqlite3_int64 at) {
            sqlite3_int64 bad = at;
            if (at != kNone && bad_sector.compare_exchange_strong(bad, kNone)) {
                return SQLITE_IOERR_READ;
            }
            return read_file(target, bytes, size, at);
        };
        file->pMethods = &methods;
        return result;
    }

    static inline int (*open_file)(sqlite3_vfs*, const char*, sqlite3_file*, int, int*) = nullptr;
    static inline int (*write_file)(sqlite3_file*, const void*, int, sqlite3_int64) = nullptr;
    static inline int (*read_file)(sqlite3_file*, void*, int, sqlite3_int64) = nullptr;
    static inline std::atomic<bool> full = false;
    static inline std::atomic<sqlite3_int64> bad_sector = kNone;
};

class SqliteSource : public testing::Test {
  protected:
    static void SetUpTestSuite() { FullDisk::install(); }

    std::unique_ptr<spi::Source> open(std::vector<std::string> tenants = {}) {
        sqlite::SqliteSourceConfig config;
        config.url = url_;
        config.tenants = std::move(tenants);
        return value_of(sqlite::make_sqlite_source(config));
    }
    ErrorInfo open_error(const std::string& url, const std::string& table = "outbox_events") {
        sqlite::SqliteSourceConfig config;
        config.url = url;
        config.table = table;
        auto source = sqlite::make_sqlite_source(config);
        return source.ok() ? ErrorInfo{} : source.error();
    }
    // Takes the lease and begins a term of one route.
    static spi::RecordBatch begin(spi::LeaseStore& lease, spi::Recorder& recorder) {
        spi::RecordBatch batch;
        batch.epoch = value_of(lease.acquire("test", std::chrono::minutes(10))).value();
        const std::vector<spi::RouteName> routes{{"default", {}}};
        static_cast<void>(value_of(recorder.begin(batch.epoch, routes)));
        return batch;
    }
    // A term in which two events were sent and are to be recorded.
    struct Sent {
        std::unique_ptr<spi::Source> source;
        std::unique_ptr<spi::Recorder> recorder;
        std::unique_ptr<spi::Reader> reader;
        std::unique_ptr<spi::LeaseStore> lease;
        std::vector<spi::Position> positions{1, 2};
        spi::RecordBatch done;
    };
    Sent two_are_sent() {
        db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't'), ('b', 't')");
        Sent out;
        out.source = open();
        out.recorder = value_of(out.source->open_recorder());
        out.reader = value_of(out.source->open_reader("default", {}));
        spi::EventBatch batch;
        EXPECT_EQ(read(*out.reader, batch).size(), 2U);
        out.lease = value_of(out.source->open_lease());
        out.done = begin(*out.lease, *out.recorder);
        out.done.finished.push_back({0, out.positions});
        return out;
    }
    // Of what ANALYZE has written; once, for who has not read it since.
    void make_analysis_unreadable() {
        db_.exec("ANALYZE; PRAGMA wal_checkpoint(TRUNCATE); CREATE TABLE beside (a)");
        FullDisk::fail_next_read_at(
            db_.number("SELECT (rootpage - 1) * (SELECT page_size FROM pragma_page_size) FROM "
                       "sqlite_master WHERE name = 'sqlite_stat1'"));
    }
    std::vector<std::string> read(spi::Reader& reader, spi::EventBatch& batch) {
        batch.clear();
        const Status status = reader.read(kAll, batch);
        if (!status.ok()) throw std::runtime_error(describe(status.error()));
        std::vector<std::string> ids;
        for (const auto& event : batch.events()) ids.emplace_back(event.id);
        return ids;
    }

    TemporaryFolder folder_{"source"};
    std::string path_ = folder_ / "shop.db";
    std::string url_ = "sqlite://" + path_;
    std::vector<Migration> migrated_ = migrate(url_);
    Sqlite db_{path_};
};

TEST_F(SqliteSource, NamesWhatIsWrongWithFileTableOrUrl) {
    const ErrorInfo parameter = open_error(url_ + "?mode=ro");
    EXPECT_EQ(parameter.code, ErrorCode::kConfigInvalid);
    EXPECT_THAT(parameter.message, HasSubstr("takes none"));
    EXPECT_EQ(open_error("sqlite:///no/such/folder/shop.db").code, ErrorCode::kConnectFailed);
    EXPECT_EQ(open_error("sqlite://" + std::string(folder_ / "none.db")).code,
              ErrorCode::kConnectFailed);
    std::ofstream(folder_ / "text") << std::string(4096, 'x');
    EXPECT_EQ(open_error("sqlite://" + std::string(folder_ / "text")).code,
              ErrorCode::kNoSuchDatabase);
    EXPECT_EQ(open_error("sqlite://shop.db").code, ErrorCode::kConfigInvalid);
    EXPECT_EQ(open_error(url_, "no_such_table").code, ErrorCode::kNoSuchTable);
    EXPECT_THAT(open_error(url_, "no_such_table").message, HasSubstr("outbox migrate"));
    db_.exec("CREATE TABLE other (id text, what text)");
    EXPECT_EQ(open_error(url_, "other").code, ErrorCode::kTableShape);
    EXPECT_THAT(open_error(url_, "other").message, HasSubstr("[source.table] in outbox.toml"));
}

TEST_F(SqliteSource, TheIndexOfDeadLettersIsMadeAnewOrRefused) {
    const auto check = [&] {
        sqlite::SqliteSourceConfig config;
        config.url = url_;
        config.make_side_tables = false;
        std::string said;
        for (const spi::Finding& finding :
             value_of(value_of(sqlite::make_sqlite_source(config))->check())) {
            said += (finding.grade == spi::Finding::Grade::kFail ? "! " : "") + finding.text + "\n";
        }
        return said;
    };
    db_.exec("DROP INDEX outbox_dead_letters_event");
    EXPECT_THAT(check(), HasSubstr("side tables: a part of them is missing; the relay makes them"));
    db_.exec("CREATE TABLE mine (a); CREATE INDEX outbox_dead_letters_event ON mine (a)");
    EXPECT_THAT(check(),
                HasSubstr("! side tables: index outbox_dead_letters_event is of table mine"));
    EXPECT_EQ(open_error(url_).code, ErrorCode::kTableShape);
    EXPECT_THAT(open_error(url_).message,
                HasSubstr("is of table mine, not of outbox_dead_letters"));
    db_.exec("DROP INDEX outbox_dead_letters_event");
    open();
    EXPECT_EQ(check().find("side tables"), std::string::npos);
    EXPECT_EQ(db_.value("SELECT tbl_name FROM sqlite_master WHERE name = "
                        "'outbox_dead_letters_event'"),
              "outbox_dead_letters");
}

TEST_F(SqliteSource, ReadsOnlyTheWantedTenantsAndClosesTheOthersPositions) {
    db_.exec(
        "INSERT INTO outbox_events (id, topic, tenant_id) VALUES ('a', 't', 'one'), "
        "('b', 't', 'two'), ('c', 't', 'one')");
    const auto source = open({"one"});
    const auto reader = value_of(source->open_reader("default", {}));
    spi::EventBatch batch;
    EXPECT_EQ(read(*reader, batch), (std::vector<std::string>{"a", "c"}));
    EXPECT_EQ(batch.closed, (std::vector<spi::PositionRange>{{2, 2}}));
    const auto recorder = value_of(source->open_recorder());
    EXPECT_EQ(counted_backlog(*recorder), 2);
}

TEST_F(SqliteSource, TakesAnEmptyTenantForTheDefaultOne) {
    db_.exec(
        "INSERT INTO outbox_events (id, topic, tenant_id) VALUES ('a', 't', ''), "
        "('b', 't', 'two'), ('c', 't', 'default')");
    const auto source = open({"default"});
    const auto reader = value_of(source->open_reader("default", {}));
    spi::EventBatch batch;
    EXPECT_EQ(read(*reader, batch), (std::vector<std::string>{"a", "c"}));
    const auto recorder = value_of(source->open_recorder());
    EXPECT_EQ(counted_backlog(*recorder), 2);
}

TEST_F(SqliteSource, ClosesWhatIsMissingBelowARow) {
    db_.exec(
        "INSERT INTO outbox_events (id, topic) VALUES ('a', 't'), ('b', 't'), ('c', 't'); "
        "DELETE FROM outbox_events WHERE id <> 'c'");
    const auto source = open();
    const auto reader = value_of(source->open_reader("default", {}));
    spi::EventBatch batch;
    EXPECT_EQ(read(*reader, batch), (std::vector<std::string>{"c"}));
    EXPECT_EQ(batch.closed, (std::vector<spi::PositionRange>{{1, 2}}));
}

TEST_F(SqliteSource, SeesWhatIsWrittenBetweenIdlePolls) {
    const auto source = open();
    const auto reader = value_of(source->open_reader("default", {}));
    spi::EventBatch batch;
    for (int n = 0; n < 20; ++n) {
        EXPECT_TRUE(read(*reader, batch).empty());
        EXPECT_TRUE(read(*reader, batch).empty());
        const std::string id = "e" + std::to_string(n);
        db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('" + id + "', 't')");
        EXPECT_EQ(read(*reader, batch), std::vector<std::string>{id});
    }
}

TEST_F(SqliteSource, AFullDiskLosesNothingAndRecordingGoesOnAfterwards) {
    const Sent sent = two_are_sent();
    const auto& [source, recorder, reader, lease, positions, done] = sent;
    {
        const FullDisk full;
        for (int attempt = 0; attempt < 3; ++attempt) {
            const Status status = recorder->record(done);
            ASSERT_FALSE(status.ok());
            EXPECT_EQ(status.error().code, ErrorCode::kDiskFull);
            EXPECT_EQ(status.error().advice, Advice::kRetryDestination);
        }
        EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_events"), 2);
        spi::EventBatch again;
        EXPECT_TRUE(reader->fetch(positions, again).ok());
        EXPECT_EQ(again.size(), 2U);
    }
    ASSERT_TRUE(recorder->record(done).ok());
    ASSERT_TRUE(recorder->remove(done.epoch, positions).ok());
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_events"), 0);
}

// SQLite passes over the error and ends the transaction: what comes behind it would be committed
// statement by statement.
TEST_F(SqliteSource, AnalysisThatCannotBeReadEndsNoTransactionUnderARecord) {
    db_.exec("ANALYZE");
    const Sent sent = two_are_sent();
    const auto segments = [&] { return db_.number("SELECT count(*) FROM outbox_ledger_segments"); };
    ASSERT_EQ(segments(), 0);
    make_analysis_unreadable();
    const Status status = sent.recorder->record(sent.done);
    ASSERT_TRUE(FullDisk::has_failed());
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("the schema could not be read whole"));
    EXPECT_EQ(segments(), 0);
    ASSERT_TRUE(sent.recorder->record(sent.done).ok());
    EXPECT_EQ(segments(), 1);
}

TEST_F(SqliteSource, AnalysisThatCannotBeReadLeavesNoEventWithoutItsTransaction) {
    db_.exec("CREATE TABLE business (n int); INSERT INTO outbox_events (topic) VALUES ('t')");
    db_.exec("ANALYZE");
    Sqlite service(path_);
    service.exec("BEGIN IMMEDIATE; INSERT INTO business VALUES (1)");
    static_cast<void>(emit(service.handle(), "t", "1"));
    service.exec("COMMIT");
    for (const char* begin : {"BEGIN IMMEDIATE", "BEGIN"}) {
        make_analysis_unreadable();
        service.exec(begin);
        try {
            static_cast<void>(emit(service.handle(), "t", "2"));
            ADD_FAILURE() << begin << ": it is written, and nothing of its transaction is";
        } catch (const Error& error) {
            EXPECT_THAT(error.what(), HasSubstr("the schema could not be read whole"));
        }
        ASSERT_TRUE(FullDisk::has_failed());
        EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_events"), 2) << begin;
        db_.exec("DROP TABLE beside");
    }
    make_analysis_unreadable();
    EXPECT_THROW(static_cast<void>(begin_unit_of_work(service.handle())), Error);
    ASSERT_TRUE(FullDisk::has_failed());
}

// With an error, with one that ends the transaction, and without a word: it concerns those rows.
TEST_F(SqliteSource, RowsThatATriggerKeepsStayFinishedAndTheRestIsRemoved) {
    for (const char* how : {"BEFORE ABORT, 'no'", "BEFORE FAIL, 'no'", "BEFORE ROLLBACK, 'no'",
                            "BEFORE IGNORE", "AFTER FAIL, 'no'"}) {
        db_.exec(
            "DROP TRIGGER IF EXISTS keep; DELETE FROM outbox_events; DELETE FROM sqlite_sequence");
        const std::string words = how;
        const auto space = words.find(' ');
        db_.exec("CREATE TRIGGER keep " + words.substr(0, space) +
                 " DELETE ON outbox_events WHEN OLD.key = 'kept' BEGIN SELECT RAISE(" +
                 words.substr(space + 1) + "); END");
        std::vector<spi::Position> positions;
        for (int n = 1; n <= 9; ++n) {
            db_.exec("INSERT INTO outbox_events (topic, key) VALUES ('t', '" +
                     std::string(n % 3 == 2 ? "kept" : "free") + "')");
            positions.push_back(n);
        }
        const auto source = open();
        const auto recorder = value_of(source->open_recorder());
        const auto lease = value_of(source->open_lease());
        spi::RecordBatch done = begin(*lease, *recorder);
        done.finished.push_back({0, positions});
        ASSERT_TRUE(recorder->record(done).ok());
        const auto removed = value_of(recorder->remove(done.epoch, positions));
        EXPECT_THAT(removed.positions, testing::ElementsAre(1, 3, 4, 6, 7, 9)) << how;
        EXPECT_FALSE(removed.refusal.empty()) << how;
        EXPECT_EQ(removed.kept, 3U) << how;
        EXPECT_EQ(db_.value("SELECT group_concat(position) FROM outbox_events"), "2,5,8") << how;
        // They are no backlog, and hide none.
        db_.exec("UPDATE outbox_events SET occurred_at = occurred_at - 3600000000");
        spi::Recorder::Stats stats = value_of(recorder->stats());
        EXPECT_EQ(stats.backlog, 0) << how;
        EXPECT_EQ(stats.oldest_age_s, 0) << how;
        db_.exec(
            "INSERT INTO outbox_events (topic, occurred_at) SELECT 't', min(occurred_at) + "
            "1800000000 FROM outbox_events");
        stats = value_of(recorder->stats());
        EXPECT_EQ(stats.backlog, 1) << how;
        EXPECT_NEAR(stats.oldest_age_s, 1800, 100) << how;
        // Nothing is sent again by who comes next.
        EXPECT_TRUE(value_of(source->open_recorder())
                        ->begin(done.epoch, std::vector<spi::RouteName>{{"default", {}}})
                        .ok());
        const auto reader = value_of(source->open_reader("default", {}));
        const auto ledger =
            value_of(recorder->begin(done.epoch, std::vector<spi::RouteName>{{"default", {}}}));
        ASSERT_EQ(ledger.routes.size(), 1U);
        for (const spi::Position kept : {2, 5, 8}) {
            EXPECT_TRUE(ledger.routes[0].finished.contains(kept)) << how;
        }
    }
}

// The other one may have read on since the highest number was asked for.
TEST_F(SqliteSource, ReadersOfTwoRoutesDoNotTakeEachOthersReadsForAnOlderState) {
    db_.exec("PRAGMA synchronous = OFF");
    const auto source = open();
    std::atomic<bool> over{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (const char* route : {"first", "second"}) {
        threads.emplace_back([&, route] {
            const auto reader = value_of(source->open_reader(route, {}));
            spi::EventBatch batch;
            while (!over) {
                batch.clear();
                if (!reader->read(kAll, batch).ok()) ++wrong;
            }
        });
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1'500);
    while (std::chrono::steady_clock::now() < until) {
        db_.exec("INSERT INTO outbox_events (topic) VALUES ('t')");
    }
    over = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
}

TEST_F(SqliteSource, ARowNumberedByHandBelowAllIsNoEventOfARoute) {
    db_.exec("INSERT INTO outbox_events (position, id, topic) VALUES (-5, 'a', 't')");
    const auto source = open();
    const auto recorder = value_of(source->open_recorder());
    const auto lease = value_of(source->open_lease());
    const spi::RecordBatch term = begin(*lease, *recorder);
    const std::vector<spi::RouteName> others{{"another", {}}};
    EXPECT_TRUE(recorder->begin(term.epoch, others).ok());
}

// Of those that are due: one that a trigger refuses waits, and holds no other.
TEST_F(SqliteSource, ADelayedEventThatTheTableRefusesHoldsNoOther) {
    for (const char* how : {"BEFORE ABORT, 'no'", "BEFORE ROLLBACK, 'no'", "AFTER ABORT, 'no'",
                            "AFTER ROLLBACK, 'no'", "AFTER FAIL, 'no'", "BEFORE IGNORE"}) {
        db_.exec(
            "DELETE FROM outbox_scheduled; DELETE FROM outbox_events; DROP TRIGGER IF EXISTS "
            "refuse");
        const std::string words = how;
        const auto space = words.find(' ');
        db_.exec("CREATE TRIGGER refuse " + words.substr(0, space) +
                 " INSERT ON outbox_events WHEN NEW.key = 'refused' BEGIN SELECT RAISE(" +
                 words.substr(space + 1) + "); END");
        for (const char* key : {"a", "refused", "b", "refused", "c"}) {
            db_.exec("INSERT INTO outbox_scheduled (available_at, topic, key) VALUES (1, 't', '" +
                     std::string(key) + "')");
        }
        const auto source = open();
        const auto recorder = value_of(source->open_recorder());
        const auto lease = value_of(source->open_lease());
        const spi::RecordBatch term = begin(*lease, *recorder);
        EXPECT_EQ(value_of(recorder->move_due(term.epoch, 10)), 3U) << how;
        EXPECT_EQ(value_of(recorder->move_due(term.epoch, 10)), 0U) << how;
        EXPECT_EQ(db_.value("SELECT group_concat(key) FROM outbox_events"), "a,b,c") << how;
        EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_scheduled"), 2) << how;
        EXPECT_FALSE(value_of(recorder->stats()).due_refusal.empty()) << how;
    }
}

TEST_F(SqliteSource, HoweverManyDelayedEventsAreRefusedTheOthersAreMoved) {
    db_.exec(
        "CREATE TRIGGER refuse BEFORE INSERT ON outbox_events WHEN NEW.key = 'refused' BEGIN "
        "SELECT RAISE(ABORT, 'no'); END; WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 "
        "FROM n WHERE i < 2500) INSERT INTO outbox_scheduled (available_at, topic, key) SELECT 5, "
        "'t', 'refused' FROM n; INSERT INTO outbox_scheduled (available_at, topic, key) VALUES "
        "(5, 't', 'last')");
    const auto source = open();
    const auto recorder = value_of(source->open_recorder());
    const auto lease = value_of(source->open_lease());
    const spi::RecordBatch term = begin(*lease, *recorder);
    std::size_t moved = 0;
    for (int turn = 0; turn < 3; ++turn) moved += value_of(recorder->move_due(term.epoch, 1000));
    EXPECT_EQ(moved, 1U);
    EXPECT_EQ(db_.value("SELECT group_concat(key) FROM outbox_events"), "last");
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_scheduled"), 2500);
}

TEST_F(SqliteSource, HoweverManyRowsMayNotBePrunedTheOthersAre) {
    db_.exec(
        "CREATE TABLE outbox (id TEXT PRIMARY KEY, event_type TEXT, payload TEXT, created_at TEXT "
        "DEFAULT '2020-01-01T00:00:00.000Z', published_at TEXT DEFAULT '2020-01-01T00:00:00.000Z', "
        "retry_count INTEGER DEFAULT 0, status TEXT DEFAULT 'PUBLISHED'); WITH RECURSIVE n (i) AS "
        "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10500) INSERT INTO outbox (id, "
        "event_type) SELECT 'kept' || i, 'Made' FROM n; INSERT INTO outbox (id, event_type) VALUES "
        "('free1', 'Made'), ('free2', 'Made'); CREATE TRIGGER keep BEFORE DELETE ON outbox WHEN "
        "OLD.id LIKE 'kept%' BEGIN SELECT RAISE(ABORT, 'on legal hold'); END");
    sqlite::SqliteSourceConfig config;
    config.url = url_;
    config.table = "outbox";
    const auto source = value_of(sqlite::make_sqlite_source(config));
    const auto recorder = value_of(source->open_recorder());
    EXPECT_EQ(value_of(recorder->prune(60s, 1000)), 2U);
    const auto none = recorder->prune(60s, 1000);
    ASSERT_FALSE(none.ok());
    EXPECT_THAT(none.error().message, HasSubstr("keeps 10500 rows"));
    EXPECT_THAT(none.error().message, HasSubstr("on legal hold"));
    db_.exec("DROP TRIGGER keep");
    EXPECT_EQ(value_of(recorder->prune(60s, 1000)), 1000U);
}

// `outbox prune` serves no tenant, whichever relays there are.
TEST_F(SqliteSource, NoRowIsPrunedThatIsDeadForARelayOfSomeTenants) {
    db_.exec(
        "CREATE TABLE outbox (id TEXT PRIMARY KEY, event_type TEXT, payload TEXT, created_at TEXT "
        "DEFAULT '2020-01-01T00:00:00.000Z', processed_at TEXT DEFAULT "
        "'2020-01-01T00:00:00.000Z'); "
        "INSERT INTO outbox (id, event_type) VALUES ('dead', 'Made'), ('sent', 'Made'), "
        "('another', 'Made'); INSERT INTO outbox_dead_letters (source, route, id, attempts, "
        "error_code, error, died_at) VALUES ('outbox/acme', 'out', 'dead', 1, 'OB_X', 'x', 1), "
        "('outbox2', 'out', 'another', 1, 'OB_X', 'x', 1)");
    sqlite::SqliteSourceConfig config;
    config.url = url_;
    config.table = "outbox";
    const auto source = value_of(sqlite::make_sqlite_source(config));
    const auto recorder = value_of(source->open_recorder());
    EXPECT_EQ(value_of(recorder->prunable(60s)), 2);
    EXPECT_EQ(value_of(recorder->prune(60s, 1000)), 2U);
    EXPECT_EQ(db_.value("SELECT group_concat(id) FROM outbox"), "dead");
}

// How often a trigger of the owner's has run, in transactions that were ended, too.
std::atomic<int> trigger_runs = 0;

int add_counter(sqlite3* database, const char** /*error*/, const sqlite3_api_routines* /*api*/) {
    return sqlite3_create_function(
        database, "count_run", 0, SQLITE_UTF8 | SQLITE_INNOCUOUS, nullptr,
        [](sqlite3_context* context, int, sqlite3_value**) {
            sqlite3_result_int(context, ++trigger_runs);
        },
        nullptr, nullptr);
}

TEST_F(SqliteSource, TriggersThatEndTheTransactionCostNoOtherRowMuch) {
    sqlite3_auto_extension(reinterpret_cast<void (*)()>(add_counter));
    db_.exec(
        "CREATE TRIGGER keep BEFORE DELETE ON outbox_events BEGIN SELECT count_run(); SELECT "
        "RAISE(ROLLBACK, 'no') WHERE OLD.key = 'kept'; END; CREATE TRIGGER refuse BEFORE INSERT ON "
        "outbox_events BEGIN SELECT count_run(); SELECT RAISE(ROLLBACK, 'no') WHERE NEW.key = "
        "'kept'; END; WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < "
        "200) INSERT INTO outbox_scheduled (available_at, topic, key) SELECT 5, 't', iif(i % 2, "
        "'free', 'kept') FROM n");
    const auto source = open();
    const auto recorder = value_of(source->open_recorder());
    const auto lease = value_of(source->open_lease());
    spi::RecordBatch term = begin(*lease, *recorder);
    trigger_runs = 0;
    std::size_t moved = 0;
    for (int turn = 0; turn < 200 && moved < 100; ++turn) {
        moved += value_of(recorder->move_due(term.epoch, 1000));
    }
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_events"), 100);
    EXPECT_LE(trigger_runs, 3 * 200);

    db_.exec("DROP TRIGGER refuse; UPDATE outbox_events SET key = 'kept' WHERE position % 2 = 0");
    std::vector<spi::Position> positions;
    for (int n = 1; n <= 100; ++n) positions.push_back(n);
    term.finished.push_back({0, positions});
    ASSERT_TRUE(recorder->record(term).ok());
    trigger_runs = 0;
    spi::Removed removed = value_of(recorder->remove(term.epoch, positions));
    for (int turn = 0; turn < 100 && removed.left > 0; ++turn) {
        removed = value_of(recorder->remove(term.epoch, {}));
    }
    EXPECT_EQ(db_.value("SELECT min(key) || max(key) || count(*) FROM outbox_events"),
              "keptkept50");
    EXPECT_LE(trigger_runs, 3 * 100);
    EXPECT_THAT(removed.refusal, HasSubstr("no"));
    // It is known of no row for longer than that.
    db_.exec("DROP TRIGGER keep");
    EXPECT_EQ(value_of(recorder->remove(term.epoch, positions)).left, 0U);
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_events"), 0);
    sqlite3_cancel_auto_extension(reinterpret_cast<void (*)()>(add_counter));
}

TEST_F(SqliteSource, ABusyWriterIsWaitedForNotFatal) {
    sqlite::SqliteSourceConfig config;
    config.url = url_;
    config.busy_timeout_ms = 1;
    const auto source = value_of(sqlite::make_sqlite_source(config));
    const auto recorder = value_of(source->open_recorder());
    const auto lease = value_of(source->open_lease());
    spi::RecordBatch done = begin(*lease, *recorder);
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't'); BEGIN IMMEDIATE");
    done.finished.push_back({0, {1}});
    const Status status = recorder->record(done);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().advice, Advice::kRetryDestination);
    db_.exec("COMMIT");
    EXPECT_TRUE(recorder->record(done).ok());
}

// Holds the lease in a process of its own.
class LeaseHolder {
  public:
    LeaseHolder(const std::string& url, std::chrono::milliseconds ttl) {
        int ready[2];
        if (pipe(ready) != 0) throw std::runtime_error("no pipe");
        pid_ = fork();
        if (pid_ == 0) {
            sqlite::SqliteSourceConfig config;
            config.url = url;
            auto source = sqlite::make_sqlite_source(config);
            auto lease = (*source)->open_lease();
            const auto epoch = (*lease)->acquire("child", ttl);
            const char got = epoch.ok() && epoch->has_value() ? 'y' : 'n';
            if (write(ready[1], &got, 1) != 1) _exit(1);
            while (true) pause();
        }
        close(ready[1]);
        char got = 'n';
        if (read(ready[0], &got, 1) != 1 || got != 'y') {
            ADD_FAILURE() << "the other process got no lease";
        }
        close(ready[0]);
    }
    ~LeaseHolder() { die(); }
    LeaseHolder(const LeaseHolder&) = delete;
    LeaseHolder& operator=(const LeaseHolder&) = delete;

    void die() {
        if (pid_ <= 0) return;
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }

  private:
    pid_t pid_ = -1;
};

TEST_F(SqliteSource, TheLeaseOfAKilledProcessIsFreeAtOnce) {
    LeaseHolder holder(url_, 600s);
    const auto source = open();
    const auto lease = value_of(source->open_lease());
    EXPECT_FALSE(value_of(lease->acquire("me", 600s)));
    holder.die();
    EXPECT_TRUE(value_of(lease->acquire("me", 600s)));
    EXPECT_EQ(db_.number("SELECT locked FROM outbox_lease"), 1);
}

// The hung owner keeps the flock; its death must not look like the death of its successor.
TEST_F(SqliteSource, ASuccessorOfAHungOwnerKeepsItsLeaseWhenThatOneDies) {
    LeaseHolder hung(url_, 1ms);
    const auto source = open();
    const auto successor = value_of(source->open_lease());
    const auto third = value_of(source->open_lease());
    std::optional<std::uint64_t> epoch;
    ASSERT_TRUE(eventually(60s, "the lease expires", [&] {
        epoch = value_of(successor->acquire("successor", 600s));
        return epoch.has_value();
    }));
    EXPECT_EQ(db_.number("SELECT locked FROM outbox_lease"), 0);
    EXPECT_FALSE(value_of(third->acquire("third", 600s)));
    hung.die();
    EXPECT_FALSE(value_of(third->acquire("third", 600s)));
    EXPECT_TRUE(value_of(successor->renew(*epoch, 600s)));
    EXPECT_EQ(db_.number("SELECT locked FROM outbox_lease"), 1);
    EXPECT_FALSE(value_of(third->acquire("third", 600s)));
    ASSERT_TRUE(successor->release(*epoch).ok());
    EXPECT_TRUE(value_of(third->acquire("third", 600s)));
}

TEST_F(SqliteSource, AnOwnerWhoseRenewalFoundAnotherWriterKeepsItsLock) {
    sqlite::SqliteSourceConfig config;
    config.url = url_;
    config.busy_timeout_ms = 1;
    const auto source = value_of(sqlite::make_sqlite_source(config));
    const auto lease = value_of(source->open_lease());
    const auto epoch = value_of(lease->acquire("me", 600s));
    ASSERT_TRUE(epoch);
    db_.exec("BEGIN IMMEDIATE");
    const auto renewed = lease->renew(*epoch, 600s);
    ASSERT_FALSE(renewed.ok());
    EXPECT_EQ(renewed.error().advice, Advice::kRetryDestination);
    db_.exec("COMMIT");
    EXPECT_FALSE(value_of(value_of(source->open_lease())->acquire("other", 600s)));
    EXPECT_TRUE(value_of(lease->renew(*epoch, 600s)));
}

// `mv backup shop.db` under a running relay: what is open is another file by now.
TEST_F(SqliteSource, AReplacedFileEndsTheTermAndTheNextOneReadsIt) {
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't')");
    std::filesystem::copy_file(path_, path_ + ".backup");
    const auto source = open();
    const auto recorder = value_of(source->open_recorder());
    const auto lease = value_of(source->open_lease());
    const spi::RecordBatch term = begin(*lease, *recorder);
    const auto reader = value_of(source->open_reader("default", {}));
    spi::EventBatch batch;
    ASSERT_EQ(read(*reader, batch).size(), 1U);
    ASSERT_TRUE(read(*reader, batch).empty());
    std::filesystem::rename(path_ + ".backup", path_);
    Sqlite now(path_);
    now.exec("INSERT INTO outbox_events (id, topic) VALUES ('b', 't')");
    spi::RecordBatch done;
    done.epoch = term.epoch;
    done.finished.push_back({0, {1}});
    EXPECT_EQ(reader->read(kAll, batch).error().code, ErrorCode::kServerChanged);
    EXPECT_EQ(recorder->record(done).error().code, ErrorCode::kServerChanged);
    EXPECT_EQ(lease->renew(term.epoch, 600s).error().code, ErrorCode::kServerChanged);
    EXPECT_EQ(now.number("SELECT count(*) FROM outbox_ledger_segments"), 0);
    const auto next = value_of(source->open_reader("default", {}));
    EXPECT_EQ(read(*next, batch), (std::vector<std::string>{"a", "b"}));
}

// As where its volume is away meanwhile, or the disk fails.
TEST_F(SqliteSource, AFileThatIsReplacedAsNobodyHasItOpenIsAnotherOneToo) {
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't')");
    std::filesystem::copy_file(path_, path_ + ".backup");
    const auto source = open();
    const auto reader = value_of(source->open_reader("default", {}));
    spi::EventBatch batch;
    ASSERT_EQ(read(*reader, batch).size(), 1U);
    db_.exec("ALTER TABLE outbox_events RENAME TO hidden");
    ASSERT_FALSE(reader->read(kAll, batch).ok());  // it lets go of the file
    std::filesystem::rename(path_ + ".backup", path_);
    const Status status = reader->read(kAll, batch);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kServerChanged) << status.error().message;
}

// What `.restore` of the shell does: another content in the same file.
// A term that begins while the file is away has parts that never saw it.
TEST_F(SqliteSource, AFileThatIsAwayIsWaitedForByPartsThatNeverSawIt) {
    const auto source = open();
    const auto expect_waits = [](const ErrorInfo& error) {
        EXPECT_EQ(error.advice, Advice::kRetryDestination) << error.message;
        EXPECT_THAT(error.message, HasSubstr("is its volume there?"));
    };
    const auto expect_all_wait = [&] {
        const auto lease = value_of(source->open_lease());
        expect_waits(lease->acquire("test", 10min).error());
        const auto recorder = value_of(source->open_recorder());
        const std::vector<spi::RouteName> routes{{"default", {}}};
        expect_waits(recorder->begin(1, routes).error());
        const auto reader = value_of(source->open_reader("default", {}));
        spi::EventBatch batch;
        expect_waits(reader->read(kAll, batch).error());
    };
    const TemporaryFolder elsewhere("elsewhere");
    std::filesystem::rename(path_, elsewhere / "shop.db");
    expect_all_wait();
    std::filesystem::rename(elsewhere / "shop.db", path_);
    std::filesystem::rename(folder_.path(), elsewhere / "volume");
    expect_all_wait();
    std::filesystem::rename(elsewhere / "volume", folder_.path());
    EXPECT_TRUE(value_of(value_of(source->open_lease())->acquire("test", 10min)).has_value());
}

TEST_F(SqliteSource, AnOlderStateThatIsRestoredInPlaceEndsTheTermAndTheNextOneReadsIt) {
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't')");
    db_.exec("VACUUM INTO " + ("'" + path_ + ".backup'"));
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('b', 't'), ('c', 't')");
    const auto source = open();
    const auto reader = value_of(source->open_reader("default", {}));
    spi::EventBatch batch;
    ASSERT_EQ(read(*reader, batch).size(), 3U);
    const Finished restored = run({{"sqlite3", path_, ".restore '" + path_ + ".backup'",
                                    "INSERT INTO outbox_events (id, topic) VALUES ('d', 't')"}});
    ASSERT_EQ(restored.status.code, 0) << restored.err;
    batch.clear();
    const Status status = reader->read(kAll, batch);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kServerChanged);
    source->begin_term();
    const auto next = value_of(source->open_reader("default", {}));
    EXPECT_EQ(read(*next, batch), (std::vector<std::string>{"a", "d"}));
}

// As where writers go on while the term ends: its numbering is soon past the old one's end.
TEST_F(SqliteSource, AnOlderStateThatOneHasSeenIsOneForTheRestOfTheTermWhateverIsWrittenToIt) {
    const auto source = open();
    const auto recorder = value_of(source->open_recorder());
    const auto lease = value_of(source->open_lease());
    spi::RecordBatch done = begin(*lease, *recorder);
    db_.exec("VACUUM INTO " + ("'" + path_ + ".backup'"));
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't'), ('b', 't')");
    const auto reader = value_of(source->open_reader("default", {}));
    spi::EventBatch batch;
    ASSERT_EQ(read(*reader, batch).size(), 2U);
    const Finished restored = run({{"sqlite3", path_, ".restore '" + path_ + ".backup'"}});
    ASSERT_EQ(restored.status.code, 0) << restored.err;
    batch.clear();
    ASSERT_EQ(reader->read(kAll, batch).error().code, ErrorCode::kServerChanged);
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('c', 't'), ('d', 't'), ('e', 't')");
    done.finished.push_back({0, {1, 2}});
    const Status late = recorder->record(done);
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code, ErrorCode::kServerChanged);
    source->begin_term();
    ASSERT_TRUE(recorder->begin(done.epoch, std::vector<spi::RouteName>{{"default", {}}}).ok());
    const auto next = value_of(source->open_reader("default", {}));
    EXPECT_EQ(read(*next, batch), (std::vector<std::string>{"c", "d", "e"}));
}

TEST_F(SqliteSource, AJournalThatCannotBeOpenedIsWaitedFor) {
    db_.exec("PRAGMA journal_mode = DELETE");
    const auto source = open();
    const auto recorder = value_of(source->open_recorder());
    const auto lease = value_of(source->open_lease());
    spi::RecordBatch done = begin(*lease, *recorder);
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't')");
    done.finished.push_back({0, {1}});
    // No descriptor is left.
    const int next = dup(0);
    close(next);
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    const Status status = recorder->record(done);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kConnectFailed) << status.error().message;
    EXPECT_EQ(status.error().advice, Advice::kRetryDestination) << status.error().message;
    EXPECT_TRUE(recorder->record(done).ok());
}

// The ledger knows of more than this reader has read.
TEST_F(SqliteSource,
       ATableThatBeginsAnewBeforeAnythingOfItIsReadEndsTheTermThatKnowsOlderPositions) {
    const auto source = open();
    spi::PositionSet finished;
    finished.add(spi::Position{3});
    const auto reader = value_of(source->open_reader("default", std::move(finished)));
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't')");
    spi::EventBatch batch;
    const Status status = reader->read(kAll, batch);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kServerChanged);
    EXPECT_EQ(batch.size(), 0U);
}

// What is due would take it past the old one's end before anybody looks.
TEST_F(SqliteSource, NothingIsWrittenForATableThatBeganAnewUnderATermNorMovedIntoIt) {
    const auto source = open();
    const auto recorder = value_of(source->open_recorder());
    const auto lease = value_of(source->open_lease());
    spi::RecordBatch done = begin(*lease, *recorder);
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't'), ('b', 't')");
    const auto reader = value_of(source->open_reader("default", {}));
    spi::EventBatch batch;
    ASSERT_EQ(read(*reader, batch).size(), 2U);
    db_.exec(
        "DELETE FROM outbox_events; DELETE FROM sqlite_sequence WHERE name = 'outbox_events'; "
        "INSERT INTO outbox_scheduled (available_at, id, topic) VALUES (1, 'c', 't'), "
        "(1, 'd', 't'), (1, 'e', 't')");
    EXPECT_EQ(recorder->move_due(done.epoch, 10).error().code, ErrorCode::kServerChanged);
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_scheduled"), 3);
    const std::vector<spi::Position> both{1, 2};
    done.finished.push_back({0, both});
    EXPECT_EQ(recorder->record(done).error().code, ErrorCode::kServerChanged);
    EXPECT_EQ(recorder->remove(done.epoch, both).error().code, ErrorCode::kServerChanged);

    source->begin_term();
    const auto next = value_of(source->open_recorder());
    const std::vector<spi::RouteName> routes{{"default", {}}};
    auto begun = value_of(next->begin(done.epoch, routes));
    EXPECT_EQ(value_of(next->move_due(done.epoch, 10)), 3U);
    const auto again =
        value_of(source->open_reader("default", std::move(begun.routes[0].finished)));
    EXPECT_EQ(read(*again, batch), (std::vector<std::string>{"c", "d", "e"}));
}

// Its numbering is past the old one's end before anybody looks.
TEST_F(SqliteSource, AnOlderStateThatWasWrittenOnEndsTheTermThatStillHoldsItsLease) {
    const auto source = open();
    const auto recorder = value_of(source->open_recorder());
    const auto lease = value_of(source->open_lease());
    spi::RecordBatch done = begin(*lease, *recorder);
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't')");
    db_.exec("VACUUM INTO " + ("'" + path_ + ".backup'"));
    ASSERT_TRUE(value_of(lease->renew(done.epoch, 600s)));
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('b', 't'), ('c', 't')");
    const auto reader = value_of(source->open_reader("default", {}));
    spi::EventBatch batch;
    ASSERT_EQ(read(*reader, batch).size(), 3U);
    const Finished restored = run({{"sqlite3", path_, ".restore '" + path_ + ".backup'",
                                    "INSERT INTO outbox_events (id, topic) VALUES ('d', 't'), "
                                    "('e', 't'), ('f', 't')"}});
    ASSERT_EQ(restored.status.code, 0) << restored.err;
    batch.clear();
    const Status status = reader->read(kAll, batch);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kServerChanged) << status.error().message;
    EXPECT_EQ(batch.size(), 0U);
    const std::vector<spi::Position> second{2};
    EXPECT_EQ(reader->fetch(second, batch).error().code, ErrorCode::kServerChanged);
    done.finished.push_back({0, {2, 3}});
    EXPECT_EQ(recorder->record(done).error().code, ErrorCode::kServerChanged);
    EXPECT_EQ(recorder->remove(done.epoch, second).error().code, ErrorCode::kServerChanged);
    EXPECT_FALSE(value_of(lease->renew(done.epoch, 600s))) << "nor is the lease renewed";
    EXPECT_EQ(recorder->record(done).error().code, ErrorCode::kServerChanged);
    const auto epoch = value_of(lease->acquire("test", 600s));
    ASSERT_TRUE(epoch);
    source->begin_term();
    const auto next = value_of(source->open_recorder());
    const std::vector<spi::RouteName> routes{{"default", {}}};
    auto begun = value_of(next->begin(*epoch, routes));
    const auto again =
        value_of(source->open_reader("default", std::move(begun.routes[0].finished)));
    EXPECT_EQ(read(*again, batch), (std::vector<std::string>{"a", "d", "e", "f"}));
}

// The lease says nothing of a copy from after it was last renewed.
TEST_F(SqliteSource, AnOlderStateFromAfterTheLastRenewalIsToldByTheRowThatWasReadLast) {
    const auto source = open();
    const auto recorder = value_of(source->open_recorder());
    const auto lease = value_of(source->open_lease());
    spi::RecordBatch done = begin(*lease, *recorder);
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't')");
    const auto reader = value_of(source->open_reader("default", {}));
    spi::EventBatch batch;
    ASSERT_EQ(read(*reader, batch), (std::vector<std::string>{"a"}));
    db_.exec("VACUUM INTO " + ("'" + path_ + ".backup'"));
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('b', 't'), ('c', 't')");
    ASSERT_EQ(read(*reader, batch), (std::vector<std::string>{"b", "c"}));
    const Finished restored = run({{"sqlite3", path_, ".restore '" + path_ + ".backup'",
                                    "INSERT INTO outbox_events (id, topic) VALUES ('d', 't'), "
                                    "('e', 't'), ('f', 't')"}});
    ASSERT_EQ(restored.status.code, 0) << restored.err;
    done.finished.push_back({0, {1, 2, 3}});
    const Status late = recorder->record(done);
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code, ErrorCode::kServerChanged);
    EXPECT_EQ(reader->read(kAll, batch).error().code, ErrorCode::kServerChanged);
    source->begin_term();
    const auto next = value_of(source->open_recorder());
    const std::vector<spi::RouteName> routes{{"default", {}}};
    auto begun = value_of(next->begin(done.epoch, routes));
    const auto again =
        value_of(source->open_reader("default", std::move(begun.routes[0].finished)));
    EXPECT_EQ(read(*again, batch), (std::vector<std::string>{"a", "d", "e", "f"}));
}

// What was recorded since would not be sent again before the next start, nor its rows removed.
TEST_F(SqliteSource, AnOlderStateFromBeforeARemovalIsToldByTheRowThatIsThereAgain) {
    const auto source = open();
    const auto recorder = value_of(source->open_recorder());
    const auto lease = value_of(source->open_lease());
    spi::RecordBatch done = begin(*lease, *recorder);
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't'), ('b', 't')");
    const auto reader = value_of(source->open_reader("default", {}));
    spi::EventBatch batch;
    ASSERT_EQ(read(*reader, batch).size(), 2U);
    db_.exec("VACUUM INTO " + ("'" + path_ + ".backup'"));
    done.finished.push_back({0, {1}});
    const std::vector<spi::Position> first{1};
    ASSERT_TRUE(recorder->record(done).ok());
    ASSERT_EQ(value_of(recorder->remove(done.epoch, first)).positions, first);
    const Finished restored = run({{"sqlite3", path_, ".restore '" + path_ + ".backup'"}});
    ASSERT_EQ(restored.status.code, 0) << restored.err;
    done.finished = {{0, {2}}};
    const Status late = recorder->record(done);
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code, ErrorCode::kServerChanged);
}

TEST_F(SqliteSource, RowsThatTheirOwnerDeletesEndNoTerm) {
    const auto source = open();
    const auto recorder = value_of(source->open_recorder());
    const auto lease = value_of(source->open_lease());
    spi::RecordBatch done = begin(*lease, *recorder);
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't'), ('b', 't')");
    const auto reader = value_of(source->open_reader("default", {}));
    spi::EventBatch batch;
    ASSERT_EQ(read(*reader, batch).size(), 2U);
    db_.exec("DELETE FROM outbox_events");
    done.finished.push_back({0, {1, 2}});
    ASSERT_TRUE(recorder->record(done).ok());
    const std::vector<spi::Position> both{1, 2};
    ASSERT_EQ(value_of(recorder->remove(done.epoch, both)).positions, both);
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('c', 't')");
    EXPECT_EQ(read(*reader, batch), (std::vector<std::string>{"c"}));
}

// As where a relay stands still while its file is set back and another one takes over, both called
// the same, as containers may be.
TEST_F(SqliteSource,
       AnotherOwnersLeaseInARestoredStateIsNotTakenForOnesOwnThoughItsEpochIsTheSame) {
    db_.exec("VACUUM INTO " + ("'" + path_ + ".backup'"));
    const auto source = open();
    const auto recorder = value_of(source->open_recorder());
    const auto lease = value_of(source->open_lease());
    spi::RecordBatch done = begin(*lease, *recorder);
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't'), ('b', 't')");
    const auto reader = value_of(source->open_reader("default", {}));
    spi::EventBatch batch;
    ASSERT_EQ(read(*reader, batch).size(), 2U);
    const Finished restored = run({{"sqlite3", path_, ".restore '" + path_ + ".backup'",
                                    "INSERT INTO outbox_events (id, topic) VALUES ('c', 't'), "
                                    "('d', 't'), ('e', 't')"}});
    ASSERT_EQ(restored.status.code, 0) << restored.err;
    const auto next = open();
    const auto successor = value_of(next->open_lease());
    ASSERT_EQ(value_of(successor->acquire("test", 1h)), done.epoch);

    batch.clear();
    const Status status = reader->read(kAll, batch);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kLeaseLost);
    const std::vector<spi::Position> both{1, 2};
    EXPECT_EQ(reader->fetch(both, batch).error().code, ErrorCode::kLeaseLost);
    EXPECT_EQ(batch.size(), 0U);
    done.finished.push_back({0, both});
    EXPECT_EQ(recorder->record(done).error().code, ErrorCode::kLeaseLost);
    EXPECT_EQ(recorder->remove(done.epoch, both).error().code, ErrorCode::kLeaseLost);
    EXPECT_FALSE(value_of(lease->renew(done.epoch, 2h)));
    EXPECT_EQ(recorder->record(done).error().code, ErrorCode::kLeaseLost);
    EXPECT_TRUE(value_of(successor->renew(done.epoch, 1h)));
    ASSERT_TRUE(lease->release(done.epoch).ok());
    EXPECT_TRUE(value_of(successor->renew(done.epoch, 1h))) << "nor does it free that one";
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_events"), 3);
}

// A clock that is set back is no older state.
TEST_F(SqliteSource, ALeaseThatIsRenewedForLessGoesOn) {
    const auto source = open();
    const auto recorder = value_of(source->open_recorder());
    const auto lease = value_of(source->open_lease());
    const spi::RecordBatch term = begin(*lease, *recorder);
    const auto reader = value_of(source->open_reader("default", {}));
    ASSERT_TRUE(value_of(lease->renew(term.epoch, 600s)));
    ASSERT_TRUE(value_of(lease->renew(term.epoch, 300s)));
    ASSERT_TRUE(value_of(lease->renew(term.epoch, 300s)));
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't')");
    spi::EventBatch batch;
    EXPECT_EQ(read(*reader, batch).size(), 1U);
}

TEST_F(SqliteSource, TenantsHaveLeasesOfTheirOwn) {
    const auto one = open({"one"});
    const auto two = open({"two"});
    const auto lease_one = value_of(one->open_lease());
    const auto lease_two = value_of(two->open_lease());
    EXPECT_TRUE(value_of(lease_one->acquire("a", 600s)));
    EXPECT_TRUE(value_of(lease_two->acquire("b", 600s)));
    EXPECT_EQ(db_.number("SELECT sum(locked) FROM outbox_lease"), 2);
}

// They would be kept for ever, and a relay of tenants would be refused on account of them.
TEST_F(SqliteSource, LedgersForgetWhatSomebodyElseHasRemoved) {
    db_.exec("INSERT INTO outbox_events (id, topic) VALUES ('a', 't'), ('b', 't')");
    const auto source = open();
    const auto lease = value_of(source->open_lease());
    const auto recorder = value_of(source->open_recorder());
    spi::RecordBatch batch;
    batch.epoch = value_of(lease->acquire("test", 600s)).value();
    const std::vector<spi::RouteName> routes{{"default", {}}, {"far", {}}};
    static_cast<void>(value_of(recorder->begin(batch.epoch, routes)));
    batch.finished.push_back({0, {1, 2}});
    ASSERT_TRUE(recorder->record(batch).ok());
    ASSERT_EQ(db_.number("SELECT count(*) FROM outbox_ledger_segments"), 1);
    db_.exec(
        "DELETE FROM outbox_events; INSERT INTO outbox_events (position, id, topic) VALUES "
        "(500000, 'c', 't')");
    EXPECT_EQ(value_of(recorder->tidy(batch.epoch)), 500'000);
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_ledger_segments"), 0);
    batch.finished = {{0, {500'000}}};
    ASSERT_TRUE(recorder->record(batch).ok());
    EXPECT_EQ(db_.number("SELECT segment FROM outbox_ledger_segments"), 500'000 / 65'536);
}

// Each would take the other's owner for gone, again and again.
TEST_F(SqliteSource, ALeaseIsOneByWhateverPathItsFileIsReached) {
    const std::string folder = path_ + "-elsewhere";
    std::filesystem::create_directory(folder);
    std::filesystem::create_symlink(path_, folder + "/link.db");
    const auto one = open();
    url_ = "sqlite://" + folder + "/link.db";
    const auto other = open();
    const auto lease = value_of(one->open_lease());
    const auto by_link = value_of(other->open_lease());
    ASSERT_TRUE(value_of(lease->acquire("a", 600s)));
    EXPECT_FALSE(value_of(by_link->acquire("b", 600s)));
    EXPECT_FALSE(sqlite::owner_is_gone(folder + "/link.db", "outbox_events"));
    EXPECT_FALSE(std::filesystem::exists(folder + "/link.db-outbox-lease"));
    std::filesystem::remove_all(folder);
}

TEST_F(SqliteSource, ManyTenantsWithLongNamesHaveALease) {
    std::vector<std::string> tenants;
    for (int i = 0; i < 20; ++i) tenants.push_back(new_event_id());
    const auto source = open(tenants);
    const auto lease = value_of(source->open_lease());
    EXPECT_TRUE(value_of(lease->acquire("a", 600s)));
    EXPECT_EQ(db_.number("SELECT sum(locked) FROM outbox_lease"), 1);
}

TEST_F(SqliteSource, ChecksTellTheJournalModeAndMissingRights) {
    const auto source = open();
    const auto findings = value_of(source->check());
    EXPECT_THAT(findings, testing::Contains(
                              testing::Field(&spi::Finding::text, HasSubstr("write-ahead log"))));
}

TEST_F(SqliteSource, MakesSideTablesThatAreMissing) {
    db_.exec("DROP TABLE outbox_route_stats; DROP TABLE outbox_lease");
    const auto source = open();
    const auto lease = value_of(source->open_lease());
    EXPECT_TRUE(value_of(lease->acquire("me", 1s)));
}

TEST_F(SqliteSource, WhatIsMadeBesideTheDatabaseIsItsOwnersAndNoLinkIsFollowed) {
    namespace fs = std::filesystem;
    constexpr auto kPrivate = fs::perms::owner_read | fs::perms::owner_write;
    const std::string path = url_.substr(std::string("sqlite://").size());
    const auto source = open();
    {
        const auto lease = value_of(source->open_lease());
        ASSERT_TRUE(value_of(lease->acquire("me", 1s)));
        for (const char* beside : {"", "-wal", "-shm", "-outbox-lease"}) {
            EXPECT_EQ(fs::status(path + beside).permissions(), kPrivate) << beside;
        }
    }
    fs::remove(path + "-outbox-lease");
    fs::create_symlink(path + "-elsewhere", path + "-outbox-lease");
    const auto lease = value_of(source->open_lease());
    const auto refused = lease->acquire("me", 1s);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kNoRights);
    EXPECT_FALSE(fs::exists(path + "-elsewhere"));
}

TEST_F(SqliteSource, RefusesToMarkWhereNothingCouldBeMarked) {
    sqlite::SqliteSourceConfig config;
    config.url = url_;
    config.after_publish = sqlite::AfterPublish::kMark;
    const ErrorInfo error = sqlite::make_sqlite_source(config).error();
    EXPECT_EQ(error.code, ErrorCode::kConfigInvalid);
    EXPECT_THAT(error.message, HasSubstr("use after_publish = delete"));
}

TEST_F(SqliteSource, NumbersThatComeAgainInAnAdoptedTableAreNewEvents) {
    db_.exec(
        "CREATE TABLE \"OutboxMessages\" (\"Id\" integer PRIMARY KEY, \"EventType\" text, "
        "\"Payload\" text, \"CreatedAt\" text, \"Processed\" integer DEFAULT 0)");
    const auto insert = [&](const std::string& content, int count) {
        for (int i = 0; i < count; ++i) {
            db_.exec(
                "INSERT INTO \"OutboxMessages\" (\"EventType\", \"Payload\") VALUES ('Made', '" +
                content + "')");
        }
    };
    const auto open_adopted = [&] {
        sqlite::SqliteSourceConfig config;
        config.url = url_;
        config.table = "OutboxMessages";
        return value_of(sqlite::make_sqlite_source(config));
    };
    const std::vector<spi::RouteName> routes{{"default", {}}, {"far", {}}};
    insert("old", 3);
    {
        const auto source = open_adopted();
        const auto lease = value_of(source->open_lease());
        const auto recorder = value_of(source->open_recorder());
        spi::RecordBatch batch;
        batch.epoch = value_of(lease->acquire("test", 600s)).value();
        static_cast<void>(value_of(recorder->begin(batch.epoch, routes)));
        const auto reader = value_of(source->open_reader("default", {}));
        spi::EventBatch events;
        ASSERT_EQ(read(*reader, events).size(), 3U);
        batch.finished.push_back({0, {}});
        for (const auto& event : events.events()) {
            batch.finished[0].positions.push_back(event.position);
        }
        spi::DeadLetter letter;
        letter.route = "far";
        letter.position = events.events()[0].position;
        letter.event.add_copy(events.events()[0]);
        batch.dead.push_back(std::move(letter));
        ASSERT_TRUE(recorder->record(batch).ok());
        ASSERT_TRUE(lease->release(batch.epoch).ok());
    }
    for (const bool anew : {false, true}) {
        if (anew) db_.exec("DELETE FROM \"OutboxMessages\"");
        if (anew) insert("new", 2);
        const auto source = open_adopted();
        const auto lease = value_of(source->open_lease());
        const auto recorder = value_of(source->open_recorder());
        const auto epoch = value_of(lease->acquire("test", 600s)).value();
        EXPECT_EQ(value_of(recorder->begin(epoch, routes)).notes.size(), anew ? 1U : 0U);
        const auto reader = value_of(source->open_reader("default", {}));
        spi::EventBatch events;
        EXPECT_EQ(read(*reader, events).size(), anew ? 2U : 0U);
        EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_dead_letters WHERE id LIKE '%:1" +
                             std::string(anew ? "~1" : "") + "'"),
                  1);
        ASSERT_TRUE(lease->release(epoch).ok());
    }
}

// Its numbers are given once: what was finished of the others is not sent again.
TEST_F(SqliteSource, ARowThatSomebodyRemovesIsNoNewBeginningWhereNumbersAreGivenOnce) {
    db_.exec(
        "CREATE TABLE \"OutboxMessages\" (\"Id\" integer PRIMARY KEY AUTOINCREMENT, "
        "\"EventType\" text, \"Payload\" text, \"CreatedAt\" text, \"Processed\" integer DEFAULT "
        "0)");
    const auto insert = [&](int count) {
        for (int i = 0; i < count; ++i) {
            db_.exec("INSERT INTO \"OutboxMessages\" (\"EventType\") VALUES ('Made')");
        }
    };
    insert(3);
    const std::vector<spi::RouteName> routes{{"default", {}}, {"far", {}}};
    // In a term of its own: what is new for the first route, how many notes there were.
    const auto term = [&] {
        sqlite::SqliteSourceConfig config;
        config.url = url_;
        config.table = "OutboxMessages";
        const auto source = value_of(sqlite::make_sqlite_source(config));
        const auto lease = value_of(source->open_lease());
        const auto recorder = value_of(source->open_recorder());
        spi::RecordBatch batch;
        batch.epoch = value_of(lease->acquire("test", 600s)).value();
        const std::size_t notes = value_of(recorder->begin(batch.epoch, routes)).notes.size();
        const auto reader = value_of(source->open_reader("default", {}));
        spi::EventBatch events;
        const std::size_t found = read(*reader, events).size();
        batch.finished.push_back({0, {}});
        for (const auto& event : events.events()) {
            batch.finished[0].positions.push_back(event.position);
        }
        EXPECT_TRUE(recorder->record(batch).ok());
        EXPECT_TRUE(lease->release(batch.epoch).ok());
        return std::pair(found, notes);
    };
    EXPECT_EQ(term(), std::pair(std::size_t{3}, std::size_t{0}));
    db_.exec("DELETE FROM \"OutboxMessages\" WHERE \"Id\" = 2");
    EXPECT_EQ(term(), std::pair(std::size_t{0}, std::size_t{0}));
    db_.exec("DELETE FROM \"OutboxMessages\"; DELETE FROM sqlite_sequence");
    insert(2);
    EXPECT_EQ(term(), std::pair(std::size_t{2}, std::size_t{1}));
}

// One route gives up on it once more as the other gets it through.
TEST_F(SqliteSource, ALetterIsForgottenByTheRouteThatPublishesItAlone) {
    db_.exec(
        "CREATE TABLE outbox (id TEXT PRIMARY KEY, event_type TEXT, payload TEXT, created_at TEXT "
        "DEFAULT (datetime('now')), published_at TEXT, retry_count INTEGER DEFAULT 0, status TEXT "
        "DEFAULT 'PENDING'); INSERT INTO outbox (id, event_type) VALUES ('a', 'Made')");
    sqlite::SqliteSourceConfig config;
    config.url = url_;
    config.table = "outbox";
    const auto source = value_of(sqlite::make_sqlite_source(config));
    const auto lease = value_of(source->open_lease());
    const auto recorder = value_of(source->open_recorder());
    const std::vector<spi::RouteName> routes{{"default", {}}, {"far", {}}};
    const auto epoch = value_of(lease->acquire("test", 600s)).value();
    static_cast<void>(value_of(recorder->begin(epoch, routes)));
    const auto reader = value_of(source->open_reader("default", {}));
    const auto finish_with_letters_of = [&](const std::vector<std::string>& dead) {
        spi::EventBatch events;
        ASSERT_EQ(read(*reader, events).size(), 1U);
        spi::RecordBatch batch;
        batch.epoch = epoch;
        const spi::Position position = events.events()[0].position;
        batch.finished.push_back({0, {position}});
        batch.finished.push_back({1, {position}});
        for (const std::string& route : dead) {
            spi::DeadLetter letter;
            letter.route = route;
            letter.position = position;
            letter.event.add_copy(events.events()[0]);
            batch.dead.push_back(std::move(letter));
        }
        ASSERT_TRUE(recorder->record(batch).ok());
        reader->forget(batch.finished[0].positions);
    };
    finish_with_letters_of({"default", "far"});
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_dead_letters"), 2);
    db_.exec("UPDATE outbox SET status = 'PENDING'");
    finish_with_letters_of({"default"});
    EXPECT_EQ(db_.value("SELECT group_concat(route) FROM outbox_dead_letters"), "default");
}

// Rows that all routes had finished and that the owner keeps as they are.
TEST_F(SqliteSource, RowsThatAreOwedTheirMarkAreNotANewRoutesAndTheMarkIsForgottenWithTheRow) {
    db_.exec(
        "CREATE TABLE outbox (id TEXT PRIMARY KEY, event_type TEXT, payload TEXT, created_at TEXT "
        "DEFAULT (datetime('now')), published_at TEXT, retry_count INTEGER DEFAULT 0, status TEXT "
        "DEFAULT 'PENDING'); CREATE TRIGGER keep AFTER UPDATE ON outbox BEGIN SELECT RAISE(FAIL, "
        "'no'); END; INSERT INTO outbox (id, event_type) VALUES ('a', 'Made'), ('b', 'Made')");
    sqlite::SqliteSourceConfig config;
    config.url = url_;
    config.table = "outbox";
    const auto source = value_of(sqlite::make_sqlite_source(config));
    const auto lease = value_of(source->open_lease());
    const auto recorder = value_of(source->open_recorder());
    const auto reader = value_of(source->open_reader("default", {}));
    spi::RecordBatch done = begin(*lease, *recorder);
    spi::EventBatch events;
    ASSERT_EQ(read(*reader, events).size(), 2U);
    done.finished.push_back({0, {events.events()[0].position, events.events()[1].position}});
    ASSERT_TRUE(recorder->record(done).ok());
    EXPECT_EQ(db_.value("SELECT group_concat(status) FROM outbox"), "PENDING,PENDING");
    const std::string owed = "SELECT count(*) FROM outbox_route_done WHERE route = ''";
    EXPECT_EQ(db_.number(owed), 2);

    EXPECT_EQ(read(*value_of(source->open_reader("new", {})), events).size(), 0U);
    const std::vector<spi::RouteName> routes{{"default", {}}, {"new", {}}};
    static_cast<void>(value_of(recorder->begin(done.epoch, routes)));
    EXPECT_EQ(db_.number(owed), 2);
    EXPECT_EQ(read(*value_of(source->open_reader("new", {})), events).size(), 0U);

    db_.exec("DROP TRIGGER keep; UPDATE outbox SET status = 'PUBLISHED' WHERE id = 'a'");
    static_cast<void>(value_of(recorder->begin(done.epoch, routes)));
    EXPECT_EQ(db_.value("SELECT group_concat(status) FROM outbox"), "PUBLISHED,PUBLISHED");
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_route_done"), 0);
}

class SqliteOperations : public SqliteSource {
  protected:
    SqliteOperations() {
        sqlite::SqliteSourceConfig config;
        config.url = url_;
        operations_ = value_of(sqlite::open_operations(config, "outbox_events"));
        for (int n = 1; n <= 3; ++n) {
            const std::string id = std::to_string(n);
            db_.exec(
                "INSERT INTO outbox_dead_letters (source, route, position, id, aggregate_id, "
                "event_type, payload, attempts, error_code, error, died_at) VALUES ('" +
                std::string(n == 3 ? "outbox_events/t" : "outbox_events") + "', 'default', " + id +
                ", 'e\"" + id + "', 'k" + id +
                "', 'OrderPlaced', x'7b7d', 5, 'OB_RECORD_REFUSED', 'no', 7)");
        }
        db_.exec(
            "INSERT INTO outbox_dead_letters (source, route, id, attempts, error_code, error, "
            "died_at) VALUES ('other_table', 'default', 'x', 1, 'OB_X', 'x', 1)");
    }
    std::unique_ptr<Operations> operations_;
};

TEST_F(SqliteOperations, FindsDeadLettersByEveryFilter) {
    EXPECT_EQ(value_of(operations_->count_dead({})), 3);
    DeadFilter filter;
    filter.ids = {"e\"1", "e\"3", "x"};
    EXPECT_EQ(value_of(operations_->count_dead(filter)), 2);
    filter.key = "k3";
    EXPECT_EQ(value_of(operations_->count_dead(filter)), 1);
    filter.error_code = "OB_OTHER";
    EXPECT_EQ(value_of(operations_->count_dead(filter)), 0);
    DeadFilter by_type;
    by_type.event_type = "OrderPlaced";
    by_type.route = "default";
    const auto letters = value_of(operations_->dead(by_type, 1, 1, true));
    ASSERT_EQ(letters.size(), 1U);
    EXPECT_EQ(letters[0].id, "e\"2");
    EXPECT_EQ(letters[0].payload, "{}");
    EXPECT_EQ(letters[0].attempts, 5);
    EXPECT_EQ(letters[0].died_at_us, 7);
    EXPECT_EQ(value_of(operations_->dead(by_type, 0, 1, false))[0].payload, "");
}

TEST_F(SqliteOperations, RetriesAndDiscardsOnlyWhatTheFilterNames) {
    DeadFilter filter;
    filter.ids = {"e\"1"};
    EXPECT_EQ(value_of(operations_->retry_dead(filter)), 1);
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_dead_letters WHERE retry_requested_at > 0"),
              1);
    filter.ids = {"e\"2"};
    EXPECT_EQ(value_of(operations_->discard_dead(filter)), 1);
    EXPECT_EQ(value_of(operations_->discard_dead({})), 2);
    EXPECT_EQ(db_.number("SELECT count(*) FROM outbox_dead_letters"), 1);
}

// Whoever asked may not have seen the letter of other tenants.
TEST_F(SqliteOperations, GivesARouteOnlyLettersOfTheTenantsWhoseRelayHasIt) {
    db_.exec("INSERT INTO outbox_routes (source, route, since) VALUES ('outbox_events/t', 'r', 1)");
    EXPECT_EQ(value_of(operations_->reroute_dead({}, "r")), 1);
    EXPECT_EQ(db_.value("SELECT group_concat(source) FROM outbox_dead_letters WHERE route = 'r'"),
              "outbox_events/t");
}

TEST_F(SqliteOperations, TellsLeaseAndRoutes) {
    EXPECT_TRUE(value_of(operations_->leases()).empty());
    const auto source = open();
    const auto lease = value_of(source->open_lease());
    const auto epoch = value_of(lease->acquire("me", 600s));
    const auto recorder = value_of(source->open_recorder());
    const std::vector<spi::SavedStats> figures{
        {"default", 10, 2, "open", "down", 77, 12.5, {"polling", "why"}}};
    ASSERT_TRUE(recorder->save_stats(*epoch, figures).ok());
    ASSERT_TRUE(recorder->save_stats(*epoch, figures).ok());
    const LeaseInfo info = value_of(operations_->leases()).at(0);
    EXPECT_TRUE(info.held);
    EXPECT_EQ(info.owner, "me");
    EXPECT_EQ(info.epoch, *epoch);
    const auto routes = value_of(operations_->routes());
    ASSERT_EQ(routes.size(), 1U);
    EXPECT_EQ(routes[0].name, "default");
    EXPECT_EQ(routes[0].published_total, 20);
    EXPECT_EQ(routes[0].dead, 3);
    EXPECT_EQ(routes[0].circuit, "open");
    EXPECT_EQ(routes[0].last_error, "down");
    EXPECT_EQ(routes[0].rate_per_s, 12.5);
    EXPECT_EQ(routes[0].path, "polling");
    EXPECT_EQ(routes[0].path_reason, "why");
}

}  // namespace
}  // namespace outbox::test
