// What librabbitmq does at most: persistent, mandatory, confirms, 10,000 unconfirmed.
//   bench_rabbitmq HOST PORT USER PASSWORD QUEUE COUNT BYTES
// Prints one JSON object.

#include <algorithm>
#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kWindow = 10'000;

void must(bool good, const char* what) {
    if (!good) throw std::runtime_error(what);
}

amqp_bytes_t bytes_of(const std::string& text) {
    return {text.size(), const_cast<char*>(text.data())};
}

double publish(char** words) {
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t* socket = amqp_tcp_socket_new(connection);
    must(amqp_socket_open(socket, words[0], std::atoi(words[1])) == AMQP_STATUS_OK, "connect");
    must(amqp_login(connection, "/", 0, AMQP_DEFAULT_FRAME_SIZE, 0, AMQP_SASL_METHOD_PLAIN,
                    words[2], words[3])
                 .reply_type == AMQP_RESPONSE_NORMAL,
         "login");
    amqp_channel_open(connection, 1);
    amqp_confirm_select(connection, 1);
    const std::string queue = words[4];
    const std::size_t count = std::strtoul(words[5], nullptr, 10);
    const std::string value(std::strtoul(words[6], nullptr, 10), 'x');
    std::size_t sent = 0;
    std::size_t confirmed = 0;
    const auto start = Clock::now();
    while (confirmed < count) {
        for (; sent < count && sent - confirmed < kWindow; ++sent) {
            const std::string id = "id-" + std::to_string(sent);
            amqp_basic_properties_t properties{};
            properties._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG;
            properties.delivery_mode = AMQP_DELIVERY_PERSISTENT;
            properties.message_id = bytes_of(id);
            must(amqp_basic_publish(connection, 1, amqp_empty_bytes, bytes_of(queue), 1, 0,
                                    &properties, bytes_of(value)) == AMQP_STATUS_OK,
                 "publish");
        }
        amqp_maybe_release_buffers(connection);
        amqp_frame_t frame;
        must(amqp_simple_wait_frame(connection, &frame) == AMQP_STATUS_OK, "wait");
        must(frame.frame_type == AMQP_FRAME_METHOD &&
                 frame.payload.method.id == AMQP_BASIC_ACK_METHOD,
             "confirm");
        const auto& ack = *static_cast<amqp_basic_ack_t*>(frame.payload.method.decoded);
        confirmed =
            ack.multiple != 0 ? std::max<std::size_t>(confirmed, ack.delivery_tag) : confirmed + 1;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    amqp_destroy_connection(connection);
    return static_cast<double>(count) / seconds;
}

}  // namespace

int main(int count, char** words) try {
    if (count != 8) {
        std::fprintf(stderr, "see the first lines of bench_rabbitmq.cpp\n");
        return 2;
    }
    std::printf("{\"per_s\": %.0f}\n", publish(words + 1));
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "bench_rabbitmq: %s\n", error.what());
    return 1;
}
