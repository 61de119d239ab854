#include "tests/support/servers.h"

#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <libpq-fe.h>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/logs.h"
#include "tests/support/pg.h"

namespace outbox::test {
namespace {

constexpr auto kStartDeadline = std::chrono::seconds(120);
constexpr auto kStopDeadline = std::chrono::seconds(120);

std::string server_script(const std::string& name) {
    return std::string(OUTBOX_SOURCE_DIR) + "/script/servers/" + name;
}

// Everything a server writes is in `stdout` of its folder.
std::string whole_log(const std::filesystem::path& folder) {
    return log_tail(folder / "stdout") + log_tail(folder / "stderr");
}

void wait_until_ready(Process& process, const std::string& name,
                      const std::filesystem::path& folder, const std::function<bool()>& ready) {
    const auto end = std::chrono::steady_clock::now() + kStartDeadline;
    while (!ready()) {
        const bool died = !process.running();
        if (died || std::chrono::steady_clock::now() >= end) {
            throw std::runtime_error(name + (died ? " ended while starting\n" : " is not ready\n") +
                                     whole_log(folder));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

std::vector<pid_t> children_of(pid_t parent) {
    const std::string pid = std::to_string(parent);
    std::istringstream text(read_file("/proc/" + pid + "/task/" + pid + "/children"));
    return {std::istream_iterator<pid_t>(text), std::istream_iterator<pid_t>()};
}

void wait_until_ended(std::optional<Process>& process, const std::string& name,
                      const std::filesystem::path& folder) {
    if (!process->wait(kStopDeadline)) {
        process.reset();
        throw std::runtime_error(name + " did not stop\n" + whole_log(folder));
    }
    process.reset();
}

}  // namespace

PostgresServer::PostgresServer() : port_(free_port()) {
    start();
}

PostgresServer::PostgresServer(OwnIdentity) : port_(free_port()), own_identity_(true) {
    start();
}

PostgresServer::PostgresServer(Environment environment)
    : port_(free_port()), environment_(std::move(environment)) {
    start();
}

PostgresServer::PostgresServer(const std::filesystem::path& data) : port_(free_port()) {
    std::filesystem::create_directories(folder_ / "server");
    // Owners and rights, too.
    const Finished copied =
        run({.command = {"cp", "-a", data.string(), (folder_ / "server/data").string()}},
            kStartDeadline);
    if (copied.status.code != 0) throw std::runtime_error(copied.err);
    start();
}

PostgresServer::~PostgresServer() {
    if (!process_) return;
    resume();
    process_->kill(SIGQUIT);
    process_->wait(kStopDeadline);
}

std::string PostgresServer::url(const std::string& database) const {
    return "postgresql://postgres@127.0.0.1:" + std::to_string(port_) + "/" + database;
}

std::string PostgresServer::with_password(const std::string& url) const {
    const std::string passwords = read_file(data() / "pgpass");
    const std::string of_postgres = passwords.substr(0, passwords.find('\n'));
    const std::string password = of_postgres.substr(of_postgres.rfind(':') + 1);
    const auto at = url.find('@');
    return url.substr(0, at) + ":" + password + url.substr(at);
}

std::string PostgresServer::create_database() {
    const auto name = "test_" + std::to_string(++databases_);
    Pg admin(url());
    admin.exec("CREATE DATABASE " + name);
    if (PQserverVersion(admin.handle()) < 150000) {
        // What newer servers do by themselves.
        Pg(url(name)).exec("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    }
    return url(name);
}

void PostgresServer::start() {
    if (running()) return;
    Environment environment = environment_;
    environment["OUTBOX_DIES_WITH_PARENT"] = "1";
    environment["POSTGRES_FRESH"] = own_identity_ ? "1" : "";
    process_.emplace(
        ProcessOptions{.command = {server_script("postgres"), "run", "--dir",
                                   (folder_ / "server").string(), "--port", std::to_string(port_)},
                       .environment = environment,
                       .output_folder = folder_.path(),
                       .death_signal = SIGQUIT});
    wait_until_ready(*process_, "PostgreSQL", folder_.path(),
                     [&] { return PQping(url().c_str()) == PQPING_OK; });
    // The same for every server of this machine, and here also when this one is gone.
    static const TemporaryFolder kept("pgpass");
    static const bool set = [&] {
        const std::filesystem::path file = kept / "pgpass";
        std::filesystem::copy_file(data() / "pgpass", file);
        std::filesystem::permissions(file, std::filesystem::perms::owner_read);
        return ::setenv("PGPASSFILE", file.c_str(), 1) == 0;
    }();
    if (!set) throw std::runtime_error("PGPASSFILE cannot be set");
}

void PostgresServer::stop(Stop mode) {
    if (!running()) return;
    switch (mode) {
        case Stop::kSmart:
            process_->kill(SIGTERM);
            break;
        case Stop::kFast:
            process_->kill(SIGINT);
            break;
        case Stop::kImmediate:
            process_->kill(SIGQUIT);
            break;
        case Stop::kKill:
            process_->kill(SIGKILL);
            break;
    }
    wait_until_ended(process_, "PostgreSQL", folder_.path());
}

bool PostgresServer::running() {
    return process_ && process_->running();
}

// First the one that makes others; what the kernel lists is complete once those that it lists stand
// still.
void PostgresServer::pause() {
    if (!running()) return;
    process_->kill(SIGSTOP);
    std::set<pid_t> stopped;
    for (std::size_t before = 1; before != stopped.size();) {
        before = stopped.size();
        for (const pid_t child : children_of(process_->pid())) {
            if (!stopped.insert(child).second) continue;
            pause_process(child);
        }
    }
}

void PostgresServer::pause_postmaster() {
    if (running()) process_->kill(SIGSTOP);
}

void PostgresServer::resume() {
    if (!running()) return;
    for (const pid_t child : children_of(process_->pid())) ::kill(child, SIGCONT);
    process_->kill(SIGCONT);
}

std::string PostgresServer::log_tail() const {
    return whole_log(folder_.path());
}

PostgresServer& shared_postgres() {
    static PostgresServer server;
    return server;
}

bool rows_may_stay() {
    return PQserverVersion(Pg(shared_postgres().url()).handle()) >= 150000;
}

KafkaServer::KafkaServer(const KafkaOptions& options)
    : options_(options),
      port_(free_port()),
      controller_port_(options.first == nullptr ? free_port() : options.first->controller_port_) {
    std::filesystem::create_directories(folder_ / "server");
    std::ofstream(folder_ / "server/controller_port") << controller_port_ << '\n';
    std::ofstream(folder_ / "properties") << options_.properties << '\n';
    start();
}

// One that vanishes counts as alive for a while, and the first may send clients to it.
KafkaServer::~KafkaServer() {
    if (options_.first == nullptr) return;
    try {
        stop();
    } catch (const std::runtime_error& error) {
        std::cerr << error.what() << '\n';
    }
}

std::string KafkaServer::bootstrap() const {
    return "127.0.0.1:" + std::to_string(port_);
}

std::string KafkaServer::bootstrap(const std::string& listener) const {
    return "localhost:" +
           std::to_string(std::stoi(read_file(folder_ / "server" / (listener + "_port"))));
}

void KafkaServer::start() {
    if (running()) return;
    process_.emplace(
        ProcessOptions{.command = {server_script("kafka"), "run", "--dir",
                                   (folder_ / "server").string(), "--port", std::to_string(port_)},
                       .environment = {{"KAFKA_AUTO_CREATE_TOPICS",
                                        options_.auto_create_topics ? "true" : "false"},
                                       {"KAFKA_NODE_ID", options_.first == nullptr ? "1" : "2"},
                                       {"KAFKA_TLS", options_.tls.string()},
                                       {"KAFKA_PROPERTIES", (folder_ / "properties").string()}},
                       .output_folder = folder_.path(),
                       .death_signal = SIGKILL});
    wait_until_ready(*process_, "Kafka", folder_.path(), [&] {
        return read_file(folder_ / "stdout").find("Kafka Server started") != std::string::npos;
    });
}

void KafkaServer::stop() {
    if (!running()) return;
    process_->kill(SIGTERM);
    wait_until_ended(process_, "Kafka", folder_.path());
}

void KafkaServer::kill() {
    if (!running()) return;
    process_->kill(SIGKILL);
    wait_until_ended(process_, "Kafka", folder_.path());
}

void KafkaServer::restart() {
    stop();
    start();
}

void KafkaServer::pause() {
    process_->kill(SIGSTOP);
}
void KafkaServer::resume() {
    process_->kill(SIGCONT);
}
bool KafkaServer::running() {
    return process_ && process_->running();
}
std::string KafkaServer::log_tail() const {
    return whole_log(folder_.path());
}

KafkaServer& shared_kafka() {
    static KafkaServer server;
    return server;
}

}  // namespace outbox::test
