#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "webhook/endpoint.h"
#include "webhook/verdict.h"

namespace outbox::webhook {

/// What became of the attempt `token`.
struct Attempted {
    std::uint64_t token = 0;
    int status = 0;  ///< 0: there was no answer.
    Verdict verdict;
};

/// Carries out attempts. Used by one thread; only `poll` waits.
class Sender {
  public:
    virtual ~Sender() = default;

    /// Begins an attempt, whose outcome `poll` gives under this token, once, also where it could
    /// not be begun. Keeps nothing of the arguments. Each attempt ends within the sender's timeout.
    virtual void start(std::uint64_t token, const Endpoint& endpoint, const Delivery& delivery) = 0;
    /// Appends outcomes. Waits up to `max_wait` when there is none yet; returns early when there
    /// is, or when `wake_fd` can be read.
    virtual void poll(std::chrono::milliseconds max_wait, int wake_fd,
                      std::vector<Attempted>& out) = 0;
    /// The attempt is broken off; no outcome follows.
    virtual void cancel(std::uint64_t token) = 0;

  protected:
    Sender() = default;
    Sender(const Sender&) = delete;
    Sender& operator=(const Sender&) = delete;
};

}  // namespace outbox::webhook
