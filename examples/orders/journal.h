#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "line_file.h"

namespace orders {

/// What a journal says about one event.
struct JournalEntry {
    std::string id;
    std::string key;
    std::int64_t n = 0;  ///< Its place among the events of its key.
};

/// A file of JSON lines that `outbox verify` compares with those of the other side.
///
/// A process can die between its commit and the line about it. So each event has two lines: an
/// intent before the commit and the outcome after it. `outbox verify` lets an event of which only
/// the intent is known arrive or not. Thread-safe; one process per file.
class Journal {
  public:
    /// An empty path: nothing is written. Throws std::runtime_error if the file cannot be used.
    explicit Journal(const std::filesystem::path& path) : file_("journal", path) {}

    [[nodiscard]] bool is_open() const { return file_.is_open(); }

    void intent(const JournalEntry& entry) { write(entry, R"("state":"intent")"); }
    void committed(const JournalEntry& entry) { write(entry, R"("state":"committed")"); }
    void rolled_back(const JournalEntry& entry) { write(entry, R"("state":"rolled_back")"); }
    /// The consumer's outcome: applied, or dropped as a repeat.
    void received(const JournalEntry& entry, bool applied) {
        write(entry, applied ? R"("applied":true)" : R"("applied":false)");
    }

  private:
    void write(const JournalEntry& entry, const char* outcome);

    LineFile file_;
};

}  // namespace orders
