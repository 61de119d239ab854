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

HistoryFiles::HistoryFiles() : folder_(make_folder()), path_(folder_ + "/shop.db") {
    templates_[0] = template_of(false);
    templates_[1] = template_of(true);
}

HistoryFiles::~HistoryFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

void HistoryFiles::clear() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
        std::filesystem::remove(entry.path());
    }
}

std::string HistoryFiles::template_of(bool wal) const {
    clear();
    MigrateOptions options;
    options.side = MigrationSide::kProducer;
    migrate("sqlite://" + path_, options);
    {
        SqliteClient client(path_);
        const bool made =
            client.run("CREATE TABLE orders (id text PRIMARY KEY) WITHOUT ROWID") &&
            client.run(std::string("PRAGMA journal_mode = ") + (wal ? "WAL" : "DELETE"));
        if (!made) throw std::runtime_error(client.error());
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

const std::string& HistoryFiles::make_database(bool wal) {
    clear();
    write(path_, templates_[wal ? 1 : 0]);
    return path_;
}

// As one who puts a backup there does it: what belongs to the old file goes.
void HistoryFiles::replace(const std::string& bytes) {
    write(path_ + "-copy", bytes);
    for (const char* beside : {"-wal", "-shm", "-journal"}) std::filesystem::remove(path_ + beside);
    std::filesystem::rename(path_ + "-copy", path_);
}

}  // namespace outbox::simulation
