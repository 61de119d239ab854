// Needs outbox::consumer, and no header but those below; never called.
#include <outbox/adapters/libpq_idempotency.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    static_cast<void>(
        outbox::claim_key(static_cast<pg_conn*>(nullptr), outbox::IdempotentRequest{}));
    return 1;
}
