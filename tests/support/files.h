#pragma once

#include <filesystem>
#include <string>

namespace outbox::test {

// A new folder under TMPDIR that other users (the one who runs PostgreSQL) may enter.
std::filesystem::path make_temporary_folder(const std::string& purpose);

// Removes it with all it holds; a failure is reported on stderr only.
void remove_folder(const std::filesystem::path& folder) noexcept;

// A folder that is removed when its owner goes.
class TemporaryFolder {
  public:
    explicit TemporaryFolder(const std::string& purpose = "test")
        : path_(make_temporary_folder(purpose)) {}
    ~TemporaryFolder() { remove_folder(path_); }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

  private:
    std::filesystem::path path_;
};

// The whole file; empty if there is none.
std::string read_file(const std::filesystem::path& path);

// A TCP port on the loopback interface that nobody listens on, kept by no other test process until
// this one ends (another program could still take it).
int free_port();

}  // namespace outbox::test
