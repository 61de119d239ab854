// Where the production code calls SQLite and asks for the time (--wrap of the linker, see
// CMakeLists.txt): a statement takes simulated time, and a process that is killed ends at one.

#include <chrono>
#include <cstdint>
#include <sqlite3.h>
#include <string>
#include <string_view>

#include "tests/simulation/sqlite/disk.h"

using outbox::simulation::Disk;

// The names are the linker's (--wrap).
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {

int __real_sqlite3_step(sqlite3_stmt*);
int __real_sqlite3_exec(sqlite3*, const char*, int (*)(void*, int, char**, char**), void*, char**);
int __real_sqlite3_prepare_v3(sqlite3*, const char*, int, unsigned, sqlite3_stmt**, const char**);
int __real_sqlite3_open_v2(const char*, sqlite3**, int, const char*);

int __wrap_sqlite3_step(sqlite3_stmt* statement) {
    Disk* disk = Disk::current();
    if (disk == nullptr) return __real_sqlite3_step(statement);
    // To SQLite a COMMIT only reads, too.
    const bool reads = sqlite3_stmt_readonly(statement) != 0 && sqlite3_column_count(statement) > 0;
    const std::int64_t left_us =
        sqlite3_stmt_busy(statement) == 0 ? disk->before_statement(reads) : 0;
    const int result = __real_sqlite3_step(statement);
    disk->after_statement(left_us);
    return result;
}

int __wrap_sqlite3_exec(sqlite3* database, const char* sql, int (*each)(void*, int, char**, char**),
                        void* with, char** error) {
    Disk* disk = Disk::current();
    if (disk == nullptr) return __real_sqlite3_exec(database, sql, each, with, error);
    std::string changed;
    const std::string text(disk->as_planted(sql, changed));
    // Destructors roll back.
    const bool rolls_back = text == "ROLLBACK";
    if (!rolls_back) static_cast<void>(disk->before_statement(false));
    const int result = __real_sqlite3_exec(database, text.c_str(), each, with, error);
    if (!rolls_back) disk->after_statement(0);
    return result;
}

int __wrap_sqlite3_prepare_v3(sqlite3* database, const char* sql, int bytes, unsigned flags,
                              sqlite3_stmt** out, const char** rest) {
    Disk* disk = Disk::current();
    if (disk == nullptr || bytes < 0) {
        return __real_sqlite3_prepare_v3(database, sql, bytes, flags, out, rest);
    }
    std::string changed;
    const std::string_view text = disk->as_planted({sql, static_cast<std::size_t>(bytes)}, changed);
    return __real_sqlite3_prepare_v3(database, text.data(), static_cast<int>(text.size()), flags,
                                     out, rest);
}

int __wrap_sqlite3_open_v2(const char* path, sqlite3** out, int flags, const char* vfs) {
    Disk* disk = Disk::current();
    if (disk == nullptr) return __real_sqlite3_open_v2(path, out, flags, vfs);
    static_cast<void>(disk->before_statement(false));
    return __real_sqlite3_open_v2(path, out, flags, vfs);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

using Wall = std::chrono::system_clock::time_point;
Wall real_wall() asm("__real__ZNSt6chrono3_V212system_clock3nowEv");
Wall wrapped_wall() asm("__wrap__ZNSt6chrono3_V212system_clock3nowEv");

Wall wrapped_wall() {
    const Disk* disk = Disk::current();
    return disk == nullptr ? real_wall() : Wall(std::chrono::microseconds(disk->wall_us()));
}
