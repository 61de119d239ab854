#include "tests/simulation/postgres/lines.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdexcept>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

// The names are the linker's (--wrap).
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {
PGconn* __real_PQconnectStartParams(const char* const*, const char* const*, int);
PostgresPollingStatusType __real_PQconnectPoll(PGconn*);
void __real_PQfinish(PGconn*);
int __real_PQsendQuery(PGconn*, const char*);
int __real_PQsendQueryParams(PGconn*, const char*, int, const Oid*, const char* const*, const int*,
                             const int*, int);
int __real_PQsendQueryPrepared(PGconn*, const char*, int, const char* const*, const int*,
                               const int*, int);
int __real_PQsendPrepare(PGconn*, const char*, const char*, int, const Oid*);
int __real_PQpipelineSync(PGconn*);
int __real_poll(pollfd*, nfds_t, int);
int __real_nanosleep(const timespec*, timespec*);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace outbox::simulation {

namespace {

constexpr int kRealLimitS = 20;  // for what takes the server milliseconds
constexpr std::int64_t kVanishedMaxUs = 20 * kSecond;
constexpr std::int64_t kForever = 3'600 * kSecond;
constexpr std::int64_t kRest = 20 * kMs;  // between looks at what is none of the server's

Lines* current_lines = nullptr;

[[noreturn]] void stuck(const std::string& what) {
    throw std::runtime_error("the server of the simulation: " + what);
}

class RealLimit {
  public:
    void check(const char* what) const {
        if (std::time(nullptr) > until_) stuck(what);
    }

  private:
    std::time_t until_ = std::time(nullptr) + kRealLimitS;
};

void pause_really() {
    constexpr timespec kMoment{0, 20'000};
    __real_nanosleep(&kMoment, nullptr);
}

std::uint64_t load(const std::uint64_t& value) {
    return __atomic_load_n(&value, __ATOMIC_SEQ_CST);
}

std::int64_t wall_us(const World& world) {
    constexpr std::int64_t kBeginning = 1'700'000'000 * kSecond;
    return kBeginning + world.now_us();
}

}  // namespace

Lines* Lines::current() {
    return World::moving() != nullptr ? current_lines : nullptr;
}

Lines::Lines(World& world, Server& server, const Settings& settings)
    : world_(world), server_(server), settings_(settings) {
    current_lines = this;
}

Lines::~Lines() {
    end();
    current_lines = nullptr;
    server_.set_clock(0);
}

// libpq closes what broke, and its number is another's then.
int Lines::fd_of(const Line& line) {
    return line.connection == nullptr ? line.kept_fd : PQsocket(line.connection);
}

Lines::Line* Lines::find(pg_conn* connection) {
    for (Line& line : lines_) {
        if (connection != nullptr && line.connection == connection) return &line;
    }
    return nullptr;
}

Lines::Line* Lines::find(int fd) {
    for (Line& line : lines_) {
        if (line.connection != nullptr && fd_of(line) == fd) return &line;
    }
    return nullptr;
}

void Lines::set_clock() {
    server_.set_clock(simulation::wall_us(world_));
}

void Lines::travel() {
    Random& random = world_.random();
    const bool slow = random.chance(0.002);
    world_.sleep(slow ? random.between(1, 4'000) * kMs : random.between(20, 1'500));
}

bool Lines::outage(World::Group group) const {
    return group != World::kNoGroup && world_.now_us() < away_until_us_;
}

bool Lines::breaks(World::Group group) {
    if (group == World::kNoGroup) return false;
    return outage(group) || world_.random().chance(settings_.call_fails);
}

bool Lines::ended(const Line& line) {
    pollfd process{line.process, POLLIN, 0};
    return __real_poll(&process, 1, 0) > 0;
}

// Asleep, and nobody has sent for it since it fell asleep.
bool Lines::at_rest(const Line& line) {
    return load(line.slot->asleep) != 0 && load(line.slot->seen) == load(line.slot->wakes);
}

// Behind a lock. One that waits for its client may have a request to take up.
bool Lines::held_up(const Line& line) {
    return at_rest(line) && load(line.slot->reads) == 0;
}

// All of the answer is there: it ends with ReadyForQuery.
bool Lines::answered(const Line& line) {
    int size = 0;
    const int fd = fd_of(line);
    if (::ioctl(fd, FIONREAD, &size) != 0 || size < 6) return false;
    peeked_.resize(static_cast<std::size_t>(size));
    const auto got = ::recv(fd, peeked_.data(), peeked_.size(), MSG_PEEK | MSG_DONTWAIT);
    if (got < 6) return false;
    const std::string_view tail(peeked_.data() + got - 6, 6);
    return tail.starts_with(std::string_view("Z\0\0\0\5", 5));
}

// Of several that one commit lets go one moves at a time.
void Lines::take_turn(const Line& line) {
    std::uint64_t waits = 1;
    if (__atomic_compare_exchange_n(&line.slot->waits, &waits, 0, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST)) {
        __atomic_store_n(&line.slot->turn, 1, __ATOMIC_SEQ_CST);
    }
}

// Until it has answered, sleeps behind a lock or is gone. A backend that has answered has let go of
// what others wait for, and does no more.
void Lines::settle(Line& line) {
    const RealLimit limit;
    while (line.busy) {
        const bool rests = held_up(line);
        if (answered(line)) line.busy = false;
        if (!line.busy || rests || ended(line)) return;
        limit.check(("backend " + std::to_string(line.pid) + " does not come to rest").c_str());
        wait_for_input(line);
    }
}

void Lines::wait_for_input(const Line& line) {
    constexpr timespec kLook{0, 200'000};
    take_turn(line);
    pollfd entries[] = {{fd_of(line), POLLIN, 0}, {line.process, POLLIN, 0}};
    const bool partial = __real_poll(entries, 1, 0) > 0;
    if (partial) entries[0].fd = -1;
    ::ppoll(entries, 2, &kLook, nullptr);
}

// What one statement let go of may let others go on, and these again others.
void Lines::settle_all() {
    for (bool changed = true; changed;) {
        changed = false;
        for (Line& line : lines_) {
            if (!line.busy) continue;
            if (held_up(line) || ended(line)) {
                if (answered(line)) line.busy = false;
                continue;
            }
            settle(line);
            changed = true;
        }
    }
    for (Line& line : lines_) {
        if (line.blocked && (!line.busy || ended(line))) {
            line.blocked = false;
            world_.wake(line.task);
        }
    }
    for (auto line = lines_.begin(); line != lines_.end();) {
        const auto next = std::next(line);
        if (line->connection == nullptr && ended(*line)) close(line);
        line = next;
    }
}

void Lines::await_end(const Line& line) {
    const RealLimit limit;
    while (!ended(line)) {
        limit.check("a backend does not end");
        wait_for_input(line);
    }
}

void Lines::close(std::list<Line>::iterator line) {
    if (line->kept_fd >= 0) ::close(line->kept_fd);
    ::close(line->process);
    // After a crash it may be another's.
    if (line->slot->pid == line->pid) Server::free_slot(*line->slot);
    lines_.erase(line);
}

// The connection breaks. A backend that sleeps behind a lock notices when it has it.
void Lines::cut(Line& line) {
    const int fd = fd_of(line);
    ::shutdown(fd, SHUT_RDWR);
    std::string trash(4096, '\0');
    while (::recv(fd, trash.data(), trash.size(), MSG_DONTWAIT) > 0) {
    }
    if (!line.busy) await_end(line);
    settle_all();
}

// The last of two hosts counts: nobody listens there.
pg_conn* Lines::connect(const char* const* names, const char* const* values, int expand) {
    const World::Group group = world_.group();
    if (!world_.dying()) travel();
    set_clock();
    if (!world_.dying() && !breaks(group))
        return __real_PQconnectStartParams(names, values, expand);
    std::vector<const char*> all_names;
    std::vector<const char*> all_values;
    for (; *names != nullptr; ++names, ++values) {
        all_names.push_back(*names);
        all_values.push_back(*values);
    }
    all_names.insert(all_names.end(), {"host", nullptr});
    all_values.insert(all_values.end(), {"/nowhere", nullptr});
    return __real_PQconnectStartParams(all_names.data(), all_values.data(), expand);
}

void Lines::connected(pg_conn* connection) {
    set_clock();
    Line line;
    line.connection = connection;
    line.pid = PQbackendPID(connection);
    line.process = static_cast<int>(::syscall(SYS_pidfd_open, line.pid, 0));
    if (line.process < 0) stuck("no descriptor of a backend");
    const RealLimit limit;
    while ((line.slot = server_.slot_of(line.pid)) == nullptr) {
        limit.check("a backend does not sleep");
        pause_really();
    }
    line.group = world_.group();
    __atomic_store_n(&line.slot->gated, 1, __ATOMIC_SEQ_CST);
    lines_.push_back(line);
    ++connections_;
    settle_all();
    if (line.group != World::kNoGroup) travel();
}

void Lines::before_request(pg_conn* connection) {
    Line* line = find(connection);
    if (line == nullptr || line->sending) return;
    travel();
    line = find(connection);
    line->sending = true;
    if (breaks(line->group)) cut(*line);
    set_clock();
}

void Lines::requested(pg_conn* connection) {
    if (Line* line = find(connection); line != nullptr) {
        line->answering = line->busy = true;
        line->sending = false;
    }
    ++statements_;
}

bool Lines::await(int fd, std::int64_t max_wait_us, bool& ready) {
    Line* line = find(fd);
    if (line == nullptr) return false;
    const std::int64_t until_us = world_.now_us() + max_wait_us;
    settle(*line);
    settle_all();
    pollfd readable{fd, POLLIN, 0};
    while (line->busy && !ended(*line) && __real_poll(&readable, 1, 0) <= 0) {
        ready = false;
        if (world_.dying() || world_.now_us() >= until_us) return true;
        ++blocked_;
        line->blocked = true;
        line->task = world_.current();
        world_.sleep_until(until_us);
        line = find(fd);
        line->blocked = false;
    }
    ready = true;
    if (!std::exchange(line->answering, false) || line->group == World::kNoGroup ||
        world_.dying()) {
        return true;
    }
    travel();
    line = find(fd);
    if (breaks(line->group)) cut(*line);
    return true;
}

void Lines::hear(pg_conn* connection) {
    if (world_.dying()) sever(connection);
    while (PQisBusy(connection) != 0) {
        bool ready = false;
        if (PQflush(connection) < 0 || PQsocket(connection) < 0 ||
            !await(PQsocket(connection), kForever, ready) || PQconsumeInput(connection) == 0) {
            break;
        }
    }
}

void Lines::sever(pg_conn* connection) {
    Line* line = find(connection);
    if (line == nullptr || fd_of(*line) < 0) return;
    if (vanished_.contains(line->group)) {
        leave(*line);
    } else {
        cut(*line);
    }
}

// Its host is gone, and the server does not hear of it.
void Lines::leave(Line& line) {
    const int fd = fd_of(line);
    if (line.kept_fd >= 0 || fd < 0 || ended(line)) return;
    line.kept_fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    ::dup2(nothing, fd);
    ::close(nothing);
    line.close_us = world_.now_us() + world_.random().between(1, kVanishedMaxUs);
    line.blocked = false;
}

void Lines::rest(int fd, std::int64_t max_wait_us) {
    const std::int64_t until_us = world_.now_us() + max_wait_us;
    pollfd entry{fd, POLLIN, 0};
    while (world_.now_us() < until_us && __real_poll(&entry, 1, 0) == 0) {
        world_.sleep_until(std::min(until_us, world_.now_us() + kRest));
    }
}

const char* Lines::as_planted(const char* sql, std::string& changed) {
    if (plant_.from.empty()) return sql;
    changed = sql;
    const auto at = changed.find(plant_.from);
    if (at == std::string::npos) return sql;
    ++planted_;
    changed.replace(at, plant_.from.size(), plant_.to);
    return changed.c_str();
}

// Called by destructors, too: nobody else moves meanwhile.
void Lines::finish(pg_conn* connection) {
    const auto line = std::find_if(lines_.begin(), lines_.end(),
                                   [&](const Line& one) { return one.connection == connection; });
    if (line == lines_.end()) {
        __real_PQfinish(connection);
        return;
    }
    set_clock();
    if (vanished_.contains(line->group)) leave(*line);
    line->connection = nullptr;
    __real_PQfinish(connection);
    if (line->kept_fd >= 0) return;
    if (!line->busy) await_end(*line);
    line->blocked = false;
    settle_all();
}

void Lines::keep_time() {
    set_clock();
    const std::int64_t now_us = simulation::wall_us(world_);
    for (Line& line : lines_) {
        if (line.close_us <= world_.now_us() && line.kept_fd >= 0) {
            ::close(std::exchange(line.kept_fd, -1));
            if (!line.busy) await_end(line);
            continue;
        }
        std::int64_t due_us = __atomic_load_n(&line.slot->due_us, __ATOMIC_SEQ_CST);
        if (due_us == 0 || due_us > now_us || ended(line)) continue;
        __atomic_store_n(&line.slot->due_us, 0, __ATOMIC_SEQ_CST);
        const std::uint64_t before = load(line.slot->alarms);
        ::kill(line.pid, SIGALRM);
        const RealLimit limit;
        while (!ended(line) && (load(line.slot->alarms) == before || !at_rest(line))) {
            limit.check("a backend does not hear its alarm");
            wait_for_input(line);
        }
    }
    settle_all();
}

bool Lines::terminate_one() {
    std::vector<Line*> some;
    for (Line& line : lines_) {
        if (line.group != World::kNoGroup && !ended(line)) some.push_back(&line);
    }
    if (some.empty()) return false;
    set_clock();
    const Line& line = *some[world_.random().index(some.size())];
    ::kill(line.pid, SIGTERM);
    await_end(line);
    settle_all();
    return true;
}

std::int64_t Lines::wall_us() const {
    return simulation::wall_us(world_);
}

void Lines::restart(const std::function<void()>& server) {
    {
        const World::Reality its_waits;
        server();
    }
    set_clock();
    settle_all();
}

void Lines::end() {
    for (auto line = lines_.begin(); line != lines_.end();) {
        const auto next = std::next(line);
        if (line->kept_fd >= 0) {
            ::close(std::exchange(line->kept_fd, -1));
            await_end(*line);
            close(line);
        }
        line = next;
    }
    const RealLimit limit;
    while (!lines_.empty()) {
        limit.check("a backend does not end");
        for (auto line = lines_.begin(); line != lines_.end();) {
            const auto next = std::next(line);
            if (ended(*line)) {
                close(line);
            } else {
                take_turn(*line);
            }
            line = next;
        }
        pause_really();
    }
}

}  // namespace outbox::simulation

using outbox::simulation::Lines;

namespace {

// A pipeline's statements travel together; libpq may send some before the last is there.
template <typename Send>
int send_now(PGconn* connection, bool last, Send real) {
    Lines* lines = Lines::current();
    if (lines == nullptr) return real();
    if (lines->world().dying()) {
        lines->sever(connection);
        return real();
    }
    lines->before_request(connection);
    const int sent = real();
    if (last) lines->requested(connection);
    return sent;
}

const char* planted(const char* sql, std::string& changed) {
    Lines* lines = Lines::current();
    return lines == nullptr ? sql : lines->as_planted(sql, changed);
}

// What is connected, or is about to be, has real answers to wait for.
bool is_socket(int fd) {
    int type = 0;
    socklen_t size = sizeof type;
    return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
}

bool is_whole(const PGconn* connection) {
    return PQpipelineStatus(connection) == PQ_PIPELINE_OFF;
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {

PGconn* __wrap_PQconnectStartParams(const char* const* names, const char* const* values,
                                    int expand) {
    Lines* lines = Lines::current();
    return lines == nullptr ? __real_PQconnectStartParams(names, values, expand)
                            : lines->connect(names, values, expand);
}

PostgresPollingStatusType __wrap_PQconnectPoll(PGconn* connection) {
    const auto state = __real_PQconnectPoll(connection);
    Lines* lines = Lines::current();
    if (lines != nullptr && state == PGRES_POLLING_OK) lines->connected(connection);
    return state;
}

void __wrap_PQfinish(PGconn* connection) {
    Lines* lines = Lines::current();
    if (lines == nullptr) {
        __real_PQfinish(connection);
    } else {
        lines->finish(connection);
    }
}

int __wrap_PQsendQuery(PGconn* connection, const char* sql) {
    return send_now(connection, is_whole(connection), [&] {
        std::string changed;
        return __real_PQsendQuery(connection, planted(sql, changed));
    });
}

int __wrap_PQsendQueryParams(PGconn* connection, const char* sql, int count, const Oid* types,
                             const char* const* values, const int* lengths, const int* formats,
                             int format) {
    return send_now(connection, is_whole(connection), [&] {
        std::string changed;
        return __real_PQsendQueryParams(connection, planted(sql, changed), count, types, values,
                                        lengths, formats, format);
    });
}

int __wrap_PQsendQueryPrepared(PGconn* connection, const char* name, int count,
                               const char* const* values, const int* lengths, const int* formats,
                               int format) {
    return send_now(connection, is_whole(connection), [&] {
        return __real_PQsendQueryPrepared(connection, name, count, values, lengths, formats,
                                          format);
    });
}

int __wrap_PQsendPrepare(PGconn* connection, const char* name, const char* sql, int count,
                         const Oid* types) {
    return send_now(connection, is_whole(connection), [&] {
        std::string changed;
        return __real_PQsendPrepare(connection, name, planted(sql, changed), count, types);
    });
}

int __wrap_PQpipelineSync(PGconn* connection) {
    return send_now(connection, true, [&] { return __real_PQpipelineSync(connection); });
}

int __wrap_poll(pollfd* entries, nfds_t count, int timeout_ms) {
    Lines* lines = Lines::current();
    bool ready = false;
    if (lines == nullptr || count == 0) return __real_poll(entries, count, timeout_ms);
    const std::int64_t most_us =
        timeout_ms < 0 ? outbox::simulation::kForever : timeout_ms * std::int64_t{1'000};
    if (!lines->await(entries[0].fd, most_us, ready)) {
        if (is_socket(entries[0].fd)) return __real_poll(entries, count, timeout_ms);
        lines->rest(entries[0].fd, most_us);
        return __real_poll(entries, count, 0);
    }
    for (nfds_t i = 0; i < count; ++i) entries[i].revents = 0;
    if (ready) entries[0].revents = POLLIN;
    return ready ? 1 : 0;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
