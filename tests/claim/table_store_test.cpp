// Tables of PostgreSQL and SQLite as object stores.

#include <filesystem>

#include "databases/postgres/objects.h"
#include "databases/sqlite/objects.h"
#include "tests/claim/store_suite.h"
#include "tests/consumer/database.h"

namespace outbox::test {
namespace {

class PostgresFixture final : public StoreFixture {
  public:
    std::unique_ptr<claim::ObjectStore> open() override {
        return postgres::open_objects(url_).value_or_throw();
    }
    std::string bytes_of(const std::string& name) override {
        const std::string hex = Pg(url_).value(
            "SELECT encode(bytes, 'hex') FROM outbox_objects WHERE name = '" + name + "'");
        std::string bytes;
        for (std::size_t i = 0; i < hex.size(); i += 2) {
            bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
        }
        return bytes;
    }
    void remove(const std::string& name) override {
        Pg(url_).exec("DELETE FROM outbox_objects WHERE name = '" + name + "'");
    }
    void go_down() override { server_.stop(PostgresServer::Stop::kFast); }
    void come_back() override { server_.start(); }

  private:
    PostgresServer& server_ = shared_postgres();
    const std::string url_ = server_.create_database();
};

class SqliteFixture final : public StoreFixture {
  public:
    std::unique_ptr<claim::ObjectStore> open() override {
        return sqlite::open_objects(database_.url()).value_or_throw();
    }
    std::string bytes_of(const std::string& name) override {
        const std::string hex =
            Sqlite(database_.path())
                .value("SELECT hex(bytes) FROM outbox_objects WHERE name = '" + name + "'");
        std::string bytes;
        for (std::size_t i = 0; i < hex.size(); i += 2) {
            bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
        }
        return bytes;
    }
    void remove(const std::string& name) override {
        Sqlite(database_.path()).exec("DELETE FROM outbox_objects WHERE name = '" + name + "'");
    }
    void go_down() override {
        for (const char* end : {"", "-wal", "-shm"}) {
            std::error_code none;
            std::filesystem::rename(database_.path() + end, database_.path() + end + "-away", none);
        }
    }
    void come_back() override {
        for (const char* end : {"", "-wal", "-shm"}) {
            std::error_code none;
            std::filesystem::rename(database_.path() + end + "-away", database_.path() + end, none);
        }
    }

  private:
    SqliteDatabase database_;
};

const StoreFixtureFactory kPostgres = [] { return std::make_unique<PostgresFixture>(); };
const StoreFixtureFactory kSqlite = [] { return std::make_unique<SqliteFixture>(); };
INSTANTIATE_TEST_SUITE_P(Postgres, ObjectStoreConformance, testing::Values(kPostgres));
INSTANTIATE_TEST_SUITE_P(Sqlite, ObjectStoreConformance, testing::Values(kSqlite));

TEST(PostgresObjects, UsesNoTableOfAnotherOwner) {
    const std::string url = shared_postgres().create_database();
    Pg admin(url);
    admin.exec(
        "DO $$ BEGIN CREATE ROLE relay_of_objects LOGIN PASSWORD 'test'; "
        "CREATE ROLE mallory_of_objects; EXCEPTION WHEN duplicate_object THEN NULL; END $$");
    admin.exec(
        "CREATE TABLE outbox_objects (name text PRIMARY KEY, bytes bytea, written_at "
        "timestamptz); ALTER TABLE outbox_objects OWNER TO mallory_of_objects; "
        "GRANT ALL ON outbox_objects TO relay_of_objects");
    std::string as_relay = url;
    as_relay.replace(as_relay.find("postgres@"), 9, "relay_of_objects@");
    const auto store = postgres::open_objects(as_relay).value_or_throw();
    const Status put = store->put(claim::object_name("s", "1", "x"), "x", {});
    ASSERT_FALSE(put.ok());
    EXPECT_EQ(put.error().code, ErrorCode::kNoRights) << describe(put.error());
    EXPECT_NE(put.error().message.find("mallory_of_objects"), std::string::npos);
    EXPECT_EQ(admin.number("SELECT count(*) FROM outbox_objects"), 0);
}

TEST(PostgresObjects, NamesTheRightThatIsMissing) {
    const std::string url = shared_postgres().create_database();
    Pg admin(url);
    admin.exec(
        "DO $$ BEGIN CREATE ROLE reader_of_objects LOGIN PASSWORD 'test'; "
        "EXCEPTION WHEN duplicate_object THEN NULL; END $$");
    const std::string name = claim::object_name("s", "1", "x");
    ASSERT_TRUE(postgres::open_objects(url).value_or_throw()->put(name, "x", {}).ok());
    std::string as_reader = url;
    as_reader.replace(as_reader.find("postgres@"), 9, "reader_of_objects@");
    const auto store = postgres::open_objects(as_reader).value_or_throw();
    for (const Status& status : {store->put(name, "x", {}), store->get(name, 10, {}).status()}) {
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kNoRights) << describe(status.error());
        EXPECT_EQ(status.error().advice, Advice::kRetryDestination);
        EXPECT_NE(status.error().message.find("GRANT"), std::string::npos);
    }
    admin.exec("GRANT SELECT ON outbox_objects TO reader_of_objects");
    EXPECT_EQ(store->get(name, 10, {}).value_or_throw(), "x");
}

// A consumer that looks into another schema, or while the table is away for a moment, must not take
// that for payloads that were removed.
TEST(ObjectTables, ThatAreMissingAreAnOutageThatSaysWhereOneWasLookedFor) {
    const std::string name = claim::object_name("s", "1", "x");
    const auto expect_waits = [&](claim::ObjectStore& store, const std::string& where) {
        const auto got = store.get(name, 10, {});
        ASSERT_FALSE(got.ok()) << store.url();
        EXPECT_EQ(got.error().code, ErrorCode::kSinkUnavailable) << describe(got.error());
        EXPECT_EQ(got.error().advice, Advice::kRetryDestination) << describe(got.error());
        EXPECT_NE(got.error().message.find(where), std::string::npos) << describe(got.error());
    };
    const std::string url = shared_postgres().create_database();
    Pg admin(url);
    admin.exec("CREATE SCHEMA st");
    const auto of_schema = [&] {
        return postgres::open_objects(url + "?options=-csearch_path%3Dst").value_or_throw();
    };
    ASSERT_TRUE(of_schema()->put(name, "x", {}).ok());
    expect_waits(*postgres::open_objects(url).value_or_throw(), "outbox_objects in schema public");
    const auto store = of_schema();
    admin.exec("ALTER TABLE st.outbox_objects RENAME TO away");
    expect_waits(*store, "outbox_objects in schema st");
    admin.exec("ALTER TABLE st.away RENAME TO outbox_objects");
    EXPECT_EQ(store->get(name, 10, {}).value_or_throw(), "x");

    SqliteDatabase file;
    const auto of_file = sqlite::open_objects(file.url()).value_or_throw();
    Sqlite(file.path()).exec("CREATE TABLE other (n integer)");
    expect_waits(*of_file, "no table outbox_objects");
    ASSERT_TRUE(of_file->put(name, "x", {}).ok());
    EXPECT_EQ(of_file->get(name, 10, {}).value_or_throw(), "x");
}

TEST(PostgresObjects, NamesTheSchemaRightThatIsMissing) {
    const std::string url = shared_postgres().create_database();
    Pg(url).exec(
        "DO $$ BEGIN CREATE ROLE stranger_to_schema LOGIN PASSWORD 'test'; "
        "EXCEPTION WHEN duplicate_object THEN NULL; END $$; CREATE SCHEMA st");
    std::string as_stranger = url + "?options=-csearch_path%3Dst";
    as_stranger.replace(as_stranger.find("postgres@"), 9, "stranger_to_schema@");
    const auto store = postgres::open_objects(as_stranger).value_or_throw();
    const auto got = store->get(claim::object_name("s", "1", "x"), 10, {});
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().advice, Advice::kRetryDestination) << describe(got.error());
    EXPECT_NE(got.error().message.find("USAGE"), std::string::npos) << describe(got.error());
}

TEST(ObjectTables, SayWhatToDoWhereTheDatabaseIsMissing) {
    const std::string url = shared_postgres().create_database();
    const std::string missing = url.substr(0, url.rfind('/')) + "/not_there";
    const TemporaryFolder folder("store");
    const std::string in_no_folder = "sqlite://" + (folder / "a/b.db").string();
    const auto of_postgres = postgres::open_objects(missing).value_or_throw();
    const auto of_sqlite = sqlite::open_objects(in_no_folder).value_or_throw();
    for (const auto& [store, remedy] : {std::pair(of_postgres.get(), "make it (createdb)"),
                                        std::pair(of_sqlite.get(), "is its volume there?")}) {
        const Status put = store->put(claim::object_name("s", "1", "x"), "x", {});
        ASSERT_FALSE(put.ok()) << store->url();
        EXPECT_EQ(put.error().advice, Advice::kRetryDestination) << describe(put.error());
        EXPECT_NE(put.error().message.find(remedy), std::string::npos) << describe(put.error());
    }
}

TEST(ObjectTables, SayWhatToDoWhereAPasswordIsMissing) {
    const std::string url = shared_postgres().create_database();
    Pg(url).exec(
        "DO $$ BEGIN CREATE ROLE with_password LOGIN PASSWORD 'test'; "
        "EXCEPTION WHEN duplicate_object THEN NULL; END $$");
    std::string without = url;
    without.replace(without.find("postgres@"), 9, "with_password@");
    without += "?passfile=/nowhere";
    const auto store = postgres::open_objects(without).value_or_throw();
    const Status put = store->put(claim::object_name("s", "1", "x"), "x", {});
    ASSERT_FALSE(put.ok());
    EXPECT_EQ(put.error().code, ErrorCode::kConnectFailed) << describe(put.error());
    EXPECT_NE(put.error().message.find("password_file="), std::string::npos)
        << describe(put.error());
}

TEST(ObjectTables, RefuseAUrlThatIsNone) {
    for (const char* url : {"postgresql://h/db?color=red", "postgresql://[h/db"}) {
        EXPECT_FALSE(postgres::open_objects(url).ok()) << url;
    }
    for (const char* url : {"sqlite:", "sqlite://host/x", "sqlite:///x.db?a=b"}) {
        EXPECT_FALSE(sqlite::open_objects(url).ok()) << url;
    }
}

}  // namespace
}  // namespace outbox::test
