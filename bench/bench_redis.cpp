// What hiredis does at most: XADD one by one, 10,000 without an answer.
//   bench_redis HOST PORT USER PASSWORD STREAM COUNT BYTES
// Prints one JSON object.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <hiredis/hiredis.h>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kWindow = 10'000;

struct Free {
    void operator()(redisContext* context) const { redisFree(context); }
};

void take_answer(redisContext* context) {
    void* answer = nullptr;
    if (redisGetReply(context, &answer) != REDIS_OK) throw std::runtime_error(context->errstr);
    const bool good = static_cast<redisReply*>(answer)->type != REDIS_REPLY_ERROR;
    const std::string text = good ? "" : static_cast<redisReply*>(answer)->str;
    freeReplyObject(answer);
    if (!good) throw std::runtime_error(text);
}

double append(char** words) {
    const std::unique_ptr<redisContext, Free> context(redisConnect(words[0], std::atoi(words[1])));
    if (context == nullptr || context->err != 0) throw std::runtime_error("connect");
    redisAppendCommand(context.get(), "AUTH %s %s", words[2], words[3]);
    take_answer(context.get());
    const std::string stream = words[4];
    const std::size_t count = std::strtoul(words[5], nullptr, 10);
    const std::string value(std::strtoul(words[6], nullptr, 10), 'x');
    std::size_t sent = 0;
    std::size_t answered = 0;
    const auto start = Clock::now();
    while (answered < count) {
        for (; sent < count && sent - answered < kWindow; ++sent) {
            const std::string id = "id-" + std::to_string(sent);
            const char* texts[] = {"XADD", stream.data(), "*",     "id",        id.data(),
                                   "key",  "key-1",       "value", value.data()};
            const std::size_t sizes[] = {4, stream.size(), 1, 2, id.size(), 3, 5, 5, value.size()};
            redisAppendCommandArgv(context.get(), 9, texts, sizes);
        }
        for (std::size_t i = 0; i < kWindow / 10 && answered < sent; ++i, ++answered) {
            take_answer(context.get());
        }
    }
    return static_cast<double>(count) / std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

int main(int count, char** words) try {
    if (count != 8) {
        std::fprintf(stderr, "see the first lines of bench_redis.cpp\n");
        return 2;
    }
    std::printf("{\"per_s\": %.0f}\n", append(words + 1));
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "bench_redis: %s\n", error.what());
    return 1;
}
