#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <set>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>

#include "tests/simulation/postgres/server.h"
#include "tests/simulation/settings.h"
#include "tests/simulation/world.h"

struct pg_conn;

namespace outbox::simulation {

/// The connections of a history's tasks to the server. The production client's waits end here (the
/// program is linked so, see CMakeLists.txt): a task that has sent something waits, in real time
/// and alone, until the server has answered or holds it up behind a lock of another; then others
/// move, in simulated time, and it is looked at again whenever one of them may have let it go. So
/// one statement runs at a time, and a seed is one history.
class Lines {
  public:
    Lines(World& world, Server& server, const Settings& settings);
    ~Lines();
    Lines(const Lines&) = delete;
    Lines& operator=(const Lines&) = delete;

    /// Of the history that runs; null: none does.
    static Lines* current();

    // Called in place of libpq's and the C library's functions.
    pg_conn* connect(const char* const* names, const char* const* values, int expand);
    void connected(pg_conn* connection);
    void before_request(pg_conn* connection);
    void requested(pg_conn* connection, bool begins_stream = false);
    /// What a wait for a connection ended with, beside the end of its time.
    struct Waited {
        bool readable = false;
        bool rang = false;  ///< The other descriptor can be read.
    };
    /// False: `fd` is none of the world's. `bell`: a descriptor that ends the wait; -1: none.
    bool await(int fd, int bell, std::int64_t max_wait_us, Waited& waited);
    /// A stream's answer is about to be sent, and has been.
    void before_answer(pg_conn* connection);
    void answered_stream(pg_conn* connection);
    /// Takes what has come, as PQconsumeInput does.
    int consume(pg_conn* connection);
    /// `fd` was written to.
    void rang(int fd);
    void finish(pg_conn* connection);
    /// Until libpq has an answer in hand, or will never have one.
    void hear(pg_conn* connection);
    /// The process that has it is gone: nothing of what it still sends arrives.
    void sever(pg_conn* connection);
    /// A wait for what is none of the server's.
    void rest(int fd, std::int64_t max_wait_us);
    [[nodiscard]] World& world() const { return world_; }
    /// Of the server and of services, since the Unix epoch.
    [[nodiscard]] std::int64_t wall_us() const;

    /// A guard that is taken out of a statement of ours: it goes to the server with `to` in place
    /// of `from`.
    struct Plant {
        std::string from;
        std::string to;
    };
    /// Told when something takes long on its way, and how long.
    void on_slow(std::function<void(std::int64_t)> tell) { slow_ = std::move(tell); }
    void plant(Plant plant) { plant_ = std::move(plant); }
    /// How many statements it was taken out of.
    [[nodiscard]] std::size_t planted() const { return planted_; }
    /// `sql` as it goes to the server, in `changed` where it is another.
    const char* as_planted(const char* sql, std::string& changed);

    // Chaos.
    /// Until then relays are cut off from the server.
    void away_until(std::int64_t until_us) { away_until_us_ = until_us; }
    /// The host of a process is gone: the server is not told that its connections are.
    void vanish(World::Group group) { vanished_.insert(group); }
    /// Ends the backend of some relay's connection, as an operator does. False: there is none.
    bool terminate_one();
    /// The same of a stream.
    bool terminate_stream();
    /// Until then nothing of a stream arrives.
    void hold_streams_until(std::int64_t until_us) { held_until_us_ = until_us; }
    /// The next commit of the connection is in the log so long before others see it.
    void linger(pg_conn* connection, std::int64_t us);
    /// One does now, or a stream's client does not read: a checkpoint that gives up slots would
    /// wait.
    [[nodiscard]] bool holds_up_a_checkpoint() const;
    [[nodiscard]] bool has_streams() const;
    /// The process that reads one; none: `kNoGroup`.
    [[nodiscard]] World::Group streaming() const;
    /// The backends whose clients' hosts are gone since `us` or longer.
    [[nodiscard]] std::set<pid_t> left(std::int64_t us) const;
    /// The server is stopped somehow, and started again.
    void restart(const std::function<void()>& server);

    /// All that the server does by itself up to now.
    void keep_time();
    /// Closes what is left.
    void end();

    [[nodiscard]] std::size_t statements() const { return statements_; }
    [[nodiscard]] std::size_t blocked() const { return blocked_; }
    [[nodiscard]] std::size_t connections() const { return connections_; }

  private:
    struct Line {
        pg_conn* connection = nullptr;  // null: nobody has it any more
        int kept_fd = -1;               // of one whose host is gone
        pid_t pid = 0;
        int process = -1;  // a descriptor of the backend
        ServerSlot* slot = nullptr;
        World::Group group = World::kNoGroup;
        bool sending = false;    // a request is on its way
        bool busy = false;       // it has not answered
        bool answering = false;  // the answer is still on its way
        bool blocked = false;    // its task waits, as another holds the backend up
        World::TaskId task = 0;
        std::int64_t close_us = kNever;  // of one that nobody has
        std::int64_t left_us = kNever;   // since when its host is gone and it works for nobody
        bool replicates = false;         // to a sender of the log
        bool streams = false;            // which sends it
        bool awaited = false;            // a task waits for it
        int bell = -1;                   // or for this
        std::int64_t linger_us = 0;      // how long its commit is not to be seen
    };

    static int fd_of(const Line& line);
    Line* find(pg_conn* connection);
    Line* find(int fd);
    void set_clock();
    void travel();
    bool breaks(World::Group group);
    [[nodiscard]] bool outage(World::Group group) const;
    [[nodiscard]] static bool ended(const Line& line);
    [[nodiscard]] static bool at_rest(const Line& line);
    [[nodiscard]] static bool heard_all(const Line& line);
    [[nodiscard]] static bool held_up(const Line& line);
    [[nodiscard]] static bool is_idle(const Line& line);
    [[nodiscard]] static bool chokes(const Line& line);
    [[nodiscard]] static bool lingers(const Line& line);
    [[nodiscard]] static bool comes_no_further(const Line& line);
    [[nodiscard]] static bool readable(const Line& line);
    [[nodiscard]] bool held_back(const Line& line) const;
    void await_stream(Line* line, std::int64_t until_us, Waited& waited);
    void become_visible(Line* line, std::int64_t until_us);
    bool terminate(const std::function<bool(const Line&)>& which);
    static void alarm(const Line& line);
    [[nodiscard]] bool answered(const Line& line);
    void has_answered(Line& line) const;
    static void take_turn(const Line& line);
    void settle(Line& line);
    static void wait_for_input(const Line& line);
    void send_all(const Line& line);
    void settle_all();
    void await_end(const Line& line);
    void cut(Line& line);
    void leave(Line& line);
    void close(std::list<Line>::iterator line);

    World& world_;
    Server& server_;
    const Settings& settings_;
    std::list<Line> lines_;
    std::set<World::Group> vanished_;
    std::int64_t away_until_us_ = 0;
    std::int64_t held_until_us_ = 0;
    std::string peeked_;
    std::function<void(std::int64_t)> slow_;
    Plant plant_;
    std::size_t planted_ = 0;
    std::size_t statements_ = 0;
    std::size_t blocked_ = 0;
    std::size_t connections_ = 0;
};

}  // namespace outbox::simulation
