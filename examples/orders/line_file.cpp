#include "line_file.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <stdexcept>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace orders {

LineFile::LineFile(std::string what, const std::filesystem::path& path)
    : what_(std::move(what)), path_(path.string()) {
    if (path_.empty()) return;
    file_ = open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file_ < 0) fail("cannot open");
    if (flock(file_, LOCK_EX | LOCK_NB) != 0)
        throw std::runtime_error("another process writes to the " + what_ + " " + path_);
    if (ftruncate(file_, full_lines_end()) != 0) fail("cannot repair");
}

LineFile::~LineFile() {
    if (file_ >= 0) close(file_);
}

void LineFile::append(std::string_view line) {
    if (file_ < 0) return;
    const std::lock_guard lock(mutex_);
    const ssize_t written = ::write(file_, line.data(), line.size());
    if (written == static_cast<ssize_t>(line.size())) return;
    if (written >= 0) errno = ENOSPC;
    const int cause = errno;
    if (ftruncate(file_, full_lines_end()) != 0) fail("cannot repair");
    errno = cause;
    fail("cannot write to");
}

void LineFile::fail(const char* failed) const {
    throw std::system_error(errno, std::generic_category(),
                            std::string(failed) + " " + what_ + " " + path_);
}

/// The length of the file up to its last full line.
off_t LineFile::full_lines_end() const {
    off_t end = lseek(file_, 0, SEEK_END);
    std::array<char, 4096> block{};
    while (end > 0) {
        const off_t start =
            end > static_cast<off_t>(block.size()) ? end - static_cast<off_t>(block.size()) : 0;
        const ssize_t got =
            pread(file_, block.data(), static_cast<std::size_t>(end - start), start);
        if (got < 0) fail("cannot read");
        for (ssize_t i = got; i > 0; --i)
            if (block[static_cast<std::size_t>(i - 1)] == '\n') return start + i;
        end = start;
    }
    return 0;
}

}  // namespace orders
