// What libnats does at most: messages to JetStream, 4,000 without an acknowledgement.
//   bench_nats HOST PORT USER PASSWORD SUBJECT COUNT BYTES
// Prints one JSON object.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nats/nats.h>
#include <stdexcept>
#include <string>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWindow = 4'000;
constexpr std::int64_t kAllAnsweredMs = 60'000;

void must(natsStatus status) {
    if (status != NATS_OK) throw std::runtime_error(natsStatus_GetText(status));
}

double publish(char** words) {
    const std::string url =
        std::string("nats://") + words[2] + ":" + words[3] + "@" + words[0] + ":" + words[1];
    natsConnection* connection = nullptr;
    must(natsConnection_ConnectTo(&connection, url.c_str()));
    jsOptions options;
    must(jsOptions_Init(&options));
    options.PublishAsync.MaxPending = kWindow;
    jsCtx* stream = nullptr;
    must(natsConnection_JetStream(&stream, connection, &options));
    const long count = std::strtol(words[5], nullptr, 10);
    const std::string value(std::strtoul(words[6], nullptr, 10), 'x');
    const auto start = Clock::now();
    for (long i = 0; i < count; ++i) {
        jsPubOptions message;
        must(jsPubOptions_Init(&message));
        const std::string id = "id-" + std::to_string(i);
        message.MsgId = id.c_str();
        must(js_PublishAsync(stream, words[4], value.data(), static_cast<int>(value.size()),
                             &message));
    }
    jsPubOptions wait;
    must(jsPubOptions_Init(&wait));
    wait.MaxWait = kAllAnsweredMs;
    must(js_PublishAsyncComplete(stream, &wait));
    const std::chrono::duration<double> took = Clock::now() - start;
    jsCtx_Destroy(stream);
    natsConnection_Destroy(connection);
    nats_Close();
    return static_cast<double>(count) / took.count();
}

}  // namespace

int main(int count, char** words) try {
    if (count != 8) {
        std::fprintf(stderr, "see the first lines of bench_nats.cpp\n");
        return 2;
    }
    std::printf("{\"per_s\": %.0f}\n", publish(words + 1));
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "bench_nats: %s\n", error.what());
    return 1;
}
