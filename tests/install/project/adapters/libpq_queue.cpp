// Needs outbox::consumer_rabbitmq, and no header but those below; never called.
#include <outbox/adapters/libpq_queue.h>
#include <outbox/consumer/rabbitmq.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    static_cast<void>(
        outbox::libpq_queue_consumer("", outbox::rabbitmq_queue(""), outbox::LibpqHandler{}, {}));
    return 1;
}
