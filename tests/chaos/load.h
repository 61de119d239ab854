#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "verify/verify.h"

namespace outbox::test {

// Writers that change a row per key and insert an event about it in one transaction, as services
// do: the row's lock is taken before the event is inserted. Some transactions and some savepoints
// are rolled back, some stay open for a while. `n` in an event's payload rises within its key.
class Load {
  public:
    // Makes the table of the rows. The outbox tables must be there.
    Load(std::string url, int keys);
    ~Load();
    Load(const Load&) = delete;
    Load& operator=(const Load&) = delete;

    void start(int writers);
    // Lets the running transactions end.
    void stop();

    // What was committed so far. A commit without an answer is an intent.
    std::vector<core::JournalLine> produced() const;
    long long committed() const { return committed_.load(); }

  private:
    void write(int writer);

    std::string url_;
    int keys_;
    std::atomic<bool> stopping_{false};
    std::atomic<long long> committed_{0};
    std::vector<std::thread> threads_;
    mutable std::mutex mutex_;
    std::vector<core::JournalLine> produced_;
};

}  // namespace outbox::test
