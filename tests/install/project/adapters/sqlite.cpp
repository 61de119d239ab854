// Compiles and links with nothing but the header; never called.
#include <outbox/adapters/sqlite.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    static_cast<void>(outbox::emit(static_cast<sqlite3*>(nullptr), "topic", "payload"));
    return 1;
}
