// The ways of docs/security.md to a Kafka broker with TLS and SASL, by a relay and by a consumer.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>
#include <sstream>

#include "tests/support/certificates.h"
#include "tests/support/eventually.h"
#include "tests/support/kafka_client.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;
using Options = std::map<std::string, std::string>;

constexpr auto kDeadline = 90s;
constexpr ExitStatus kStopped{0, 0};
constexpr int kOldestWithScram = 0x02060100;

std::string replace(std::string text, const std::string& what, const std::string& by) {
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
        text.replace(at, what.size(), by);
    }
    return text;
}

// A librdkafka newer than Debian's, with SCRAM for today's brokers and OIDC: what comes with the
// Kafka client of examples/polyglot/python.
std::string newer_library() {
    static const TemporaryFolder folder("librdkafka");
    static const bool linked = [] {
        const std::string root = OUTBOX_SOURCE_DIR;
        const Finished built = run({{root + "/script/polyglot", "python"}}, 15min);
        if (built.status.code != 0) throw std::runtime_error(built.err);
        namespace fs = std::filesystem;
        for (const auto& entry :
             fs::recursive_directory_iterator(root + "/build/polyglot/python/venv/lib")) {
            if (!entry.path().filename().string().starts_with("librdkafka-")) continue;
            fs::create_symlink(entry.path(), folder / "librdkafka.so.1");
            return true;
        }
        return false;
    }();
    if (!linked) throw std::runtime_error("the Python client brings no librdkafka");
    return folder.path().string();
}

class KafkaTransport : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        keys = std::make_unique<Certificates>();
        // 0.0.0.0 is this machine, too, and counts as another.
        keys->sign("server", "localhost", "subjectAltName=DNS:localhost,IP:0.0.0.0");
        keys->sign("expired", "localhost", "subjectAltName=DNS:localhost", -1);
        keys->sign("relay", "relay", "extendedKeyUsage=clientAuth");
        keys->make_ca("other");
        KafkaOptions with_tls;
        with_tls.tls = keys->folder();
        broker = std::make_unique<KafkaServer>(with_tls);
        create_topic(broker->bootstrap(), "orders");
    }
    static void TearDownTestSuite() {
        broker.reset();
        keys.reset();
    }

    void SetUp() override {
        ASSERT_EQ(outbox_.run({"migrate", "--db", shop_}).status.code, 0);
        ASSERT_EQ(outbox_.run({"migrate", "--db", box_, "--only", "consumer"}).status.code, 0);
        Sqlite(outbox_.file("box.db").string())
            .exec(
                "CREATE TABLE effects (seq INTEGER PRIMARY KEY, id text, key text, payload text, "
                "member text, n bigint)");
    }

    // The page's example for this broker, with what is the broker's own here.
    static std::string example(const std::string& address, const std::string& listener) {
        const std::string page = read_file(SECURITY_PAGE);
        const auto named = page.find(address);
        const auto start = page.rfind("```toml\n", named);
        if (named == std::string::npos || start == std::string::npos) {
            throw std::runtime_error("the page has no example with " + address);
        }
        const auto text = start + std::string("```toml\n").size();
        std::string found = page.substr(text, page.find("```", text) - text);
        found = replace(found, address, broker->bootstrap(listener));
        found = replace(found, "/etc/outbox", keys->folder().string());
        return replace(found, "\"...\"", "\"s3cret\"");
    }
    // Of lines as "name" = "value".
    static Options options_of(const std::string& example) {
        Options options;
        std::istringstream lines(example);
        for (std::string line; std::getline(lines, line);) {
            if (!line.starts_with('"')) continue;
            const auto name = line.find('"', 1);
            const auto value = line.find('"', name + 1) + 1;
            options[line.substr(1, name - 1)] = line.substr(value, line.rfind('"') - value);
        }
        return options;
    }
    static std::string toml_of(const std::string& bootstrap, const Options& options) {
        std::string toml = "[[route]]\nname = \"billing\"\nto = \"kafka://" + bootstrap +
                           "\"\ntopic = \"orders\"\n[route.kafka]\n";
        for (const auto& [name, value] : options) {
            toml.append("\"").append(name).append("\" = \"").append(value).append("\"\n");
        }
        return toml;
    }

    void emit(const std::string& id) {
        Sqlite(outbox_.file("shop.db").string())
            .exec("INSERT INTO outbox_events (id, topic, payload) VALUES ('" + id +
                  "', 'orders', '1')");
    }
    long long waiting() {
        return Sqlite(outbox_.file("shop.db").string())
            .number("SELECT count(*) FROM outbox_events");
    }
    std::string received() {
        return Sqlite(outbox_.file("box.db").string())
            .value("SELECT group_concat(id, ' ') FROM (SELECT id FROM effects ORDER BY seq)");
    }
    void configure(const std::string& route) {
        outbox_.write("outbox.toml", "[source]\nurl = \"" + shop_ + "\"\n" + route);
    }
    static OutboxBinary::Variables variables(const std::string& library) {
        if (library.empty()) return {};
        // That library reads one byte behind a token, where malloc always has some more.
        const char* options = std::getenv("ASAN_OPTIONS");
        return {{"LD_LIBRARY_PATH", library},
                {"ASAN_OPTIONS",
                 std::string(options == nullptr ? "" : options) + ":intercept_strlen=0"}};
    }
    Finished check(const std::string& library = {}) {
        return outbox_.run({"relay", "--check", "--connect-timeout-s", "60"}, variables(library));
    }
    Process relay(const std::string& library = {}) {
        return outbox_.start_relay({"--admin", "off"}, variables(library));
    }
    Process member(const std::string& bootstrap, const Options& options,
                   const std::string& library = {}) {
        static int groups = 0;
        ProcessOptions process;
        process.command = {KAFKA_MEMBER, bootstrap, "billing-" + std::to_string(++groups),
                           "orders",     box_,      "m",
                           "0"};
        for (const auto& [name, value] : options) process.command.push_back(name + "=" + value);
        process.environment = variables(library);
        return Process(std::move(process));
    }

    // An event goes through relay and consumer by the page's example.
    void expect_delivered(const std::string& address, const std::string& listener,
                          const std::string& library = {}, const Options& instead = {}) {
        std::string route = example(address, listener);
        for (const auto& [what, by] : instead) route = replace(route, what, by);
        configure(route);
        const std::string id = "0192" + std::to_string(::getpid()) + listener;
        emit(id);
        const Finished checked = check(library);
        EXPECT_EQ(checked.status.code, 0) << checked.out << checked.err;
        Process leader = relay(library);
        EXPECT_TRUE(eventually(kDeadline, "it is published", [&] { return waiting() == 0; }))
            << leader.stderr_text();
        Process billing = member(broker->bootstrap(listener), options_of(route), library);
        EXPECT_TRUE(eventually(kDeadline, "it is received", [&] {
            return received().find(id) != std::string::npos;
        })) << billing.stderr_text();
        EXPECT_EQ(billing.stop(), kStopped);
        EXPECT_EQ(leader.stop(), kStopped);
    }

    // Relay, --check and consumer say `why`; the event waits.
    void expect_refused(const std::string& bootstrap, Options options, const std::string& code,
                        const std::string& why, const std::string& library = {}) {
        // localhost may be ::1, too, where nobody listens, and librdkafka tells that as well.
        options["broker.address.family"] = "v4";
        configure(toml_of(bootstrap, options));
        const Finished checked = check(library);
        EXPECT_EQ(checked.status.code, 1) << checked.out << checked.err;
        EXPECT_THAT(checked.out, HasSubstr(why));
        EXPECT_THAT(checked.out, HasSubstr(code));
        emit("waits");
        Process leader = relay(library);
        Process billing = member(bootstrap, options, library);
        EXPECT_TRUE(eventually(kDeadline, "the relay says why", [&] {
            return leader.stderr_text().find(why) != std::string::npos;
        })) << leader.stderr_text();
        EXPECT_TRUE(eventually(kDeadline, "the consumer says why", [&] {
            return billing.stderr_text().find(why) != std::string::npos;
        })) << billing.stderr_text();
        EXPECT_EQ(billing.stop(), kStopped);
        EXPECT_EQ(leader.stop(), kStopped);
        EXPECT_EQ(waiting(), 1);
        EXPECT_EQ(
            Sqlite(outbox_.file("shop.db").string()).number("SELECT count(*) FROM outbox_delivery"),
            0)
            << "no attempt is counted";
        EXPECT_THAT(leader.stderr_text() + billing.stderr_text() + checked.out,
                    Not(HasSubstr("wr0ng")));
        // The same event goes once the way is mended.
        configure(toml_of(broker->bootstrap("tls"), trusted()));
        Process mended = relay();
        EXPECT_TRUE(eventually(kDeadline, "it goes", [&] { return waiting() == 0; }))
            << mended.stderr_text();
        EXPECT_EQ(mended.stop(), kStopped);
    }

    static Options trusted() {
        return {{"security.protocol", "ssl"}, {"ssl.ca.location", keys->file("ca.crt")}};
    }
    static Options with(Options options, const Options& more) {
        for (const auto& [name, value] : more) options[name] = value;
        return options;
    }
    static Options scram(const std::string& password) {
        return with(trusted(), {{"security.protocol", "sasl_ssl"},
                                {"sasl.mechanism", "SCRAM-SHA-512"},
                                {"sasl.username", "relay"},
                                {"sasl.password", password}});
    }

    inline static std::unique_ptr<Certificates> keys;
    inline static std::unique_ptr<KafkaServer> broker;
    OutboxBinary outbox_;
    std::string shop_ = "sqlite://" + outbox_.file("shop.db").string();
    std::string box_ = "sqlite://" + outbox_.file("box.db").string();
};

TEST_F(KafkaTransport, TlsWithACaAndWithAClientCertificate) {
    expect_delivered("broker.example:9093", "tls");
    expect_delivered("broker.example:9094", "mtls");
}

TEST_F(KafkaTransport, ScramOverTls) {
    expect_delivered("broker.example:9095", "scram", newer_library());
}

TEST_F(KafkaTransport, ATokenOfAnIdentityProvider) {
    Process endpoint({.command = {"python3", "-B", TOKEN_ENDPOINT}});
    ASSERT_TRUE(eventually(kDeadline, "it listens", [&] {
        return endpoint.stdout_text().ends_with('\n');
    })) << endpoint.stderr_text();
    expect_delivered(
        "broker.example:9096", "oauth", newer_library(),
        {{"https://login.example/token",
          "http://127.0.0.1:" + std::to_string(std::stoi(endpoint.stdout_text())) + "/token"}});
}

TEST_F(KafkaTransport, AnUnsecuredTokenWithAnyLibrary) {
    const Options options = with(trusted(), {{"security.protocol", "sasl_ssl"},
                                             {"sasl.mechanism", "OAUTHBEARER"},
                                             {"enable.sasl.oauthbearer.unsecure.jwt", "true"},
                                             {"sasl.oauthbearer.config", "principal=relay"}});
    configure(toml_of(broker->bootstrap("oauth"), options));
    emit("unsecured");
    Process leader = relay();
    Process billing = member(broker->bootstrap("oauth"), options);
    EXPECT_TRUE(eventually(kDeadline, "it is received",
                           [&] { return received().find("unsecured") != std::string::npos; }))
        << leader.stderr_text() << billing.stderr_text();
    EXPECT_EQ(billing.stop(), kStopped);
    EXPECT_EQ(leader.stop(), kStopped);
}

TEST_F(KafkaTransport, AnotherCa) {
    expect_refused(broker->bootstrap("tls"),
                   with(trusted(), {{"ssl.ca.location", keys->file("other.crt")}}),
                   "OB_CONNECT_FAILED", "set kafka.ssl.ca.location to the file of the CA");
}

TEST_F(KafkaTransport, AFileThatIsRenewedIsReadAgain) {
    const std::string ca = keys->file("renewed.crt");
    const auto renew = [&](const char* by) {
        std::filesystem::copy_file(keys->file(by), ca,
                                   std::filesystem::copy_options::overwrite_existing);
    };
    renew("other.crt");
    configure(toml_of(broker->bootstrap("tls"), with(trusted(), {{"ssl.ca.location", ca}})));
    emit("waits");
    Process leader = relay();
    EXPECT_TRUE(eventually(kDeadline, "the circuit is open", [&] {
        return leader.stderr_text().find("event=circuit_open") != std::string::npos;
    })) << leader.stderr_text();
    renew("ca.crt");
    EXPECT_TRUE(eventually(kDeadline, "it goes", [&] { return waiting() == 0; }))
        << leader.stderr_text();
    EXPECT_EQ(leader.stop(), kStopped);
}

TEST_F(KafkaTransport, AnotherHost) {
    const std::string address =
        "127.0.0.1" + broker->bootstrap("tls").substr(std::string("localhost").size());
    expect_refused(address, trusted(), "OB_CONNECT_FAILED",
                   "certificate is for another host; use a name that stands in the certificate");
}

TEST_F(KafkaTransport, AnExpiredCertificate) {
    expect_refused(broker->bootstrap("expired"), trusted(), "OB_CONNECT_FAILED",
                   "the broker's certificate has expired; renew it");
}

TEST_F(KafkaTransport, NoClientCertificate) {
    expect_refused(broker->bootstrap("mtls"), trusted(), "OB_CONNECT_FAILED",
                   "check kafka.ssl.certificate.location and kafka.ssl.key.location");
}

TEST_F(KafkaTransport, AWrongPassword) {
    expect_refused(broker->bootstrap("scram"), scram("wr0ng"), "OB_AUTH_FAILED",
                   "invalid credentials", newer_library());
}

TEST_F(KafkaTransport, ScramWithALibraryThatIsTooOld) {
    if (rd_kafka_version() >= kOldestWithScram) GTEST_SKIP() << "this one is new enough";
    expect_refused(broker->bootstrap("scram"), scram("s3cret"), "OB_AUTH_FAILED",
                   "take SCRAM only from librdkafka 2.6.1 on");
}

TEST_F(KafkaTransport, TokensOfAProviderWithALibraryThatHasNoHttpAreRefusedByName) {
    configure(example("broker.example:9096", "oauth"));
    const Finished checked = check();
    if (checked.status.code == 1) GTEST_SKIP() << "this one has HTTP, and finds no login.example";
    EXPECT_EQ(checked.status.code, 2);
    EXPECT_THAT(checked.err, HasSubstr("not supported in this build: OAuth/OIDC depends on"));
}

TEST_F(KafkaTransport, OptionsMayBeNamedAsTheErrorsNameThem) {
    Options options;
    for (const auto& [name, value] : trusted()) options["kafka." + name] = value;
    configure(toml_of(broker->bootstrap("tls"), options));
    EXPECT_EQ(check().status.code, 0);
    emit("prefixed");
    Process leader = relay();
    Process billing = member(broker->bootstrap("tls"), options);
    EXPECT_TRUE(eventually(kDeadline, "it is received",
                           [&] { return received().find("prefixed") != std::string::npos; }))
        << leader.stderr_text() << billing.stderr_text();
    EXPECT_EQ(billing.stop(), kStopped);
    EXPECT_EQ(leader.stop(), kStopped);
    options["kafka.group.id"] = "other";
    Process refused = member(broker->bootstrap("tls"), options);
    EXPECT_EQ(refused.wait(kDeadline), (ExitStatus{1, 0}));
    EXPECT_THAT(refused.stderr_text(), HasSubstr("kafka.group.id cannot be set"));
}

TEST_F(KafkaTransport, WhatIsMissingIsNamed) {
    const auto said = [&](const Options& more) {
        configure(toml_of(broker->bootstrap("tls"), with(trusted(), more)));
        const Finished checked = check();
        EXPECT_EQ(checked.status.code, 2) << checked.out;
        return checked.err;
    };
    EXPECT_THAT(said({{"security.protocol", "sasl_ssl"},
                      {"sasl.username", "relay"},
                      {"sasl.password", "s3cret"}}),
                HasSubstr("set kafka.sasl.mechanism"));
    EXPECT_THAT(said({{"ssl.key.location", keys->file("relay.key")}}),
                HasSubstr("key and certificate belong together"));
}

TEST_F(KafkaTransport, AFileThatIsNotThere) {
    const Options options = with(trusted(), {{"ssl.ca.location", "/nowhere/ca.crt"}});
    configure(toml_of(broker->bootstrap("tls"), options));
    const Finished checked = check();
    EXPECT_EQ(checked.status.code, 2);
    EXPECT_THAT(checked.err, HasSubstr("check that the files of kafka.ssl.* exist"));
    Process billing = member(broker->bootstrap("tls"), options);
    EXPECT_EQ(billing.wait(kDeadline), (ExitStatus{1, 0}));
    EXPECT_THAT(billing.stderr_text(), HasSubstr("check that the files of kafka.ssl.* exist"));
}

TEST_F(KafkaTransport, RequireTlsTakesTheVerifiedWayToAnotherMachineOnly) {
    const auto elsewhere = [](const std::string& bootstrap) {
        return "0.0.0.0" + bootstrap.substr(bootstrap.find(':'));
    };
    struct Case {
        std::string bootstrap;
        Options options;
        std::string weakness;
    };
    const std::vector<Case> cases{
        {elsewhere(broker->bootstrap("tls")), trusted(), ""},
        {elsewhere(broker->bootstrap()), {}, "in clear"},
        {elsewhere(broker->bootstrap("tls")),
         with(trusted(), {{"enable.ssl.certificate.verification", "false"}}), "without proof"}};
    for (const Case& c : cases) {
        configure(toml_of(c.bootstrap, c.options));
        const Finished warned = check();
        EXPECT_EQ(warned.status.code, 0) << c.weakness << warned.out << warned.err;
        const Finished strict = outbox_.run({"relay", "--check", "--require-tls"});
        EXPECT_EQ(strict.status.code, c.weakness.empty() ? 0 : 2) << strict.err;
        if (c.weakness.empty()) {
            EXPECT_THAT(warned.err, Not(HasSubstr("transport_insecure")));
        } else {
            EXPECT_THAT(warned.err, HasSubstr("event=transport_insecure"));
            EXPECT_THAT(strict.err, HasSubstr(c.weakness));
        }
    }
}

}  // namespace
}  // namespace outbox::test
