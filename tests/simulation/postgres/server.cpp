#include "tests/simulation/postgres/server.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

#include <outbox/producer/migrate.h>

namespace outbox::simulation {

namespace {

constexpr const char* kDatabases[] = {"rows_go", "rows_stay", "receives"};
constexpr int kFirstWithKeep = 150000;
constexpr int kFirstWithWorkers = 180000;

// What would move by itself, at times of its own, does not.
constexpr const char* kStill[] = {"autovacuum = off",
                                  "fsync = off",
                                  "full_page_writes = off",
                                  "track_counts = off",
                                  "jit = off",
                                  "checkpoint_timeout = '1d'",
                                  "max_wal_size = '8GB'",
                                  "shared_buffers = '64MB'",
                                  "bgwriter_lru_maxpages = 0",
                                  "wal_writer_delay = '10s'",
                                  "wal_init_zero = off",
                                  "max_slot_wal_keep_size = '16MB'",
                                  "max_wal_senders = 20",
                                  "max_replication_slots = 20",
                                  "log_min_messages = fatal"};

// With its owners.
void copy_folder(const std::filesystem::path& from, const std::filesystem::path& to) {
    std::filesystem::remove_all(to);
    const std::string command = "cp -a '" + from.string() + "' '" + to.string() + "'";
    if (std::system(command.c_str()) != 0) throw std::runtime_error("cannot copy " + from.string());
}

int index_of(Server::Layout layout) {
    return static_cast<int>(layout);
}

}  // namespace

Server::Server() {
    // The one who runs the server may be another user.
    const std::filesystem::path clock = folder_ / "clock";
    const std::filesystem::path library = folder_ / "server_clock.so";
    std::filesystem::copy_file(OUTBOX_SERVER_CLOCK_LIBRARY, library);
    std::ofstream(clock, std::ios::binary).close();
    std::filesystem::resize_file(clock, sizeof(ServerClock));
    std::filesystem::permissions(clock, std::filesystem::perms(0666));
    const int file = ::open(clock.c_str(), O_RDWR | O_CLOEXEC);
    void* mapped =
        ::mmap(nullptr, sizeof(ServerClock), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (mapped == MAP_FAILED) throw std::runtime_error("cannot map the server's clock");
    clock_ = static_cast<ServerClock*>(mapped);
    server_ = std::make_unique<test::PostgresServer>(test::PostgresServer::Environment{
        {"LD_PRELOAD", library.string()}, {"OUTBOX_SERVER_CLOCK", clock.string()}});
    int version = 0;
    {
        test::Pg admin(server_->url());
        version = static_cast<int>(admin.number("SHOW server_version_num"));
        for (const char* setting : kStill) admin.exec(std::string("ALTER SYSTEM SET ") + setting);
        if (version >= kFirstWithWorkers) admin.exec("ALTER SYSTEM SET io_method = sync");
        for (const char* name : kDatabases) admin.exec(std::string("CREATE DATABASE ") + name);
    }
    server_->stop();
    server_->start();
    MigrateOptions options;
    options.side = MigrationSide::kProducer;
    migrate(url(Layout::kDelete), options);
    options.layout = TableLayoutKind::kKeep;
    if (version >= kFirstWithKeep) migrate(url(Layout::kKeep), options);
    migrate(url(Layout::kReceiving));
    test::Pg(url(Layout::kReceiving))
        .exec(
            "CREATE SCHEMA simulation; "
            "CREATE TABLE simulation.effects (seq bigint GENERATED ALWAYS AS IDENTITY, event "
            "bigint, key text, member integer); "
            "CREATE TABLE simulation.accounts (key text PRIMARY KEY, effects bigint); "
            "CREATE TABLE simulation.orders (seq bigint GENERATED ALWAYS AS IDENTITY, key text, "
            "body text); "
            "CREATE TABLE simulation.steps (seq bigint GENERATED ALWAYS AS IDENTITY, saga text, "
            "step text, call text)");
    connect();
    if (version < kFirstWithKeep) return;
    control(Layout::kKeep)
        .exec(
            "CREATE SCHEMA simulation; CREATE TABLE simulation.segments AS TABLE outbox_segments; "
            "CREATE TABLE simulation.segment AS SELECT last_value, is_called FROM outbox_segment");
}

Server& Server::for_tests() {
    static Server server;
    return server;
}

Server::~Server() {
    set_clock(0);
    server_.reset();
    ::munmap(clock_, sizeof(ServerClock));
}

std::string Server::url(Layout layout) const {
    return std::string("postgresql://postgres@/") + kDatabases[index_of(layout)] +
           "?host=" + server_->socket_folder().string() +
           "&port=" + std::to_string(server_->port());
}

bool Server::has(Layout layout) const {
    return layout != Layout::kKeep || PQserverVersion(controls_[0]->handle()) >= kFirstWithKeep;
}

void Server::connect() {
    for (const Layout layout : {Layout::kDelete, Layout::kKeep, Layout::kReceiving}) {
        const auto index = static_cast<std::size_t>(index_of(layout));
        if (!has(layout)) continue;
        controls_[index] = std::make_unique<test::Pg>(url(layout));
        controls_[index]->exec("SET client_min_messages = error");
        if (!reset_[index].empty()) continue;
        // What operators did is kept; its rows are never changed.
        reset_[index] = controls_[index]->value(
            "SELECT 'TRUNCATE ' || string_agg(oid::regclass::text, ', ' ORDER BY oid) || "
            "' RESTART IDENTITY' FROM pg_class WHERE relnamespace IN ('public'::regnamespace, "
            "to_regnamespace('simulation')) AND "
            "relkind IN ('r', 'p') AND NOT relispartition AND relname NOT IN ('outbox_audit', "
            "'outbox_migrations', 'outbox_segments', 'segments', 'segment')");
    }
}

void Server::set_clock(std::int64_t wall_us) {
    __atomic_store_n(&clock_->wall_us, wall_us, __ATOMIC_SEQ_CST);
}

ServerSlot* Server::slot_of(pid_t pid) {
    for (ServerSlot& slot : clock_->slots) {
        if (__atomic_load_n(&slot.pid, __ATOMIC_SEQ_CST) == pid) return &slot;
    }
    return nullptr;
}

void Server::free_slots() {
    for (ServerSlot& slot : clock_->slots) {
        const auto pid = static_cast<pid_t>(slot.pid);
        if (pid == 0 || ::kill(pid, 0) == 0 || errno != ESRCH) continue;
        free_slot(slot);
    }
}

void Server::free_slot(ServerSlot& slot) {
    ServerSlot unused{};
    unused.pid = slot.pid;
    slot = unused;
    __atomic_store_n(&slot.pid, 0, __ATOMIC_SEQ_CST);
}

test::Pg& Server::control(Layout layout) {
    return *controls_[index_of(layout)];
}

void Server::reset(Layout layout) {
    if (!logical_) set_wal_level(true);
    free_slots();
    test::Pg& control = this->control(layout);
    for (const auto& row : control.query("SELECT gid FROM pg_prepared_xacts WHERE database = "
                                         "current_database()")) {
        control.exec("ROLLBACK PREPARED '" + *row[0] + "'");
    }
    control.exec(reset_[index_of(layout)]);
    if (layout != Layout::kReceiving) {
        control.exec(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT "
            "active");
        control.exec("DROP PUBLICATION IF EXISTS outbox");
        control.exec(kPublication);
    }
    if (layout == Layout::kKeep) {
        control.exec(
            "DELETE FROM outbox_segments; INSERT INTO outbox_segments SELECT * FROM "
            "simulation.segments; SELECT setval('outbox_segment', last_value, is_called) FROM "
            "simulation.segment");
    }
}

void Server::flush() {
    control(Layout::kDelete).exec("SELECT txid_current()");
}

void Server::grow_log() {
    for (int segment = 0; segment < 2; ++segment) {
        flush();
        control(Layout::kDelete).exec("SELECT pg_switch_wal()");
    }
    flush();
}

void Server::give_up_slots() {
    grow_log();
    grow_log();
    control(Layout::kDelete).exec("CHECKPOINT");
}

void Server::set_wal_level(bool logical) {
    logical_ = logical;
    controls_[0]->exec(std::string("ALTER SYSTEM SET wal_level = ") +
                       (logical ? "logical" : "replica"));
    shut_down();
    start_again();
}

void Server::crash() {
    for (auto& control : controls_) control.reset();
    server_->stop(test::PostgresServer::Stop::kImmediate);
    set_clock(0);
    start_again();
}

void Server::start_again() {
    server_->start();
    free_slots();
    connect();
}

// In order. Who waits for his turn gets it, once he is to end.
void Server::shut_down() {
    set_clock(0);
    controls_[0]->exec(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
        "backend_type IN ('client backend', 'walsender')");
    for (ServerSlot& slot : clock_->slots) {
        __atomic_store_n(&slot.gated, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&slot.turn, 1, __ATOMIC_SEQ_CST);
    }
    for (auto& control : controls_) control.reset();
    server_->stop();
}

void Server::copy() {
    shut_down();
    copy_folder(server_->data(), copy_ / "data");
    start_again();
}

void Server::set_back() {
    const std::string end = controls_[0]->value("SELECT pg_current_wal_lsn()");
    shut_down();
    copy_folder(copy_ / "data", server_->data());
    start_again();
    while (controls_[0]->value("SELECT pg_current_wal_lsn() > '" + end + "'") != "t") {
        controls_[0]->exec("SELECT txid_current()");
        controls_[0]->exec("SELECT pg_switch_wal()");
    }
}

}  // namespace outbox::simulation
