#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/pg.h"
#include "tests/support/stopped_backend.h"

namespace outbox::test {

// Sessions of a local PostgreSQL that stand still in the middle of a statement until this goes, so
// that they pass for busy: their server answers everybody else.
class StillSessions {
  public:
    // Of an application that reads `table` where it is asked something.
    StillSessions(const std::string& url, std::string application, std::string table)
        : look_(url),
          holder_(url),
          application_(std::move(application)),
          table_(std::move(table)) {}

    // Asks once. True: the answer waits for a session that stands still, and `waiting` is who
    // asked.
    bool keep_waiting(const std::function<void()>& ask, std::future<void>& waiting);

  private:
    bool stop_one();

    Pg look_;
    Pg holder_;
    const std::string application_;
    const std::string table_;
    std::vector<std::unique_ptr<StoppedBackend>> stopped_;
};

}  // namespace outbox::test
