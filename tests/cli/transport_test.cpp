// The ways of docs/security.md to a PostgreSQL server, which has TLS here.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/certificates.h"
#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr int kUsage = 2;

class Transport : public testing::Test {
  protected:
    // A CA, and what it has signed: one certificate for the server, one for the role `app`.
    void SetUp() override {
        keys_.sign("server", "localhost", "subjectAltName=DNS:localhost");
        keys_.sign("expired", "localhost", "subjectAltName=DNS:localhost", -1);
        keys_.sign("app", "app", "extendedKeyUsage=clientAuth");
        server_.stop();
        const auto data = server_.data();
        install("ca.crt", "ca.crt");
        use_certificate("server");
        std::ofstream(data / "postgresql.conf", std::ios::app)
            << "ssl = on\nssl_ca_file = 'ca.crt'\nlisten_addresses = 'localhost'\n";
        const std::string rules = read_file(data / "pg_hba.conf");
        std::ofstream(data / "pg_hba.conf", std::ios::trunc)
            << "hostssl all app all scram-sha-256 clientcert=verify-full\n"
            << "hostssl all scram all scram-sha-256\nhostnossl all app,scram all reject\n"
            << rules;
        server_.start();
        const std::string admin = server_.create_database();
        name_ = admin.substr(admin.rfind('/') + 1);
        Pg(admin).exec(
            "CREATE ROLE app LOGIN PASSWORD 'p-app'; CREATE ROLE scram LOGIN PASSWORD 'p-scram'");
        ASSERT_EQ(run("migrate", admin).status.code, 0);
        Pg(admin).exec("GRANT SELECT ON ALL TABLES IN SCHEMA public TO app, scram");
    }

    // Into the data folder of the server, which does not run.
    void install(const std::string& name, const std::string& as) {
        const auto data = server_.data();
        const auto file = data / as;
        std::filesystem::copy(keys_.file(name), file,
                              std::filesystem::copy_options::overwrite_existing);
        ASSERT_EQ(
            test::run({{"chown", "--reference", (data / "PG_VERSION").string(), file}}).status.code,
            0);
        std::filesystem::permissions(
            file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    }
    void use_certificate(const std::string& name) {
        install(name + ".crt", "server.crt");
        install(name + ".key", "server.key");
    }
    std::string url(const std::string& user, const std::string& parameters) const {
        return "postgresql://" + user + ":p-" + user +
               "@localhost:" + std::to_string(server_.port()) + "/" + name_ + "?" + parameters;
    }
    Finished run(const std::string& command, const std::string& db) {
        return outbox_.run({command}, {{"OUTBOX_DB", db}});
    }

    Certificates keys_;
    PostgresServer server_;
    std::string name_;  // of the database
    OutboxBinary outbox_;
};

TEST_F(Transport, VerifyFullWithScramAndWithAClientCertificate) {
    const std::string verified = "sslmode=verify-full&sslrootcert=" + keys_.file("ca.crt");
    const Finished scram = run("status", url("scram", verified));
    EXPECT_EQ(scram.status.code, 0) << scram.err;
    const std::string own =
        "&sslcert=" + keys_.file("app.crt") + "&sslkey=" + keys_.file("app.key");
    const Finished both = run("status", url("app", verified + own));
    EXPECT_EQ(both.status.code, 0) << both.err;
    EXPECT_NE(run("status", url("app", verified)).status.code, 0) << "without its certificate";
    EXPECT_NE(run("status", url("scram", "sslmode=disable")).status.code, 0);

    const std::string local = "sqlite://" + outbox_.file("shop.db").string();
    ASSERT_EQ(run("migrate", local).status.code, 0);
    const auto expect_refused = [&](const std::string& url, const std::string& why) {
        for (const char* command : {"status", "migrate"}) {
            const Finished refused = run(command, url);
            EXPECT_EQ(refused.status.code, 3) << refused.err;
            EXPECT_THAT(refused.err, HasSubstr(why));
            EXPECT_THAT(refused.err, HasSubstr("OB_CONNECT_FAILED"));
            EXPECT_THAT(refused.err, Not(HasSubstr("p-scram")));
        }
        const Finished mailbox =
            outbox_.run({"relay", "--check", "--connect-timeout-s", "60"},
                        {{"OUTBOX_FROM", local}, {"OUTBOX_TO", "mailbox+" + url}});
        EXPECT_EQ(mailbox.status.code, 1) << mailbox.err;
        EXPECT_THAT(mailbox.out, HasSubstr(why));
    };
    keys_.make_ca("other");
    expect_refused(url("scram", "sslmode=verify-full&sslrootcert=" + keys_.file("other.crt")),
                   "another CA than sslrootcert, or has expired");
    std::string elsewhere = url("scram", verified);
    elsewhere.replace(elsewhere.find("localhost"), 9, "127.0.0.1");
    expect_refused(elsewhere, "does not match host name");

    const Finished wrong = outbox_.run(
        {"status"},
        {{"OUTBOX_DB", "postgresql://scram:no@localhost:" + std::to_string(server_.port()) + "/" +
                           name_ + "?" + verified}});
    EXPECT_EQ(wrong.status.code, 3);
    EXPECT_THAT(wrong.err, HasSubstr("OB_AUTH_FAILED"));

    server_.stop();
    use_certificate("expired");
    server_.start();
    expect_refused(url("scram", verified), "or has expired");
}

// Servers that come to TLS in each of the three ways, and files.
TEST_F(Transport, DoctorSaysUntilWhenCertificatesAreValid) {
    keys_.sign("later", "localhost", "subjectAltName=DNS:localhost", 400);
    const std::string pem = keys_.file("later.pem");
    const int amqp = free_port();
    const int nats = free_port();
    const Process broker({.command = {"openssl", "s_server", "-quiet", "-accept",
                                      std::to_string(amqp), "-cert", pem, "-key", pem}});
    const auto settings =
        outbox_.write("nats.conf", "port: " + std::to_string(nats) + "\ntls { cert_file: \"" + pem +
                                       "\", key_file: \"" + pem + "\" }\n");
    const Process other({.command = {"/usr/sbin/nats-server", "-c", settings.string()}});
    const std::string from =
        url("app", "sslmode=verify-full&sslrootcert=" + keys_.file("ca.crt") +
                       "&sslcert=" + keys_.file("app.crt") + "&sslkey=" + keys_.file("app.key"));
    std::string said;
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "both servers answer", [&] {
        const Finished doctor =
            outbox_.run({"doctor", "--to",
                         "amqps=amqps://localhost:" + std::to_string(amqp) + "/%2f?exchange=x",
                         "--to", "nats=tls://localhost:" + std::to_string(nats)},
                        {{"OUTBOX_FROM", from}});
        said = doctor.out + doctor.err;
        return said.find("destination of amqps, localhost") != std::string::npos &&
               said.find("destination of nats, localhost") != std::string::npos;
    })) << said;
    const std::string certificates = "certificates: the one of the ";
    const std::string database = "localhost:" + std::to_string(server_.port());
    EXPECT_THAT(said,
                HasSubstr("warning  " + certificates + "database, " + database + ", expires on "));
    EXPECT_THAT(said, HasSubstr(keys_.file("app.crt") + ", for the database, expires on "));
    EXPECT_THAT(said, ContainsRegex(keys_.file("ca.crt") +
                                    ", for the database, expires on [^;]+; replace the file"));
    for (const auto& [name, port] : {std::pair("amqps", amqp), std::pair("nats", nats)}) {
        EXPECT_THAT(said, HasSubstr("ok       " + certificates + "destination of " + name +
                                    ", localhost:" + std::to_string(port) + ", is valid until "));
    }
    EXPECT_THAT(said, Not(HasSubstr("p-app")));

    server_.stop();
    use_certificate("expired");
    server_.start();
    std::string encrypted = url("scram", "sslmode=require");
    const Finished expired =
        outbox_.run({"doctor", "--to", "stdout:"}, {{"OUTBOX_FROM", encrypted}});
    EXPECT_THAT(expired.out, ContainsRegex("warning  " + certificates + "database, " + database +
                                           ", has expired, on [0-9-]+; its operator renews it"));
}

TEST(TransportWarning, NamesEachRemoteWayInClearOrUnverified) {
    OutboxBinary outbox;
    const std::string from = "sqlite://" + outbox.file("shop.db").string();
    ASSERT_EQ(outbox.run({"migrate", "--db", from}).status.code, 0);
    struct Case {
        std::string to;
        std::string weakness;  // "": none
    };
    const std::vector<Case> cases{
        {"kafka://192.0.2.1:9092", "is reached in clear (security.protocol=plaintext)"},
        {"kafka://192.0.2.1:9092?kafka.security.protocol=SASL_SSL&sasl.mechanism=PLAIN&"
         "sasl.username=a&sasl.password=bcde",
         ""},
        {"kafka://localhost:9092,[::1]:9093", ""},
        {"kafka://192.0.2.1:9092?security.protocol=ssl&enable.ssl.certificate.verification=false",
         "without proof who it is"},
        {"kafka://192.0.2.1:9092?security.protocol=ssl&ssl.endpoint.identification.algorithm=none",
         "without proof who it is"},
        {"mailbox+postgresql://a@192.0.2.1/x", "may be reached in clear (sslmode=prefer)"},
        {"mailbox+postgresql://a@192.0.2.1/x?sslmode=require", "without proof who it is"},
        {"mailbox+postgresql://a@localhost,192.0.2.1/x?sslmode=disable", "in clear"},
        {"mailbox+postgresql:///x?host=192.0.2.1", "in clear"},
        {"mailbox+postgresql:///x?host=/run/postgresql", ""},
        {"mailbox+postgresql://a@192.0.2.1/x?sslmode=verify-full&sslrootcert=/nowhere", ""}};
    for (const Case& c : cases) {
        const std::vector<std::string> words{
            "relay", "--check", "--connect-timeout-s", "1", "--from", from, "--to", c.to};
        std::vector<std::string> strict = words;
        strict.emplace_back("--require-tls");
        const Finished refused = outbox.run(strict);
        const Finished warned = outbox.run(words);
        if (c.weakness.empty()) {
            EXPECT_NE(refused.status.code, kUsage) << c.to << refused.err;
            EXPECT_THAT(warned.err, Not(HasSubstr("transport_insecure"))) << c.to;
            continue;
        }
        EXPECT_EQ(refused.status.code, kUsage) << c.to << refused.err;
        EXPECT_THAT(refused.err, HasSubstr(c.weakness)) << c.to;
        EXPECT_THAT(warned.err, HasSubstr("event=transport_insecure")) << c.to;
        EXPECT_THAT(warned.err, HasSubstr(c.weakness)) << c.to;
    }
    const Finished database =
        outbox.run({"status", "--db", "postgresql://a@192.0.2.1/x", "--require-tls"});
    EXPECT_EQ(database.status.code, kUsage);
    EXPECT_THAT(database.err, HasSubstr("sslmode=verify-full"));
}

}  // namespace
}  // namespace outbox::test
