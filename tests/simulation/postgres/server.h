#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <sys/types.h>

#include "tests/simulation/postgres/server_clock.h"
#include "tests/support/files.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::simulation {

/// A real PostgreSQL whose clock is the simulation's: `clock_timestamp()`, and with it leases, the
/// times of delayed events and all of the server's timeouts go by it.
class Server {
  public:
    Server();
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    /// One for all tests of a program.
    static Server& for_tests();

    /// Of the tables that one of its databases has.
    enum class Layout : std::uint8_t {
        kDelete,
        kKeep,
        kReceiving,  ///< Those of both sides, and what handlers write.
        kAdopted     ///< A team's own, `orders_outbox`, whose rows are marked.
    };
    [[nodiscard]] std::string url(Layout layout) const;
    [[nodiscard]] bool has(Layout layout) const;

    /// Microseconds since the Unix epoch; 0: the real time, as in between histories.
    void set_clock(std::int64_t wall_us);
    /// Null: no such process, or it has not slept yet.
    [[nodiscard]] ServerSlot* slot_of(pid_t pid);
    /// Slots of processes that are gone are for others.
    void free_slots();
    static void free_slot(ServerSlot& slot);

    /// All tables are as after `migrate`. Nobody else is connected.
    void reset(Layout layout);
    /// Beside the simulation, at once, in the layout's database.
    test::Pg& control(Layout layout);
    /// What is committed without one is in the log by now, too.
    void flush();
    /// Somebody writes 16 MiB or more.
    void grow_log();
    /// And so much that the server ends who reads a slot from before, which is invalid then.
    void give_up_slots();
    /// SQL that makes the publication, as `migrate` does.
    static constexpr const char* kPublication =
        "CREATE PUBLICATION outbox FOR TABLE public.outbox_events WITH (publish = 'insert', "
        "publish_via_partition_root = true)";
    /// A trigger of the owner's keeps every fifth row of the event table; and SQL that takes it
    /// away.
    void keep_rows();
    static constexpr const char* kLetRowsGo = "DROP TRIGGER IF EXISTS mine ON public.outbox_events";
    /// Started again with a log that is enough for a stream, or is not.
    void set_wal_level(bool logical);
    void crash();
    /// A copy of all that it holds, for which it is shut down and started again.
    void copy();
    /// The copy is put in its place, and more is written there than it had written before.
    void set_back();

  private:
    void shut_down();
    void start_again();
    void connect();

    test::TemporaryFolder folder_{"server-clock"};
    test::TemporaryFolder copy_{"server-copy"};
    ServerClock* clock_ = nullptr;
    std::unique_ptr<test::PostgresServer> server_;
    std::unique_ptr<test::Pg> controls_[4];
    std::string reset_[4];  // SQL
    bool logical_ = true;
};

}  // namespace outbox::simulation
