#include "tests/simulation/sqlite/disk.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <fstream>
#include <sqlite3.h>
#include <sstream>
#include <stdexcept>
#include <unistd.h>
#include <utility>

namespace outbox::simulation {

namespace {

constexpr double kPauses = 0.05;  // share of calls in which others move

Disk* current_disk = nullptr;

// SQLite's file with the system's behind it.
struct File {
    sqlite3_file base;
    sqlite3_file* real;
    const char* path;  // SQLite's; null: nobody else's

    static File& of(sqlite3_file* file) { return *reinterpret_cast<File*>(file); }
};

sqlite3_vfs* system_vfs() {
    static sqlite3_vfs* const vfs = sqlite3_vfs_find("unix");
    return vfs;
}

int before(Disk::Call call) {
    Disk* disk = Disk::current();
    return disk == nullptr ? SQLITE_OK : disk->before(call);
}

// Also what is done beside the world: SQLite may roll back as it looks.
void remember(const File& file, std::int64_t offset, std::int64_t bytes) {
    Disk* disk = current_disk;
    if (disk == nullptr || !disk->remembers() || file.path == nullptr) return;
    Disk::Before before{offset, {}, 0};
    sqlite3_int64 size = 0;
    file.real->pMethods->xFileSize(file.real, &size);
    before.size = size;
    before.bytes.resize(
        static_cast<std::size_t>(std::clamp<std::int64_t>(size - offset, 0, bytes)));
    if (!before.bytes.empty()) {
        file.real->pMethods->xRead(file.real, before.bytes.data(),
                                   static_cast<int>(before.bytes.size()), offset);
    }
    disk->wrote(file.path, std::move(before));
}

// NOLINTBEGIN(readability-identifier-naming): SQLite's names

int close_file(sqlite3_file* file) {
    return File::of(file).real->pMethods->xClose(File::of(file).real);
}

int read_file(sqlite3_file* file, void* to, int bytes, sqlite3_int64 offset) {
    if (const int failed = before(Disk::Call::kRead); failed != 0) return failed;
    return File::of(file).real->pMethods->xRead(File::of(file).real, to, bytes, offset);
}

int write_file(sqlite3_file* file, const void* from, int bytes, sqlite3_int64 offset) {
    if (const int failed = before(Disk::Call::kWrite); failed != 0) return failed;
    remember(File::of(file), offset, bytes);
    return File::of(file).real->pMethods->xWrite(File::of(file).real, from, bytes, offset);
}

int truncate_file(sqlite3_file* file, sqlite3_int64 size) {
    if (const int failed = before(Disk::Call::kTruncate); failed != 0) return failed;
    sqlite3_int64 was = 0;
    File::of(file).real->pMethods->xFileSize(File::of(file).real, &was);
    remember(File::of(file), size, was - size);
    return File::of(file).real->pMethods->xTruncate(File::of(file).real, size);
}

// Nothing is written to a disk: what would be lost is told by `unsynced_`.
int sync_file(sqlite3_file* file, int) {
    if (const int failed = before(Disk::Call::kSync); failed != 0) return failed;
    if (current_disk != nullptr && File::of(file).path != nullptr) {
        current_disk->synced(File::of(file).path);
    }
    return SQLITE_OK;
}

int file_size(sqlite3_file* file, sqlite3_int64* size) {
    return File::of(file).real->pMethods->xFileSize(File::of(file).real, size);
}

int lock_file(sqlite3_file* file, int level) {
    if (const int failed = before(Disk::Call::kLock); failed != 0) return failed;
    return File::of(file).real->pMethods->xLock(File::of(file).real, level);
}

int unlock_file(sqlite3_file* file, int level) {
    return File::of(file).real->pMethods->xUnlock(File::of(file).real, level);
}

int is_reserved(sqlite3_file* file, int* out) {
    return File::of(file).real->pMethods->xCheckReservedLock(File::of(file).real, out);
}

int control_file(sqlite3_file* file, int what, void* argument) {
    return File::of(file).real->pMethods->xFileControl(File::of(file).real, what, argument);
}

int sector_size(sqlite3_file* file) {
    return File::of(file).real->pMethods->xSectorSize(File::of(file).real);
}

int characteristics(sqlite3_file* file) {
    return File::of(file).real->pMethods->xDeviceCharacteristics(File::of(file).real);
}

int map_shared(sqlite3_file* file, int region, int bytes, int extend, void volatile** out) {
    return File::of(file).real->pMethods->xShmMap(File::of(file).real, region, bytes, extend, out);
}

int lock_shared(sqlite3_file* file, int offset, int count, int flags) {
    if ((flags & SQLITE_SHM_LOCK) != 0) {
        if (const int failed = before(Disk::Call::kLock); failed != 0) return failed;
    }
    return File::of(file).real->pMethods->xShmLock(File::of(file).real, offset, count, flags);
}

void barrier(sqlite3_file* file) {
    File::of(file).real->pMethods->xShmBarrier(File::of(file).real);
}

int unmap_shared(sqlite3_file* file, int remove) {
    return File::of(file).real->pMethods->xShmUnmap(File::of(file).real, remove);
}

// Version 2: nothing is read from a mapped file.
constexpr sqlite3_io_methods kMethods{2,
                                      close_file,
                                      read_file,
                                      write_file,
                                      truncate_file,
                                      sync_file,
                                      file_size,
                                      lock_file,
                                      unlock_file,
                                      is_reserved,
                                      control_file,
                                      sector_size,
                                      characteristics,
                                      map_shared,
                                      lock_shared,
                                      barrier,
                                      unmap_shared,
                                      nullptr,
                                      nullptr};

int open_file(sqlite3_vfs*, const char* path, sqlite3_file* file, int flags, int* out) {
    File& opened = File::of(file);
    opened.base.pMethods = nullptr;
    if (const int failed = before(Disk::Call::kOpen); failed != 0) return failed;
    opened.real = reinterpret_cast<sqlite3_file*>(&opened + 1);
    opened.path = path;
    const int result = system_vfs()->xOpen(system_vfs(), path, opened.real, flags, out);
    if (opened.real->pMethods != nullptr) opened.base.pMethods = &kMethods;
    return result;
}

int delete_file(sqlite3_vfs*, const char* path, int sync_folder) {
    if (const int failed = before(Disk::Call::kDelete); failed != 0) return failed;
    if (current_disk != nullptr) current_disk->deletes(path, sync_folder != 0);
    return system_vfs()->xDelete(system_vfs(), path, sync_folder);
}

int access_file(sqlite3_vfs*, const char* path, int what, int* out) {
    return system_vfs()->xAccess(system_vfs(), path, what, out);
}

int full_path(sqlite3_vfs*, const char* path, int size, char* out) {
    return system_vfs()->xFullPathname(system_vfs(), path, size, out);
}

int give_chance(sqlite3_vfs*, int bytes, char* out) {
    Disk* disk = Disk::current();
    if (disk == nullptr) return system_vfs()->xRandomness(system_vfs(), bytes, out);
    for (int i = 0; i < bytes; ++i) out[i] = static_cast<char>(disk->bits());
    return bytes;
}

int sleep(sqlite3_vfs*, int microseconds) {
    Disk* disk = Disk::current();
    if (disk == nullptr) return system_vfs()->xSleep(system_vfs(), microseconds);
    disk->nap(microseconds);
    return microseconds;
}

constexpr std::int64_t kJulianEpochMs = 210'866'760'000'000;  // 1970 in SQLite's days

int time_ms(sqlite3_vfs*, sqlite3_int64* out) {
    const Disk* disk = Disk::current();
    if (disk == nullptr) return system_vfs()->xCurrentTimeInt64(system_vfs(), out);
    *out = kJulianEpochMs + disk->wall_us() / kMs;
    return SQLITE_OK;
}

int time_days(sqlite3_vfs* vfs, double* out) {
    sqlite3_int64 now_ms = 0;
    const int result = time_ms(vfs, &now_ms);
    *out = static_cast<double>(now_ms) / 86'400'000.0;
    return result;
}

int last_error(sqlite3_vfs*, int bytes, char* out) {
    return system_vfs()->xGetLastError(system_vfs(), bytes, out);
}

// NOLINTEND(readability-identifier-naming)

// For the life of the program: connections beside histories go through it, too.
void install() {
    static sqlite3_vfs vfs = [] {
        sqlite3_vfs made{};
        made.iVersion = 2;
        made.szOsFile = static_cast<int>(sizeof(File)) + system_vfs()->szOsFile;
        made.mxPathname = system_vfs()->mxPathname;
        made.zName = "simulated";
        made.xOpen = open_file;
        made.xDelete = delete_file;
        made.xAccess = access_file;
        made.xFullPathname = full_path;
        made.xRandomness = give_chance;
        made.xSleep = sleep;
        made.xCurrentTime = time_days;
        made.xGetLastError = last_error;
        made.xCurrentTimeInt64 = time_ms;
        return made;
    }();
    static const int installed = sqlite3_vfs_register(&vfs, 1);
    if (installed != SQLITE_OK) throw std::runtime_error("no VFS for the simulation");
}

}  // namespace

Disk* Disk::current() {
    return World::moving() != nullptr ? current_disk : nullptr;
}

Disk::Disk(World& world, const Settings& settings, const std::int64_t& wall_offset_us)
    : world_(world), settings_(settings), wall_offset_us_(wall_offset_us), chance_(settings.seed) {
    install();
    sqlite3_randomness(0, nullptr);  // begins anew with what it is given
    current_disk = this;
}

Disk::~Disk() {
    current_disk = nullptr;
}

std::int64_t Disk::wall_us() const {
    return world_.now_us() + wall_offset_us_;
}

std::string_view Disk::as_planted(std::string_view sql, std::string& changed) {
    const auto at = plant_.from.empty() ? std::string_view::npos : sql.find(plant_.from);
    if (at == std::string_view::npos) return sql;
    ++planted_;
    changed = sql;
    changed.replace(at, plant_.from.size(), plant_.to);
    return changed;
}

// What is read may be old by the time it is given. Of what was changed the judge hears as its relay
// does.
std::int64_t Disk::before_statement(bool reads) {
    ++statements_;
    if (world_.dying() && std::uncaught_exceptions() > 0) return 0;
    Random& random = world_.random();
    const bool slow = random.chance(0.001);
    const std::int64_t us = slow ? random.between(1, 2'000) * kMs : random.between(5, 300);
    if (slow && slow_) slow_(us);
    const std::int64_t after_us = reads ? us / 2 : 0;
    world_.sleep(us - after_us);
    return after_us;
}

void Disk::after_statement(std::int64_t us) const {
    if (world_.dying() && std::uncaught_exceptions() == 0) throw Killed();
    if (us > 0 && std::uncaught_exceptions() == 0) world_.sleep(us);
}

// Called from within SQLite, which knows no exceptions.
void Disk::nap(std::int64_t us) {
    if (world_.dying()) return;
    ++waits_;
    try {
        world_.sleep(us);
    } catch (const Killed&) {
        world_.trace("killed within SQLite");
    }
}

int Disk::before(Call call) {
    if (!world_.dying() && world_.random().chance(kPauses)) nap(world_.random().between(1, 500));
    // What a process that is gone has begun stays as it is; but SQLite reads as it lets go.
    if (world_.dying()) return call == Call::kRead ? SQLITE_OK : SQLITE_IOERR;
    if (world_.now_us() < full_until_us_ && call == Call::kWrite) return SQLITE_FULL;
    if (world_.group() == World::kNoGroup || world_.group() >= kFirstService) return SQLITE_OK;
    const bool away = world_.now_us() < away_until_us_;
    if (!away && !world_.random().chance(settings_.call_fails / 30)) return SQLITE_OK;
    ++failed_;
    return failure(call);
}

int Disk::failure(Call call) {
    const bool away = world_.now_us() < away_until_us_;
    switch (call) {
        case Call::kOpen:
            return away ? SQLITE_CANTOPEN : SQLITE_OK;
        case Call::kRead:
            return SQLITE_IOERR_READ;
        case Call::kWrite:
            return !away && world_.random().chance(0.5) ? SQLITE_FULL : SQLITE_IOERR_WRITE;
        case Call::kSync:
            return SQLITE_IOERR_FSYNC;
        case Call::kTruncate:
            return SQLITE_IOERR_TRUNCATE;
        case Call::kDelete:
            return SQLITE_IOERR_DELETE;
        case Call::kLock:
            break;
    }
    return away ? SQLITE_IOERR_LOCK : SQLITE_BUSY;
}

void Disk::wrote(const std::string& path, Before before) {
    unsynced_[path].push_back(std::move(before));
}

// The folder is synced with a file that is new in it.
void Disk::synced(const std::string& path) {
    unsynced_.erase(path);
    deleted_.erase(path);
}

void Disk::deletes(const std::string& path, bool for_good) {
    synced(path);
    if (!remembers_ || for_good) return;
    std::ostringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    deleted_[path] = std::move(bytes).str();
}

void Disk::lose_power() {
    for (auto& [path, writes] : unsynced_) {
        const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
        if (file < 0) continue;
        for (auto write = writes.rbegin(); write != writes.rend(); ++write) {
            const auto put =
                ::pwrite(file, write->bytes.data(), write->bytes.size(), write->offset);
            if (put != static_cast<ssize_t>(write->bytes.size()) ||
                ::ftruncate(file, write->size) != 0) {
                throw std::runtime_error("cannot put back what " + path + " held");
            }
        }
        ::close(file);
    }
    unsynced_.clear();
    for (const auto& [path, bytes] : deleted_) {
        std::ofstream file(path, std::ios::binary | std::ios::trunc);
        file << bytes;
        if (!file.flush()) throw std::runtime_error("cannot make " + path + " again");
    }
    deleted_.clear();
}

}  // namespace outbox::simulation
