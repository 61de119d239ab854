// Needs outbox::consumer_nats, and no header but those below; never called.
#include <outbox/consumer/nats.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    static_cast<void>(outbox::nats_queue(""));
    return 1;
}
