#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <thread>

#include "core/mutex.h"
#include "databases/postgres/client.h"
#include "databases/postgres/hosts.h"

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
    /// For so long it has been at work on what came of a statement, and reads on: the rest was
    /// lost, or its client takes its time.
    bool awaits_the_rest = false;
};

/// kSilent: the server answered nothing. What keeps us from asking it says nothing of it: kThere.
enum class Verdict : std::uint8_t { kThere, kHasNothingToDo, kAwaitsTheRest, kSilent, kGone };

/// What becomes of `session` by what another connection sees `now`.
[[nodiscard]] Verdict judge(const SeenBackend& session, const SeenBackend& now);

/// Ends the waiting on a server that has stopped answering, in our statements and in a handler's. A
/// statement may take as long as it likes (a lock, a slow handler); but once it has taken some
/// seconds the session's own server, whatever else its URL names, is asked by another connection.
/// Where that gets no answer twice in a row, or hears that the session is gone or has long had
/// nothing to do, the session's socket is shut down, so that the statement fails; and where it
/// hears that the session awaits the rest of a statement of ours, all of which was sent. A
/// handler's may be a COPY or a pipeline that it pauses in. A backend that waits for us is ended,
/// too: what it holds would stay held for as long as a proxy keeps its connection.
class Watch {
  public:
    /// `name`: what its own connections are called.
    Watch(std::string url, std::chrono::seconds connect_timeout, std::string name)
        : url_(std::move(url)), connect_timeout_(connect_timeout), name_(std::move(name)) {}
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    /// The session, from when it is open. An error: its socket cannot be kept, a fault of ours.
    Status follow(pg_conn* connection);
    /// To be called before it is closed.
    void leave();
    /// Asks the session which one it is; blocks for the answer. Where it gets none only a server
    /// that does not answer is noticed.
    void identify(Client& session);
    /// We wait for the server; a handler has the session, and waits or not; or nobody waits.
    void busy() { use(Use::kOurs); }
    void lent() { use(Use::kHandlers); }
    void idle() { use(Use::kNone); }
    /// Whoever waits for the server waits no longer, and the session is lost.
    void break_off();

    /// Of a connection, until now.
    struct Traffic {
        std::uint64_t written_bytes = 0;
        std::uint64_t received_bytes = 0;
        std::chrono::milliseconds silence{0};  ///< Since the last byte to or fro.
    };

  private:
    enum class Use : std::uint8_t { kNone, kOurs, kHandlers };
    // Where the session was connected to.
    struct Server {
        Host host;
        sockaddr_storage address{};
        socklen_t address_size = 0;
    };

    void use(Use use);
    void run();
    void answered();
    [[nodiscard]] bool may_wait() const OUTBOX_REQUIRES(mutex_);
    [[nodiscard]] bool owes_an_answer() const OUTBOX_REQUIRES(mutex_);
    [[nodiscard]] bool waits_for_us(Verdict verdict) const OUTBOX_REQUIRES(mutex_);
    void end_backend(const Server& server, const SeenBackend& session) const;
    [[nodiscard]] Status connect(Client& probe, const Server& server) const;
    [[nodiscard]] bool answers_nothing(const Server& server) const;
    [[nodiscard]] Verdict ask(const Server& server,
                              const std::optional<SeenBackend>& session) const;

    const std::string url_;
    const std::chrono::seconds connect_timeout_;
    const std::string name_;
    core::Mutex mutex_;
    core::Condition changed_;
    bool stop_ OUTBOX_GUARDED_BY(mutex_) = false;
    // A duplicate: libpq closes its own when the server does, and another file has its number then.
    int socket_ OUTBOX_GUARDED_BY(mutex_) = -1;
    Server server_ OUTBOX_GUARDED_BY(mutex_);
    Traffic answered_ OUTBOX_GUARDED_BY(mutex_);  // with the last result
    std::optional<SeenBackend> session_ OUTBOX_GUARDED_BY(mutex_);
    Use use_ OUTBOX_GUARDED_BY(mutex_) = Use::kNone;
    std::uint64_t turn_ OUTBOX_GUARDED_BY(mutex_) = 0;
    std::chrono::steady_clock::time_point since_ OUTBOX_GUARDED_BY(mutex_);
    std::thread thread_;
};

}  // namespace outbox::postgres
