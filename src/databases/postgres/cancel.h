#pragma once

#include <chrono>
#include <memory>

struct pg_conn;

namespace outbox::postgres {

/// A request to the server to end the statement that a connection runs. It goes over a connection
/// of its own, for which libpq 15 waits without a limit: so a thread of its own does. A statement
/// that is sent before `taken` could be the one that is hit.
class Cancel {
  public:
    /// Returns at once. What cannot be sent is as good as taken: nothing will be hit. `connection`
    /// is not used any more afterwards.
    explicit Cancel(pg_conn* connection);

    /// The server has taken it, or never will. Waits up to `most`.
    [[nodiscard]] bool taken(std::chrono::milliseconds most) const;

  private:
    struct State;
    std::shared_ptr<State> state_;
};

}  // namespace outbox::postgres
