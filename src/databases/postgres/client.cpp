#include "databases/postgres/client.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <libpq-fe.h>
#include <poll.h>
#include <random>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <tuple>
#include <utility>
#include <vector>

#include "databases/postgres/errors.h"
#include "databases/postgres/hosts.h"
#include "secrets/password_file.h"

namespace outbox::postgres {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLook{100};  // for a stop that is asked for

// No row of a standby.
constexpr const char* kPrimary =
    "SELECT system_identifier, "
    "pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), pg_catalog.pg_backend_pid() FROM "
    "pg_catalog.pg_control_system() WHERE NOT pg_catalog.pg_is_in_recovery()";

constexpr const char* kMark = "SELECT pg_catalog.current_setting('outbox.session', true)";
constexpr milliseconds kLookForPooler{1'000};
constexpr int kLooksForPooler = 3;

std::string random_mark() {
    std::random_device random;
    return std::to_string(random()) + "." + std::to_string(random());
}

std::string text_or_empty(const char* text) {
    return text == nullptr ? std::string() : std::string(text);
}

// False when the time is over.
bool wait_for(const PGconn* connection, PostgresPollingStatusType state,
              steady_clock::time_point deadline) {
    while (true) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now());
        if (left.count() <= 0) return false;
        pollfd entry{PQsocket(connection),
                     static_cast<short>(state == PGRES_POLLING_READING ? POLLIN : POLLOUT), 0};
        const int ready = ::poll(&entry, 1, static_cast<int>(left.count()));
        if (ready < 0 && errno == EINTR) continue;
        return ready > 0;
    }
}

// Goes on until it is connected, refused, or out of time. With `cut` an address has half of what is
// left to answer at all, so that one which swallows packets leaves time for others of the URL or of
// its host: libpq goes on to them where a socket was shut down. `cut` afterwards: none was left.
PostgresPollingStatusType go_on(pg_conn* connection, steady_clock::time_point deadline, bool& cut) {
    const bool may_cut = std::exchange(cut, false);
    const auto share = [deadline] { return deadline - (deadline - steady_clock::now()) / 2; };
    auto until = share();
    auto state =
        PQstatus(connection) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
    while (state == PGRES_POLLING_READING || state == PGRES_POLLING_WRITING) {
        const bool reaching = may_cut && PQstatus(connection) == CONNECTION_STARTED;
        const bool over = !wait_for(connection, state, reaching ? until : deadline);
        cut = over && reaching;
        if (over && !reaching) return state;
        if (cut) {
            ::shutdown(PQsocket(connection), SHUT_RDWR);
            until = share();
        }
        state = PQconnectPoll(connection);
    }
    return state;
}

// As with libpq, a server that knows us and says no is not passed over for the next one.
bool refuses_us(const std::string& message) {
    const std::string_view state = sqlstate_in(message);
    return state.starts_with("28") || state == "3D000";
}

}  // namespace

std::string url_fault(const std::string& url) {
    char* message = nullptr;
    PQconninfoOption* options = PQconninfoParse(without_password_file(url).c_str(), &message);
    if (options != nullptr) {
        PQconninfoFree(options);
        return {};
    }
    // The message quotes the URL, its password included: only what stands before is passed on.
    std::string reason(message == nullptr ? "out of memory" : message);
    PQfreemem(message);
    return reason.substr(0, reason.find_first_of("\"\n"));
}

void Client::Finish::operator()(pg_conn* connection) const {
    PQfinish(connection);
}

Client::Handle Client::begin(const char* const* names, const char* const* values) {
    Handle begun(PQconnectStartParams(names, values, 1));
    if (begun) {
        PQsetErrorVerbosity(begun.get(), PQERRORS_VERBOSE);
        // libpq writes what the server remarks to stderr.
        PQsetNoticeProcessor(begun.get(), [](void*, const char*) {}, nullptr);
    }
    return begun;
}

Status Client::connect(const std::string& url, std::chrono::seconds timeout,
                       std::span<const Setting> defaults, std::span<const Setting> fixed) {
    close();
    const Result<std::string> target = with_password(url);
    if (!target.ok()) return target.status();
    Target there;
    for (const Setting& setting : defaults) there.add(setting.name, setting.value);
    there.add("dbname", target->c_str());
    there.add("client_encoding", "UTF8");
    for (const Setting& setting : fixed) there.add(setting.name, setting.value);
    const auto deadline = steady_clock::now() + timeout;
    const bool is_told_where = std::ranges::any_of(
        fixed, [](const Setting& setting) { return std::string_view(setting.name) == "host"; });
    const std::vector<Host> hosts = is_told_where ? std::vector<Host>() : hosts_of(*target);
    const std::string address = address_of(*target);
    if (hosts.empty()) {
        there.add(nullptr, nullptr);
        Status status = reach(there, deadline);
        if (!status.ok() || is_told_where) return status;
        primary_.address = address;
        return look(there, deadline);
    }
    Status old;
    // Each has its share of the time until it takes statements, not just for its first answer.
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        const Host& host = hosts[i];
        const std::size_t before = there.names.size();
        there.add("host", host.host.c_str());
        there.add("hostaddr", host.hostaddr.c_str());
        there.add("port", host.port.c_str());
        there.add(nullptr, nullptr);
        const auto now = steady_clock::now();
        const auto share = (deadline - now) / static_cast<int>(hosts.size() - i);
        if (Status status = reach(there, now + share); !status.ok()) return status;
        host_ = host;
        primary_ = {};
        primary_.address = address;
        if (Status met = look(there, now + share); !met.ok()) {
            if (met.error().code == ErrorCode::kUnsupported) return met;
            old = std::move(met);
        }
        note_answer(host, in_time_);
        if (sound() || refuses_us(message())) return {};
        there.names.resize(before);
        there.values.resize(before);
    }
    if (!old.ok()) close();
    return old;
}

// Which primary it is, and whether the session is ours alone. Who may not ask, or asks something
// else than PostgreSQL, goes on without.
Status Client::look(const Target& target, Time deadline) {
    if (!sound()) return {};
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    const milliseconds most = std::exchange(patience_.most, std::max(left, milliseconds(1)));
    const Rows primary = answer_to(kPrimary);
    const bool known = !silent_ && primary.succeeded() && primary.size() == 1;
    const std::string backend = std::to_string(PQbackendPID(handle_.get()));
    const bool shared = known && primary.string(0, 2) != backend && is_shared(target);
    patience_.most = most;
    in_time_ = !silent_;
    if (shared) {
        const std::string where = host();
        handle_.reset();
        return {ErrorCode::kUnsupported, Advice::kStop,
                "the connection to " + where +
                    " goes through a pooler that gives each transaction another session "
                    "(PgBouncer in transaction mode), and what is set for ours would reach those "
                    "of others; give the URL of the server itself, or of a pool in session mode"};
    }
    if (silent_ || !known) return {};
    Status met = meet(primary.string(0, 0), timeline_of(primary.text(0, 1)));
    if (!met.ok()) handle_.reset();
    return met;
}

// Behind a pooler: whether what is set here is seen on another connection, or not here any more.
// One that lets sessions be, but has no more of them, has the other wait in vain.
bool Client::is_shared(const Target& target) {
    const std::string mark = random_mark();
    const auto sees_mark = [&mark](Client& client) {
        const Rows seen = client.answer_to(kMark);
        return seen.succeeded() && seen.size() == 1 && seen.string(0, 0) == mark;
    };
    if (!answer_to(("SET outbox.session = '" + mark + "'").c_str()).succeeded()) return false;
    Client other;
    if (!other.reach(target, steady_clock::now() + kLookForPooler).ok()) return false;
    other.limit_waits({kLookForPooler});
    bool shared = false;
    for (int look = 0; look < kLooksForPooler && !shared && other.sound(); ++look) {
        shared = sees_mark(other) || (!sees_mark(*this) && sound());
    }
    if (sound()) std::ignore = answer_to("RESET outbox.session");
    return shared;
}

Status Client::meet(std::string system_id, std::int64_t timeline) {
    primary_.system_id = std::move(system_id);
    primary_.timeline = timeline;
    Status met = postgres::meet(primary_);
    if (!met.ok()) refuse();
    return met;
}

// One attempt, whatever becomes of it.
Status Client::reach(const Target& target, Time deadline) {
    const ErrorInfo no_memory{ErrorCode::kInternal, Advice::kStop, {}, "out of memory"};
    handle_ = begin(target.names.data(), target.values.data());
    if (!handle_) return no_memory;
    bool cut = true;
    auto state = go_on(handle_.get(), deadline, cut);
    if (cut) {
        // There is nobody for whom time has to be left.
        handle_ = begin(target.names.data(), target.values.data());
        if (!handle_) return no_memory;
        cut = false;
        state = go_on(handle_.get(), deadline, cut);
    }
    in_time_ = state == PGRES_POLLING_OK || state == PGRES_POLLING_FAILED;
    was_open_ = state == PGRES_POLLING_OK;
    if (state == PGRES_POLLING_OK) PQsetErrorVerbosity(handle_.get(), PQERRORS_DEFAULT);
    return {};
}

void Client::close() {
    handle_.reset();
    host_.reset();
    primary_ = {};
    was_open_ = false;
    in_time_ = true;
    silent_ = false;
}

void Client::send_without_waiting() {
    PQsetnonblocking(handle_.get(), 1);
}

bool Client::sound() const {
    return !silent_ && PQstatus(handle_.get()) == CONNECTION_OK;
}

bool Client::lacks_password() const {
    return PQconnectionNeedsPassword(handle_.get()) == 1;
}

std::string Client::message() const {
    return text_or_empty(PQerrorMessage(handle_.get()));
}

std::string Client::user() const {
    return text_or_empty(PQuser(handle_.get()));
}

std::string Client::database() const {
    return text_or_empty(PQdb(handle_.get()));
}

std::string Client::host() const {
    const std::string port = text_or_empty(PQport(handle_.get()));
    return text_or_empty(PQhost(handle_.get())) + (port.empty() ? "" : ":" + port);
}

Rows Client::answer_to(const char* sql) {
    return collect(PQsendQuery(handle_.get(), sql) == 1);
}

Rows Client::collect(bool sent) {
    Rows last(nullptr);
    while (sent) {
        Rows next = next_result();
        if (next.get() == nullptr) break;
        last = std::move(next);
        const ExecStatusType state = PQresultStatus(last.get());
        if (state == PGRES_COPY_OUT || state == PGRES_COPY_BOTH || !sound()) break;
    }
    return silent_ ? Rows(nullptr) : std::move(last);
}

Rows Client::next_result() {
    PGconn* const server = handle_.get();
    if (PQisBusy(server) != 0) {
        const Time end = end_of_wait();
        while (hear_until(end) && PQisBusy(server) != 0) {
        }
    }
    return Rows(silent_ ? nullptr : PQgetResult(server));
}

bool Client::hear() {
    return hear_until(end_of_wait());
}

bool Client::hear_until(Time end) {
    PGconn* const server = handle_.get();
    const int unsent = PQflush(server);
    if (unsent < 0 || PQsocket(server) < 0) return false;
    // A negative descriptor is passed over.
    std::array<pollfd, 2> entries{
        pollfd{PQsocket(server), static_cast<short>(unsent == 0 ? POLLIN : POLLIN | POLLOUT), 0},
        pollfd{patience_.descriptor, POLLIN, 0}};
    const int ready = ::poll(entries.data(), entries.size(), milliseconds_to(end));
    if (ready < 0 && errno == EINTR) return true;
    // A wait that was cut short for a look.
    const bool goes_on = patience_.stop.stop_possible() && !patience_.stop.stop_requested();
    if (ready == 0 && goes_on && steady_clock::now() < end) return true;
    silent_ = ready <= 0 || entries[1].revents != 0;
    if (silent_) return false;
    return (entries[0].revents & ~POLLOUT) == 0 || PQconsumeInput(server) != 0;
}

Client::Time Client::end_of_wait() const {
    return patience_.most.count() < 0 ? Time::max() : steady_clock::now() + patience_.most;
}

int Client::milliseconds_to(Time end) const {
    const bool looks = patience_.stop.stop_possible();
    if (end == Time::max()) return looks ? static_cast<int>(kLook.count()) : -1;
    const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now());
    const auto most = looks ? std::min(left, kLook) : left;
    return static_cast<int>(std::max(most, milliseconds(0)).count());
}

}  // namespace outbox::postgres
