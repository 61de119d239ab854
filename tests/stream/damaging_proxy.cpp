#include "tests/stream/damaging_proxy.h"

#include <array>
#include <netinet/in.h>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/files.h"

namespace outbox::test {
namespace {

constexpr int kLookMs = 50;  // whether it is time to end
constexpr std::size_t kHeader = 5;
// XLogData in CopyData: 'w', two positions, a time; then pgoutput's message.
constexpr std::size_t kEnvelope = kHeader + 25;

sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

bool send_all(int to, const char* bytes, std::size_t size) {
    while (size > 0) {
        const ssize_t sent = ::send(to, bytes, size, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        bytes += sent;
        size -= static_cast<std::size_t>(sent);
    }
    return true;
}

std::size_t length_of(const std::string& message) {
    std::size_t length = 0;
    for (std::size_t i = 1; i < kHeader; ++i) {
        length = (length << 8U) | static_cast<unsigned char>(message[i]);
    }
    return length + 1;
}

void set_length(std::string& message) {
    std::size_t length = message.size() - 1;
    for (std::size_t i = kHeader - 1; i > 0; --i, length >>= 8U) {
        message[i] = static_cast<char>(length & 0xFFU);
    }
}

}  // namespace

DamagingProxy::DamagingProxy(int server_port)
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

DamagingProxy::~DamagingProxy() {
    stopping_ = true;
    acceptor_.join();
    for (std::thread& pump : pumps_) pump.join();
    close(listener_);
}

void DamagingProxy::damage_next_insert(std::function<void(std::string&)> change) {
    change_ = std::move(change);
    state_ = State::kArmed;
}

void DamagingProxy::accept_all() {
    while (!stopping_) {
        pollfd entry{listener_, POLLIN, 0};
        if (::poll(&entry, 1, kLookMs) <= 0) continue;
        const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (client < 0) continue;
        const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const sockaddr_in address = loopback(server_port_);
        if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
            close(client);
            close(server);
            continue;
        }
        pumps_.emplace_back([this, client, server] { pump(client, server); });
    }
}

// The client's bytes go through as they are, the server's as whole messages.
void DamagingProxy::pump(int client, int server) {
    std::array<char, 65536> bytes{};
    std::string waiting;
    bool open = true;
    while (open && !stopping_) {
        std::array<pollfd, 2> entries{pollfd{client, POLLIN, 0}, pollfd{server, POLLIN, 0}};
        if (::poll(entries.data(), entries.size(), kLookMs) <= 0) continue;
        if (entries[0].revents != 0) {
            const ssize_t got = ::read(client, bytes.data(), bytes.size());
            open = got > 0 && send_all(server, bytes.data(), static_cast<std::size_t>(got));
        }
        if (!open || entries[1].revents == 0) continue;
        const ssize_t got = ::read(server, bytes.data(), bytes.size());
        if (got <= 0) break;
        waiting.append(bytes.data(), static_cast<std::size_t>(got));
        while (open && waiting.size() >= kHeader && waiting.size() >= length_of(waiting)) {
            std::string message = waiting.substr(0, length_of(waiting));
            waiting.erase(0, message.size());
            change_if_armed(message);
            open = send_all(client, message.data(), message.size());
        }
    }
    close(client);
    close(server);
}

void DamagingProxy::change_if_armed(std::string& message) {
    if (state_.load() != State::kArmed || message.size() <= kEnvelope || message[0] != 'd' ||
        message[kHeader] != 'w' || message[kEnvelope] != 'I') {
        return;
    }
    std::string inner = message.substr(kEnvelope);
    change_(inner);
    message.replace(kEnvelope, std::string::npos, inner);
    set_length(message);
    state_ = State::kDone;
}

}  // namespace outbox::test
