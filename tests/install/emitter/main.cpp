// A service that only emits: makes the tables in a SQLite file, emits one event, prints its id.
#include <cstdio>
#include <sqlite3.h>

#include <outbox/adapters/libpq.h>
#include <outbox/adapters/sqlite.h>
#include <outbox/producer/migrate.h>

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    outbox::migrate(std::string("sqlite://") + argv[1]);
    sqlite3* database = nullptr;
    if (sqlite3_open(argv[1], &database) != SQLITE_OK) return 1;
    sqlite3_exec(database, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr);
    const std::string id = outbox::emit(database, "greetings", R"({"text": "hello"})");
    sqlite3_exec(database, "COMMIT", nullptr, nullptr, nullptr);
    sqlite3_close(database);
    std::puts(id.c_str());

    // The PostgreSQL side links, too.
    std::string (*const emit_postgres)(pg_conn*, const outbox::Event&, const outbox::EmitOptions&) =
        &outbox::emit;
    return emit_postgres != nullptr ? 0 : 1;
}
