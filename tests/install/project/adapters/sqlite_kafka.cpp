// Needs outbox::consumer_kafka, and no header but those below; never called.
#include <outbox/adapters/sqlite_kafka.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    static_cast<void>(outbox::sqlite_kafka_consumer("", outbox::SqliteHandler{}, {}));
    return 1;
}
