#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>

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
/// the intent is known arrive or not.
///
/// Every line is one write to the file, so that a killed process leaves no half line; what a full
/// disk cut off is removed when the file is opened again. Thread-safe; one process per file.
class Journal {
  public:
    /// An empty path: nothing is written. Throws std::runtime_error if the file cannot be used.
    explicit Journal(const std::filesystem::path& path, std::string consumer = {});
    ~Journal();
    Journal(const Journal&) = delete;
    Journal& operator=(const Journal&) = delete;

    void intent(const JournalEntry& entry) { write(entry, R"("state":"intent")"); }
    void committed(const JournalEntry& entry) { write(entry, R"("state":"committed")"); }
    void rolled_back(const JournalEntry& entry) { write(entry, R"("state":"rolled_back")"); }
    /// The consumer's outcome: applied, or dropped as a repeat.
    void received(const JournalEntry& entry, bool applied) {
        write(entry, applied ? R"("applied":true)" : R"("applied":false)");
    }

  private:
    void write(const JournalEntry& entry, const char* outcome);

    std::mutex mutex_;
    int file_ = -1;
    std::string path_;
    std::string consumer_;
};

}  // namespace orders
