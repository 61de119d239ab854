#include "tests/simulation/sqlite/files.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sqlite3.h>
#include <sstream>
#include <stdexcept>
#include <unistd.h>

#include <outbox/producer/migrate.h>

#include "tests/simulation/sqlite/client.h"

namespace outbox::simulation {

namespace {

std::string make_folder() {
    // Where others clean up, else in memory.
    const bool in_memory = std::getenv("TMPDIR") == nullptr && ::access("/dev/shm", W_OK) == 0;
    std::string name = (in_memory ? "/dev/shm" : std::filesystem::temp_directory_path().string()) +
                       "/outbox-simulation-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for histories");
    return name;
}

void write(const std::string& path, const std::string& bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << bytes;
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace

HistoryFiles& HistoryFiles::of_process() {
    static HistoryFiles files;
    return files;
}

HistoryFiles::HistoryFiles() : folder_(make_folder()), path_(folder_ + "/shop.db") {}

HistoryFiles::~HistoryFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

void HistoryFiles::clear() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
        std::filesystem::remove(entry.path());
    }
}

std::string HistoryFiles::template_of(Side side, bool wal) const {
    clear();
    MigrateOptions options;
    if (side == Side::kProducer) options.side = MigrationSide::kProducer;
    migrate("sqlite://" + path_, options);
    {
        SqliteClient client(path_);
        const auto must = [&](const std::string& sql) {
            if (!client.run(sql)) throw std::runtime_error(client.error());
        };
        if (side == Side::kProducer) {
            must("CREATE TABLE orders (id text PRIMARY KEY) WITHOUT ROWID");
        } else {
            must(
                "CREATE TABLE effects (seq integer PRIMARY KEY AUTOINCREMENT, event integer, "
                "key text, member integer)");
            must("CREATE TABLE accounts (key text PRIMARY KEY NOT NULL, effects integer)");
            must(
                "CREATE TABLE orders (seq integer PRIMARY KEY AUTOINCREMENT, key text, body "
                "text)");
            must(
                "CREATE TABLE steps (seq integer PRIMARY KEY AUTOINCREMENT, saga text, step "
                "text, call text)");
        }
        must(std::string("PRAGMA journal_mode = ") + (wal ? "WAL" : "DELETE"));
    }
    std::string bytes = read(path_);
    clear();
    return bytes;
}

std::string HistoryFiles::read(const std::string& path) {
    std::ostringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    return std::move(bytes).str();
}

const std::string& HistoryFiles::make_database(Side side, bool wal) {
    std::string& bytes = templates_[{side, wal}];
    if (bytes.empty()) bytes = template_of(side, wal);
    clear();
    write(path_, bytes);
    return path_;
}

// As one who puts a backup there does it: what belongs to the old file goes.
void HistoryFiles::replace(const std::string& bytes) {
    write(path_ + "-copy", bytes);
    for (const char* beside : {"-wal", "-shm", "-journal"}) std::filesystem::remove(path_ + beside);
    std::filesystem::rename(path_ + "-copy", path_);
}

}  // namespace outbox::simulation
