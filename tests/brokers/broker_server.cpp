#include "tests/brokers/broker_server.h"

#include <cctype>
#include <csignal>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "tests/support/logs.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kStartDeadline = 180s;  // some take seconds of a processor that others want, too
constexpr auto kStopDeadline = 60s;
constexpr auto kClientDeadline = 300s;

}  // namespace

std::string decode_base64(const std::string& text) {
    std::string out;
    unsigned value = 0;
    int bits = 0;
    for (const char c : text) {
        const std::string_view digits =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const std::size_t digit = digits.find(c);
        if (digit == std::string_view::npos) break;
        value = (value << 6U | static_cast<unsigned>(digit)) & 0xFFFFFFU;
        bits += 6;
        if (bits < 8) continue;
        bits -= 8;
        out += static_cast<char>(value >> static_cast<unsigned>(bits) & 0xFFU);
    }
    return out;
}

BrokerServer::BrokerServer(Options options)
    : folder_(options.name),
      options_(std::move(options)),
      port_(free_port()),
      // Its errors are shown as those of any process.
      log_registration_(register_log(options_.name, folder_ / "stdout")) {
    std::ofstream(folder_ / "settings") << options_.settings << '\n';
}

BrokerServer::~BrokerServer() {
    unregister_log(log_registration_);
}

void BrokerServer::start() {
    if (running()) return;
    std::string variable = options_.name;
    for (char& c : variable) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    process_.emplace(ProcessOptions{
        .command = {std::string(OUTBOX_SOURCE_DIR) + "/script/servers/" + options_.name, "run",
                    "--dir", folder().string(), "--port", std::to_string(port_)},
        .environment = {{variable + "_TLS", options_.tls.string()},
                        {variable + "_SETTINGS", (folder_ / "settings").string()}},
        .output_folder = folder_.path(),
        .death_signal = SIGKILL});
    const auto end = std::chrono::steady_clock::now() + kStartDeadline;
    while (read_file(folder_ / "stdout").find(options_.ready) == std::string::npos &&
           read_file(folder_ / "stderr").find(options_.ready) == std::string::npos) {
        if (!process_->running() || std::chrono::steady_clock::now() >= end) {
            throw std::runtime_error(options_.name + " does not start\n" + log_tail());
        }
        std::this_thread::sleep_for(10ms);
    }
}

void BrokerServer::stop() {
    process_->kill(SIGTERM);
    if (!process_->wait(kStopDeadline)) throw std::runtime_error(options_.name + " does not stop");
    process_.reset();
}

void BrokerServer::kill() {
    process_->kill(SIGKILL);
    process_->wait(kStopDeadline);
    process_.reset();
}

void BrokerServer::pause() {
    process_->kill(SIGSTOP);
}

void BrokerServer::resume() {
    process_->kill(SIGCONT);
}

bool BrokerServer::running() {
    return process_ && process_->running();
}

std::string BrokerServer::client(const std::vector<std::string>& arguments,
                                 const std::string& input) {
    std::vector<std::string> command = options_.python;
    const std::string own =
        std::string(OUTBOX_SOURCE_DIR) + "/tests/brokers/" + options_.name + "/client.py";
    command.insert(command.end(), {"-B", options_.client.empty() ? own : options_.client});
    command.insert(command.end(), arguments.begin(), arguments.end());
    const Finished done = run({.command = std::move(command), .input = input}, kClientDeadline);
    if (done.status.code != 0) throw std::runtime_error(done.err + log_tail());
    return done.out;
}

std::string BrokerServer::log_tail() const {
    return test::log_tail(folder_ / "stdout") + test::log_tail(folder_ / "stderr");
}

}  // namespace outbox::test
