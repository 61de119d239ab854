#include "sources/postgres/replication.h"

#include <array>
#include <cerrno>
#include <libpq-fe.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>

namespace outbox::postgres {
namespace {

// A relay that hangs or whose host vanished keeps no log longer than this, also when it is gone
// while the server still waits for other transactions to make its slot. That wait itself is not
// to be cut short.
constexpr const char* kSession =
    "SET wal_sender_timeout = '10s'; SET client_connection_check_interval = '2s'; SET "
    "statement_timeout = 0; SET lock_timeout = 0; "
    "SET idle_in_transaction_session_timeout = 0";

constexpr std::chrono::milliseconds kLongWait{1000};

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

void ReplicationStream::FreeMessage::operator()(char* bytes) const {
    PQfreemem(bytes);
}

Result<ReplicationStream> ReplicationStream::open(const std::string& url, int timeout_s) {
    Result<Connection> connection =
        Connection::open(url, timeout_s, Connection::Kind::kReplication);
    if (!connection.ok()) return connection.status();
    if (Status status = connection->execute(kSession); !status.ok()) return status;
    return ReplicationStream(std::move(*connection));
}

Result<ServerIdentity> ReplicationStream::identify() {
    const Rows rows(PQexec(connection_.handle(), "IDENTIFY_SYSTEM"));
    if (PQresultStatus(rows.get()) != PGRES_TUPLES_OK) return connection_.error_of(rows.get());
    if (rows.size() != 1) return unexpected("IDENTIFY_SYSTEM");
    return ServerIdentity{rows.string(0, 0), rows.integer(0, 1),
                          pgoutput::parse_lsn(rows.text(0, 2)).value_or(0)};
}

Status ReplicationStream::send_create_slot(const std::string& name) {
    const std::string command = "CREATE_REPLICATION_SLOT " + quote_identifier(name) +
                                " TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT";
    if (PQsendQuery(connection_.handle(), command.c_str()) == 0) {
        return connection_.error_of(nullptr);
    }
    return {};
}

// True: the whole answer has come, or the connection broke.
bool ReplicationStream::answered(Wakeup& wakeup, Status& status) {
    status = wait(wakeup, kLongWait);
    return !status.ok() || PQisBusy(connection_.handle()) == 0;
}

Result<ReplicationStream::Slot> ReplicationStream::take_slot() {
    const Rows rows(PQgetResult(connection_.handle()));
    const Rows end(PQgetResult(connection_.handle()));
    if (PQresultStatus(rows.get()) != PGRES_TUPLES_OK) return connection_.error_of(rows.get());
    if (rows.size() != 1 || end.get() != nullptr) return unexpected("CREATE_REPLICATION_SLOT");
    return Slot{rows.string(0, 0), rows.string(0, 2),
                pgoutput::parse_lsn(rows.text(0, 1)).value_or(0)};
}

ErrorInfo ReplicationStream::cancel() {
    std::array<char, 256> reason{};
    if (PGcancel* request = PQgetCancel(connection_.handle()); request != nullptr) {
        PQcancel(request, reason.data(), static_cast<int>(reason.size()));
        PQfreeCancel(request);
    }
    return {ErrorCode::kInternal, Advice::kStop, {}, "told to stop"};
}

Status ReplicationStream::start(const Slot& slot, const std::string& publication) {
    const std::string command = "START_REPLICATION SLOT " + quote_identifier(slot.name) +
                                " LOGICAL " + pgoutput::format_lsn(slot.start) +
                                " (proto_version '1', binary 'true', publication_names " +
                                quote_literal(quote_identifier(publication)) + ")";
    const Rows rows(PQexec(connection_.handle(), command.c_str()));
    if (PQresultStatus(rows.get()) != PGRES_COPY_BOTH) return connection_.error_of(rows.get());
    return {};
}

ReplicationStream::Next ReplicationStream::next(std::string_view& message, Status& status) {
    char* bytes = nullptr;
    const int size = PQgetCopyData(connection_.handle(), &bytes, 1);
    message_.reset(bytes);
    if (size > 0) {
        message = {bytes, static_cast<std::size_t>(size)};
        return Next::kMessage;
    }
    if (size == 0) return Next::kNothing;
    const Rows end(PQgetResult(connection_.handle()));
    const bool error = PQresultStatus(end.get()) == PGRES_FATAL_ERROR;
    status = connection_.error_of(error ? end.get() : nullptr);
    return Next::kEnded;
}

Status ReplicationStream::wait(Wakeup& wakeup, std::chrono::milliseconds max_wait) {
    std::array<pollfd, 2> entries{pollfd{PQsocket(connection_.handle()), POLLIN, 0},
                                  pollfd{wakeup.descriptor(), POLLIN, 0}};
    const int ready = ::poll(entries.data(), entries.size(), static_cast<int>(max_wait.count()));
    if (ready < 0 && errno != EINTR) return unexpected("poll failed");
    if ((entries[1].revents & POLLIN) != 0) wakeup.clear();
    if (ready > 0 && entries[0].revents != 0 && PQconsumeInput(connection_.handle()) == 0) {
        return connection_.error_of(nullptr);
    }
    return {};
}

Status ReplicationStream::send(std::string_view message) {
    if (PQputCopyData(connection_.handle(), message.data(), static_cast<int>(message.size())) !=
            1 ||
        PQflush(connection_.handle()) < 0) {
        return connection_.error_of(nullptr);
    }
    return {};
}

}  // namespace outbox::postgres
