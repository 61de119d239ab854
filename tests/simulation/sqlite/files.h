#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace outbox::simulation {

/// The folder of this process's histories, in memory where that can be, and what lies in it.
class HistoryFiles {
  public:
    /// One for all histories of the process.
    static HistoryFiles& of_process();
    ~HistoryFiles();
    HistoryFiles(const HistoryFiles&) = delete;
    HistoryFiles& operator=(const HistoryFiles&) = delete;

    /// Whose tables are there, and what services and handlers write to.
    enum class Side : std::uint8_t { kProducer, kBoth };
    /// A database as `migrate` leaves it, and nothing beside it.
    [[nodiscard]] const std::string& make_database(Side side, bool wal);
    /// Of this process alone.
    [[nodiscard]] const std::string& folder() const { return folder_; }
    /// Another file takes its place.
    void replace(const std::string& bytes);

  private:
    HistoryFiles();
    static std::string read(const std::string& path);
    [[nodiscard]] std::string template_of(Side side, bool wal) const;
    void clear() const;

    std::string folder_;
    std::string path_;
    std::map<std::pair<Side, bool>, std::string> templates_;  // once one was made
};

}  // namespace outbox::simulation
