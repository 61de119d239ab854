#include <array>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kUsage = 2;
constexpr int kUnreachable = 3;
constexpr int kDatabase = 4;
constexpr std::array kSecrets{"pa's3cret", "a b s3cret", "x/y?s3cret", "u\"s3cret@z"};

class BadInput : public testing::Test {
  protected:
    // The command ends with this code, says this on stderr, and prints no result.
    void expect_refusal(const std::vector<std::string>& arguments, int code,
                        const std::string& message) {
        const Finished ended = outbox_.run(arguments);
        EXPECT_EQ(ended.status, (ExitStatus{code, 0})) << ended.err;
        EXPECT_THAT(ended.err, HasSubstr(message));
        EXPECT_EQ(ended.out, "");
    }

    // A database with the outbox's tables.
    static std::string migrated() {
        const std::string url = shared_postgres().create_database();
        OutboxBinary binary;
        const Finished ended = binary.run({"migrate", "--db", url});
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return url;
    }

    std::string mailbox() { return "mailbox+sqlite://" + outbox_.file("mail.db").string(); }

    std::string webhook_key() {
        const auto path =
            outbox_.write("webhook.key", "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=\n");
        std::filesystem::permissions(path, std::filesystem::perms::owner_read);
        return path.string();
    }

    OutboxBinary outbox_;
};

TEST_F(BadInput, UnknownCommandsAndOptionsNameTheClosest) {
    expect_refusal({"realy"}, kUsage, "did you mean 'relay'");
    expect_refusal({"relay", "--form", "sqlite:///x"}, kUsage, "did you mean '--from'");
    expect_refusal({"status", "--batch-size", "3"}, kUsage, "is not an option of `outbox status`");
}

TEST_F(BadInput, NegativeNumbersAreOutOfRange) {
    expect_refusal({"relay", "--from", "sqlite:///x", "--to", "null:", "--batch-size", "-1"},
                   kUsage, "--batch-size: -1 is out of range; give a number from 1 to 1000");
}

TEST_F(BadInput, MalformedFilesAreRefusedWithLineAndColumn) {
    outbox_.write("outbox.toml", "batch_size = 3\n[source\n");
    expect_refusal({"status"}, kUsage, "outbox.toml:2:8");
    outbox_.write("outbox.toml", "batch_sise = 3\n");
    expect_refusal({"status"}, kUsage, "outbox.toml:1:1: unknown key 'batch_sise'; did you mean");
}

TEST_F(BadInput, WrongUrls) {
    expect_refusal({"status", "--db", "localhost"}, kUsage, "is not a URL");
    expect_refusal({"status", "--db", "oracle://db/x"}, kUsage, "use one of postgresql:");
    expect_refusal({"relay", "--from", "sqlite:///x", "--to", "jms://mq"}, kUsage,
                   "use one of kafka:");
    expect_refusal({"migrate", "--db", "oracle://db/x"}, kUsage, "postgresql://");
    expect_refusal({"migrate", "--db", "sqlite:///a.db", "--after-publish", "mark"}, kUsage,
                   "keep or delete");
    expect_refusal({"status"}, kUsage, "OUTBOX_DB");
    expect_refusal({"relay", "--to", "null:"}, kUsage, "OUTBOX_FROM");
}

TEST_F(BadInput, FilesThatAreNoDatabase) {
    expect_refusal({"status", "--db", "sqlite://" + outbox_.file("missing.db").string()},
                   kUnreachable, "`outbox migrate --db` makes it");
    const std::string text = outbox_.write("text.db", "no database").string();
    expect_refusal({"status", "--db", "sqlite://" + text}, kDatabase, "file is not a database");
}

TEST_F(BadInput, OptionsThatBreakAPromiseOfKafka) {
    expect_refusal({"relay", "--from", "sqlite:///x", "--to", "kafka://h:1?kafka.acks=1"}, kUsage,
                   "kafka.acks cannot be set");
}

TEST_F(BadInput, ServerThatIsNotThere) {
    const std::string url = "postgresql://app@127.0.0.1:" + std::to_string(free_port()) + "/shop";
    for (const char* command : {"migrate", "status", "prune"}) {
        expect_refusal({command, "--db", url}, kUnreachable, "OB_CONNECT_FAILED");
    }
    expect_refusal({"relay", "--from", url, "--to", mailbox()}, kUnreachable, "OB_CONNECT_FAILED");
}

// It takes connections, and answers nothing.
TEST_F(BadInput, ServerThatDoesNotAnswerIsAskedOnce) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const where = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(::bind(listener, where, size), 0);
    ASSERT_EQ(::listen(listener, 16), 0);
    ASSERT_EQ(::getsockname(listener, where, &size), 0);
    expect_refusal({"status", "--connect-timeout-s", "1", "--db",
                    "postgresql://u@127.0.0.1:" + std::to_string(::ntohs(address.sin_port)) + "/x"},
                   kUnreachable, "no answer within 1 s");
    int connections = 0;
    for (int one = -1; (one = ::accept(listener, nullptr, nullptr)) >= 0; ::close(one)) {
        ++connections;
    }
    EXPECT_EQ(connections, 1);
    ::close(listener);
}

TEST_F(BadInput, WrongPasswordAppearsNowhere) {
    Pg server(shared_postgres().url());
    server.exec("CREATE ROLE clerk LOGIN PASSWORD 'right'");
    const std::string url =
        "postgresql://clerk:wr0ng@127.0.0.1:" + std::to_string(shared_postgres().port()) +
        "/postgres";
    for (const char* command : {"migrate", "status"}) {
        const Finished ended = outbox_.run({command, "--db", url});
        EXPECT_EQ(ended.status.code, kUnreachable);
        EXPECT_THAT(ended.err, HasSubstr("OB_AUTH_FAILED"));
        EXPECT_THAT(ended.err, HasSubstr("process list"));
        EXPECT_THAT(ended.err, Not(HasSubstr("wr0ng")));
    }
    const Finished quiet = outbox_.run({"status"}, {{"OUTBOX_DB", url}});
    EXPECT_THAT(quiet.err, HasSubstr("OB_AUTH_FAILED"));
    EXPECT_THAT(quiet.err, Not(HasSubstr("warning")));
    EXPECT_THAT(quiet.err, Not(HasSubstr("wr0ng")));
    server.exec("DROP ROLE clerk");
}

TEST_F(BadInput, NoFormOfASecretIsShown) {
    const std::string port = std::to_string(free_port());
    const std::string from = "sqlite://" + outbox_.file("there.db").string();
    ASSERT_EQ(outbox_.run({"migrate", "--db", from}).status.code, 0);
    const std::string host = "@127.0.0.1:" + port + "/shop";
    for (const std::string secret : kSecrets) {
        const std::vector<std::string> urls{
            "postgresql://app:" + secret + host,
            "postgres//app:" + secret + host,
            "mailbox+postgresql://app:" + secret + host,
            "host=127.0.0.1 port=" + port + " password = " + secret,
            "kafka://127.0.0.1:" + port + "?ssl.key.pem=" + secret,
            "kafka://127.0.0.1:" + port + "?sasl.oauthbearer.config=" + secret,
            "kafka://app:" + secret + "@127.0.0.1:" + port};
        for (const std::string& url : urls) {
            const std::vector<std::vector<std::string>> commands{
                {"status", "--db", url},
                {"migrate", "--db", url},
                {"relay", "--check", "--from", from, "--to", url},
                {"relay", "--check", "--from", url, "--to", "null:"},
                {"stauts", url},
                {"status", "--bd", url}};
            for (const auto& command : commands) {
                const Finished ended = outbox_.run(command);
                EXPECT_NE(ended.status.code, 0) << command[0] << url;
                EXPECT_THAT(ended.err + ended.out, Not(HasSubstr("s3cret"))) << command[0];
            }
        }
    }
}

TEST_F(BadInput, NoFormOfASecretOfABrokerIsShown) {
    const std::string from = "sqlite://" + outbox_.file("there.db").string();
    ASSERT_EQ(outbox_.run({"migrate", "--db", from}).status.code, 0);
    const std::string at = "@127.0.0.1:" + std::to_string(free_port());
    for (const std::string secret : kSecrets) {
        const std::vector<std::string> urls{
            "amqp://app:" + secret + at + "/?exchange=x",
            "nats://:" + secret + at + "?",
            "nats://app:" + secret + at + "?",
            "redis://app:" + secret + at + "/0?",
            "mqtt://app:" + secret + at + "?",
            "pulsar://:" + secret + at + "?",
            "sqs+http://AKID:" + secret + at + "?region=eu-west-1",
            "sns+http://AKID:" + secret + at + "?region=eu-west-1",
            "webhook+postgresql://app:" + secret + at + "/shop?key_file=" + webhook_key()};
        for (const std::string& url : urls) {
            for (const std::string option : {"", "&no_such_option=x"}) {
                const Finished ended =
                    outbox_.run({"relay", "--check", "--from", from, "--to", url + option});
                EXPECT_NE(ended.status.code, 0) << url << option;
                EXPECT_THAT(ended.err + ended.out, Not(HasSubstr("s3cret"))) << url << option;
            }
        }
    }
}

TEST_F(BadInput, WrongDatabaseAndTable) {
    expect_refusal({"status", "--db", shared_postgres().url("no_such_shop")}, kDatabase,
                   "OB_NO_SUCH_DATABASE");
    const std::string empty = shared_postgres().create_database();
    expect_refusal({"status", "--db", empty}, kDatabase, "OB_NO_SUCH_TABLE");
    const std::string url = migrated();
    expect_refusal({"relay", "--from", url, "--to", mailbox(), "--table", "Outbox_Events"},
                   kDatabase, "'Outbox_Events'");
}

TEST_F(BadInput, TableWithoutTheColumnsItNeeds) {
    const std::string url = shared_postgres().create_database();
    Pg(url).exec("CREATE TABLE things (id uuid PRIMARY KEY, body text)");
    expect_refusal({"relay", "--from", url, "--to", mailbox(), "--table", "things"}, kDatabase,
                   "OB_TABLE_SHAPE");
}

TEST_F(BadInput, MissingRightsAreNamedWithTheirGrant) {
    const std::string url = migrated();
    Pg database(url);
    database.exec("CREATE ROLE outsider LOGIN PASSWORD 'test'");
    const std::string name = url.substr(url.rfind('/') + 1);
    const std::string as_outsider =
        "postgresql://outsider@127.0.0.1:" + std::to_string(shared_postgres().port()) + "/" + name;
    expect_refusal({"status", "--db", as_outsider}, kDatabase, "GRANT");
    database.exec("DROP ROLE outsider");
}

TEST_F(BadInput, AdminAddressInUse) {
    const TakenPort taken(0);
    expect_refusal({"relay", "--from", migrated(), "--to", mailbox(), "--admin", taken.address()},
                   kUsage, "another program uses this port; give another address with --admin");
}

TEST_F(BadInput, CheckingWritesNothing) {
    const std::string from = migrated();
    const std::string empty = shared_postgres().create_database();
    const Finished checked = outbox_.run(
        {"relay", "--check", "--from", from, "--to", "mailbox+postgresql" + empty.substr(10)});
    EXPECT_EQ(checked.status.code, 0) << checked.out << checked.err;
    EXPECT_EQ(Pg(empty).number("SELECT count(*) FROM pg_class WHERE relnamespace = "
                               "'public'::regnamespace"),
              0);
    // A path that is mistyped is told and not made.
    const auto path = outbox_.file("mistyped.db");
    const Finished mistyped = outbox_.run(
        {"relay", "--check", "--from", from, "--to", "mailbox+sqlite://" + path.string()});
    EXPECT_EQ(mistyped.status.code, 1);
    EXPECT_THAT(mistyped.out, HasSubstr("problem"));
    EXPECT_THAT(mistyped.out, HasSubstr("mistyped.db"));
    EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(BadInput, OptionsOfKafkaOnAnotherRouteAreRefused) {
    outbox_.write("outbox.toml",
                  "[[route]]\nname = \"a\"\nto = \"null:\"\n[route.kafka]\n\"linger.ms\" = 5\n");
    expect_refusal({"relay", "--from", "sqlite:///x"}, kUsage,
                   "[route.kafka] is for a route to kafka:");
}

TEST_F(BadInput, OptionsOfAFormatThatAreWrongOrOnAnotherRouteAreRefused) {
    const std::string route = "[[route]]\nname = \"a\"\nto = \"null:\"\n";
    outbox_.write("outbox.toml", route + "[route.cloudevents]\nsource = \"/shop\"\n");
    expect_refusal({"relay", "--from", "sqlite:///x"}, kUsage,
                   "[route.cloudevents] is for a route of the format cloudevents, and this one has "
                   "format = \"raw\"");
    const std::string formatted =
        route + "format = \"cloudevents-structured\"\n[route.cloudevents]\n";
    outbox_.write("outbox.toml", formatted + "sorce = \"/shop\"\n");
    expect_refusal({"relay", "--from", "sqlite:///x"}, kUsage, "there is no option 'sorce'");
    outbox_.write("outbox.toml", formatted + "source = \"my shop\"\n");
    expect_refusal({"relay", "--from", "sqlite:///x"}, kUsage, "is not a URI-reference");
    const std::string placed =
        "format = \"debezium\"\n[route.debezium]\n\"table.fields.additional.placement\" = ";
    using ToAndHeader = std::pair<std::string, std::string>;
    for (const auto& [to, header] : {ToAndHeader("redis://127.0.0.1:1", "value"),
                                     {"nats://127.0.0.1:1", "Nats-Msg-Id"},
                                     {"amqp://127.0.0.1:1/?exchange=x", "CC"},
                                     {"mqtt://127.0.0.1:1", "outbox-key"},
                                     {"webhook+sqlite:///x?key_file=" + webhook_key(), "host"}}) {
        outbox_.write("outbox.toml",
                      "[source]\nurl = \"sqlite:///x\"\n[[route]]\nname = \"a\"\nto = \"" +
                          std::string(to) + "\"\n" + placed + "\"type:header:" + header + "\"\n");
        expect_refusal({"relay"}, kUsage, "type:header:" + std::string(header));
    }
    expect_refusal({"relay", "--from", "sqlite:///x", "--to", "null:", "--format", "cloudevent"},
                   kUsage, "did you mean 'cloudevents'");
}

TEST_F(BadInput, WhatADestinationWithoutOptionsWouldNotReadIsRefused) {
    for (const auto& [to, message] :
         {std::pair("null:?x=y", "null: has no option 'x'; there are none"),
          {"stdout:?x=y", "stdout: has no option 'x'; there are none"},
          {"stdout:hunter2", "write 'stdout:' with nothing behind it"},
          {"null://hunter2", "write 'null:' with nothing behind it"},
          {"null://hunter2@", "write 'null:' with nothing behind it"}}) {
        const Finished ended = outbox_.run({"relay", "--from", "sqlite:///x", "--to", to});
        EXPECT_EQ(ended.status, (ExitStatus{kUsage, 0})) << to << ": " << ended.err;
        EXPECT_THAT(ended.err, HasSubstr(message));
        EXPECT_THAT(ended.err, Not(HasSubstr("hunter2")));
    }
}

TEST_F(BadInput, AFractionIsToldAsWhatIsWantedInItsPlace) {
    outbox_.write("outbox.toml",
                  "[[route]]\nname = \"a\"\nto = \"redis://127.0.0.1:1\"\n[route.redis]\n"
                  "dedup_window = 2.5\n");
    expect_refusal({"relay", "--from", "sqlite:///x"}, kUsage,
                   "dedup_window must be a whole number, or a text in quotes");
}

TEST_F(BadInput, AnOptionOfADestinationThatIsGivenTwiceIsRefused) {
    expect_refusal({"relay", "--from", "sqlite:///x", "--to",
                    "redis://127.0.0.1:1?dedup_window=20000&redis.dedup_window=10001"},
                   kUsage, "given 'dedup_window' twice");
}

TEST_F(BadInput, ADatabaseThatTakesNoWritesIsNotTakenForAStandby) {
    const std::string url = migrated();
    Pg db(url);
    db.exec("ALTER DATABASE " + db.value("SELECT current_database()") +
            " SET default_transaction_read_only = on");
    for (const std::string check : {"", "--check"}) {
        std::vector<std::string> words{"relay", "--from", url, "--to", "null:", "--admin", "off"};
        if (!check.empty()) words.push_back(check);
        const Finished ended = outbox_.run(words);
        EXPECT_NE(ended.status.code, 0);
        EXPECT_THAT(ended.out + ended.err, HasSubstr("default_transaction_read_only is on"));
        EXPECT_THAT(ended.out + ended.err, Not(HasSubstr("standby")));
    }
}

TEST_F(BadInput, TemplatesWhoseTopicsADestinationRefusesAreRefused) {
    for (const auto& [to, bad] : {std::pair("nats://127.0.0.1:1", "orders.*"),
                                  {"mqtt://127.0.0.1:1", "orders/#"},
                                  {"redis://127.0.0.1:1", "outbox:{key}"},
                                  {"pulsar://127.0.0.1:1", "a/b/c/d/{key}"},
                                  {"sqs://127.0.0.1:1?region=eu", "{key}.{event_type}"},
                                  {"sns://127.0.0.1:1?region=eu", "{key}.{event_type}"},
                                  {"kafka://127.0.0.1:1", "orders of {key}"}}) {
        for (const bool check : {false, true}) {
            std::vector<std::string> words{
                "relay", "--from", "sqlite:///x", "--to", to, "--topic-template", bad};
            if (check) words.emplace_back("--check");
            expect_refusal(words, kUsage, "topic template '" + std::string(bad) + "': it makes");
        }
    }
}

TEST_F(BadInput, AnImportIsAResultAndItsRemarksAreOnStderrOrInItsJson) {
    const std::string file = outbox_.write(
        "application.properties",
        "debezium.sink.type=kafka\n"
        "debezium.sink.kafka.producer.bootstrap.servers=localhost:9092\n"
        "debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector\n"
        "debezium.source.database.hostname=db\n"
        "debezium.source.database.dbname=shop\n"
        "debezium.source.table.include.list=public.outbox\n"
        "debezium.source.no.such.thing=1\n"
        "debezium.transforms=outbox\n"
        "debezium.transforms.outbox.type=io.debezium.transforms.outbox.EventRouter\n");
    const Finished text = outbox_.run({"import", "debezium", file});
    ASSERT_EQ(text.status.code, 0) << text.err;
    const Finished ended = outbox_.run({"import", "debezium", file, "--json"});
    ASSERT_EQ(ended.status.code, 0) << ended.err;
    const auto made = nlohmann::json::parse(ended.out);
    EXPECT_EQ(made["toml"], text.out);
    EXPECT_EQ(ended.err, "");
    ASSERT_FALSE(made["left_out"].empty()) << text.err;
    for (const auto& one : made["left_out"]) {
        EXPECT_THAT(text.err, HasSubstr(":" + std::to_string(one["line"].get<int>()) + ": " +
                                        one["name"].get<std::string>() + ": " +
                                        one["why"].get<std::string>()));
    }
}

TEST_F(BadInput, HelpAndVersionAreResults) {
    EXPECT_EQ(outbox_.run({"--version"}).out, "outbox " OUTBOX_VERSION "\n");
    EXPECT_EQ(nlohmann::json::parse(outbox_.run({"version", "--json"}).out)["version"],
              OUTBOX_VERSION);
    const Finished help = outbox_.run({"relay", "--help"});
    EXPECT_EQ(help.status.code, 0);
    EXPECT_THAT(help.out, HasSubstr("--max-attempts N"));
    EXPECT_EQ(help.err, "");
}

}  // namespace
}  // namespace outbox::test
