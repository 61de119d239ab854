// Needs outbox::consumer, and no header but those below; never called.
#include <outbox/adapters/sqlite_idempotency.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    static_cast<void>(
        outbox::claim_key(static_cast<sqlite3*>(nullptr), outbox::IdempotentRequest{}));
    return 1;
}
