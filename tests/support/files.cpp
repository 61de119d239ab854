#include "tests/support/files.h"

#include <arpa/inet.h>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace outbox::test {
namespace {

// Below the range that the kernel uses for outgoing connections.
constexpr int kFirstPort = 20000;
constexpr int kLastPort = 31999;
constexpr int kPortAttempts = 1000;

bool can_listen(int port) {
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const bool free =
        bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    close(descriptor);
    return free;
}

// The lock file stays open, and so locked, until this process ends.
bool reserve(int port) {
    const auto folder =
        std::filesystem::path("/tmp") / ("outbox-test-ports-" + std::to_string(getuid()));
    std::filesystem::create_directories(folder);
    const auto path = folder / std::to_string(port);
    const int lock = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0) return false;
    if (flock(lock, LOCK_EX | LOCK_NB) == 0 && can_listen(port)) return true;
    close(lock);
    return false;
}

}  // namespace

std::filesystem::path make_temporary_folder(const std::string& purpose) {
    const auto parent = std::filesystem::temp_directory_path();
    std::string pattern = (parent / ("outbox-" + purpose + "-XXXXXX")).string();
    if (mkdtemp(pattern.data()) == nullptr) {
        throw std::runtime_error("cannot make a folder in " + parent.string());
    }
    chmod(pattern.c_str(), 0755);
    return pattern;
}

void remove_folder(const std::filesystem::path& folder) noexcept {
    std::error_code error;
    std::filesystem::remove_all(folder, error);
    if (error) std::cerr << "cannot remove " << folder << ": " << error.message() << '\n';
}

std::string read_file(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

int free_port() {
    static std::mt19937 random{std::random_device{}()};
    std::uniform_int_distribution<int> ports(kFirstPort, kLastPort);
    for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
        const int port = ports(random);
        if (reserve(port)) return port;
    }
    throw std::runtime_error("no free port between 20000 and 31999");
}

}  // namespace outbox::test
