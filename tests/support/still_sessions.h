#pragma once

#include <functional>
#include <future>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "tests/support/pg.h"

namespace outbox::test {

// Sessions of a local PostgreSQL that stand still until this goes: their server answers everybody
// else.
class StillSessions {
  public:
    StillSessions(const std::string& url, std::string application)
        : database_(url), application_(std::move(application)) {}
    ~StillSessions();
    StillSessions(const StillSessions&) = delete;
    StillSessions& operator=(const StillSessions&) = delete;

    // Asks once, which may take one of them that is stopped now. True: the answer waits for it, and
    // `waiting` is who asked.
    bool keep_waiting(const std::function<void()>& ask, std::future<void>& waiting);

  private:
    struct Session {
        pid_t pid;
        unsigned client_port;
    };
    void stop_idle();
    bool are_asked() const;

    Pg database_;
    const std::string application_;
    std::vector<Session> stopped_;
};

}  // namespace outbox::test
