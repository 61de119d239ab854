// Needs outbox::producer, and no header but those below; never called.
#include <outbox/adapters/sqlite.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    static_cast<void>(outbox::emit(static_cast<sqlite3*>(nullptr), "topic", "payload"));
    return 1;
}
