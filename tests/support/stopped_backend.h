#pragma once

#include <csignal>
#include <string>
#include <sys/types.h>

#include "tests/support/process.h"

namespace outbox::test {

// One backend of a server that stands still while this lives: a session that hangs while others
// are answered.
class StoppedBackend {
  public:
    explicit StoppedBackend(pid_t pid) : pid_(pid) { pause_process(pid_); }
    explicit StoppedBackend(const std::string& pid)
        : StoppedBackend(static_cast<pid_t>(std::stol(pid))) {}
    ~StoppedBackend() { ::kill(pid_, SIGCONT); }
    StoppedBackend(const StoppedBackend&) = delete;
    StoppedBackend& operator=(const StoppedBackend&) = delete;

  private:
    pid_t pid_;
};

}  // namespace outbox::test
