#include "tests/support/two_addresses.h"

#include <arpa/inet.h>
#include <atomic>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdexcept>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

namespace outbox::test {
namespace {

constexpr const char* kSilent = "127.0.0.2";
std::atomic<bool> lives = false;

int resolve(const char* node, const char* service, const addrinfo* hints, addrinfo** found) {
    using Resolve = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const auto real = reinterpret_cast<Resolve>(::dlsym(RTLD_NEXT, "getaddrinfo"));
    return real(node, service, hints, found);
}

}  // namespace

TwoAddresses::TwoAddresses(int port)
    : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      queued_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = ::htons(static_cast<std::uint16_t>(port));
    ::inet_pton(AF_INET, kSilent, &address.sin_addr);
    const auto* where = reinterpret_cast<const sockaddr*>(&address);
    if (::bind(listener_, where, sizeof address) != 0 || ::listen(listener_, 0) != 0 ||
        ::connect(queued_, where, sizeof address) != 0) {
        throw std::runtime_error("no port that swallows packets");
    }
    lives = true;
}

TwoAddresses::~TwoAddresses() {
    lives = false;
    ::close(queued_);
    ::close(listener_);
}

}  // namespace outbox::test

// In place of the C library's, for all that is linked to this program.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** found) {
    using namespace outbox::test;
    if (!lives || node == nullptr || std::string_view(node) != "localhost") {
        return resolve(node, service, hints, found);
    }
    const int failed = resolve(kSilent, service, hints, found);
    if (failed != 0) return failed;
    addrinfo* last = *found;
    while (last->ai_next != nullptr) last = last->ai_next;
    return resolve("127.0.0.1", service, hints, &last->ai_next);
}
