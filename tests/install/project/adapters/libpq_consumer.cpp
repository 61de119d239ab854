// Needs outbox::consumer, and no header but those below; never called.
#include <outbox/adapters/libpq_consumer.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    static_cast<void>(outbox::accept(static_cast<pg_conn*>(nullptr), "consumer", "id"));
    return 1;
}
