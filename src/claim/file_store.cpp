#include "claim/file_store.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <random>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "claim/claim.h"
#include "core/url.h"

namespace outbox::claim {
namespace {

constexpr mode_t kFolderMode = 0770;
constexpr mode_t kFileMode = 0660;
constexpr std::size_t kPrefix = 2;  // of a name, which its folder is called

class File {
  public:
    explicit File(int descriptor) : descriptor_(descriptor) {}
    ~File() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    [[nodiscard]] int get() const { return descriptor_; }
    [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }

  private:
    int descriptor_;
};

bool write_all(int descriptor, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
}

class FileStore final : public ObjectStore {
  public:
    explicit FileStore(std::string folder)
        : folder_(std::move(folder)), url_("file://" + folder_) {}

    [[nodiscard]] const std::string& url() const override { return url_; }

    Status put(std::string_view name, std::string_view bytes,
               const std::stop_token& /*stop*/) override {
        const File top(open_folder());
        if (!top.is_open()) return failed("open", errno);
        const std::string sub(name.substr(0, kPrefix));
        const bool made = ::mkdirat(top.get(), sub.c_str(), kFolderMode) == 0;
        if (!made && errno != EEXIST) return failed("make a folder in", errno);
        if (made && ::fsync(top.get()) != 0) return failed("write to", errno);
        const File folder(::openat(top.get(), sub.c_str(), kFolder));
        if (!folder.is_open()) return failed("open a folder in", errno);
        return put_in(folder.get(), std::string(name), bytes);
    }

    Result<std::string> get(std::string_view name, std::size_t max_bytes,
                            const std::stop_token& /*stop*/) override {
        const File top(open_folder());
        if (!top.is_open()) return failed("open", errno);
        const std::string sub(name.substr(0, kPrefix));
        const File folder(::openat(top.get(), sub.c_str(), kFolder));
        if (!folder.is_open()) return missing(name, "open a folder in");
        const File file(
            ::openat(folder.get(), std::string(name).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
        if (!file.is_open()) return missing(name, "read from");
        return read(file.get(), name, max_bytes);
    }

  private:
    static constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

    [[nodiscard]] int open_folder() const {
        return ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }

    Status put_in(int folder, const std::string& name, std::string_view bytes) {
        // Not by the process's number: in a container each start may have the same.
        static const std::uint64_t process = random_number();
        static std::atomic<unsigned> parts = 0;
        const std::string part =
            "." + name + "." + std::to_string(process) + "." + std::to_string(++parts);
        const File file(
            ::openat(folder, part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode));
        if (!file.is_open()) return failed("write to", errno);
        Status status = write_whole(file.get(), bytes);
        if (status.ok() && ::renameat(folder, part.c_str(), folder, name.c_str()) != 0) {
            status = failed("rename in", errno);
        }
        if (!status.ok()) {
            ::unlinkat(folder, part.c_str(), 0);
            return status;
        }
        return ::fsync(folder) == 0 ? Status() : Status(failed("write to", errno));
    }

    [[nodiscard]] Status write_whole(int file, std::string_view bytes) const {
        if (!write_all(file, bytes)) return failed("write to", errno);
        return ::fsync(file) == 0 ? Status() : Status(failed("write to", errno));
    }

    static std::uint64_t random_number() {
        std::random_device random;
        return (std::uint64_t{random()} << 32U) | random();
    }

    Result<std::string> read(int file, std::string_view name, std::size_t max_bytes) {
        struct stat found{};
        if (::fstat(file, &found) != 0) return failed("read from", errno);
        const auto size = static_cast<std::size_t>(found.st_size);
        if (size > max_bytes) return object_too_large(*this, name, max_bytes);
        std::string bytes(size, '\0');
        std::size_t done = 0;
        while (done < size) {
            const ssize_t some = ::read(file, bytes.data() + done, size - done);
            if (some < 0 && errno == EINTR) continue;
            if (some < 0) return failed("read from", errno);
            if (some == 0) break;
            done += static_cast<std::size_t>(some);
        }
        bytes.resize(done);
        return bytes;
    }

    // Where the folder itself is there, so that the object is gone and not all of them.
    [[nodiscard]] ErrorInfo missing(std::string_view name, const char* doing) const {
        const int error = errno;
        if (error != ENOENT) return failed(doing, error);
        return is_empty() ? nothing_there() : object_gone(*this, name);
    }

    // But for what `check` writes, which may have met what a volume is to be mounted on.
    [[nodiscard]] bool is_empty() const {
        const std::string& probe = probe_name();
        return holds_at_most(folder_, probe.substr(0, kPrefix)) &&
               holds_at_most(std::filesystem::path(folder_) / probe.substr(0, kPrefix), probe);
    }

    static bool holds_at_most(const std::filesystem::path& folder, const std::string& name) {
        std::error_code error;
        std::filesystem::directory_iterator entry(folder, error);
        if (error) return error == std::errc::no_such_file_or_directory;
        for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
            if (entry->path().filename() != name) return false;
        }
        return !error;
    }

    // What a volume is mounted on is a folder as well.
    [[nodiscard]] ErrorInfo nothing_there() const {
        return {ErrorCode::kSinkUnavailable,
                Advice::kRetryDestination,
                {},
                "there is nothing at all in the object store " + url_ +
                    "; mount what holds it, or, where its objects are gone for good, put a file "
                    "of any name there"};
    }

    [[nodiscard]] ErrorInfo failed(const char* doing, int error) const {
        ErrorCode code = ErrorCode::kSinkUnavailable;
        Advice advice = Advice::kRetryDestination;
        std::string remedy = "it is tried again by itself";
        if (error == ENOENT || error == ENOTDIR) {
            remedy = "make the folder, or mount what holds it";
        } else if (error == EACCES || error == EPERM || error == EROFS) {
            code = ErrorCode::kNoRights;
            remedy = "give this user the right to read and write there";
        } else if (error == ENOSPC || error == EDQUOT) {
            code = ErrorCode::kDiskFull;
            remedy = "make room; it goes on by itself";
        } else if (error == EFBIG) {
            code = ErrorCode::kPayloadTooLarge;
            advice = Advice::kDeadLetter;
            remedy = "the file system, or a limit of this process, takes no file as large";
        }
        return {code, advice, "errno " + std::to_string(error),
                "cannot " + std::string(doing) + " the object store " + url_ + ": " +
                    std::strerror(error) + "; " + remedy};
    }

    const std::string folder_;
    const std::string url_;
};

}  // namespace

Result<std::unique_ptr<ObjectStore>> open_file_store(std::string_view url) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    const auto invalid = [&](const std::string& why) {
        return ErrorInfo{ErrorCode::kConfigInvalid,
                         Advice::kStop,
                         {},
                         "the object store " + redact(url) + " " + why +
                             ": write file:///absolute/path, with three slashes"};
    };
    if (!parsed->authority.empty() || parsed->path.size() < 2 || parsed->path.front() != '/') {
        return invalid("names no folder");
    }
    if (!parsed->query.empty()) {
        return invalid("has the parameter '" + parsed->query.front().first + "', and takes none");
    }
    std::string folder = parsed->path;
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    return std::unique_ptr<ObjectStore>(std::make_unique<FileStore>(std::move(folder)));
}

}  // namespace outbox::claim
