#include "tests/simulation/postgres/lines.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <libpq-fe.h>
#include <linux/sockios.h>
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
int __real_PQputCopyData(PGconn*, const char*, int);
int __real_PQflush(PGconn*);
int __real_PQconsumeInput(PGconn*);
int __real_poll(pollfd*, nfds_t, int);
ssize_t __real_write(int, const void*, size_t);
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

bool rings(int bell) {
    pollfd entry{bell, POLLIN, 0};
    return bell >= 0 && __real_poll(&entry, 1, 0) > 0;
}

bool replicates(PGconn* connection) {
    PQconninfoOption* const options = PQconninfo(connection);
    bool found = false;
    for (const PQconninfoOption* option = options; option->keyword != nullptr; ++option) {
        found = found || (std::string_view(option->keyword) == "replication" &&
                          option->val != nullptr && std::string_view(option->val) == "database");
    }
    PQconninfoFree(options);
    return found;
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

bool Lines::readable(const Line& line) {
    pollfd entry{fd_of(line), POLLIN, 0};
    return __real_poll(&entry, 1, 0) > 0;
}

bool Lines::held_back(const Line& line) const {
    return world_.now_us() < held_until_us_ && !ended(line);
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
    const std::int64_t us = slow ? random.between(1, 4'000) * kMs : random.between(20, 1'500);
    if (slow && slow_) slow_(us);
    world_.sleep(us);
}

void Lines::linger(pg_conn* connection, std::int64_t us) {
    Line* line = find(connection);
    if (line == nullptr || !has_streams()) return;
    line->linger_us = us;
    __atomic_store_n(&line->slot->lingers, 1, __ATOMIC_SEQ_CST);
}

bool Lines::holds_up_a_checkpoint() const {
    return std::any_of(lines_.begin(), lines_.end(), [](const Line& line) {
        return lingers(line) || (line.streams && chokes(line));
    });
}

bool Lines::has_streams() const {
    return std::any_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.streams; });
}

World::Group Lines::streaming() const {
    for (const Line& line : lines_) {
        if (line.streams && line.left_us == kNever && !ended(line)) return line.group;
    }
    return World::kNoGroup;
}

std::set<pid_t> Lines::left(std::int64_t us) const {
    std::set<pid_t> backends;
    for (const Line& line : lines_) {
        if (line.left_us != kNever && world_.now_us() - line.left_us >= us) {
            backends.insert(line.pid);
        }
    }
    return backends;
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
    const bool looked = load(line.slot->writes) == 0 || load(line.slot->looked) == line.slot->asked;
    return load(line.slot->asleep) != 0 && load(line.slot->seen) == load(line.slot->wakes) &&
           looked;
}

// Nothing is on its way to it.
bool Lines::heard_all(const Line& line) {
    int unread = 0;
    const int fd = line.kept_fd >= 0 ? line.kept_fd : fd_of(line);
    return ::ioctl(fd, SIOCOUTQ, &unread) != 0 || unread == 0;
}

// Behind a lock, or one that makes a slot, for the log to grow. Another one that waits for its
// client may have a request to take up.
bool Lines::held_up(const Line& line) {
    if (line.replicates) return heard_all(line) && at_rest(line);
    return at_rest(line) && load(line.slot->reads) == 0;
}

// Its answer may have been read as it was sent.
bool Lines::is_idle(const Line& line) {
    return !line.replicates && heard_all(line) && at_rest(line) && load(line.slot->reads) != 0 &&
           load(line.slot->writes) == 0;
}

// Its answer is larger than what fits on the way.
bool Lines::chokes(const Line& line) {
    return load(line.slot->asleep) != 0 && load(line.slot->writes) != 0 && readable(line);
}

// Between its commit and the moment in which others see it.
bool Lines::lingers(const Line& line) {
    return line.linger_us > 0 && load(line.slot->lingers) == 0 && load(line.slot->waits) != 0;
}

bool Lines::comes_no_further(const Line& line) {
    return held_up(line) || chokes(line) || lingers(line);
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

// What is gone is gone since then: the server's patience begins.
void Lines::has_answered(Line& line) const {
    line.busy = false;
    if (line.left_us != kNever) line.left_us = world_.now_us();
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
        const bool rests = comes_no_further(line);
        if (answered(line) || is_idle(line)) has_answered(line);
        if (!line.busy || rests || ended(line)) return;
        limit.check(("backend " + std::to_string(line.pid) + " does not come to rest").c_str());
        wait_for_input(line);
    }
}

void Lines::wait_for_input(const Line& line) {
    constexpr timespec kLook{0, 200'000};
    if (!lingers(line)) take_turn(line);
    pollfd entries[] = {{fd_of(line), POLLIN, 0}, {line.process, POLLIN, 0}};
    const bool partial = __real_poll(entries, 1, 0) > 0;
    if (partial) entries[0].fd = -1;
    ::ppoll(entries, 2, &kLook, nullptr);
}

// Until who sends the log has sent all of it, or is gone.
void Lines::send_all(const Line& line) {
    const RealLimit limit;
    while (!held_up(line) && !ended(line)) {
        limit.check("a sender of the log does not come to rest");
        wait_for_input(line);
    }
}

// What one statement let go of may let others go on, and these again others.
void Lines::settle_all() {
    for (bool changed = true; changed;) {
        changed = false;
        for (Line& line : lines_) {
            if (!line.busy && !line.streams) continue;
            if (comes_no_further(line) || ended(line)) {
                if (line.busy && answered(line)) has_answered(line);
                continue;
            }
            line.streams ? send_all(line) : settle(line);
            changed = true;
        }
    }
    for (Line& line : lines_) {
        const bool goes_on = line.blocked && (!line.busy || ended(line));
        if (goes_on || (line.awaited && readable(line) && !held_back(line))) {
            line.blocked = line.awaited = false;
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
    line.replicates = replicates(connection);
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

void Lines::requested(pg_conn* connection, bool begins_stream) {
    if (Line* line = find(connection); line != nullptr) {
        line->answering = line->busy = !begins_stream;
        line->sending = false;
        line->streams = begins_stream;
        __atomic_store_n(&line->slot->streams, begins_stream ? 1 : 0, __ATOMIC_SEQ_CST);
    }
    ++statements_;
}

bool Lines::await(int fd, int bell, std::int64_t max_wait_us, Waited& waited) {
    Line* line = find(fd);
    if (line == nullptr) return false;
    const std::int64_t until_us = world_.now_us() + max_wait_us;
    line->bell = bell;
    if (line->streams) {
        await_stream(line, until_us, waited);
        return true;
    }
    settle(*line);
    settle_all();
    while (line->busy && !ended(*line) && !readable(*line)) {
        waited.rang = rings(bell);
        if (waited.rang || world_.dying() || world_.now_us() >= until_us) return true;
        if (lingers(*line)) {
            become_visible(line, until_us);
            continue;
        }
        ++blocked_;
        line->blocked = true;
        line->task = world_.current();
        world_.sleep_until(until_us);
        line = find(fd);
        line->blocked = false;
    }
    waited.readable = true;
    line->linger_us = 0;
    __atomic_store_n(&line->slot->lingers, 0, __ATOMIC_SEQ_CST);
    if (!std::exchange(line->answering, false) || line->group == World::kNoGroup ||
        world_.dying()) {
        return true;
    }
    travel();
    line = find(fd);
    if (breaks(line->group)) cut(*line);
    return true;
}

void Lines::await_stream(Line* line, std::int64_t until_us, Waited& waited) {
    const int fd = fd_of(*line);
    settle_all();
    while (!(waited.rang = rings(line->bell)) && (!readable(*line) || held_back(*line))) {
        if (world_.dying() || world_.now_us() >= until_us) return;
        line->awaited = true;
        line->task = world_.current();
        // Nobody tells when what was held back is let go.
        const bool held = held_back(*line);
        world_.sleep_until(held ? std::min(until_us, held_until_us_) : until_us);
        line = find(fd);
        line->awaited = false;
    }
    if (waited.rang || world_.dying()) return;
    waited.readable = true;
    travel();
    line = find(fd);
    if (breaks(line->group)) cut(*line);
}

// Its client hears of it in the same step.
void Lines::become_visible(Line* line, std::int64_t until_us) {
    const int fd = fd_of(*line);
    world_.sleep_until(std::min(until_us, world_.now_us() + line->linger_us));
    line = find(fd);
    line->linger_us = 0;
    settle(*line);
    settle_all();
}

void Lines::before_answer(pg_conn* connection) {
    Line* line = find(connection);
    if (line == nullptr || !line->streams || world_.dying()) return;
    travel();
    line = find(connection);
    if (breaks(line->group)) cut(*line);
    set_clock();
}

void Lines::answered_stream(pg_conn* connection) {
    if (const Line* line = find(connection); line != nullptr && line->streams) settle_all();
}

// What is read of a stream makes room for more, which is read with it: how much of it fits on the
// way at a time is nobody's will.
int Lines::consume(pg_conn* connection) {
    const Line* line = find(connection);
    if (line == nullptr) return __real_PQconsumeInput(connection);
    if (line->streams && held_back(*line)) return 1;
    const bool choked = chokes(*line);
    int consumed = __real_PQconsumeInput(connection);
    while (consumed != 0 && choked && line->streams) {
        __atomic_fetch_add(&line->slot->asked, 1, __ATOMIC_SEQ_CST);
        send_all(*line);
        if (!readable(*line)) break;
        consumed = __real_PQconsumeInput(connection);
    }
    return consumed;
}

void Lines::rang(int fd) {
    for (const Line& line : lines_) {
        if (line.bell == fd && (line.awaited || line.blocked)) world_.wake(line.task);
    }
}

void Lines::hear(pg_conn* connection) {
    if (world_.dying()) sever(connection);
    while (PQisBusy(connection) != 0) {
        Waited waited;
        if (PQflush(connection) < 0 || PQsocket(connection) < 0 ||
            !await(PQsocket(connection), -1, kForever, waited) || PQconsumeInput(connection) == 0) {
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
    if (!line.streams) {
        line.close_us = world_.now_us() + world_.random().between(1, kVanishedMaxUs);
    }
    line.left_us = world_.now_us();
    line.blocked = line.awaited = false;
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
    line->blocked = line->awaited = false;
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
        const auto is_due = [&](const std::int64_t& at_us) {
            const std::int64_t due_us = __atomic_load_n(&at_us, __ATOMIC_SEQ_CST);
            return due_us != 0 && due_us <= now_us;
        };
        const bool alarmed = is_due(line.slot->due_us);
        if (ended(line) || lingers(line) || (!alarmed && !is_due(line.slot->wait_us))) continue;
        if (alarmed) __atomic_store_n(&line.slot->due_us, 0, __ATOMIC_SEQ_CST);
        alarm(line);
    }
    settle_all();
}

// Whatever it waits for, it looks at the time.
void Lines::alarm(const Line& line) {
    const std::uint64_t before = load(line.slot->alarms);
    ::kill(line.pid, SIGALRM);
    const RealLimit limit;
    while (!ended(line) && (load(line.slot->alarms) == before || !at_rest(line))) {
        limit.check("a backend does not hear its alarm");
        wait_for_input(line);
    }
}

// Not one whose client does not read: it would wait for it to read that it ends. One that lingers
// ends when others see what it committed.
bool Lines::terminate(const std::function<bool(const Line&)>& which) {
    std::vector<Line*> some;
    for (Line& line : lines_) {
        if (line.group == World::kNoGroup || ended(line) || chokes(line)) continue;
        if (which(line)) some.push_back(&line);
    }
    if (some.empty()) return false;
    set_clock();
    Line& line = *some[world_.random().index(some.size())];
    line.linger_us = 0;
    ::kill(line.pid, SIGTERM);
    await_end(line);
    settle_all();
    return true;
}

bool Lines::terminate_one() {
    return terminate([](const Line&) { return true; });
}

bool Lines::terminate_stream() {
    return terminate([](const Line& line) { return line.streams; });
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
int send_now(PGconn* connection, bool last, Send real, bool begins_stream = false) {
    Lines* lines = Lines::current();
    if (lines == nullptr) return real();
    if (lines->world().dying()) {
        lines->sever(connection);
        return real();
    }
    lines->before_request(connection);
    const int sent = real();
    if (last) lines->requested(connection, begins_stream);
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
    const auto send = [&] {
        std::string changed;
        return __real_PQsendQuery(connection, planted(sql, changed));
    };
    const bool begins_stream = std::string_view(sql).starts_with("START_REPLICATION");
    return send_now(connection, is_whole(connection), send, begins_stream);
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

int __wrap_PQputCopyData(PGconn* connection, const char* bytes, int size) {
    if (Lines* lines = Lines::current(); lines != nullptr) lines->before_answer(connection);
    return __real_PQputCopyData(connection, bytes, size);
}

int __wrap_PQflush(PGconn* connection) {
    const int unsent = __real_PQflush(connection);
    if (Lines* lines = Lines::current(); lines != nullptr) lines->answered_stream(connection);
    return unsent;
}

int __wrap_PQconsumeInput(PGconn* connection) {
    Lines* lines = Lines::current();
    return lines == nullptr ? __real_PQconsumeInput(connection) : lines->consume(connection);
}

ssize_t __wrap_write(int fd, const void* bytes, size_t size) {
    const ssize_t written = __real_write(fd, bytes, size);
    if (Lines* lines = Lines::current(); lines != nullptr) lines->rang(fd);
    return written;
}

int __wrap_poll(pollfd* entries, nfds_t count, int timeout_ms) {
    Lines* lines = Lines::current();
    if (lines == nullptr || count == 0) return __real_poll(entries, count, timeout_ms);
    const std::int64_t most_us =
        timeout_ms < 0 ? outbox::simulation::kForever : timeout_ms * std::int64_t{1'000};
    Lines::Waited waited;
    if (!lines->await(entries[0].fd, count > 1 ? entries[1].fd : -1, most_us, waited)) {
        if (is_socket(entries[0].fd)) return __real_poll(entries, count, timeout_ms);
        lines->rest(entries[0].fd, most_us);
        return __real_poll(entries, count, 0);
    }
    for (nfds_t i = 0; i < count; ++i) entries[i].revents = 0;
    if (waited.readable) entries[0].revents = POLLIN;
    if (waited.rang) entries[1].revents = POLLIN;
    return (waited.readable ? 1 : 0) + (waited.rang ? 1 : 0);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
