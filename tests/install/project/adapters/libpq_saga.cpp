// Needs outbox::saga, and no header but those below; never called.
#include <outbox/adapters/libpq_saga.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    static_cast<void>(outbox::count_sagas(static_cast<pg_conn*>(nullptr)));
    return 1;
}
