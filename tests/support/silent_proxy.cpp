#include "tests/support/silent_proxy.h"

#include <algorithm>
#include <array>
#include <limits>
#include <netinet/in.h>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "tests/support/files.h"

namespace outbox::test {
namespace {

constexpr int kLookMs = 50;  // whether it is time to end

sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

// The bytes; 0: one of the two has closed.
std::size_t carry(int from, int to, std::size_t most = std::numeric_limits<std::size_t>::max()) {
    std::array<char, 65536> bytes{};
    const ssize_t got = ::read(from, bytes.data(), std::min(most, bytes.size()));
    for (ssize_t at = 0; at < got;) {
        const ssize_t sent =
            ::send(to, bytes.data() + at, static_cast<std::size_t>(got - at), MSG_NOSIGNAL);
        if (sent <= 0) return 0;
        at += sent;
    }
    return got > 0 ? static_cast<std::size_t>(got) : 0;
}

}  // namespace

SilentProxy::SilentProxy(int server_port)
    : server_port_(server_port),
      port_(free_port()),
      listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const sockaddr_in address = loopback(port_);
    if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener_, 16) != 0) {
        throw std::runtime_error("the proxy cannot listen");
    }
    acceptor_ = std::thread([this] { accept_all(); });
}

SilentProxy::~SilentProxy() {
    stopping_ = true;
    acceptor_.join();
    for (std::thread& pump : pumps_) pump.join();
    ::close(listener_);
}

std::string SilentProxy::through(std::string url) const {
    const std::string port = ":" + std::to_string(server_port_);
    const auto at = url.find(port);
    if (at == std::string::npos) throw std::runtime_error("no port in the URL");
    return url.replace(at, port.size(), ":" + std::to_string(port_));
}

void SilentProxy::accept_all() {
    while (!stopping_) {
        pollfd entry{listener_, POLLIN, 0};
        if (::poll(&entry, 1, kLookMs) <= 0) continue;
        const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (client < 0) continue;
        ++accepted_;
        if (drops_ > 0) {
            --drops_;
            ::close(client);
            continue;
        }
        const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const sockaddr_in address = loopback(server_port_);
        if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
            ::close(client);
            ::close(server);
            continue;
        }
        pumps_.emplace_back(
            [this, client, server, silences = silences_.load(), rations = rations_.load()] {
                pump(client, server, silences, rations);
            });
    }
}

void SilentProxy::pump(int client, int server, int silences, int rations) const {
    std::size_t left = std::numeric_limits<std::size_t>::max();
    bool open = true;
    while (open && !stopping_) {
        const bool silent = silences_ != silences;
        if (const int now = rations_; std::exchange(rations, now) != now) left = ration_;
        std::array<pollfd, 2> entries{pollfd{client, POLLIN, 0},
                                      pollfd{left == 0 ? -1 : server, POLLIN, 0}};
        if (::poll(entries.data(), silent ? 0 : entries.size(), kLookMs) <= 0) continue;
        if (silences_ != silences) continue;
        if (entries[0].revents != 0) open = carry(client, server) > 0;
        if (open && entries[1].revents != 0) {
            const std::size_t brought = carry(server, client, left);
            open = brought > 0;
            left -= brought;
        }
    }
    ::close(client);
    ::close(server);
}

}  // namespace outbox::test
