// What `outbox` shows and does in a consumer's database.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include <outbox/adapters/libpq_consumer.h>
#include <outbox/adapters/sqlite_consumer.h>

#include "tests/consumer/database.h"
#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class ConsumerCommands : public testing::TestWithParam<Backend> {
  protected:
    ConsumerCommands() : database_(make_database(GetParam())) {
        const Finished made =
            outbox_.run({"migrate", "--db", database_->url(), "--only", "consumer"});
        EXPECT_EQ(made.status.code, 0) << made.err;
        db_ = database_->connect();
    }
    json result(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--db", database_->url(), "--json"});
        const Finished ended = outbox_.run(arguments);
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return json::parse(ended.out);
    }
    std::string text(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--db", database_->url()});
        const Finished ended = outbox_.run(arguments);
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return ended.out;
    }
    void put(const std::string& id) {
        db_->exec("INSERT INTO outbox_mailbox (id, topic, key, headers, payload) VALUES ('" + id +
                  "', 'order-events', 'k-" + id + "', '{\"type\":\"OrderCreated\"}', '{\"a\":1}')");
    }
    // A dead letter of the consumer "stock".
    void bury(const std::string& id, const std::string& headers, const std::string& payload = "") {
        db_->exec(
            "INSERT INTO outbox_inbox_dead_letters (consumer, message_id, topic, key, headers, "
            "payload, attempts, error_code, error) VALUES ('stock', '" +
            id + "', 'orders', 'k', '" + headers + "', " +
            (GetParam() == Backend::kPostgres ? "convert_to('" + payload + "', 'UTF8')"
                                              : "'" + payload + "'") +
            ", 5, 'OB_HANDLER_FAILED', 'no stock')");
    }
    MailboxConsumer consumer(const std::function<bool(std::string_view id)>& fails) {
        MailboxOptions options;
        options.consumer = "stock";
        options.max_attempts = 1;
        options.connect_timeout_s = 60;
        if (GetParam() == Backend::kPostgres) {
            return libpq_mailbox_consumer(
                database_->url(),
                [fails](PGconn*, const Message& message) {
                    if (fails(message.id)) throw std::runtime_error("no stock");
                },
                options);
        }
        return sqlite_mailbox_consumer(
            database_->url(),
            [fails](sqlite3*, const Message& message) {
                if (fails(message.id)) throw std::runtime_error("no stock");
            },
            options);
    }

    OutboxBinary outbox_;
    std::unique_ptr<Database> database_;
    std::unique_ptr<Database::Connection> db_;
};

INSTANTIATE_TEST_SUITE_P(Databases, ConsumerCommands,
                         testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& test) { return backend_name(test.param); });

TEST_P(ConsumerCommands, StatusShowsConsumersAndMailboxesOfADatabaseWithoutAnOutbox) {
    for (const char* id : {"a", "b", "c"}) put(id);
    auto member = consumer([](std::string_view id) { return id == "b"; });
    std::thread running([&] { member.run(); });
    const auto done = eventually(60s, "the mailbox is empty", [&] {
        return db_->number("SELECT count(*) FROM outbox_mailbox") == 0;
    });
    member.stop();
    running.join();
    ASSERT_TRUE(done);
    put("d");
    const json status = result({"status"});
    ASSERT_EQ(status["consumers"].size(), 1U);
    const json& stock = status["consumers"][0];
    EXPECT_EQ(stock["name"], "stock");
    EXPECT_EQ(stock["applied_total"], 2);
    EXPECT_EQ(stock["failed_total"], 1);
    EXPECT_EQ(stock["dead"], 1);
    ASSERT_EQ(status["mailboxes"].size(), 1U);
    EXPECT_EQ(status["mailboxes"][0]["name"], "default");
    EXPECT_EQ(status["mailboxes"][0]["waiting"], 1);
    EXPECT_THAT(text({"status"}), HasSubstr("stock"));
}

TEST_P(ConsumerCommands, DeadLettersOfAConsumerAreListedShownRetriedAndDiscarded) {
    for (const char* id : {"a", "b", "c"}) put(id);
    bool broken = true;
    auto member = consumer([&](std::string_view id) { return broken && id != "c"; });
    EXPECT_EQ(member.drain(), 3U);
    const json list = result({"dead", "list", "--consumer", "stock"});
    ASSERT_EQ(list.size(), 2U);
    EXPECT_EQ(list[0]["id"], "a");
    EXPECT_EQ(list[0]["event_type"], "OrderCreated");
    EXPECT_EQ(list[0]["error_code"], "OB_HANDLER_FAILED");
    EXPECT_EQ(result({"dead", "list", "--consumer", "other"}).size(), 0U);
    EXPECT_EQ(result({"dead", "list", "--consumer", "stock", "--key", "k-b"})[0]["id"], "b");
    const json whole = result({"dead", "show", "b", "--consumer", "stock"});
    EXPECT_EQ(whole[0]["payload"], json({{"a", 1}}));
    EXPECT_THAT(whole[0]["error"].get<std::string>(), HasSubstr("no stock"));

    EXPECT_EQ(result({"dead", "retry", "a", "--consumer", "stock"})["matched"], 1);
    EXPECT_EQ(result({"dead", "discard", "b", "--consumer", "stock", "--dry-run"})["matched"], 1);
    EXPECT_EQ(result({"dead", "discard", "b", "--consumer", "stock"})["matched"], 1);
    broken = false;
    ASSERT_TRUE(eventually(60s, "the retried one is applied", [&] { return member.drain() == 1; }));
    EXPECT_EQ(result({"dead", "list", "--consumer", "stock"}).size(), 0U);
}

TEST_P(ConsumerCommands, ManyDeadLettersAreExportedOnceEach) {
    for (int i = 0; i < 101; ++i) bury("id-" + std::to_string(i), "{}", "1");
    const std::string exported = text({"dead", "export", "--consumer", "stock"});
    std::set<std::string> ids;
    std::istringstream lines(exported);
    std::size_t count = 0;
    for (std::string line; std::getline(lines, line); ++count) ids.insert(json::parse(line)["id"]);
    EXPECT_EQ(count, 101U);
    EXPECT_EQ(ids.size(), 101U);
}

TEST_P(ConsumerCommands, AFilterThatNoDeadLetterHereCanMatchIsRefusedAndNotLeftOut) {
    bury("a", R"({"type":"OrderCreated"})");
    for (const char* command : {"list", "retry", "discard"}) {
        const Finished refused = outbox_.run(
            {"dead", command, "--db", database_->url(), "--consumer", "stock", "--route", "r1"});
        EXPECT_EQ(refused.status.code, 2);
        EXPECT_EQ(refused.out, "");
        EXPECT_THAT(refused.err, HasSubstr("belong to no route"));
    }
    // An empty value would restrict nothing.
    const Finished empty = outbox_.run({"dead", "discard", "--db", database_->url(), "--consumer",
                                        "stock", "--error-code", "OB_HANDLER_FAILED", "--key", ""});
    EXPECT_EQ(empty.status.code, 2);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_dead_letters"), 1);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_dead_letters WHERE "
                          "retry_requested_at IS NULL"),
              1);
}

TEST_P(ConsumerCommands, AHeaderThatTheDatabaseCannotReadHidesNoDeadLetter) {
    bury("nul", R"({"a":"x\u0000\u0000\\u0000","type":"Odd"})");
    bury("half", R"({"a":"\ud800","type":"Odd"})");
    bury("plain", R"({"a":"\\u0000","type":"Plain"})");
    const json list = result({"dead", "list", "--consumer", "stock"});
    ASSERT_EQ(list.size(), 3U);
    for (const json& letter : list) {
        EXPECT_EQ(letter["event_type"], letter["id"] == "plain" ? "Plain" : "Odd") << letter;
    }
    EXPECT_EQ(result({"dead", "retry", "--consumer", "stock", "--event-type", "Odd"})["matched"],
              2);
    EXPECT_EQ(
        result({"dead", "discard", "--consumer", "stock", "--event-type", "Plain"})["matched"], 1);
}

TEST_P(ConsumerCommands, AHugeKeyOrTypeIsCutInTheListAndWholeWhereItIsShown) {
    const std::string key(20'000, 'k');
    bury("a", R"({"type":")" + std::string(20'000, 't') + R"("})");
    db_->exec("UPDATE outbox_inbox_dead_letters SET key = '" + key + "'");
    std::istringstream lines(text({"dead", "list", "--consumer", "stock"}));
    for (std::string line; std::getline(lines, line);) EXPECT_LT(line.size(), 300U);
    EXPECT_THAT(text({"dead", "show", "a", "--consumer", "stock"}), HasSubstr(key));
}

TEST_P(ConsumerCommands, WhatASenderWroteIsShownAndNotObeyed) {
    const std::string escape = "\x1b[2J";  // clears a screen
    const std::string csi =
        "\xc2\x9b"
        "2J";  // the same in one character
    bury("id" + escape + csi, "{}", std::string("line\n\ttab") + escape + csi);
    bury("deep", "{}", std::string(100'000, '[') + std::string(100'000, ']'));
    for (const auto& arguments : std::vector<std::vector<std::string>>{
             {"dead", "list", "--consumer", "stock"},
             {"dead", "list", "--consumer", "stock", "--json"},
             {"dead", "show", "id" + escape + csi, "--consumer", "stock"},
             {"dead", "show", "id" + escape + csi, "--consumer", "stock", "--json"},
             {"dead", "show", "deep", "--consumer", "stock", "--json"}}) {
        const std::string out = text(arguments);
        EXPECT_THAT(out, Not(HasSubstr("\x1b")));
        EXPECT_THAT(out, Not(HasSubstr("\xc2\x9b")));
        EXPECT_LT(out.size(), 1'000'000U);
    }
    EXPECT_THAT(text({"dead", "show", "id" + escape + csi, "--consumer", "stock"}),
                HasSubstr("line\n                \ttab?[2J?2J"));
    // A line that looks like one of ours stands where none of ours begins.
    const std::string forged = "state           retrying";
    bury("two\n" + forged, R"({"type":"a\n)" + forged + "\"}", "1\n" + forged);
    for (const char* command : {"list", "show"}) {
        std::vector<std::string> arguments{"dead", command, "--consumer", "stock"};
        if (arguments[1] == "show") arguments.push_back("two\n" + forged);
        EXPECT_THAT(text(arguments), Not(HasSubstr("\n" + forged)));
    }
    // The same value, nothing is lost in it.
    EXPECT_EQ(result({"dead", "show", "id" + escape + csi, "--consumer", "stock"})[0]["id"],
              "id" + escape + csi);
    EXPECT_EQ(result({"dead", "show", "deep", "--consumer", "stock"})[0]["payload"]
                  .get<std::string>()
                  .size(),
              200'000U);
}

TEST_P(ConsumerCommands, PruneForgetsOldIdsRaisesTheFloorAndRemovesExpiredKeys) {
    const bool postgres = GetParam() == Backend::kPostgres;
    const auto ago = [&](int days) {
        const std::string number = std::to_string(days);
        return postgres ? "now() - interval '" + number + " days'"
                        : "(strftime('%s', 'now') - 86400 * " + number + ") * 1000000";
    };
    db_->exec(
        "INSERT INTO outbox_inbox (consumer, message_id, message_time) VALUES "
        "('stock', 'old', " +
        ago(31) + "), ('stock', 'young', " + ago(29) + "), ('stock', 'newest', " + ago(0) +
        "), ('mail', 'old', " + ago(40) + ")");
    db_->exec("INSERT INTO outbox_inbox (consumer, message_id) VALUES ('stock', 'without time')");
    db_->exec(
        "INSERT INTO outbox_idempotency (scope, key, fingerprint, expires_at) VALUES "
        "('u', 'expired', 'f', " +
        ago(1) + "), ('u', 'kept', 'f', " + ago(-1) + ")");
    const json would = result({"prune", "--dry-run"});
    EXPECT_EQ(would["inbox"], 2);
    EXPECT_EQ(would["keys"], 1);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox"), 5);
    const json pruned = result({"prune"});
    EXPECT_EQ(pruned["inbox"], 2);
    EXPECT_EQ(pruned["keys"], 1);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox"), 3);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_inbox_floor"), 2);
    EXPECT_EQ(db_->value("SELECT key FROM outbox_idempotency"), "kept");
    EXPECT_EQ(result({"prune"})["inbox"], 0);
    EXPECT_EQ(
        outbox_.run({"prune", "--db", database_->url(), "--inbox-retention", "1h"}).status.code, 2);
}

TEST_P(ConsumerCommands, CommandsForTheRelaysTableSayWhatIsMeantHere) {
    bury("a", "{}");
    const Finished list = outbox_.run({"dead", "list", "--db", database_->url()});
    EXPECT_EQ(list.status.code, 4);
    EXPECT_THAT(list.err, HasSubstr("--consumer NAME; there are: stock"));
    EXPECT_THAT(list.err, Not(HasSubstr("migrate")));
    // A table that is named is meant.
    for (const char* command : {"status", "prune"}) {
        const Finished named =
            outbox_.run({command, "--db", database_->url(), "--table", "zzz", "--json"});
        EXPECT_EQ(named.status.code, 4);
        EXPECT_EQ(named.out, "");
        EXPECT_THAT(named.err, HasSubstr("zzz"));
    }
}

// A table of the relay's that is gone is no sign that there was none: its events wait.
TEST_P(ConsumerCommands, AMissingTableOfTheRelaysIsNamedWhereOthersOfItAreThere) {
    for (const char* table : {"outbox_dead_letters", "outbox_lease", "outbox_standbys",
                              "outbox_route_stats", "outbox_events"}) {
        const auto database = make_database(GetParam());
        ASSERT_EQ(outbox_.run({"migrate", "--db", database->url()}).status.code, 0);
        database->connect()->exec(std::string("ALTER TABLE ") + table + " RENAME TO elsewhere");
        for (const char* command : {"status", "prune"}) {
            if (command == std::string("prune") && table != std::string("outbox_events")) continue;
            const Finished ended = outbox_.run({command, "--db", database->url(), "--json"});
            EXPECT_EQ(ended.status.code, 4) << command << ended.out << ended.err;
            EXPECT_EQ(ended.out, "");
            EXPECT_THAT(ended.err, HasSubstr(table)) << command;
        }
        if (table != std::string("outbox_events")) continue;
        EXPECT_THAT(outbox_.run({"dead", "list", "--db", database->url()}).err,
                    AllOf(HasSubstr(table), Not(HasSubstr("--consumer"))));
        const Finished page =
            outbox_.run({"dashboard", "--from", database->url(), "--listen", "127.0.0.1:0"});
        EXPECT_EQ(page.status.code, 4) << page.err;
    }
}

TEST_P(ConsumerCommands, AFloorStaysBelowWhatStillWaitsInAMailbox) {
    const bool postgres = GetParam() == Backend::kPostgres;
    put("waiting");
    db_->exec(postgres ? "UPDATE outbox_mailbox SET received_at = now() - interval '20 days'"
                       : "UPDATE outbox_mailbox SET received_at = (strftime('%s', 'now') - 86400 "
                         "* 20) * 1000000");
    db_->exec(postgres ? "INSERT INTO outbox_inbox (consumer, message_id, message_time) VALUES "
                         "('stock', 'a', now() - interval '45 days'), ('stock', 'b', now())"
                       : "INSERT INTO outbox_inbox (consumer, message_id, message_time) VALUES "
                         "('stock', 'a', (strftime('%s', 'now') - 86400 * 45) * 1000000), "
                         "('stock', 'b', strftime('%s', 'now') * 1000000)");
    EXPECT_EQ(result({"prune"})["inbox"], 0);
    db_->exec("DELETE FROM outbox_mailbox");
    EXPECT_EQ(result({"prune"})["inbox"], 1);
}

}  // namespace
}  // namespace outbox::test
