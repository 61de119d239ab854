// Needs outbox::consumer_kafka, and no header but those below; never called.
#include <outbox/adapters/libpq_kafka.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    static_cast<void>(outbox::libpq_kafka_consumer("", outbox::LibpqHandler{}, {}));
    return 1;
}
