#include "databases/postgres/watch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <libpq-events.h>
#include <libpq-fe.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "databases/postgres/errors.h"
#include "databases/postgres/sql_files.h"
#include "databases/postgres/statement.h"

namespace outbox::postgres {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::seconds kBetweenLooks{1};
// A large answer or statement may be on its way for that long without a byte.
constexpr std::chrono::seconds kSilence{10};
constexpr std::chrono::minutes kSilenceWithinAnAnswer{5};
constexpr const char* kOwnPid = "pg_backend_pid()";

// A backend, and the server that is asked; for an answer to `backend_in`.
std::string look_sql(const std::string& pid) {
    return std::string(kCatalogPath) +
           "SELECT a.pid, (extract(epoch FROM a.backend_start) * 1000000)::bigint, "
           "c.system_identifier, (extract(epoch FROM pg_postmaster_start_time()) * "
           "1000000)::bigint, NOT pg_is_in_recovery(), a.state LIKE 'idle%' AND a.is_old OR "
           "a.wait_event = 'ClientWrite', a.state = 'active' AND a.is_old AND a.wait_event = "
           "'ClientRead' FROM pg_control_system() c LEFT JOIN (SELECT *, state_change < "
           "clock_timestamp() - interval '" +
           std::to_string(kSilence.count()) + " s' AS is_old FROM pg_stat_get_activity(" + pid +
           ")) a ON true";
}

std::optional<SeenBackend> backend_in(const Rows& rows) {
    if (!rows.succeeded() || rows.size() != 1) return std::nullopt;
    return SeenBackend{rows.string(0, 0),  rows.string(0, 1),  rows.string(0, 2), rows.string(0, 3),
                       rows.boolean(0, 4), rows.boolean(0, 5), rows.boolean(0, 6)};
}

// Nothing is known of a socket that is none of TCP.
std::optional<Watch::Traffic> traffic_of(int socket) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
    return Watch::Traffic{
        info.tcpi_bytes_sent - info.tcpi_bytes_retrans + info.tcpi_notsent_bytes,
        info.tcpi_bytes_received,
        std::chrono::milliseconds(std::min(info.tcpi_last_data_sent, info.tcpi_last_data_recv))};
}

// Of a socket that waits no longer than a limit.
bool is_the_servers_silence(int error) {
    switch (error) {
        case ECONNREFUSED:
        case ECONNRESET:
        case EHOSTUNREACH:
        case ETIMEDOUT:
        case EAGAIN:
        case EINPROGRESS:
            return true;
        default:
            return false;
    }
}

Host host_of(const PGconn* connection) {
    const auto string = [](const char* text) { return std::string(text == nullptr ? "" : text); };
    return {string(PQhost(connection)), string(PQhostaddr(connection)), string(PQport(connection))};
}

}  // namespace

// Another server may answer in place of the session's: one of several standbys says nothing of it,
// a primary of the same cluster that began at another time has taken its place. Who may not see
// the session's details sees no reason to end it.
Verdict judge(const SeenBackend& session, const SeenBackend& now) {
    if (now.system != session.system) return Verdict::kThere;
    if (now.server_began != session.server_began) {
        return session.is_primary && now.is_primary ? Verdict::kGone : Verdict::kThere;
    }
    if (session.pid.empty()) return Verdict::kThere;
    const bool is_another =
        !now.began.empty() && !session.began.empty() && now.began != session.began;
    if (now.pid.empty() || is_another) return Verdict::kGone;
    if (now.has_nothing_to_do) return Verdict::kHasNothingToDo;
    return now.awaits_the_rest ? Verdict::kAwaitsTheRest : Verdict::kThere;
}

Watch::~Watch() {
    {
        const core::Lock lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    leave();
}

Status Watch::follow(pg_conn* connection) {
    leave();
    Server server{.host = host_of(connection)};
    server.address_size = sizeof server.address;
    const int socket = ::fcntl(PQsocket(connection), F_DUPFD_CLOEXEC, 0);
    if (socket < 0 || ::getpeername(socket, reinterpret_cast<sockaddr*>(&server.address),
                                    &server.address_size) != 0) {
        const std::string reason = std::generic_category().message(errno);
        if (socket >= 0) ::close(socket);
        return {ErrorCode::kConnectFailed, Advice::kRetryDestination,
                "watching the connection to " + server.host.host + ": " + reason};
    }
    {
        const core::Lock lock(mutex_);
        socket_ = socket;
        server_ = std::move(server);
        if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    }
    answered();
    PQregisterEventProc(
        connection,
        [](PGEventId event, void*, void* watch) {
            if (event == PGEVT_RESULTCREATE) static_cast<Watch*>(watch)->answered();
            return 1;
        },
        "outbox watch", this);
    return {};
}

void Watch::leave() {
    const core::Lock lock(mutex_);
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
    session_.reset();
}

void Watch::identify(Client& session) {
    std::optional<SeenBackend> found = backend_in(session.answer_to(look_sql(kOwnPid).c_str()));
    // A pooler's client has another backend by and by.
    if (found && found->pid != std::to_string(PQbackendPID(session.handle()))) found->pid.clear();
    const core::Lock lock(mutex_);
    session_ = std::move(found);
}

// A result has come: what was written until now is answered, and the session lives.
void Watch::answered() {
    const core::Lock lock(mutex_);
    answered_ = traffic_of(socket_).value_or(Traffic());
    ++turn_;
    since_ = steady_clock::now();
}

// It does not where something lies unread, as the answer to a handler that is busy elsewhere.
bool Watch::may_wait() const {
    int unread = 0;
    return use_ != Use::kNone && socket_ >= 0 &&
           (::ioctl(socket_, FIONREAD, &unread) != 0 || unread == 0);
}

// A handler may wait for it, or be busy elsewhere, where libpq may hold all of an answer of which
// something came.
bool Watch::owes_an_answer() const {
    const auto traffic = traffic_of(socket_);
    if (!traffic) return false;
    if (use_ == Use::kOurs) return traffic->silence >= kSilence;
    const bool has_some = traffic->received_bytes > answered_.received_bytes;
    return traffic->written_bytes > answered_.written_bytes &&
           traffic->silence >= (has_some ? kSilenceWithinAnAnswer : kSilence);
}

bool Watch::waits_for_us(Verdict verdict) const {
    return (verdict == Verdict::kHasNothingToDo ||
            (verdict == Verdict::kAwaitsTheRest && use_ == Use::kOurs)) &&
           owes_an_answer();
}

void Watch::use(Use use) {
    const core::Lock lock(mutex_);
    use_ = use;
    ++turn_;
    since_ = steady_clock::now();
}

void Watch::break_off() {
    const core::Lock lock(mutex_);
    if (socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);
}

void Watch::run() {
    std::optional<std::uint64_t> silent_turn;
    core::Lock lock(mutex_);
    while (!stop_) {
        changed_.wait_for(mutex_, kBetweenLooks,
                          [this]() OUTBOX_REQUIRES(mutex_) { return stop_; });
        if (stop_ || !may_wait() || steady_clock::now() - since_ < kPatience) continue;
        const std::uint64_t turn = turn_;
        const Server server = server_;
        const std::optional<SeenBackend> session = session_;
        lock.unlock();
        const Verdict verdict = ask(server, session);
        lock.lock();
        if (turn_ != turn || !may_wait()) continue;
        const bool silent_again = verdict == Verdict::kSilent && silent_turn == turn;
        silent_turn = verdict == Verdict::kSilent ? std::optional(turn) : std::nullopt;
        const bool waits = waits_for_us(verdict);
        since_ = steady_clock::now();
        if (verdict != Verdict::kGone && !silent_again && !waits) continue;
        ::shutdown(socket_, SHUT_RDWR);
        if (!waits) continue;
        lock.unlock();
        end_backend(server, *session);
        lock.lock();
    }
}

Status Watch::connect(Client& probe, const Server& server) const {
    const std::array name{Setting{"fallback_application_name", name_.c_str()}};
    const std::array where{Setting{"host", server.host.host.c_str()},
                           Setting{"hostaddr", server.host.hostaddr.c_str()},
                           Setting{"port", server.host.port.c_str()},
                           Setting{"target_session_attrs", "any"}};
    Status status = probe.connect(url_, connect_timeout_, name, where);
    probe.limit_waits({.most = connect_timeout_});
    return status;
}

// As well as may be: the server notices by itself where it can.
void Watch::end_backend(const Server& server, const SeenBackend& session) const {
    Client probe;
    if (!connect(probe, server).ok() || !probe.sound()) return;
    const std::string sql = std::string(kCatalogPath) + "SELECT pg_terminate_backend(" +
                            session.pid + ") FROM pg_stat_get_activity(" + session.pid +
                            ") WHERE (extract(epoch FROM backend_start) * 1000000)::bigint = '" +
                            session.began + "'";
    static_cast<void>(probe.answer_to(sql.c_str()));
}

// Whether it was the server that libpq failed for, which does not say: who asks for TLS gets a
// byte from any server that lives, and from one that will not have us.
bool Watch::answers_nothing(const Server& server) const {
    const int socket = ::socket(server.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) return false;
    const timeval limit{.tv_sec = connect_timeout_.count(), .tv_usec = 0};
    ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    constexpr std::array<unsigned char, 8> kAsksForTls{0, 0, 0, 8, 4, 210, 22, 47};
    ssize_t answered =
        ::connect(socket, reinterpret_cast<const sockaddr*>(&server.address), server.address_size);
    if (answered == 0) {
        ::send(socket, kAsksForTls.data(), kAsksForTls.size(), MSG_NOSIGNAL);
        unsigned char answer = 0;
        answered = ::recv(socket, &answer, 1, 0);
    }
    const bool nothing = answered == 0 || (answered < 0 && is_the_servers_silence(errno));
    ::close(socket);
    return nothing;
}

// A refusal with a reason is an answer.
Verdict Watch::ask(const Server& server, const std::optional<SeenBackend>& session) const {
    Client probe;
    if (!connect(probe, server).ok()) return Verdict::kThere;  // our own trouble
    if (!probe.in_time()) return Verdict::kSilent;
    if (!probe.sound()) {
        return sqlstate_in(probe.message()).empty() && answers_nothing(server) ? Verdict::kSilent
                                                                               : Verdict::kThere;
    }
    if (!session) return Verdict::kThere;
    const std::optional<SeenBackend> now = backend_in(
        probe.answer_to(look_sql(session->pid.empty() ? kOwnPid : session->pid).c_str()));
    if (probe.silent()) return Verdict::kSilent;
    return now ? judge(*session, *now) : Verdict::kThere;
}

}  // namespace outbox::postgres
