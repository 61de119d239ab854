// What libmosquitto does at most: messages of QoS 1, as many without an answer as the broker takes.
//   bench_mqtt HOST PORT USER PASSWORD TOPIC COUNT BYTES
// Prints one JSON object.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mosquitto.h>
#include <mqtt_protocol.h>
#include <stdexcept>
#include <string>

namespace {

using Clock = std::chrono::steady_clock;

constexpr long kWindow = 4'000;

void must(int status) {
    if (status != MOSQ_ERR_SUCCESS) throw std::runtime_error(mosquitto_strerror(status));
}

void count_answer(mosquitto*, void* answered, int) {
    ++*static_cast<long*>(answered);
}

double publish(char** words) {
    mosquitto_lib_init();
    long answered = 0;
    mosquitto* client = mosquitto_new(nullptr, true, &answered);
    must(mosquitto_int_option(client, MOSQ_OPT_PROTOCOL_VERSION, MQTT_PROTOCOL_V5));
    must(mosquitto_int_option(client, MOSQ_OPT_SEND_MAXIMUM, kWindow));
    must(mosquitto_username_pw_set(client, words[2], words[3]));
    mosquitto_publish_callback_set(client, count_answer);
    must(mosquitto_connect(client, words[0], std::atoi(words[1]), 60));
    for (int i = 0; i < 10; ++i) must(mosquitto_loop(client, 100, 1));
    const long count = std::strtol(words[5], nullptr, 10);
    const std::string value(std::strtoul(words[6], nullptr, 10), 'x');
    long sent = 0;
    const auto start = Clock::now();
    while (answered < count) {
        for (; sent < count && sent - answered < kWindow; ++sent) {
            mosquitto_property* properties = nullptr;
            const std::string id = "id-" + std::to_string(sent);
            must(mosquitto_property_add_string_pair(&properties, MQTT_PROP_USER_PROPERTY, "id",
                                                    id.c_str()));
            must(mosquitto_publish_v5(client, nullptr, words[4], static_cast<int>(value.size()),
                                      value.data(), 1, false, properties));
            mosquitto_property_free_all(&properties);
        }
        must(mosquitto_loop(client, 100, 1));
    }
    const std::chrono::duration<double> took = Clock::now() - start;
    mosquitto_destroy(client);
    mosquitto_lib_cleanup();
    return static_cast<double>(count) / took.count();
}

}  // namespace

int main(int count, char** words) try {
    if (count != 8) {
        std::fprintf(stderr, "see the first lines of bench_mqtt.cpp\n");
        return 2;
    }
    std::printf("{\"per_s\": %.0f}\n", publish(words + 1));
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "bench_mqtt: %s\n", error.what());
    return 1;
}
