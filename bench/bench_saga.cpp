// Customers for script/bench: orders over HTTP, on connections that stay open.
// usage: bench_saga PORT ORDERS CONNECTIONS PER_SECOND   (0: as fast as they are taken)

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using std::chrono::steady_clock;

constexpr int kUsers = 1'000;
constexpr int kProducts = 100;

struct Load {
    unsigned short port = 0;
    long orders = 0;
    double per_s = 0;
    steady_clock::time_point start = steady_clock::now();
    std::atomic<long> next{0};
    std::atomic<bool> failed{false};
};

void post(beast::tcp_stream& stream, beast::flat_buffer& buffer, long number) {
    http::request<http::string_body> request(http::verb::post, "/api/orders", 11);
    request.set(http::field::host, "127.0.0.1");
    request.body() = R"({"user_id":"u-)" + std::to_string(number % kUsers) +
                     R"(","product_id":"p-)" + std::to_string(number % kProducts) +
                     R"(","quantity":1,"total_amount":9.99})";
    request.prepare_payload();
    http::write(stream, request);
    http::response<http::string_body> response;
    http::read(stream, buffer, response);
    if (response.result_int() != 201) throw std::runtime_error(response.body());
}

void run(Load& load) {
    try {
        asio::io_context io;
        beast::tcp_stream stream(io);
        stream.connect({asio::ip::address_v4::loopback(), load.port});
        stream.socket().set_option(asio::ip::tcp::no_delay(true));
        beast::flat_buffer buffer;
        while (true) {
            const long number = load.next++;
            if (number >= load.orders || load.failed) return;
            if (load.per_s > 0)
                std::this_thread::sleep_until(
                    load.start +
                    std::chrono::duration_cast<steady_clock::duration>(
                        std::chrono::duration<double>(static_cast<double>(number) / load.per_s)));
            post(stream, buffer, number);
        }
    } catch (const std::exception& error) {
        if (!load.failed.exchange(true)) std::cerr << "bench_saga: " << error.what() << std::endl;
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    Load load;
    load.port = static_cast<unsigned short>(std::atoi(argv[1]));
    load.orders = std::atol(argv[2]);
    load.per_s = std::atof(argv[4]);
    std::vector<std::thread> threads;
    for (int i = 0; i < std::atoi(argv[3]); ++i) threads.emplace_back([&] { run(load); });
    for (std::thread& thread : threads) thread.join();
    const std::chrono::duration<double> took = steady_clock::now() - load.start;
    std::cout << "{\"orders\":" << load.orders << ",\"seconds\":" << took.count() << "}\n";
    return load.failed ? 1 : 0;
}
