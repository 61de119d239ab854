#include "journal.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <stdexcept>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>

#include "order.h"

namespace orders {

namespace {

[[noreturn]] void fail(const std::string& what, const std::string& path) {
    throw std::system_error(errno, std::generic_category(), what + " journal " + path);
}

/// The length of the file up to its last full line.
off_t full_lines_end(int file, const std::string& path) {
    off_t end = lseek(file, 0, SEEK_END);
    std::array<char, 4096> block{};
    while (end > 0) {
        const off_t start =
            end > static_cast<off_t>(block.size()) ? end - static_cast<off_t>(block.size()) : 0;
        const ssize_t got = pread(file, block.data(), static_cast<std::size_t>(end - start), start);
        if (got < 0) fail("cannot read", path);
        for (ssize_t i = got; i > 0; --i)
            if (block[static_cast<std::size_t>(i - 1)] == '\n') return start + i;
        end = start;
    }
    return 0;
}

}  // namespace

Journal::Journal(const std::filesystem::path& path, std::string consumer)
    : path_(path.string()), consumer_(std::move(consumer)) {
    if (path_.empty()) return;
    file_ = open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file_ < 0) fail("cannot open", path_);
    if (flock(file_, LOCK_EX | LOCK_NB) != 0)
        throw std::runtime_error("another process writes to the journal " + path_);
    if (ftruncate(file_, full_lines_end(file_, path_)) != 0) fail("cannot repair", path_);
}

Journal::~Journal() {
    if (file_ >= 0) close(file_);
}

void Journal::write(const JournalEntry& entry, const char* outcome) {
    if (file_ < 0) return;
    std::string line = "{\"id\":" + json_string(entry.id) + ",\"key\":" + json_string(entry.key) +
                       ",\"n\":" + std::to_string(entry.n) + "," + outcome;
    if (!consumer_.empty()) line += ",\"consumer\":" + json_string(consumer_);
    line += "}\n";
    const std::lock_guard lock(mutex_);
    const ssize_t written = ::write(file_, line.data(), line.size());
    if (written == static_cast<ssize_t>(line.size())) return;
    if (written >= 0) errno = ENOSPC;
    const int cause = errno;
    if (ftruncate(file_, full_lines_end(file_, path_)) != 0) fail("cannot repair", path_);
    errno = cause;
    fail("cannot write to", path_);
}

}  // namespace orders
