#include "databases/postgres/replication.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <libpq-fe.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>

#include "core/sql_text.h"

namespace outbox::postgres {
namespace {

// A relay that hangs or whose host vanished keeps no log longer than this, also when it is gone
// while the server still waits for other transactions to make its slot: it looks whether we are
// there. That wait itself is not to be cut short.
constexpr const char* kSession =
    "SET wal_sender_timeout = '10s'; SET client_connection_check_interval = '2s'; SET "
    "statement_timeout = 0; SET lock_timeout = 0; "
    // From the slot to its start its snapshot is open, and wal_sender_timeout does not count yet.
    "SET idle_in_transaction_session_timeout = '10s'";

constexpr std::chrono::milliseconds kLongWait{1000};
constexpr std::chrono::seconds kAnswerWait{10};

// How far ahead of what was read write_lsn is reported: to a client that has not written all that
// it was sent, a logical WAL sender sends two keepalives for each flush of the log. Nobody else
// looks at what a client that is no standby has written.
constexpr Lsn kWrittenAhead = Lsn{1} << 30U;

std::int64_t wall_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

ErrorInfo unexpected(const char* what) {
    return {ErrorCode::kQueryFailed,
            Advice::kRetryDestination,
            {},
            std::string("unexpected answer of the server: ") + what};
}

}  // namespace

Wakeup::Wakeup() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Wakeup::~Wakeup() {
    close(descriptor_);
}

void Wakeup::ring() {
    const std::uint64_t one = 1;
    static_cast<void>(!write(descriptor_, &one, sizeof one));  // full: it rings already
}

void Wakeup::clear() {
    std::uint64_t count = 0;
    static_cast<void>(!read(descriptor_, &count, sizeof count));
}

// Lines of timeline, end, reason with tabs between them.
std::optional<Lsn> end_of_timeline(std::string_view history, std::int64_t timeline) {
    while (!history.empty()) {
        const std::string_view line = history.substr(0, history.find('\n'));
        history.remove_prefix(std::min(history.size(), line.size() + 1));
        std::int64_t id = 0;
        const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), id);
        if (error != std::errc() || id != timeline) continue;
        const std::string_view rest = line.substr(static_cast<std::size_t>(end - line.data()));
        const auto from = rest.find_first_not_of('\t');
        if (from == std::string_view::npos) return std::nullopt;
        const std::string_view lsn = rest.substr(from);
        return pgoutput::parse_lsn(lsn.substr(0, lsn.find('\t')));
    }
    return std::nullopt;
}

void ReplicationStream::FreeMessage::operator()(char* bytes) const {
    PQfreemem(bytes);
}

Result<ReplicationStream> ReplicationStream::open(const std::string& url, int timeout_s, int stop) {
    Result<Connection> connection =
        Connection::open(url, timeout_s, Connection::Kind::kReplication);
    if (!connection.ok()) return connection.status();
    connection->limit_waits(kAnswerWait, stop);
    if (Status status = connection->execute(kSession); !status.ok()) return status;
    return ReplicationStream(std::move(*connection));
}

Result<ServerIdentity> ReplicationStream::identify() {
    const Result<Rows> rows = connection_.command("IDENTIFY_SYSTEM");
    if (!rows.ok()) return rows.status();
    if (rows->size() != 1) return unexpected("IDENTIFY_SYSTEM");
    ServerIdentity server{.system_id = rows->string(0, 0),
                          .database_oid = {},
                          .statistics_since = {},
                          .timeline = rows->integer(0, 1),
                          .lsn = pgoutput::parse_lsn(rows->text(0, 2)).value_or(0)};
    if (Status met = connection_.meet(server.system_id, server.timeline); !met.ok()) return met;
    return server;
}

Result<std::string> ReplicationStream::history() {
    const Result<ServerIdentity> server = identify();
    if (!server.ok()) return server.status();
    if (server->timeline <= 1) return std::string();
    Result<Rows> rows = connection_.command("TIMELINE_HISTORY " + std::to_string(server->timeline));
    if (!rows.ok()) return rows.status();
    if (rows->size() != 1) return unexpected("TIMELINE_HISTORY");
    return rows->string(0, 1);
}

Status ReplicationStream::send_create_slot(const std::string& name) {
    const std::string command = "CREATE_REPLICATION_SLOT " + quote_identifier(name) +
                                " TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT";
    if (PQsendQuery(connection_.handle(), command.c_str()) == 0) {
        return connection_.error_of(Rows());
    }
    return {};
}

// True: the whole answer has come, or the connection broke.
bool ReplicationStream::answered(Wakeup& wakeup, Status& status) {
    status = wait(wakeup, kLongWait);
    return !status.ok() || PQisBusy(connection_.handle()) == 0;
}

Result<ReplicationStream::Slot> ReplicationStream::take_slot() {
    const Rows rows = connection_.collect(true);
    if (PQresultStatus(rows.get()) != PGRES_TUPLES_OK) return connection_.error_of(rows);
    if (rows.size() != 1) return unexpected("CREATE_REPLICATION_SLOT");
    return Slot{rows.string(0, 0), rows.string(0, 2),
                pgoutput::parse_lsn(rows.text(0, 1)).value_or(0)};
}

Status ReplicationStream::start(const Slot& slot, const std::string& publication) {
    const std::string command = "START_REPLICATION SLOT " + quote_identifier(slot.name) +
                                " LOGICAL " + pgoutput::format_lsn(slot.start) +
                                " (proto_version '1', binary 'true', publication_names " +
                                quote_literal(quote_identifier(publication)) + ")";
    const Rows rows = connection_.answer_to(command);
    if (PQresultStatus(rows.get()) != PGRES_COPY_BOTH) return connection_.error_of(rows);
    return {};
}

ReplicationStream::Next ReplicationStream::next(std::string_view& message, Status& status) {
    char* bytes = nullptr;
    int size = PQgetCopyData(connection_.handle(), &bytes, 1);
    // One fill of libpq's buffer, or with TLS one message of the server, is not all there is.
    if (size == 0 && PQconsumeInput(connection_.handle()) != 0) {
        size = PQgetCopyData(connection_.handle(), &bytes, 1);
    }
    message_.reset(bytes);
    if (size > 0) {
        message = {bytes, static_cast<std::size_t>(size)};
        return Next::kMessage;
    }
    if (size == 0) return Next::kNothing;
    const Rows end(PQgetResult(connection_.handle()));
    status = connection_.error_of(end);
    return Next::kEnded;
}

Status ReplicationStream::wait(Wakeup& wakeup, std::chrono::milliseconds max_wait) {
    std::array<pollfd, 2> entries{pollfd{PQsocket(connection_.handle()), POLLIN, 0},
                                  pollfd{wakeup.descriptor(), POLLIN, 0}};
    const int ready = ::poll(entries.data(), entries.size(), static_cast<int>(max_wait.count()));
    if (ready < 0 && errno != EINTR) return unexpected("poll failed");
    if ((entries[1].revents & POLLIN) != 0) wakeup.clear();
    if (ready > 0 && entries[0].revents != 0 && PQconsumeInput(connection_.handle()) == 0) {
        return connection_.error_of(Rows());
    }
    return {};
}

Status ReplicationStream::confirm(Lsn read, bool request_reply) {
    const auto update =
        pgoutput::status_update(read + kWrittenAhead, read, read, wall_us(), request_reply);
    PGconn* const server = connection_.handle();
    if (PQputCopyData(server, update.data(), static_cast<int>(update.size())) != 1 ||
        PQflush(server) < 0) {
        return connection_.error_of(Rows());
    }
    return {};
}

}  // namespace outbox::postgres
