// Needs outbox::consumer, and no header but those below; never called.
#include <outbox/adapters/sqlite_fence.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    static_cast<void>(
        outbox::look_for(static_cast<sqlite3*>(nullptr), "stock", outbox::fence_token({})));
    return 1;
}
