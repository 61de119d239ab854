// Needs outbox::consumer, and no header but those below; never called.
#include <outbox/adapters/sqlite_consumer.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    static_cast<void>(outbox::accept(static_cast<sqlite3*>(nullptr), "consumer", "id"));
    return 1;
}
