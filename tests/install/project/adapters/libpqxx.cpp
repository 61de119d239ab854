// Needs outbox::producer, and no header but those below; never called.
#include <outbox/adapters/libpqxx.h>

int main(int argc, char**) {
    if (argc == 1) return 0;
    pqxx::connection connection;
    pqxx::work transaction(connection);
    static_cast<void>(outbox::emit(transaction, "topic", "payload"));
    return 1;
}
