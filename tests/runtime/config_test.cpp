#include "runtime/config.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/formats.h"
#include "core/redact.h"
#include "core/url.h"
#include "runtime/command_line.h"
#include "runtime/exit_codes.h"
#include "tests/support/files.h"

namespace outbox::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Runs each test in an empty folder, so that no outbox.toml is found by chance.
class ConfigTest : public testing::Test {
  protected:
    void SetUp() override {
        before_ = std::filesystem::current_path();
        std::filesystem::current_path(folder_.path());
    }
    void TearDown() override { std::filesystem::current_path(before_); }

    static void write_file(const std::string& text, const std::string& name = "outbox.toml") {
        std::ofstream(name) << text;
    }

    static Result<Invocation> invoke(const std::vector<std::string>& arguments,
                                     const Environment& environment = {}) {
        const auto line = parse_command_line(arguments);
        if (!line.ok()) return line.error();
        return resolve(*line, environment);
    }

    static Result<RelayConfig> relay(std::vector<std::string> arguments,
                                     const Environment& environment = {}) {
        arguments.insert(arguments.begin(), "relay");
        const auto invocation = invoke(arguments, environment);
        if (!invocation.ok()) return invocation.error();
        return make_relay_config(*invocation);
    }

    // The message of the error that these arguments end in.
    static std::string refusal(const std::vector<std::string>& arguments,
                               const Environment& environment = {}) {
        const auto config = relay(arguments, environment);
        if (config.ok()) return "(accepted)";
        EXPECT_EQ(exit_code_of(config.error().code), kExitUsage);
        return config.error().message;
    }

    static std::string file_refusal(const std::string& text) {
        write_file(text);
        return refusal({"--from", "sqlite:///a.db", "--to", "null:"});
    }

  private:
    test::TemporaryFolder folder_{"config"};
    std::filesystem::path before_;
};

TEST_F(ConfigTest, SmallestRelayHasTheDocumentedDefaults) {
    const auto config = relay({"--from", "sqlite:///a.db", "--to", "stdout:"});
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->source.url, "sqlite:///a.db");
    EXPECT_EQ(config->source.table, "outbox_events");
    EXPECT_EQ(config->source.connect_timeout.count(), 5);
    EXPECT_EQ(config->relay.batch_size, 500U);
    EXPECT_EQ(config->relay.poll_busy_ms, 1);
    EXPECT_EQ(config->relay.poll_idle_ms, 100);
    EXPECT_EQ(config->relay.retry.max_attempts, 5U);
    EXPECT_EQ(config->relay.retry.base_ms, 200);
    EXPECT_EQ(config->relay.retry.max_ms, 60'000);
    EXPECT_EQ(config->relay.shutdown_grace_ms, 30'000);
    EXPECT_EQ(config->relay.max_unrecorded, 10'000U);
    EXPECT_EQ(config->relay.retention_s, 7 * 86'400);
    EXPECT_EQ(config->relay.tenant_share, 100U);
    EXPECT_EQ(config->relay.tenant_rate, 0U);
    EXPECT_EQ(config->relay.default_tenant, "default");
    EXPECT_EQ(config->source.default_tenant, "default");
    ASSERT_EQ(config->routes.size(), 1U);
    EXPECT_EQ(config->routes[0].name, "stdout");
    EXPECT_EQ(config->routes[0].topic_template, "{aggregate_type|lower}-events");
    EXPECT_EQ(config->routes[0].on_dead_letter, "continue");
}

// A route's thread that waits for a hanging one for minutes would pass for one that hangs itself.
TEST_F(ConfigTest, ARelayWaitsForADestinationNoLongerThanItsThreadMayStandStill) {
    std::vector<std::string> arguments{"--from", "sqlite:///a.db",      "--to",
                                       "null:",  "--connect-timeout-s", "300"};
    const auto config = relay(arguments);
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->source.connect_timeout.count(), 300);
    EXPECT_EQ(config->sink_connect_timeout(), RelayConfig::kMaxSinkConnect);
    arguments.back() = "3";
    EXPECT_EQ(relay(arguments)->sink_connect_timeout().count(), 3);
    arguments.back() = "300";
    arguments.emplace_back("--check");  // has no threads of routes
    EXPECT_EQ(relay(arguments)->sink_connect_timeout().count(), 300);
}

TEST_F(ConfigTest, ArgumentBeatsEnvironmentBeatsFileBeatsDefault) {
    const std::vector<std::string> base{"--from", "sqlite:///a.db", "--to", "null:"};
    write_file("batch_size = 10\nmax_attempts = 11\nretry_base_ms = 12\n");
    auto arguments = base;
    arguments.insert(arguments.end(), {"--batch-size", "30"});
    const auto config =
        relay(arguments, {{"OUTBOX_BATCH_SIZE", "20"}, {"OUTBOX_MAX_ATTEMPTS", "21"}});
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->relay.batch_size, 30U);
    EXPECT_EQ(config->relay.retry.max_attempts, 21U);
    EXPECT_EQ(config->relay.retry.base_ms, 12);
    EXPECT_EQ(config->relay.poll_busy_ms, 1);
}

TEST_F(ConfigTest, EveryOptionIsTakenFromTheEnvironment) {
    const auto config = relay({}, {{"OUTBOX_FROM", "sqlite:///a.db"},
                                   {"OUTBOX_TO", "null: stdout:"},
                                   {"OUTBOX_TENANT", "a b"},
                                   {"OUTBOX_CHECK", "true"},
                                   {"OUTBOX_ADMIN", "off"},
                                   {"OUTBOX_RETENTION", "12h"}});
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_TRUE(config->check);
    EXPECT_EQ(config->admin.mode, AdminConfig::Mode::kOff);
    EXPECT_EQ(config->relay.retention_s, 12 * 3600);
    EXPECT_THAT(config->source.tenants, ElementsAre("a", "b"));
    EXPECT_EQ(config->routes.size(), 2U);
}

TEST_F(ConfigTest, ARouteThatIsGivenNoNameGetsOneFromItsUrlAlone) {
    const auto name = [&](const std::string& url) {
        const auto config = relay({"--from", "sqlite:///a.db", "--to", url});
        return config.ok() ? config->routes[0].name : config.error().message;
    };
    EXPECT_EQ(name("kafka://k1:9092"), "kafka");
    EXPECT_EQ(name("kafka://k7:9092,k8:9092?x=y"), "kafka");
    EXPECT_EQ(name("mailbox+sqlite:///x/b.db"), "mailbox");
    EXPECT_EQ(name("mailbox+postgresql://app@h/b?mailbox=default"), "mailbox");
    EXPECT_EQ(name("rediss://r"), name("redis://r")) << "with TLS it is the same route";
    EXPECT_EQ(name("amqps://r"), "amqp");
    EXPECT_EQ(name("tls://r"), "nats");
    EXPECT_EQ(name("mailbox+postgresql://app@h/b?mailbox=bil.l_ing-1"), "mailbox-bil.l_ing-1");
    EXPECT_EQ(name("mailbox+sqlite:///b.db?mailbox=a%20b"), "mailbox-a-b");
    EXPECT_EQ(name("mailbox+sqlite:///b.db?mailbox=" + std::string(99, 'm')).size(), 63U);
    EXPECT_EQ(name("stdout:"), "stdout");
    EXPECT_EQ(name("null:"), "null");
    const auto several =
        relay({"--from", "sqlite:///a.db", "--to", "null:", "--to", "kafka://k1:9092"});
    ASSERT_TRUE(several.ok()) << several.error().message;
    EXPECT_EQ(several->routes[0].name, "null");
    EXPECT_EQ(several->routes[1].name, "kafka");
}

TEST_F(ConfigTest, ARouteIsNamedInFrontOfItsUrl) {
    const auto config = relay({"--from", "sqlite:///a.db", "--to", "billing=kafka://k1:9092",
                               "--to", "mailbox+sqlite:///b.db?mailbox=m", "--to", "B.2-_=null:"});
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->routes[0].name, "billing");
    EXPECT_EQ(config->routes[0].to, "kafka://k1:9092");
    EXPECT_EQ(config->routes[1].name, "mailbox-m");
    EXPECT_EQ(config->routes[1].to, "mailbox+sqlite:///b.db?mailbox=m");
    EXPECT_EQ(config->routes[2].name, "B.2-_");
    const auto environment = relay({"--from", "sqlite:///a.db"}, {{"OUTBOX_TO", "a=null: null:"}});
    ASSERT_TRUE(environment.ok()) << environment.error().message;
    EXPECT_EQ(environment->routes[0].name, "a");
    write_file("to = [\"billing=kafka://k\", \"stdout:\"]\n");
    const auto file = relay({"--from", "sqlite:///a.db"});
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->routes[0].name, "billing");
    EXPECT_EQ(file->routes[0].to, "kafka://k");
    EXPECT_EQ(file->routes[1].name, "stdout");
}

TEST_F(ConfigTest, NamesThatEarlierVersionsGaveAreKnown) {
    const auto former = [&](const std::vector<std::string>& urls) {
        std::vector<std::string> arguments{"--from", "sqlite:///a.db"};
        for (const std::string& url : urls) arguments.insert(arguments.end(), {"--to", url});
        std::vector<std::string> names;
        const auto config = relay(arguments);
        EXPECT_TRUE(config.ok());
        for (const RouteConfig& route : config->routes) {
            EXPECT_LE(route.former_names.size(), 1U);
            names.push_back(route.former_names.empty() ? "" : route.former_names[0]);
        }
        return names;
    };
    EXPECT_THAT(former({"kafka://k1:9092"}), ElementsAre("default"));
    EXPECT_THAT(former({"billing=kafka://k1:9092"}), ElementsAre("default"));
    EXPECT_THAT(former({"default=kafka://k1:9092"}), ElementsAre(""));
    EXPECT_THAT(former({"kafka://k1:9092", "mailbox+sqlite:///x/b.db?mailbox=mail", "null:"}),
                ElementsAre("kafka-k1-9092", "mailbox-sqlite-b-db-mail", ""));
    EXPECT_THAT(former({"a=kafka://app:pw@k1:9092", "b=kafka://k1:9092"}),
                ElementsAre("kafka-k1-9092", "kafka-k1-9092-2"));
    write_file("[[route]]\nname = \"a\"\nto = \"null:\"\n");
    EXPECT_TRUE(relay({"--from", "sqlite:///a.db"})->routes[0].former_names.empty());
}

TEST_F(ConfigTest, TwoRoutesOfOneNameAreRefusedAndTheRemedyIsNamed) {
    const std::string refused =
        refusal({"--from", "sqlite:///a.db", "--to", "mailbox+postgresql://app:s3cret@one/db",
                 "--to", "mailbox+postgresql://app@two/db"});
    EXPECT_THAT(refused, HasSubstr("--to: two routes are named 'mailbox', to "
                                   "mailbox+postgresql://app:***@one/db and to "
                                   "mailbox+postgresql://app@two/db"));
    EXPECT_THAT(refused, HasSubstr("--to NAME=URL"));
    EXPECT_THAT(refused, Not(HasSubstr("s3cret")));
    EXPECT_THAT(refusal({"--from", "sqlite:///a.db", "--to", "a=null:", "--to", "a=stdout:"}),
                HasSubstr("two routes are named 'a'"));
}

TEST_F(ConfigTest, AnOptionThatAUrlGivesTwiceIsRefused) {
    EXPECT_THAT(refusal({"--from", "sqlite:///a.db", "--to", "amqp://h/?exchange=a&exchange=b"}),
                HasSubstr("--to: the URL gives 'exchange' twice; leave one of them out"));
    EXPECT_THAT(
        refusal({"--from", "postgresql://h/db?sslmode=require&sslmode=disable", "--to", "a=null:"}),
        HasSubstr("--from: the URL gives 'sslmode' twice; leave one of them out"));
    EXPECT_THAT(refusal({"--from", "sqlite:///a.db", "--to", "a=null:", "--claim-check",
                         "s3://b/p?region=a&region=b"}),
                HasSubstr("--claim-check: the URL gives 'region' twice; leave one of them out"));
}

TEST_F(ConfigTest, WrongRouteNamesAreRefused) {
    const auto with = [](const std::string& to) {
        return refusal({"--from", "sqlite:///a.db", "--to", to});
    };
    EXPECT_THAT(with("=null:"), HasSubstr("--to: '' is not a route name"));
    EXPECT_THAT(with("a b=null:"), HasSubstr("'a b' is not a route name"));
    EXPECT_THAT(with("a/b=null:"), HasSubstr("use 1 to 63 letters"));
    EXPECT_THAT(with("\xc3\xa4=null:"), HasSubstr("is not a route name"));
    EXPECT_THAT(with(std::string(64, 'n') + "=null:"), HasSubstr("is not a route name"));
    EXPECT_THAT(with("a="), HasSubstr("not a URL"));
    EXPECT_THAT(with("a=b=null:"), HasSubstr("not a URL"));
    EXPECT_TRUE(relay({"--from", "sqlite:///a.db", "--to", std::string(63, 'n') + "=null:"}).ok());
}

TEST_F(ConfigTest, DestinationsOfTheRelayAreNotTakenForTheRouteOfARetry) {
    const auto invocation = invoke({"dead", "retry", "x", "--db", "sqlite:///a.db"},
                                   {{"OUTBOX_TO", "kafka://k1:9092"}});
    ASSERT_TRUE(invocation.ok()) << invocation.error().message;
    EXPECT_FALSE(invocation->options.given("to"));
    const auto rerouted = invoke({"dead", "retry", "x", "--db", "sqlite:///a.db", "--to", "a"});
    ASSERT_TRUE(rerouted.ok()) << rerouted.error().message;
    EXPECT_THAT(rerouted->options.list("to"), ElementsAre("a"));
}

TEST_F(ConfigTest, RoutesComeFromTheFile) {
    write_file(R"(
max_attempts = 3
topic_template = "all"
[source]
url = "postgresql://db/shop"
tenant = ["t1", "t2"]
[source.table]
name = "app.outbox"
preset = "new-sent"
metadata_columns = ["trace"]
[source.table.columns]
id = "event_uuid"
[source.table.status]
pending = ["NEW", "RETRY"]
sent = "DONE"
[[route]]
name = "billing"
to = "kafka://k:9092"
aggregate_type = ["Order", "Invoice"]
tenant = "t1"
topic_template = "{aggregate_type}.{event_type}"
allowed_topics = ["Order.*"]
on_dead_letter = "block_key"
claim_check = "s3://id:cl4im-s3cret@payloads?region=r"
claim_check_above = 1000
format = "cloudevents"
[route.kafka]
linger.ms = 5
"compression.type" = "lz4"
[route.cloudevents]
source = "/shop"
[[route]]
name = "rest"
to = "null:"
)");
    const auto config = relay({});
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->source.url, "postgresql://db/shop");
    EXPECT_EQ(config->source.table, "app.outbox");
    EXPECT_EQ(config->source.mapping.preset, "new-sent");
    EXPECT_EQ(config->source.mapping.columns.at("id"), "event_uuid");
    EXPECT_THAT(config->source.mapping.pending_values, ElementsAre("NEW", "RETRY"));
    EXPECT_EQ(config->source.mapping.sent_value, "DONE");
    EXPECT_THAT(config->source.mapping.metadata_columns, ElementsAre("trace"));
    EXPECT_THAT(config->source.tenants, ElementsAre("t1", "t2"));
    ASSERT_EQ(config->routes.size(), 2U);
    const RouteConfig& billing = config->routes[0];
    EXPECT_THAT(billing.predicate.aggregate_types, ElementsAre("Order", "Invoice"));
    EXPECT_THAT(billing.predicate.tenants, ElementsAre("t1"));
    EXPECT_EQ(billing.topic_template, "{aggregate_type}.{event_type}");
    EXPECT_THAT(billing.allowed_topics, ElementsAre("Order.*"));
    EXPECT_EQ(billing.on_dead_letter, "block_key");
    EXPECT_EQ(billing.sink_options.at("kafka.linger.ms"), "5");
    EXPECT_EQ(billing.sink_options.at("kafka.compression.type"), "lz4");
    EXPECT_EQ(billing.sink_options.size(), 2U);
    EXPECT_EQ(billing.claim_check, "s3://id:cl4im-s3cret@payloads?region=r");
    EXPECT_EQ(billing.claim_check_above, 1'000U);
    EXPECT_EQ(redact("it says cl4im-s3cret"), "it says ***");
    EXPECT_EQ(billing.format, "cloudevents");
    EXPECT_EQ(billing.format_options.at("cloudevents.source"), "/shop");
    EXPECT_EQ(config->routes[1].format, "raw");
    EXPECT_EQ(config->routes[1].claim_check, "");
    EXPECT_EQ(config->routes[1].claim_check_above, 262'144U);
    EXPECT_EQ(config->routes[1].topic_template, "all");
    EXPECT_EQ(config->relay.retry.max_attempts, 3U);
}

TEST_F(ConfigTest, ALimitOfLargePayloadsWithoutAStoreIsRefused) {
    const auto refusal = [](const auto& config) {
        return config.ok() ? std::string() : describe(config.error());
    };
    const std::vector<std::string> limit{"--from", "postgresql://db/x",   "--to",
                                         "null:",  "--claim-check-above", "1000"};
    EXPECT_THAT(refusal(relay(limit)), AllOf(HasSubstr("OB_CONFIG_INVALID: --claim-check-above"),
                                             HasSubstr("give --claim-check URL as well")));
    auto with_store = limit;
    with_store.insert(with_store.end(), {"--claim-check", "file:///payloads"});
    EXPECT_EQ(refusal(relay(with_store)), "");

    const std::string begin = "[source]\nurl = \"postgresql://db/x\"\n";
    const std::string first = "[[route]]\nname = \"a\"\nto = \"null:\"\n";
    const std::string second = "[[route]]\nname = \"b\"\nto = \"null:\"\n";
    const std::string store = "claim_check = \"file:///payloads\"\n";
    const std::string above = "claim_check_above = 1000\n";
    write_file(begin + first + store + second + above);
    EXPECT_THAT(refusal(relay({})), HasSubstr("outbox.toml:7:1: claim_check_above: it says"));
    write_file(above + begin + first + second);
    EXPECT_THAT(refusal(relay({})), HasSubstr("claim_check_above"));
    for (const std::string& text : {above + begin + first + store + second,
                                    store + begin + first + above, begin + first + store + above}) {
        write_file(text);
        EXPECT_EQ(refusal(relay({})), "") << text;
    }
}

TEST_F(ConfigTest, TheFormatsThatCanBeChosenAreThoseThatThereAre) {
    std::string names;
    for (const codec::Format& format : codec::formats()) {
        names += (names.empty() ? "" : "|") + std::string(format.name);
    }
    EXPECT_EQ(find_option("format", kRelay)->choices, names);
}

TEST_F(ConfigTest, OperatingCommandsFindTheDatabaseInTheFile) {
    write_file("[source]\nurl = \"sqlite:///shop.db\"\n");
    const auto invocation = invoke({"status"});
    ASSERT_TRUE(invocation.ok());
    EXPECT_EQ(make_source_config(*invocation)->url, "sqlite:///shop.db");
}

TEST_F(ConfigTest, PasswordFileAndSchemaGoIntoTheUrlOfADatabaseThatHasThem) {
    const auto url_with = [](const std::vector<std::string>& more) {
        std::vector<std::string> arguments{"--from", "postgresql://app@localhost/shop", "--to",
                                           "null:"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const auto config = relay(arguments);
        EXPECT_TRUE(config.ok()) << describe(config.error());
        return config.ok() ? parse_url(config->source.url) : parse_url("none:");
    };
    const auto both = url_with({"--password-file", "/run/p w", "--schema", "Out \"b\\ox"});
    EXPECT_EQ(both->query_value("password_file"), "/run/p w");
    EXPECT_EQ(both->query_value("options"), R"(-csearch_path="Out\ ""b\\ox")");
    const auto file = url_with({"--password-file", "/run/p"});
    EXPECT_EQ(file->query_value("password_file"), "/run/p");
    EXPECT_EQ(file->query_value("options"), "");
}

TEST_F(ConfigTest, WhatIsForADatabaseWithUsersIsRefusedWhereTheyHaveNoPlace) {
    const auto why = [](const std::string& url, const std::string& option,
                        const std::string& value) {
        return refusal({"--from", url, "--to", "null:", option, value});
    };
    for (const char* option : {"--schema", "--password-file"}) {
        EXPECT_THAT(why("sqlite:///shop.db", option, "x"),
                    AllOf(HasSubstr(option), HasSubstr("it is for postgresql://")));
        EXPECT_THAT(why("postgres://localhost/shop", option, ""),
                    AllOf(HasSubstr(option), HasSubstr("must not be empty")));
        EXPECT_THAT(why("oracle://localhost/shop", option, "x"), HasSubstr("no database is known"));
    }
    EXPECT_THAT(why("sqlite:///shop.db", "--owner", "x"),
                AllOf(HasSubstr("--owner"), HasSubstr("it is for postgresql://")));
    EXPECT_THAT(why("postgres://localhost/shop?options=-cwork_mem%3D1MB", "--schema", "x"),
                AllOf(HasSubstr("--schema"), HasSubstr("the URL has options= as well")));
}

TEST_F(ConfigTest, DestinationArgumentReplacesTheRoutesOfTheFileAndSaysSo) {
    write_file("[[route]]\nname = \"a\"\nto = \"null:\"\n");
    const auto invocation = invoke({"relay", "--from", "sqlite:///a.db", "--to", "stdout:"});
    ASSERT_TRUE(invocation.ok());
    EXPECT_THAT(invocation->warnings, ElementsAre(HasSubstr("replaces the routes")));
    EXPECT_EQ(make_relay_config(*invocation)->routes[0].to, "stdout:");
}

TEST_F(ConfigTest, PasswordInAnArgumentWarnsWithoutRepeatingIt) {
    const auto invocation =
        invoke({"relay", "--from", "postgresql://app:s3cret@db/shop", "--to", "null:"});
    ASSERT_TRUE(invocation.ok());
    ASSERT_EQ(invocation->warnings.size(), 1U);
    EXPECT_THAT(invocation->warnings[0], HasSubstr("OUTBOX_FROM"));
    EXPECT_THAT(invocation->warnings[0], Not(HasSubstr("s3cret")));
    const auto quiet =
        invoke({"relay", "--to", "null:"}, {{"OUTBOX_FROM", "postgresql://app:s3cret@db/shop"}});
    ASSERT_TRUE(quiet.ok());
    EXPECT_TRUE(quiet->warnings.empty());
}

TEST_F(ConfigTest, MisspeltVariableWarns) {
    const auto invocation =
        invoke({"status"}, {{"OUTBOX_TABEL", "x"}, {"OUTBOX_SERVICE_HOST", "y"}});
    ASSERT_TRUE(invocation.ok());
    EXPECT_THAT(invocation->warnings, ElementsAre(HasSubstr("OUTBOX_TABLE")));
}

TEST_F(ConfigTest, UnknownOptionsAndCommandsNameTheClosestOne) {
    EXPECT_THAT(refusal({"--batchsize", "3"}), HasSubstr("did you mean '--batch-size'"));
    EXPECT_THAT(refusal({"--print"}), HasSubstr("not an option of `outbox relay`"));
    EXPECT_THAT(refusal({"stray"}), HasSubstr("unexpected argument"));
    EXPECT_THAT(parse_command_line({"statsu"}).error().message, HasSubstr("did you mean 'status'"));
    EXPECT_THAT(parse_command_line({"dead", "lst"}).error().message,
                HasSubstr("did you mean 'dead list'"));
    EXPECT_THAT(parse_command_line({"dead"}).error().message, HasSubstr("outbox dead retry"));
}

TEST_F(ConfigTest, WrongValuesSayWhereAndWhatIsRight) {
    const auto with = [](std::vector<std::string> more) {
        std::vector<std::string> all{"--from", "sqlite:///a.db", "--to", "null:"};
        all.insert(all.end(), more.begin(), more.end());
        return refusal(all);
    };
    EXPECT_THAT(with({"--batch-size", "-5"}), HasSubstr("--batch-size: -5 is out of range"));
    EXPECT_THAT(with({"--batch-size=-5"}), HasSubstr("from 1 to 1000"));
    EXPECT_THAT(with({"--max-attempts", "0"}), HasSubstr("out of range"));
    EXPECT_THAT(with({"--max-attempts", "many"}), HasSubstr("not a whole number"));
    EXPECT_THAT(with({"--max-attempts", "99999999999999999999"}), HasSubstr("whole number"));
    EXPECT_THAT(with({"--retention", "-7d"}), HasSubstr("not a time"));
    EXPECT_THAT(with({"--retention", "7"}), HasSubstr("30s"));
    EXPECT_THAT(with({"--on-dead-letter", "blockkey"}), HasSubstr("did you mean 'block_key'"));
    EXPECT_THAT(with({"--topic-template", "{nonsense}"}), HasSubstr("route 'null'"));
    EXPECT_THAT(with({"--admin", "9464"}), HasSubstr("HOST:PORT"));
    EXPECT_THAT(with({"--admin", "127.0.0.1:70000"}), HasSubstr("HOST:PORT"));
    EXPECT_THAT(with({"--poll-busy-ms", "500"}), HasSubstr("must not exceed"));
    EXPECT_THAT(with({"--table", ""}), HasSubstr("must not be empty"));
    EXPECT_THAT(with({"--table", "a", "--table", "b"}), HasSubstr("only once"));
    EXPECT_THAT(refusal({"--from", "localhost/shop", "--to", "null:"}), HasSubstr("not a URL"));
    EXPECT_THAT(refusal({"--from", "x y:p@ss", "--to", "null:"}), HasSubstr("--from"));
    EXPECT_THAT(refusal({"--to", "null:"}), HasSubstr("OUTBOX_FROM"));
    EXPECT_THAT(refusal({"--from", "sqlite:///a.db"}), HasSubstr("--to stdout:"));
    EXPECT_THAT(refusal({"--from"}), HasSubstr("--from"));
    EXPECT_THAT(refusal({"--from", "--to", "null:"}), HasSubstr("--from: needs a value"));
}

TEST_F(ConfigTest, WrongVariablesAreNamed) {
    EXPECT_THAT(
        refusal({"--from", "sqlite:///a.db", "--to", "null:"}, {{"OUTBOX_BATCH_SIZE", "x"}}),
        HasSubstr("OUTBOX_BATCH_SIZE: 'x' is not a whole number"));
}

TEST_F(ConfigTest, FileErrorsNameFileLineAndColumn) {
    EXPECT_THAT(file_refusal("batch_size = \n"), HasSubstr("outbox.toml:1:"));
    EXPECT_THAT(file_refusal("\n\n  batchsize = 5\n"),
                HasSubstr("outbox.toml:3:3: unknown key 'batchsize'; did you mean 'batch_size'"));
    EXPECT_THAT(file_refusal("batch_size = -5\n"),
                HasSubstr("outbox.toml:1:14: batch_size: -5 is out of range"));
    EXPECT_THAT(file_refusal("batch_size = \"5\"\n"), HasSubstr("without quotes"));
    EXPECT_THAT(file_refusal("batch_size = 1.5\n"), HasSubstr("whole number"));
    EXPECT_THAT(file_refusal("batch_size = [1, 2]\n"), HasSubstr("not a list"));
    EXPECT_THAT(file_refusal("[sorce]\nurl = \"sqlite:///a.db\"\n"),
                HasSubstr("did you mean 'source'"));
    EXPECT_THAT(file_refusal("[source]\nurll = \"sqlite:///a.db\"\n"),
                HasSubstr("unknown key 'urll' in [source]; did you mean 'url'"));
    EXPECT_THAT(file_refusal("source = 3\n"), HasSubstr("write it as a table"));
    EXPECT_THAT(file_refusal("[source.table.columns]\nidd = \"x\"\n"), HasSubstr("'id'"));
    for (const char* table : {"[source.table]", "[source.table.columns]"}) {
        EXPECT_THAT(file_refusal(std::string(table) + "\nsent_at = \"sent_at\"\n"),
                    HasSubstr("write processed_at = \"COLUMN\" under [source.table.columns]"));
    }
    EXPECT_THAT(file_refusal("[source.table]\nid = \"nr\"\n"),
                HasSubstr("write id = \"COLUMN\" under [source.table.columns]"));
    EXPECT_THAT(file_refusal("[source.table.status]\npendng = \"x\"\n"), HasSubstr("'pending'"));
    EXPECT_THAT(file_refusal("[route]\nname = \"a\"\n"), HasSubstr("[[route]]"));
    EXPECT_THAT(file_refusal("[[route]]\nname = \"a\"\n"), HasSubstr("has no 'to'"));
    EXPECT_THAT(file_refusal("[[route]]\nname = \"a\"\nto = \"nowhere\"\n"),
                HasSubstr("outbox.toml:3:6: to: 'nowhere' is not a URL"));
    EXPECT_THAT(file_refusal("[[route]]\nname = \"a\"\nto = \"null:\"\nevent_typ = \"x\"\n"),
                HasSubstr("did you mean 'event_type'"));
    EXPECT_THAT(file_refusal("a = 1\na = 2\n"), HasSubstr("outbox.toml:2:"));
    EXPECT_THAT(file_refusal(std::string("batch_size = \xff\xfe\n")), HasSubstr("outbox.toml:1:"));
}

TEST_F(ConfigTest, TheFileTakesVariablesOfTheEnvironment) {
    setenv("OUTBOX_TEST_SECRET", "p4$$w", 1);
    write_file("topic_template = \"a-${OUTBOX_TEST_SECRET}-$$b\"\n");
    const auto invocation = invoke({"relay", "--from", "sqlite:///a.db", "--to", "null:"});
    ASSERT_TRUE(invocation.ok()) << invocation.error().message;
    EXPECT_EQ(invocation->options.text("topic-template"), "a-p4$$w-$b");
    EXPECT_THAT(file_refusal("[source]\nurl = \"sqlite:///${OUTBOX_TEST_NONE}\"\n"),
                HasSubstr("outbox.toml:2:7: source.url: the environment has no variable "
                          "'OUTBOX_TEST_NONE'"));
    EXPECT_THAT(file_refusal("topic_template = \"a$b\"\n"), HasSubstr("$$ for a dollar"));
    EXPECT_THAT(file_refusal("topic_template = \"${a\"\n"), HasSubstr("$$ for a dollar"));
}

TEST_F(ConfigTest, RouteNamesAreValidAndDistinct) {
    const auto refused = [](const std::string& text) {
        write_file(text);
        return refusal({"--from", "sqlite:///a.db"});
    };
    const std::string route = "[[route]]\nname = \"a\"\nto = \"null:\"\n";
    EXPECT_THAT(refused(route + route), HasSubstr("two routes are named 'a'"));
    EXPECT_THAT(refused("[[route]]\nname = \"a\"\nto = \"b=null:\"\n"),
                HasSubstr("the name stands in 'name'"));
    EXPECT_THAT(refused("[[route]]\nname = \"a b\"\nto = \"null:\"\n"), HasSubstr("route name"));
    EXPECT_THAT(refused("to = [\"null:\"]\n" + route), HasSubstr("not both"));
}

TEST_F(ConfigTest, FileThatIsNamedMustBeReadable) {
    EXPECT_THAT(refusal({"--config", "missing.toml", "--from", "sqlite:///a.db", "--to", "null:"}),
                HasSubstr("missing.toml: cannot be read: No such file"));
    EXPECT_THAT(refusal({"--config", ".", "--from", "sqlite:///a.db", "--to", "null:"}),
                HasSubstr("cannot be read"));
    write_file(std::string((1U << 20) + 1, '#'), "huge.toml");
    EXPECT_THAT(refusal({"--config", "huge.toml"}), HasSubstr("larger than"));
}

TEST_F(ConfigTest, AdminAddressesMayBeIpv6) {
    const auto admin = parse_admin("[::1]:8080", "--admin");
    ASSERT_TRUE(admin.ok());
    EXPECT_EQ(admin->host, "::1");
    EXPECT_EQ(admin->port, 8080);
    EXPECT_EQ(admin->mode, AdminConfig::Mode::kRequired);
}

TEST(CommandLine, HelpAndVersionNeedNothingElse) {
    EXPECT_THAT(parse_command_line({})->help, HasSubstr("Commands:"));
    EXPECT_THAT(parse_command_line({"--help"})->help, HasSubstr("outbox migrate --db"));
    EXPECT_THAT(parse_command_line({"relay", "--help"})->help, HasSubstr("--batch-size N"));
    EXPECT_THAT(parse_command_line({"dead", "list", "-h"})->help, HasSubstr("Examples:"));
    EXPECT_THAT(parse_command_line({"dead", "--help"})->help, HasSubstr("outbox dead show"));
    EXPECT_EQ(parse_command_line({"--version"})->command, kVersion);
    EXPECT_EQ(parse_command_line({"version"})->command, kVersion);
}

TEST(CommandLine, HelpFitsIntoAHundredColumns) {
    for (const CommandSpec& command : command_table()) {
        std::istringstream help(help_text(command));
        for (std::string line; std::getline(help, line);) {
            EXPECT_LE(line.size(), 110U) << line;
        }
    }
}

TEST(CommandLine, IdsStandWithoutAnOption) {
    const auto line = parse_command_line({"dead", "retry", "id-1", "--dry-run", "id-2"});
    ASSERT_TRUE(line.ok()) << line.error().message;
    EXPECT_THAT(line->positionals, ElementsAre("id-1", "id-2"));
}

}  // namespace
}  // namespace outbox::runtime
