// The relay with a schema registry: a real Apicurio, into a mailbox, and into Kafka.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include "tests/schema/registry_server.h"
#include "tests/support/eventually.h"
#include "tests/support/kafka_client.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kOrder =
    R"({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
        "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 0}}})";

class SchemaRelay : public testing::Test {
  protected:
    void SetUp() override {
        url_ = shared_postgres().create_database();
        database_ = std::make_unique<Pg>(url_);
        ASSERT_EQ(outbox_.run({"migrate", "--db", url_, "--payload", "text"}).status.code, 0);
    }

    std::vector<std::string> arguments(const std::string& registry) const {
        return {"--from",
                url_,
                "--to",
                "mailbox+postgresql" + url_.substr(url_.find(':')),
                "--admin",
                "off",
                "--schema-registry",
                registry};
    }
    Process relay(const std::string& registry) { return outbox_.start_relay(arguments(registry)); }
    Finished run_relay(std::vector<std::string> more) {
        more.insert(more.begin(), {"relay", "--from", url_, "--admin", "off"});
        return outbox_.run(more);
    }
    Finished check(const std::string& registry) {
        auto all = arguments(registry);
        all.insert(all.begin(), {"relay", "--check"});
        return outbox_.run(all);
    }
    void emit(const std::string& subject, const std::string& key, const std::string& payload,
              const std::string& version = "1") {
        database_->exec("SELECT outbox_emit(topic => 'orders', key => '" + key + "', payload => '" +
                        payload + "', schema_id => '" + subject + "', schema_version => '" +
                        version + "')");
    }
    void emit_many(const std::string& subject, int from, int count) {
        database_->exec("SELECT outbox_emit(topic => 'orders', key => '" + subject +
                        "' || n % 10, payload => format('{\"n\": %s}', n), schema_id => '" +
                        subject + "', schema_version => '1') FROM generate_series(" +
                        std::to_string(from) + ", " + std::to_string(from + count - 1) + ") n");
    }
    long long arrived() { return database_->number("SELECT count(*) FROM outbox_mailbox"); }
    void await_mailbox(long long count) {
        ASSERT_TRUE(eventually(120s, std::to_string(count) + " messages",
                               [&] { return arrived() >= count; }));
    }
    void expect_nothing_counted() {
        EXPECT_EQ(database_->number("SELECT count(*) FROM outbox_dead_letters"), 0);
        EXPECT_EQ(database_->number("SELECT coalesce(max(attempts), 0) FROM outbox_delivery"), 0);
    }
    static void await_log(const Process& running, const std::string& text) {
        EXPECT_TRUE(eventually(60s, text, [&] {
            return running.stderr_text().find(text) != std::string::npos;
        })) << running.stderr_text();
    }

    OutboxBinary outbox_;
    std::string url_;
    std::unique_ptr<Pg> database_;
    RegistryServer& server_ = shared_registry();
    const std::string subject_ = "relay-" + std::to_string(++subjects) + "-";
    static inline int subjects = 0;
};

TEST_F(SchemaRelay, AViolationIsADeadLetterThatNamesThePathAndTheRule) {
    server_.add(subject_, kOrder);
    const Front front(server_.port());
    Process running = relay(front.url());
    emit_many(subject_, 0, 100);
    emit(subject_, "bad", R"({"n": -1})");
    emit(subject_, "bad", R"({"n": 7})");
    await_mailbox(101);
    ASSERT_TRUE(eventually(60s, "a dead letter", [&] {
        return database_->number("SELECT count(*) FROM outbox_dead_letters") == 1;
    }));
    EXPECT_EQ(database_->value("SELECT error_code FROM outbox_dead_letters"), "OB_SCHEMA_VIOLATED");
    EXPECT_THAT(database_->value("SELECT error FROM outbox_dead_letters"),
                AllOf(HasSubstr("at /n is less than 0"), HasSubstr("/properties/n/minimum"),
                      HasSubstr(subject_)));
    EXPECT_EQ(database_->number("SELECT count(*) FROM outbox_mailbox WHERE "
                                "convert_from(payload, 'UTF8') LIKE '%-1%'"),
              0);
    EXPECT_EQ(front.asked(subject_), 1U) << "what it has answered is remembered";
}

TEST_F(SchemaRelay, ALetterThatIsRetriedAndWaitsIsNamedInTheLogOnce) {
    server_.add(subject_, kOrder);
    const Front front(server_.port());
    {
        Process running = relay(front.url());
        emit(subject_, "bad", R"({"n": -1})");
        ASSERT_TRUE(eventually(60s, "a dead letter", [&] {
            return database_->number("SELECT count(*) FROM outbox_dead_letters") == 1;
        }));
        EXPECT_EQ(running.stop().code, 0);
    }
    const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    database_->exec("UPDATE outbox_dead_letters SET headers = '{\"traceparent\": \"00-" + trace +
                    "-00f067aa0ba902b7-00\"}'");
    front.set_mode("for " + subject_ + " status 404");
    Process running = relay(front.url());
    ASSERT_EQ(outbox_.run({"dead", "retry", "--all", "--db", url_}).status.code, 0);
    await_log(running, "event=letter_waits");
    const std::size_t before = front.asked(subject_);
    ASSERT_TRUE(
        eventually(60s, "it is tried again", [&] { return front.asked(subject_) > before; }));
    front.set_mode("pass");
    await_log(running, "OB_SCHEMA_VIOLATED");
    const std::string log = running.stderr_text();
    const std::size_t said = log.find("event=letter_waits");
    EXPECT_EQ(said, log.rfind("event=letter_waits"));
    EXPECT_THAT(log.substr(said, log.find('\n', said) - said), HasSubstr("trace_id=" + trace));
}

TEST_F(SchemaRelay, ARegistryThatIsAwayCountsNoAttemptAndAfterwardsAllGoesOn) {
    RegistryServer own;
    own.add(subject_, kOrder);
    Process running = relay(own.url());
    emit_many(subject_, 0, 50);
    await_mailbox(50);
    own.stop();
    emit_many(subject_, 50, 50);  // known by now
    await_mailbox(100);
    emit_many(subject_ + "new", 100, 50);
    await_log(running, "check schema_registry and the network");
    EXPECT_EQ(arrived(), 100);
    expect_nothing_counted();
    own.start();
    own.add(subject_ + "new", kOrder);
    await_mailbox(150);
    expect_nothing_counted();
    EXPECT_EQ(database_->number("SELECT count(DISTINCT payload) FROM outbox_mailbox"), 150);
}

TEST_F(SchemaRelay, AnUnknownSubjectOrVersionHoldsBackItsOwnEventsOnly) {
    server_.add(subject_, kOrder);
    Process running = relay(server_.url());
    emit(subject_ + "none", "held", R"({"n": 1})");
    emit(subject_ + "none", "held", R"({"n": 2})");
    emit(subject_, "version", R"({"n": 3})", "7");
    await_log(running, "register it, or correct schema_id");
    emit_many(subject_, 100, 100);
    await_mailbox(100);
    EXPECT_EQ(arrived(), 100);
    expect_nothing_counted();
    server_.add(subject_ + "none", kOrder);
    await_mailbox(102);
    EXPECT_EQ(database_->value("SELECT string_agg(convert_from(payload, 'UTF8'), ' ' ORDER BY "
                               "position) FROM outbox_mailbox WHERE key = 'held'"),
              R"({"n": 1} {"n": 2})");
    expect_nothing_counted();
}

TEST_F(SchemaRelay, ASubjectThatBreaksTheRegistryHoldsBackItsOwnEventsOnly) {
    const std::string bad = subject_ + "broken";
    server_.add(subject_, kOrder);
    server_.add(bad, kOrder);
    const Front front(server_.port());
    front.set_mode("for " + bad + " status 500");
    Process running = relay(front.url());
    emit(bad, "held", R"({"n": 1})");
    emit(bad, "held", R"({"n": 2})");
    await_log(running, "the registry answers otherwise");
    emit_many(subject_, 100, 100);
    await_mailbox(100);
    EXPECT_EQ(arrived(), 100);
    expect_nothing_counted();
    front.set_mode("pass");
    await_mailbox(102);
    expect_nothing_counted();
}

TEST_F(SchemaRelay, AProxysPageAndAWrongPasswordHoldBackAndSayWhy) {
    server_.add(subject_, kOrder);
    const Front front(server_.port(), "Basic cmVsYXk6czNjcmV0");  // relay:s3cret
    {
        Process running = relay(front.url("relay:wr0ng-pass@"));
        emit_many(subject_, 0, 10);
        await_log(running, "check user and password");
        EXPECT_THAT(running.stderr_text(), Not(HasSubstr("wr0ng-pass")));
        expect_nothing_counted();
        EXPECT_EQ(running.stop().code, 0);
    }
    front.set_mode("html");
    Process running = relay(front.url("relay:s3cret@"));
    await_log(running, "with HTML, as of a proxy or a login page");
    EXPECT_EQ(arrived(), 0);
    expect_nothing_counted();
    front.set_mode("pass");
    await_mailbox(10);
    EXPECT_THAT(running.stderr_text(), Not(HasSubstr("s3cret")));
}

TEST_F(SchemaRelay, CheckAsksTheRegistry) {
    const Front front(server_.port(), "Bearer t0ken-of-relay");
    EXPECT_EQ(check(front.url(":t0ken-of-relay@")).status.code, 0);
    const Finished wrong = check(front.url(":an0ther-token@"));
    EXPECT_NE(wrong.status.code, 0);
    EXPECT_THAT(wrong.out, HasSubstr("OB_AUTH_FAILED"));
    EXPECT_THAT(wrong.out + wrong.err, Not(HasSubstr("an0ther-token")));
    front.set_mode("html");
    const Finished page = check(front.url(":t0ken-of-relay@"));
    EXPECT_NE(page.status.code, 0);
    EXPECT_THAT(page.out, HasSubstr("with HTML"));
    front.set_mode(R"(text {"status": "UP"})");
    const Finished other = check(front.url(":t0ken-of-relay@"));
    EXPECT_NE(other.status.code, 0);
    EXPECT_THAT(other.out, HasSubstr("something else than a schema registry answers there"));
}

TEST_F(SchemaRelay, RefusesAtTheStartWhatCannotBe) {
    const std::string kafka = "kafka://127.0.0.1:9";
    const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
        {{"--to", kafka, "--schema-framing", "confluent"}, "needs schema_registry"},
        {{"--to", kafka, "--schema-registry", "gopher://x"}, "begins with http:// or https://"},
        {{"--to", kafka, "--schema-registry", "http://x", "--schema-framing", "confluent",
          "--format", "debezium"},
         "the format debezium"},
        {{"--to", kafka, "--schema-registry", "http://x", "--schema-framing", "confluent",
          "--format", "cloudevents-structured"},
         "the format cloudevents-structured"},
        {{"--to", kafka, "--schema-registry", "http://x", "--schema-framing", "confluent",
          "--claim-check", "file:///tmp"},
         "leave out claim_check"}};
    for (const auto& [more, wanted] : cases) {
        const Finished done = run_relay(more);
        EXPECT_EQ(done.status.code, 2) << wanted << done.err;
        EXPECT_THAT(done.err, AllOf(HasSubstr("OB_CONFIG_INVALID"), HasSubstr(wanted)));
    }
}

TEST_F(SchemaRelay, FramesPayloadsForKafkaInBothFormatsThatCan) {
    const std::uint32_t id = server_.add(subject_, kOrder);
    const std::string frame{'\0', static_cast<char>(id >> 24U), static_cast<char>(id >> 16U),
                            static_cast<char>(id >> 8U), static_cast<char>(id)};
    const std::string kafka = shared_kafka().bootstrap();
    for (const std::string format : {"raw", "cloudevents"}) {
        create_topic(kafka, subject_ + format);
    }
    outbox_.write(
        "outbox.toml", "[source]\nurl = \"" + url_ + "\"\n" + [&] {
            std::string routes;
            for (const std::string format : {"raw", "cloudevents"}) {
                routes += "[[route]]\nname = \"" + format + "\"\nto = \"kafka://" + kafka +
                          "\"\ntopic_template = \"" + subject_ + format + "\"\nformat = \"" +
                          format + "\"\nschema_registry = \"" + server_.url() +
                          "\"\nschema_framing = \"confluent\"\n";
            }
            return routes;
        }());
    database_->exec(
        "SELECT outbox_emit(aggregate_type => 'Order', aggregate_id => 'o-1', "
        "event_type => 'OrderCreated', payload => '{\"n\": 1}', schema_id => '" +
        subject_ + "')");
    database_->exec(
        "SELECT outbox_emit(aggregate_type => 'Order', aggregate_id => 'o-1', "
        "event_type => 'OrderCreated', payload => '{\"n\": 2}')");
    database_->exec(
        "SELECT outbox_emit(aggregate_type => 'Order', aggregate_id => 'o-1', "
        "event_type => 'OrderDeleted', payload => NULL)");
    Process running = outbox_.start_relay({"--admin", "off"});
    for (const std::string format : {"raw", "cloudevents"}) {
        KafkaReader reader(kafka, subject_ + format);
        const auto& records = reader.read(2, 60s);
        ASSERT_EQ(records.size(), 2U) << format << running.stderr_text();
        EXPECT_EQ(records[0].value, frame + R"({"n": 1})") << format;
        EXPECT_EQ(records[1].value, std::nullopt) << "a tombstone stays one";
    }
    EXPECT_EQ(database_->number("SELECT count(*) FROM outbox_dead_letters WHERE error_code = "
                                "'OB_INVALID_EVENT' AND error LIKE '%has no schema_id%'"),
              2)
        << "each route's, of the event without a schema";
}

// The blocks of docs/schemas.md: schema, route, events, error.
std::vector<std::string> examples_of_page() {
    std::vector<std::string> found;
    std::istringstream lines(read_file(SCHEMAS_PAGE));
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("```")) {
            inside = !inside;
            if (inside) found.emplace_back();
        } else if (inside) {
            found.back() += line + "\n";
        }
    }
    return found;
}

std::string replaced(std::string text, std::string_view from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST_F(SchemaRelay, TheExampleOfThePageWorks) {
    const auto examples = examples_of_page();
    ASSERT_EQ(examples.size(), 4U);
    const std::uint32_t id = server_.add("orders-value", examples[0]);
    const std::string kafka = shared_kafka().bootstrap();
    create_topic(kafka, "orders");
    std::string file = replaced(examples[1], "postgresql://app@localhost/shop", url_);
    file = replaced(file, "localhost:9092", kafka);
    outbox_.write("outbox.toml", replaced(file, "http://localhost:8081", server_.url()));
    database_->exec(examples[2]);
    Process running = outbox_.start_relay({"--admin", "off"});
    KafkaReader reader(kafka, "orders");
    const auto& records = reader.read(1, 60s);
    ASSERT_EQ(records.size(), 1U) << running.stderr_text();
    ASSERT_TRUE(records[0].value);
    EXPECT_EQ(records[0].value->substr(5), R"({"order_id": "o-1", "quantity": 2})");
    EXPECT_EQ(records[0].value->front(), '\0');
    ASSERT_TRUE(eventually(60s, "a dead letter", [&] {
        return database_->number("SELECT count(*) FROM outbox_dead_letters") == 1;
    }));
    const std::string event = database_->value("SELECT id FROM outbox_dead_letters");
    std::string wanted = replaced(examples[3], "event ID", "event " + event);
    wanted = replaced(wanted, "id 1)", "id " + std::to_string(id) + ")");
    EXPECT_EQ(database_->value("SELECT error_code || ': ' || error || E'\\n' FROM "
                               "outbox_dead_letters"),
              wanted);
}

}  // namespace
}  // namespace outbox::test
