#pragma once

#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>

namespace orders {

/// A file to which whole lines are appended, each by one write, so that a killed process leaves no
/// half line; what a full disk cut off is removed when the file is opened again. Thread-safe; one
/// process per file.
class LineFile {
  public:
    /// `what` names the file in errors. An empty path: nothing is written. Throws
    /// std::runtime_error if the file cannot be used.
    LineFile(std::string what, const std::filesystem::path& path);
    ~LineFile();
    LineFile(const LineFile&) = delete;
    LineFile& operator=(const LineFile&) = delete;

    [[nodiscard]] bool is_open() const { return file_ >= 0; }

    /// `line` ends with its newline. Throws std::runtime_error; then nothing of it is left.
    void append(std::string_view line);

  private:
    [[noreturn]] void fail(const char* failed) const;
    [[nodiscard]] off_t full_lines_end() const;

    const std::string what_;
    const std::string path_;
    std::mutex mutex_;
    int file_ = -1;
};

}  // namespace orders
