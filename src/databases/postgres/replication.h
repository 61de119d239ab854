#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/result.h>

#include "databases/postgres/connection.h"
#include "databases/postgres/stream/pgoutput.h"

namespace outbox::postgres {

using pgoutput::Lsn;

/// Ends the waits of a thread from another one. Thread-safe.
class Wakeup {
  public:
    Wakeup();
    ~Wakeup();
    Wakeup(const Wakeup&) = delete;
    Wakeup& operator=(const Wakeup&) = delete;

    void ring();
    void clear();
    [[nodiscard]] int descriptor() const { return descriptor_; }

  private:
    int descriptor_;
};

/// What a server is, by IDENTIFY_SYSTEM.
struct ServerIdentity {
    std::string system_id;
    std::string database_oid;  ///< Empty: not asked.
    /// When its statistics began, which a recovery from a crash throws away. Empty: not asked.
    std::string statistics_since;
    std::int64_t timeline = 0;
    Lsn lsn = 0;
};

/// Where a timeline ended, by the history file of a later one; none where it is not part of it.
[[nodiscard]] std::optional<Lsn> end_of_timeline(std::string_view history, std::int64_t timeline);

/// A replication connection with a temporary logical slot: the server forgets the slot, and the
/// log that it kept for it, when the connection ends. Used by one thread; calls block as told.
class ReplicationStream {
  public:
    /// Blocks up to the connect timeout. The other calls block up to 10 s, or until `stop`, a
    /// descriptor, can be read.
    static Result<ReplicationStream> open(const std::string& url, int timeout_s, int stop = -1);

    /// An old primary: as `Client::meet`.
    Result<ServerIdentity> identify();
    /// The history file of the server's timeline; empty for the first one.
    Result<std::string> history();

    struct Slot {
        std::string name;
        std::string snapshot;  ///< Shows what lies before the slot; gone with the next command.
        Lsn start = 0;
    };
    /// Makes the slot. Waits for every transaction of the cluster that is open now, however long,
    /// or until `stop` says so, which is asked now and then and after each ring of `wakeup`. Then,
    /// as after every error, the connection is of no use any more.
    template <typename Stop>
    Result<Slot> create_slot(const std::string& name, Wakeup& wakeup, const Stop& stop) {
        Status status = send_create_slot(name);
        while (status.ok() && !answered(wakeup, status)) {
            if (stop()) return told_to_stop();
        }
        return status.ok() ? take_slot() : Result<Slot>(status);
    }

    /// The slot's changes from its beginning on come by `next`.
    Status start(const Slot& slot, const std::string& publication);

    enum class Next : std::uint8_t { kMessage, kNothing, kEnded };
    /// The next CopyData message that has come, valid until the next call or `free_message`. Does
    /// not wait. `kEnded`: `status` says why.
    Next next(std::string_view& message, Status& status);
    void free_message() { message_.reset(); }

    /// Waits until something comes, `wakeup` rings or the time is over.
    Status wait(Wakeup& wakeup, std::chrono::milliseconds max_wait);

    /// Tells the server that nothing before `read` needs to be kept for this stream;
    /// `request_reply`: and asks whether it lives. From then on the server sends no keepalive of
    /// its own accord at each flush of its log, and shows the stream's write_lsn ahead of `read`.
    Status confirm(Lsn read, bool request_reply);

    [[nodiscard]] int server_version() const { return connection_.server_version(); }
    /// As `Client::refuse`.
    void refuse() const { connection_.refuse(); }

  private:
    struct FreeMessage {
        void operator()(char* bytes) const;
    };

    explicit ReplicationStream(Connection connection) : connection_(std::move(connection)) {}
    Status send_create_slot(const std::string& name);
    bool answered(Wakeup& wakeup, Status& status);
    Result<Slot> take_slot();
    static ErrorInfo told_to_stop() {
        return {ErrorCode::kInternal, Advice::kStop, {}, "told to stop"};
    }

    Connection connection_;
    std::unique_ptr<char, FreeMessage> message_;
};

}  // namespace outbox::postgres
