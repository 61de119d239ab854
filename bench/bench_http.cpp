// POST /api/orders of the order service with and without an Idempotency-Key, in blocks turn about.
//   bench_http PORT REQUESTS_PER_BLOCK BLOCKS CONNECTIONS
// Every connection is kept open and has one request under way. The figure is the median of the
// blocks.

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

std::atomic<int> keys = 0;

class Client {
  public:
    explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<std::uint16_t>(port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const int on = 1;
        ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
            throw std::runtime_error("cannot connect to the order service");
        }
    }
    ~Client() { ::close(socket_); }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    void post(bool with_key) {
        static const std::string kBody =
            R"({"user_id":"u-1","product_id":"p-1","quantity":2,"total_amount":99.99})";
        std::string request = "POST /api/orders HTTP/1.1\r\nHost: bench\r\nContent-Length: " +
                              std::to_string(kBody.size()) + "\r\n";
        if (with_key) {
            request += "Idempotency-Key: bench-" + std::to_string(::getpid()) + "-" +
                       std::to_string(++keys) + "\r\n";
        }
        request += "\r\n" + kBody;
        if (::send(socket_, request.data(), request.size(), 0) !=
            static_cast<ssize_t>(request.size())) {
            throw std::runtime_error("cannot send");
        }
        receive();
    }

  private:
    void receive() {
        std::string answer;
        std::size_t whole = std::string::npos;
        while (answer.size() < whole) {
            char bytes[4096];
            const ssize_t got = ::recv(socket_, bytes, sizeof bytes, 0);
            if (got <= 0) throw std::runtime_error("the order service closed the connection");
            answer.append(bytes, static_cast<std::size_t>(got));
            const auto end = answer.find("\r\n\r\n");
            if (whole != std::string::npos || end == std::string::npos) continue;
            const auto length = answer.find("Content-Length: ");
            if (length > end) throw std::runtime_error("an answer without a length");
            whole = end + 4 + std::strtoul(answer.c_str() + length + 16, nullptr, 10);
        }
        if (!answer.starts_with("HTTP/1.1 201 ")) throw std::runtime_error(answer);
    }

    int socket_;
};

// Requests per second of a block.
double block(std::vector<std::unique_ptr<Client>>& clients, int requests, bool with_key) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (auto& client : clients) {
        threads.emplace_back(
            [&client, with_key, count = requests / static_cast<int>(clients.size())] {
                try {
                    for (int i = 0; i < count; ++i) client->post(with_key);
                } catch (const std::exception& error) {
                    std::fprintf(stderr, "bench_http: %s\n", error.what());
                    std::_Exit(1);
                }
            });
    }
    for (auto& thread : threads) thread.join();
    return requests /
           std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 5) {
        std::fprintf(stderr, "usage: bench_http PORT REQUESTS_PER_BLOCK BLOCKS CONNECTIONS\n");
        return 2;
    }
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < std::atoi(argv[4]); ++i) {
        clients.push_back(std::make_unique<Client>(std::atoi(argv[1])));
    }
    const int requests = std::atoi(argv[2]);
    std::vector<double> without;
    std::vector<double> with;
    block(clients, requests, false);  // warms up
    block(clients, requests, true);
    for (int i = 0; i < std::atoi(argv[3]); ++i) {
        without.push_back(block(clients, requests, false));
        with.push_back(block(clients, requests, true));
    }
    std::printf(
        "{\"requests_per_s\": %.0f, \"idempotent_requests_per_s\": %.0f, "
        "\"idempotency_adds_percent\": %.1f}\n",
        median(without), median(with), (median(without) / median(with) - 1) * 100);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "bench_http: %s\n", error.what());
    return 1;
}
