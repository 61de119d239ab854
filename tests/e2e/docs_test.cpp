// Runs the examples of pages as a reader would, in their order.

#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <sstream>

#include "tests/support/eventually.h"
#include "tests/support/kafka_client.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::StartsWith;

struct Example {
    std::string language;
    std::string text;
};

std::vector<Example> examples(const std::filesystem::path& page) {
    std::istringstream lines(read_file(page));
    std::vector<Example> found;
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("```")) {
            inside = !inside;
            if (inside) found.push_back({line.substr(3), ""});
        } else if (inside) {
            found.back().text += line + "\n";
        }
    }
    return found;
}

std::string replaced(std::string text, const std::map<std::string, std::string>& with) {
    for (const auto& [from, to] : with) {
        for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
            text.replace(at, from.size(), to);
        }
    }
    return text;
}

std::vector<std::string> words(const std::string& line) {
    std::istringstream stream(line);
    return {std::istream_iterator<std::string>(stream), {}};
}

class StartPage : public testing::Test {
  protected:
    void SetUp() override {
        shop_ = shared_postgres().create_database();
        Pg(shop_).exec("CREATE TABLE orders (id text PRIMARY KEY, user_id text, total numeric)");
        const std::string billing = shared_postgres().create_database();
        ASSERT_EQ(outbox_.run({"migrate", "--db", billing}).status.code, 0);
        here_ = {{"postgresql://app@localhost/shop", shop_},
                 {"//app@localhost/billing", billing.substr(billing.find("//"))},
                 {"localhost:9092", shared_kafka().bootstrap()}};
    }

    void run_command(const std::string& line) {
        SCOPED_TRACE(line);
        auto arguments = words(line);
        arguments.erase(arguments.begin());
        const bool stays = arguments[0] == "relay" && std::find(arguments.begin(), arguments.end(),
                                                                "--check") == arguments.end();
        if (!stays) {
            const Finished done = outbox_.run(arguments);
            EXPECT_EQ(done.status.code, 0) << done.out << done.err;
            return;
        }
        arguments.erase(arguments.begin());
        arguments.insert(arguments.end(), {"--admin", "off"});
        // Else it would be stopped before it listens to signals.
        ASSERT_GT(Pg(shop_).number("SELECT count(*) FROM " + table_), 0);
        Process relay = outbox_.start_relay(arguments);
        EXPECT_TRUE(eventually(60s, "the events are published", [&] {
            return Pg(shop_).number("SELECT count(*) FROM " + table_) == 0;
        }));
        EXPECT_EQ(relay.stop().code, 0) << relay.stderr_text();
    }

    void run_commands(const std::string& text) {
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) {
            ASSERT_TRUE(line.starts_with("outbox ")) << line;
            run_command(line);
            ++commands_;
        }
    }

    // Includes come first, the rest is the body of a function.
    void compile(const std::string& text) {
        std::istringstream lines(text);
        std::string includes = "#include <libpq-fe.h>\n";
        std::string body;
        for (std::string line; std::getline(lines, line);) {
            (line.starts_with("#include") ? includes : body) += line + "\n";
        }
        const auto file = outbox_.write(
            "example.cpp", includes + "void example(PGconn* connection) {\n" + body + "}\n");
        const Finished done = run({{CXX_COMPILER, "-std=c++20", "-Wall", "-Werror", "-fsyntax-only",
                                    "-I", OUTBOX_INCLUDE, "-I", LIBPQ_INCLUDE, file.string()}});
        EXPECT_EQ(done.status.code, 0) << done.err;
        ++compiled_;
    }

    void check_configuration(const std::string& text) {
        const auto file = outbox_.write("outbox.toml", text);
        const Finished done = outbox_.run({"relay", "--check", "--config", file.string()});
        EXPECT_EQ(done.status.code, 0) << done.out << done.err;
        ++configurations_;
    }

    OutboxBinary outbox_;
    std::string table_ = "outbox_events";
    std::string shop_;
    std::map<std::string, std::string> here_;
    int commands_ = 0;
    int compiled_ = 0;
    int configurations_ = 0;
    int statements_ = 0;
};

TEST_F(StartPage, EveryExampleWorks) {
    for (const Example& example : examples(START_PAGE)) {
        SCOPED_TRACE(example.text);
        const std::string text = replaced(example.text, here_);
        if (example.language.empty()) {
            run_commands(text);
        } else if (example.language == "sql") {
            ASSERT_NO_THROW(Pg(shop_).exec(text));
            ++statements_;
        } else if (example.language == "sqlite") {
            const std::string path = outbox_.file("shop.db").string();
            ASSERT_EQ(outbox_.run({"migrate", "--db", "sqlite://" + path}).status.code, 0);
            Sqlite database(path);
            ASSERT_NO_THROW(database.exec(text));
            EXPECT_EQ(database.number("SELECT count(*) FROM outbox_scheduled"), 1);
        } else if (example.language == "cpp") {
            compile(text);
        } else if (example.language == "toml") {
            check_configuration(text);
        } else {
            FAIL() << "nothing runs an example in " << example.language;
        }
    }
    // The page has not changed so that nothing was run.
    EXPECT_GE(commands_, 3);
    EXPECT_GE(statements_, 3);
    EXPECT_GE(compiled_, 1);
    EXPECT_GE(configurations_, 1);
    const auto arrived = KafkaReader(shared_kafka().bootstrap(), "order-events").read(2, 90s);
    ASSERT_EQ(arrived.size(), 2U);
    EXPECT_EQ(arrived[0].key, "o-1");
    EXPECT_EQ(Pg(shop_).value("SELECT message_id FROM outbox_inbox WHERE consumer = 'billing'"),
              "01939d3e-7c00-7aaa-8000-000000000001");
    EXPECT_EQ(Pg(shop_).number("SELECT count(*) FROM outbox_scheduled"), 1);
}

// A slot that is read by hand stands for Debezium.
class DebeziumPage : public StartPage {
  protected:
    void SetUp() override {
        StartPage::SetUp();
        table_ = "outboxevent";
        Pg(shop_).exec(
            "CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, "
            "aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb); "
            "CREATE PUBLICATION dbz_publication FOR TABLE outboxevent");
        Pg(shop_).exec("SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')");
        insert("before");
    }
    void insert(const std::string& aggregate) {
        Pg(shop_).exec(
            "INSERT INTO outboxevent (id, aggregatetype, aggregateid, type, payload) SELECT "
            "gen_random_uuid(), 'Order', '" +
            aggregate + "-' || n, 'Made', '{}' FROM generate_series(1, 3) n");
    }
    // A line that writes its output into a file, or one that stays with the page's own names.
    void run_lines(const std::string& text) {
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) {
            const std::size_t into = line.find(" > ");
            if (into == std::string::npos) {
                run_commands(line + "\n");
                continue;
            }
            auto arguments = words(line.substr(0, into));
            arguments.erase(arguments.begin());
            const Finished done = outbox_.run(arguments);
            EXPECT_EQ(done.status.code, 0) << done.err;
            EXPECT_THAT(done.err, testing::HasSubstr("connector.class"));
            std::ofstream(line.substr(into + 3)) << done.out;
        }
    }
    // The text of the inserts that Debezium would send now, in their order.
    std::string sent() {
        return Pg(shop_).value(
            "SELECT string_agg(encode(data, 'escape'), ' ') FROM "
            "pg_logical_slot_get_binary_changes('debezium', NULL, NULL, 'proto_version', '1', "
            "'publication_names', 'dbz_publication') WHERE get_byte(data, 0) = ascii('I')");
    }
};

TEST_F(DebeziumPage, EveryExampleWorks) {
    const std::string copy = shared_postgres().create_database();
    Pg(copy).exec(
        "CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid "
        "text NOT NULL, type text NOT NULL, payload jsonb, position bigint GENERATED ALWAYS AS "
        "IDENTITY UNIQUE)");
    here_["postgresql://app@localhost/copy"] = copy;
    here_["localhost:9093"] = shared_kafka().bootstrap();
    here_[" application.properties"] = " " + outbox_.file("application.properties").string();
    here_[" outbox.toml"] = " " + outbox_.file("outbox.toml").string();
    for (const Example& example : examples(DEBEZIUM_PAGE)) {
        SCOPED_TRACE(example.text);
        const std::string text = replaced(example.text, here_);
        if (example.language == "properties") {
            outbox_.write("application.properties", text);
            continue;
        }
        if (example.language.empty() && text.find(copy) != std::string::npos) {
            Pg(copy).exec(
                "INSERT INTO outboxevent (id, aggregatetype, aggregateid, type, payload) VALUES "
                "(gen_random_uuid(), 'Copied', 'c-1', 'Made', '{}')");
            const std::string shop = std::exchange(shop_, copy);
            run_lines(text);
            shop_ = shop;
        } else if (example.language.empty()) {
            run_lines(text);
        } else if (text.find("VALUES") != std::string::npos) {
            ASSERT_NO_THROW(Pg(shop_).exec(text));
            insert("behind");
            const std::string all = sent();
            EXPECT_LT(all.find("before-3"), all.find("marker"));
            EXPECT_LT(all.find("marker"), all.find("behind-1"));
        } else {
            ASSERT_EQ(example.language, "sql");
            ASSERT_NO_THROW(Pg(shop_).exec(text));
        }
        ++statements_;
    }
    EXPECT_EQ(statements_, 8);
    EXPECT_EQ(Pg(shop_).number("SELECT count(*) FROM pg_replication_slots WHERE database = "
                               "current_database()"),
              0);
    KafkaReader orders(shared_kafka().bootstrap(), "outbox.event.Order");
    ASSERT_EQ(orders.read(3, 90s).size(), 3U);
    const auto& arrived = orders.read_to_end();
    ASSERT_EQ(arrived.size(), 3U);
    for (const KafkaRecord& record : arrived) {
        EXPECT_THAT(*record.key, StartsWith("behind-"));
        ASSERT_EQ(record.headers.size(), 2U);
        EXPECT_THAT(record.header("eventType").value_or(""),
                    testing::HasSubstr("\"payload\":\"Made\""));
    }
    EXPECT_EQ(KafkaReader(shared_kafka().bootstrap(), "outbox.event.marker").read(1, 90s).size(),
              1U);
}

}  // namespace
}  // namespace outbox::test
