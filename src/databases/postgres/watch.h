#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "core/mutex.h"
#include "databases/postgres/client.h"

struct pg_conn;

namespace outbox::postgres {

/// A session's backend and its server, by one of the server's answers.
struct SeenBackend {
    std::string pid;    ///< Empty: there is none of that number, or it is not known.
    std::string began;  ///< Empty for who may not see it.
    std::string system;
    std::string server_began;
    bool is_primary = false;
    /// For so long that no answer is on its way; or that its client read on is all it waits for.
    bool has_nothing_to_do = false;
};

enum class Verdict : std::uint8_t { kThere, kHasNothingToDo, kGone };

/// What becomes of `session` by what another connection sees `now`.
[[nodiscard]] Verdict judge(const SeenBackend& session, const SeenBackend& now);

/// Ends the waiting on a server that has stopped answering, in our statements and in a handler's. A
/// statement may take as long as it likes (a lock, a slow handler); but once it has taken some
/// seconds the server is asked by another connection. Where that gets no answer either, or hears
/// that the session is gone or has long had nothing to do, the session's socket is shut down, so
/// that the statement fails. A backend that has nothing to do is ended, too: what it holds would
/// stay held for as long as a proxy keeps its connection.
class Watch {
  public:
    /// `name`: what its own connections are called.
    Watch(std::string url, std::chrono::seconds connect_timeout, std::string name)
        : url_(std::move(url)), connect_timeout_(connect_timeout), name_(std::move(name)) {}
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    /// The session, from when it is open until before it is closed (null).
    void session(pg_conn* connection);
    /// Asks the session which one it is; blocks for the answer. Where it gets none only a server
    /// that does not answer is noticed.
    void identify(Client& session);
    /// We wait for the server; a handler has the session, and waits or not; or nobody waits.
    void busy() { use(Use::kOurs); }
    void lent() { use(Use::kHandlers); }
    void idle() { use(Use::kNone); }
    /// Whoever waits for the server waits no longer, and the session is lost.
    void break_off();

  private:
    enum class Use : std::uint8_t { kNone, kOurs, kHandlers };

    void use(Use use);
    void run();
    void answered();
    [[nodiscard]] bool owes_an_answer() const OUTBOX_REQUIRES(mutex_);
    void end_backend(const SeenBackend& session) const;
    [[nodiscard]] Status connect(Client& probe) const;
    [[nodiscard]] Verdict ask(const std::optional<SeenBackend>& session) const;

    const std::string url_;
    const std::chrono::seconds connect_timeout_;
    const std::string name_;
    core::Mutex mutex_;
    core::Condition changed_;
    bool stop_ OUTBOX_GUARDED_BY(mutex_) = false;
    int socket_ OUTBOX_GUARDED_BY(mutex_) = -1;
    std::uint64_t answered_bytes_ OUTBOX_GUARDED_BY(mutex_) = 0;
    std::optional<SeenBackend> session_ OUTBOX_GUARDED_BY(mutex_);
    Use use_ OUTBOX_GUARDED_BY(mutex_) = Use::kNone;
    std::uint64_t turn_ OUTBOX_GUARDED_BY(mutex_) = 0;
    std::chrono::steady_clock::time_point since_ OUTBOX_GUARDED_BY(mutex_);
    std::thread thread_;
};

}  // namespace outbox::postgres
