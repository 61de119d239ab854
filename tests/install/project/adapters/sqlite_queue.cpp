// Needs outbox::consumer_redis, and no header but those below; never called.
#include <outbox/adapters/sqlite_queue.h>
#include <outbox/consumer/redis.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    static_cast<void>(
        outbox::sqlite_queue_consumer("", outbox::redis_queue(""), outbox::SqliteHandler{}, {}));
    return 1;
}
