// Needs outbox::producer, and no header but those below; never called.
#include <outbox/adapters/libpq.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    static_cast<void>(outbox::emit(static_cast<pg_conn*>(nullptr), "topic", "payload"));
    return 1;
}
