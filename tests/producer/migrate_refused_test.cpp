// What a server that speaks another language (lc_messages) says to a migration, and one that falls
// silent does not.

#include <arpa/inet.h>
#include <chrono>
#include <cstdint>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "tests/producer/migrate_error.h"
#include "tests/support/eventually.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/silent_proxy.h"

namespace outbox::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Refuses the first connection as PostgreSQL does, in the words it is given: the locales that would
// make a real server say them are not everywhere.
class RefusingServer {
  public:
    RefusingServer(std::string_view state, std::string_view words)
        : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
          answer_(error_response(state, words)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
            ::listen(listener_, 1) != 0) {
            throw std::runtime_error("it cannot listen");
        }
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
        url_ = "postgresql://ich:geheim@127.0.0.1:" + std::to_string(::ntohs(address.sin_port)) +
               "/laden?sslmode=disable&gssencmode=disable";
        thread_ = std::thread([this] { refuse(); });
    }
    ~RefusingServer() {
        ::shutdown(listener_, SHUT_RDWR);
        thread_.join();
        ::close(listener_);
    }
    RefusingServer(const RefusingServer&) = delete;
    RefusingServer& operator=(const RefusingServer&) = delete;

    [[nodiscard]] const std::string& url() const { return url_; }

  private:
    // https://www.postgresql.org/docs/current/protocol-message-formats.html
    static std::string error_response(std::string_view state, std::string_view words) {
        std::string fields;
        const auto add = [&](char field, std::string_view value) {
            (fields += field).append(value) += '\0';
        };
        add('S', "SCHWERWIEGEND");
        add('V', "FATAL");
        add('C', state);
        add('M', words);
        fields += '\0';
        const std::uint32_t length =
            ::htonl(static_cast<std::uint32_t>(fields.size() + sizeof length));
        std::string message = "E";
        message.append(reinterpret_cast<const char*>(&length), sizeof length);
        return message + fields;
    }

    void refuse() const {
        const int client = ::accept(listener_, nullptr, nullptr);
        if (client < 0) return;
        std::uint32_t length = 0;  // of the startup message, itself included
        if (::recv(client, &length, sizeof length, MSG_WAITALL) == sizeof length) {
            std::string startup(::ntohl(length) - sizeof length, '\0');
            static_cast<void>(::recv(client, startup.data(), startup.size(), MSG_WAITALL));
            static_cast<void>(::send(client, answer_.data(), answer_.size(), MSG_NOSIGNAL));
        }
        ::close(client);
    }

    int listener_;
    std::string answer_;
    std::string url_;
    std::thread thread_;
};

ErrorInfo refused(std::string_view state, std::string_view words) {
    const RefusingServer server(state, words);
    return migrate_error(server.url());
}

TEST(MigrateRefused, KnowsALoginThatIsWrongByItsState) {
    const auto error =
        refused("28P01", "Passwort-Authentifizierung für Benutzer »ich« fehlgeschlagen");
    EXPECT_EQ(error.code, ErrorCode::kAuthFailed) << describe(error);
    EXPECT_EQ(error.advice, Advice::kStop);
    EXPECT_EQ(error.backend_code, "28P01");
    EXPECT_THAT(error.message, AllOf(HasSubstr("Benutzer »ich« fehlgeschlagen. Check user, "
                                               "password and pg_hba.conf"),
                                     Not(HasSubstr("geheim"))));
    EXPECT_EQ(refused("28000", "kein pg_hba.conf-Eintrag für Host »::1«").code,
              ErrorCode::kAuthFailed);
}

TEST(MigrateRefused, KnowsADatabaseThatIsMissingByItsState) {
    const auto error = refused("3D000", "Datenbank »laden« existiert nicht");
    EXPECT_EQ(error.code, ErrorCode::kNoSuchDatabase) << describe(error);
    EXPECT_EQ(error.advice, Advice::kStop);
    EXPECT_THAT(error.message, HasSubstr("»laden« existiert nicht. Create it"));
}

TEST(MigrateRefused, TakesAServerThatIsStartingOrFullForOneThatComesRight) {
    const auto starting = refused("57P03", "das Datenbanksystem startet");
    EXPECT_EQ(starting.code, ErrorCode::kConnectFailed) << describe(starting);
    EXPECT_EQ(starting.advice, Advice::kRetryDestination);
    EXPECT_THAT(starting.message, HasSubstr("das Datenbanksystem startet. Check that the server"));
    const auto full = refused("53300", "tut mir leid, schon zu viele Verbindungen");
    EXPECT_EQ(full.code, ErrorCode::kConnectFailed) << describe(full);
    EXPECT_THAT(full.message, HasSubstr("Raise the limit"));
}

TEST(MigrateRefused, WantsThePasswordThatIsMissing) {
    PostgresServer& server = shared_postgres();
    const std::string url = server.create_database();
    Pg(url).exec(
        "DO $$ BEGIN CREATE ROLE migrates_with_password LOGIN PASSWORD 'test'; "
        "EXCEPTION WHEN duplicate_object THEN NULL; END $$");
    std::string without = url;
    without.replace(without.find("postgres@"), 9, "migrates_with_password@");
    const auto error = migrate_error(without + "?passfile=/nowhere");
    EXPECT_EQ(error.code, ErrorCode::kAuthFailed) << describe(error);
    EXPECT_EQ(error.advice, Advice::kStop);
    EXPECT_THAT(error.message, HasSubstr("password_file="));
}

// While it waits for another migration, in which it may take as long as it likes.
class MigrateInSilence : public testing::Test {
  protected:
    explicit MigrateInSilence(PostgresServer& server = shared_postgres())
        : server_(server), url_(server.create_database()), db_(url_) {
        db_.exec("SELECT pg_advisory_lock(hashtextextended('outbox_migrations', 0))");
    }
    std::future<ErrorInfo> start(const std::string& url) {
        auto ends = std::async(std::launch::async, [url] {
            MigrateOptions options;
            options.connect_timeout = std::chrono::seconds(2);
            return migrate_error(url, options);
        });
        const bool waits = bool(eventually(std::chrono::seconds(60), "it waits", [&] {
            return db_.number(
                       "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = "
                       "'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = "
                       "current_database())") == 1;
        }));
        EXPECT_TRUE(waits);
        return ends;
    }

    PostgresServer& server_;
    std::string url_;
    Pg db_;
};

class MigrateOnAServerThatHangs : public MigrateInSilence {
  protected:
    MigrateOnAServerThatHangs() : MigrateInSilence(own()) {}
    static PostgresServer& own() {
        static PostgresServer server;
        return server;
    }
};

TEST_F(MigrateInSilence, EndsWhereItsConnectionAloneCarriesNothing) {
    SilentProxy proxy(server_.port());
    auto ends = start(proxy.through(url_));
    proxy.silence();
    db_.exec("SELECT pg_advisory_unlock_all()");
    const ErrorInfo error = ends.get();
    EXPECT_EQ(error.code, ErrorCode::kConnectionLost) << describe(error);
    EXPECT_EQ(error.advice, Advice::kRetryDestination) << describe(error);
}

TEST_F(MigrateOnAServerThatHangs, Ends) {
    auto ends = start(url_);
    server_.pause();
    const ErrorInfo error = ends.get();
    server_.resume();
    EXPECT_EQ(error.code, ErrorCode::kConnectionLost) << describe(error);
}

}  // namespace
}  // namespace outbox::test
