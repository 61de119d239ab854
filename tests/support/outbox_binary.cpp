#include "tests/support/outbox_binary.h"

#include <arpa/inet.h>
#include <fstream>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace outbox::test {

ProcessOptions OutboxBinary::options(Arguments arguments, Variables variables) const {
    ProcessOptions made;
    made.command = {OUTBOX_BINARY};
    made.command.insert(made.command.end(), arguments.begin(), arguments.end());
    made.environment = std::move(variables);
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

TakenPort::TakenPort(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)), port_(port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(socket_, generic, size) != 0 || listen(socket_, 1) != 0) return;
    if (getsockname(socket_, generic, &size) == 0) port_ = ntohs(address.sin_port);
}

TakenPort::~TakenPort() {
    close(socket_);
}

}  // namespace outbox::test
