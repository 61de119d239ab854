#include "tests/support/outbox_binary.h"

#include <arpa/inet.h>
#include <chrono>
#include <fstream>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace outbox::test {

ProcessOptions OutboxBinary::options(Arguments arguments, Variables variables) const {
    ProcessOptions made;
    made.command = {OUTBOX_BINARY};
    made.command.insert(made.command.end(), arguments.begin(), arguments.end());
    made.environment = std::move(variables);
    // So that neither a connection nor a lease is lost where others have the machine for a while.
    // An option of the command line says otherwise.
    made.environment.try_emplace("OUTBOX_CONNECT_TIMEOUT_S", "60");
    made.environment.try_emplace("OUTBOX_LEASE_TTL_MS", "15000");
    made.working_folder = folder_.path();
    return made;
}

Finished OutboxBinary::run(Arguments arguments, Variables variables) {
    return test::run(options(std::move(arguments), std::move(variables)));
}

Process OutboxBinary::start_relay(Arguments arguments, Variables variables) {
    arguments.insert(arguments.begin(), "relay");
    return Process(options(std::move(arguments), std::move(variables)));
}

std::filesystem::path OutboxBinary::write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
}

// Connections that have ended do not count, as for a relay.
TakenPort::TakenPort(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)), port_(port) {
    const int on = 1;
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    // Whoever has it already may let it go at any time.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (bind(socket_, generic, size) != 0 || listen(socket_, 1) != 0) {
        if (std::chrono::steady_clock::now() >= end) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    if (getsockname(socket_, generic, &size) == 0) port_ = ntohs(address.sin_port);
}

TakenPort::~TakenPort() {
    close(socket_);
}

}  // namespace outbox::test
