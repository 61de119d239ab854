#pragma once

#include <string>

namespace outbox::simulation {

/// The folder of this process's histories, in memory where that can be, and what lies in it.
class HistoryFiles {
  public:
    /// One for all histories of the process.
    static HistoryFiles& of_process();
    ~HistoryFiles();
    HistoryFiles(const HistoryFiles&) = delete;
    HistoryFiles& operator=(const HistoryFiles&) = delete;

    /// A database as `migrate` leaves it, and nothing beside it.
    [[nodiscard]] const std::string& make_database(bool wal);
    /// Another file takes its place.
    void replace(const std::string& bytes);

  private:
    HistoryFiles();
    static std::string read(const std::string& path);
    [[nodiscard]] std::string template_of(bool wal) const;
    void clear() const;

    std::string folder_;
    std::string path_;
    std::string templates_[2];
};

}  // namespace outbox::simulation
