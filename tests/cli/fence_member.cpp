// The consumer "stock" of a mailbox, which writes the id of each message into `effects`, until it
// is told to stop or killed. usage: fence_member URL
#include <csignal>
#include <cstdio>
#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdexcept>

#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/sqlite_consumer.h>

namespace {

outbox::MailboxConsumer* the_member = nullptr;

void apply(PGconn* connection, const outbox::Message& message) {
    const std::string id(message.id);
    const char* values[] = {id.c_str()};
    PGresult* result = PQexecParams(connection, "INSERT INTO effects (id) VALUES ($1)", 1, nullptr,
                                    values, nullptr, nullptr, 0);
    const bool done = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    if (!done) throw std::runtime_error(PQerrorMessage(connection));
}

void apply_to_file(sqlite3* connection, const outbox::Message& message) {
    const std::string sql = "INSERT INTO effects (id) VALUES ('" + std::string(message.id) + "')";
    if (sqlite3_exec(connection, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
        throw std::runtime_error(sqlite3_errmsg(connection));
    }
}

}  // namespace

int main(int count, char** words) {
    if (count != 2) return 2;
    const std::string url = words[1];
    outbox::MailboxOptions options;
    options.consumer = "stock";
    options.connect_timeout_s = 60;
    options.transaction_size = 10;
    try {
        auto member = url.starts_with("sqlite:")
                          ? outbox::sqlite_mailbox_consumer(url, apply_to_file, options)
                          : outbox::libpq_mailbox_consumer(url, apply, options);
        the_member = &member;
        std::signal(SIGTERM, [](int) { the_member->stop(); });
        member.run();
        std::signal(SIGTERM, SIG_DFL);
        return 0;
    } catch (const outbox::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
