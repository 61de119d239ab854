#include "net/connect.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace outbox::net {
namespace {

using Kind = SocketFault::Kind;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct FreeAddresses {
    void operator()(addrinfo* found) const { ::freeaddrinfo(found); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses resolve(const Host& host, SocketFault& fault) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_ADDRCONFIG;
    addrinfo* found = nullptr;
    const int failed =
        ::getaddrinfo(host.name.c_str(), std::to_string(host.port).c_str(), &hints, &found);
    if (failed == 0) return Addresses(found);
    fault = {Kind::kResolve, ::gai_strerror(failed)};
    return nullptr;
}

// Calls `act` with each address and its share of the time, until one returns true.
template <typename Act>
bool for_each_address(const addrinfo* first, milliseconds timeout, const Act& act) {
    std::int64_t left = 0;
    for (const addrinfo* one = first; one != nullptr; one = one->ai_next) ++left;
    const auto end = steady_clock::now() + timeout;
    for (const addrinfo* one = first; one != nullptr; one = one->ai_next, --left) {
        const auto time = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
        if (time.count() <= 0) break;
        if (act(*one, std::max(time / left, milliseconds(1)))) return true;
    }
    return false;
}

// 0, or errno.
int finish_connecting(int descriptor, milliseconds most) {
    pollfd one{descriptor, POLLOUT, 0};
    if (::poll(&one, 1, static_cast<int>(most.count())) <= 0) return ETIMEDOUT;
    int error = ETIMEDOUT;
    socklen_t size = sizeof error;
    ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
}

// A connection to one address; -1 with errno.
int connect_to_one(const addrinfo& address, milliseconds most) {
    const int descriptor =
        ::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (descriptor < 0) return -1;
    int error = ::connect(descriptor, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) error = finish_connecting(descriptor, most);
    if (error == 0) {
        const int on = 1;
        ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        ::setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        return descriptor;
    }
    ::close(descriptor);
    errno = error;
    return -1;
}

}  // namespace

bool try_addresses(const Host& host, milliseconds timeout, const TryAddress& act,
                   SocketFault& fault) {
    const Addresses found = resolve(host, fault);
    return for_each_address(found.get(), timeout, [&](const addrinfo& one, milliseconds most) {
        std::array<char, NI_MAXHOST> name{};
        if (::getnameinfo(one.ai_addr, one.ai_addrlen, name.data(), name.size(), nullptr, 0,
                          NI_NUMERICHOST) != 0) {
            return false;
        }
        return act(name.data(), most);
    });
}

int connect_to(const Host& host, milliseconds timeout, SocketFault& fault) {
    const Addresses found = resolve(host, fault);
    int descriptor = -1;
    for_each_address(found.get(), timeout, [&](const addrinfo& one, milliseconds most) {
        descriptor = connect_to_one(one, most);
        if (descriptor < 0) fault = {Kind::kConnect, std::strerror(errno)};
        return descriptor >= 0;
    });
    return descriptor;
}

}  // namespace outbox::net
