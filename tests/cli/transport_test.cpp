// The ways of docs/security.md to a PostgreSQL server, which has TLS here.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdexcept>

#include "tests/cli/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kUsage = 2;

class Transport : public testing::Test {
  protected:
    // A CA, and what it has signed: one certificate for the server, one for the role `app`.
    void SetUp() override {
        sign("server", "localhost", "subjectAltName=DNS:localhost");
        sign("app", "app", "extendedKeyUsage=clientAuth");
        server_.stop();
        const auto data = server_.data();
        for (const char* name : {"ca.crt", "server.crt", "server.key"}) {
            std::filesystem::copy(keys_ / name, data / name);
            must({"chown", "--reference", (data / "PG_VERSION").string(), (data / name).string()});
            must({"chmod", "600", (data / name).string()});
        }
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

    void must(std::vector<std::string> command) {
        const Finished ended =
            test::run({.command = std::move(command), .working_folder = keys_.path()});
        if (ended.status.code != 0) throw std::runtime_error(ended.err);
    }
    void make_ca(const std::string& name) {
        must({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
              "-nodes", "-days", "2", "-subj", "/CN=" + name, "-keyout", name + ".key", "-out",
              name + ".crt"});
    }
    void sign(const std::string& name, const std::string& subject, const std::string& extension) {
        if (!std::filesystem::exists(keys_ / "ca.crt")) make_ca("ca");
        must({"openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
              "-subj", "/CN=" + subject, "-keyout", name + ".key", "-out", name + ".csr"});
        std::ofstream(keys_ / (name + ".ext")) << extension << "\n";
        must({"openssl", "x509", "-req", "-in", name + ".csr", "-CA", "ca.crt", "-CAkey", "ca.key",
              "-CAcreateserial", "-days", "2", "-extfile", name + ".ext", "-out", name + ".crt"});
    }
    std::string key(const std::string& name) const { return (keys_ / name).string(); }

    std::string url(const std::string& user, const std::string& parameters) const {
        return "postgresql://" + user + ":p-" + user +
               "@localhost:" + std::to_string(server_.port()) + "/" + name_ + "?" + parameters;
    }
    Finished run(const std::string& command, const std::string& db) {
        return outbox_.run({command}, {{"OUTBOX_DB", db}});
    }

    TemporaryFolder keys_{"keys"};
    PostgresServer server_;
    std::string name_;  // of the database
    OutboxBinary outbox_;
};

TEST_F(Transport, VerifyFullWithScramAndWithAClientCertificate) {
    const std::string verified = "sslmode=verify-full&sslrootcert=" + key("ca.crt");
    const Finished scram = run("status", url("scram", verified));
    EXPECT_EQ(scram.status.code, 0) << scram.err;
    const std::string own = "&sslcert=" + key("app.crt") + "&sslkey=" + key("app.key");
    const Finished both = run("status", url("app", verified + own));
    EXPECT_EQ(both.status.code, 0) << both.err;
    EXPECT_NE(run("status", url("app", verified)).status.code, 0) << "without its certificate";
    EXPECT_NE(run("status", url("scram", "sslmode=disable")).status.code, 0);

    make_ca("other");
    const Finished wrong =
        run("status", url("scram", "sslmode=verify-full&sslrootcert=" + key("other.crt")));
    EXPECT_NE(wrong.status.code, 0);
    EXPECT_THAT(wrong.err, HasSubstr("certificate verify failed"));
    EXPECT_THAT(wrong.err, Not(HasSubstr("p-scram")));
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
