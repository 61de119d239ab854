#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tests/support/files.h"
#include "tests/support/process.h"

namespace outbox::test {

// Real servers for tests, each in a folder and on ports of its own, gone with their owner or with
// this process. A server that cannot be started throws std::runtime_error with its log,
// so that the test fails.

// PostgreSQL, of version POSTGRES_VERSION or 15, with wal_level=logical and durable commits. TCP
// wants passwords: PGPASSFILE, which is set for this process and those it starts, has that of
// postgres, and "test" for every other role.
class PostgresServer {
  public:
    enum class Stop { kSmart, kFast, kImmediate, kKill };

    PostgresServer();
    // The others are copies of one cluster; this one has a system identifier of its own.
    struct OwnIdentity {};
    explicit PostgresServer(OwnIdentity);
    // One that begins with a copy of another one's data folder: a standby, a restored backup.
    explicit PostgresServer(const std::filesystem::path& data);
    // With these variables in its environment.
    using Environment = std::map<std::string, std::string>;
    explicit PostgresServer(Environment environment);
    ~PostgresServer();
    PostgresServer(const PostgresServer&) = delete;
    PostgresServer& operator=(const PostgresServer&) = delete;

    // postgresql://postgres@127.0.0.1:PORT/DATABASE; the port stays the same after a restart.
    std::string url(const std::string& database = "postgres") const;
    int port() const { return port_; }

    // Makes a new, empty database and returns its URL.
    std::string create_database();
    // The URL with the password of postgres in it, for clients that read no PGPASSFILE.
    std::string with_password(const std::string& url) const;

    // Ends the server and waits for it. kImmediate and kKill are crashes.
    void stop(Stop mode = Stop::kFast);
    void start();
    bool running();

    // SIGSTOP and SIGCONT to the postmaster and all its children: a server that hangs.
    void pause();
    void resume();
    // SIGSTOP to the postmaster alone: connections work on, a new one is accepted and then nothing.
    void pause_postmaster();

    // Its data folder, to be copied or replaced while it does not run.
    std::filesystem::path data() const { return folder_ / "server/data"; }
    // The folder of its socket, where no password is needed.
    std::filesystem::path socket_folder() const { return folder_ / "server"; }

    std::string log_tail() const;

  private:
    TemporaryFolder folder_{"postgres"};
    int port_;
    Environment environment_;
    bool own_identity_ = false;
    std::optional<Process> process_;
    std::atomic<int> databases_{0};
};

// One server for all tests of this binary, started at first use.
PostgresServer& shared_postgres();
// Whether it knows the layout keep: PostgreSQL 14 does not.
bool rows_may_stay();

class KafkaServer;

struct KafkaOptions {
    bool auto_create_topics = true;
    std::string properties;        // more broker settings, one name=value per line
    KafkaServer* first = nullptr;  // the node to join as a second broker; it must outlive this one
    // With ca.crt, server.pem and expired.pem: listeners with TLS beside the clear one, as
    // script/servers/kafka says.
    std::filesystem::path tls = {};
};

// Apache Kafka 4.2, one node, 12 partitions by default.
class KafkaServer {
  public:
    explicit KafkaServer(const KafkaOptions& options = {});
    ~KafkaServer();
    KafkaServer(const KafkaServer&) = delete;
    KafkaServer& operator=(const KafkaServer&) = delete;

    // 127.0.0.1:PORT; the same after a restart.
    std::string bootstrap() const;
    // localhost:PORT of a listener with TLS: "tls", "mtls", "expired", "scram" or "oauth".
    std::string bootstrap(const std::string& listener) const;

    // Data survives each of these.
    void stop();   // in order
    void kill();   // SIGKILL
    void start();  // returns when it serves
    void restart();
    void pause();  // SIGSTOP: it hangs
    void resume();
    bool running();

    std::string log_tail() const;

  private:
    TemporaryFolder folder_{"kafka"};
    KafkaOptions options_;
    int port_;
    int controller_port_;
    std::optional<Process> process_;
};

KafkaServer& shared_kafka();

}  // namespace outbox::test
