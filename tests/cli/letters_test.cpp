// Events that no route takes, and dead letters that die again.
#include <cctype>
#include <functional>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr ExitStatus kStopped{0, 0};

// A database with events, and mailboxes of SQLite that routes lead to.
class Letters : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        url_ = GetParam() == std::string("sqlite") ? "sqlite://" + outbox_.file("shop.db").string()
                                                   : shared_postgres().create_database();
        ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
        for (const char* name : {"a", "b", "c"}) {
            ASSERT_EQ(outbox_.run({"migrate", "--db", box(name), "--only", "consumer"}).status.code,
                      0);
        }
    }
    std::string box(const std::string& name) {
        return "sqlite://" + outbox_.file(name + ".db").string();
    }
    void sql(const std::string& statement) {
        if (url_.starts_with("sqlite"))
            Sqlite(outbox_.file("shop.db")).exec(statement);
        else
            Pg(url_).exec(statement);
    }
    void emit(const std::string& type, const std::string& topic = "orders") {
        sql("INSERT INTO outbox_events (topic, event_type, key, payload) VALUES ('" + topic +
            "', '" + type + "', 'k', '1')");
    }
    // Each route: its name, which is its mailbox's, and the event type that it takes.
    Process relay(const std::vector<std::pair<std::string, std::string>>& routes,
                  const std::string& source = "", const std::string& more = "") {
        std::string text = more + "\n[source]\nurl = \"" + url_ + "\"\n" + source + "\n";
        for (const auto& [name, type] : routes) {
            text += "[[route]]\nname = \"" + name + "\"\nto = \"mailbox+" + box(name) + "\"\n" +
                    (type.empty() ? "" : "event_type = [\"" + type + "\"]\n");
        }
        return outbox_.start_relay(
            {"--config", outbox_.write("relay.toml", text), "--admin", "off"});
    }
    long long received(const std::string& name) {
        return Sqlite(outbox_.file(name + ".db")).number("SELECT count(*) FROM outbox_mailbox");
    }
    json result(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--db", url_, "--json"});
        const Finished ended = outbox_.run(arguments);
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return json::parse(ended.out.empty() ? "null" : ended.out);
    }
    bool eventually_letters(std::size_t count) {
        return eventually(60s, "dead letters: " + std::to_string(count),
                          [&] { return result({"dead", "list"}).size() == count; });
    }
    [[nodiscard]] std::string now() const {
        return url_.starts_with("sqlite") ? "1" : "clock_timestamp()";
    }
    // `second`, which begins while `change` to letters that nobody retries is not yet committed.
    Finished beside(const std::string& change, const std::function<Finished()>& second) {
        sql("UPDATE outbox_dead_letters SET retry_requested_at = NULL");
        if (url_.starts_with("sqlite")) {
            Sqlite first(outbox_.file("shop.db"));
            first.exec("BEGIN IMMEDIATE; " + change);
            auto done = std::async(std::launch::async, second);
            // Nothing tells that it waits; where it comes later it has the same to say.
            std::this_thread::sleep_for(1s);
            first.exec("COMMIT");
            return done.get();
        }
        Pg first(url_);
        first.exec("BEGIN; " + change);
        auto done = std::async(std::launch::async, second);
        EXPECT_TRUE(eventually(60s, "the second waits for the first", [&] {
            return Pg(url_).number(
                       "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = "
                       "'Lock' AND datname = current_database()") == 1;
        }));
        first.exec("COMMIT");
        return done.get();
    }
    long long backlog() { return result({"status"})["backlog"]; }

    OutboxBinary outbox_;
    std::string url_;
};

TEST_P(Letters, OfAnEventThatNoRouteTakesGoToEachThatIsAddedWhenTheyAreRetried) {
    emit("Odd");
    emit("Even");
    Process first = relay({{"a", "Even"}});
    ASSERT_TRUE(eventually_letters(1));
    EXPECT_EQ(result({"dead", "list"})[0]["route"], "a");
    EXPECT_THAT(result({"dead", "list"})[0]["error"], HasSubstr("no route took this event; add"));
    // Retried without a route it dies again, and says so.
    result({"dead", "retry", "--all"});
    ASSERT_TRUE(eventually(60s, "it is dead again",
                           [&] { return result({"dead", "list"})[0]["attempts"] == 2; }));
    EXPECT_THAT(result({"dead", "list"})[0]["error"], HasSubstr("no route took this event; add"));
    // Else it would be for a new route, too.
    ASSERT_TRUE(eventually(60s, "the other is done", [&] { return backlog() == 0; }));
    EXPECT_EQ(received("a"), 1);
    EXPECT_EQ(first.stop(), kStopped);

    Process second = relay({{"a", "Even"}, {"b", "Odd"}, {"c", ""}});
    result({"dead", "retry", "--all"});
    ASSERT_TRUE(eventually_letters(0));
    EXPECT_EQ(received("a"), 1);
    EXPECT_EQ(received("b"), 1);
    EXPECT_EQ(received("c"), 1);
    EXPECT_EQ(second.stop(), kStopped);
}

TEST_P(Letters, OfAnEventThatNoRouteTakesBlockNoKey) {
    emit("Odd");
    for (const int count : {1, 2}) {
        Process blocking = relay({{"a", "Even"}}, "", "on_dead_letter = \"block_key\"");
        ASSERT_TRUE(eventually_letters(1));
        emit("Even");
        EXPECT_TRUE(eventually(60s, "its key goes on", [&] { return received("a") == count; }));
        EXPECT_EQ(blocking.stop(), kStopped);
    }
}

TEST_P(Letters, ThatAnAddedRouteRefusesStayAndGoThereOnceMore) {
    emit("Odd", "elsewhere");
    Process first = relay({{"a", "Even"}});
    ASSERT_TRUE(eventually_letters(1));
    EXPECT_EQ(first.stop(), kStopped);
    result({"dead", "retry", "--all"});
    Process strict =
        relay({{"a", "Even"}, {"b", "Odd"}, {"c", "Odd"}}, "", "allowed_topics = [\"orders\"]");
    ASSERT_TRUE(eventually(60s, "it is refused", [&] {
        return result({"dead", "list"})[0]["error_code"] == "OB_TOPIC_INVALID";
    }));
    EXPECT_THAT(result({"dead", "list"})[0]["error"],
                HasSubstr("no route took this event; by route"));
    EXPECT_EQ(strict.stop(), kStopped);
    Process open = relay({{"a", "Even"}, {"b", "Odd"}, {"c", "Odd"}});
    result({"dead", "retry", "--all"});
    ASSERT_TRUE(eventually_letters(0));
    EXPECT_EQ(received("b") + received("c"), 2);
    EXPECT_EQ(received("a"), 0);
    EXPECT_EQ(open.stop(), kStopped);
}

TEST_P(Letters, ThatAnOperatorGivesToARouteGoThereWhateverItTakes) {
    emit("Odd");
    Process first = relay({{"a", "Even"}, {"b", "Even"}});
    ASSERT_TRUE(eventually_letters(1));
    result({"dead", "retry", "--all", "--to", "b"});
    ASSERT_TRUE(eventually_letters(0));
    EXPECT_EQ(received("b"), 1);
    EXPECT_EQ(first.stop(), kStopped);
}

TEST_P(Letters, NothingBehindAnUnmatchedEventIsSentWhereItStops) {
    emit("Odd");
    for (int i = 0; i < 5; ++i) emit("Even");
    for (int start = 0; start < 2; ++start) {
        Process stopping = relay({{"a", "Even"}}, "unmatched = \"stop\"");
        const auto ended = stopping.wait(60s);
        ASSERT_TRUE(ended.has_value());
        EXPECT_EQ(ended->code, 2);
        EXPECT_EQ(received("a"), 0);
    }
}

TEST_P(Letters, AreNotMadeWhereAnUnmatchedEventIsFinished) {
    emit("Odd");
    emit("Even");
    Process running = relay({{"a", "Even"}, {"b", "Even"}}, "unmatched = \"finish\"");
    ASSERT_TRUE(eventually(60s, "all is done", [&] { return backlog() == 0; }));
    EXPECT_EQ(received("a"), 1);
    EXPECT_TRUE(result({"dead", "list"}).empty());
    EXPECT_EQ(running.stop(), kStopped);
}

TEST_P(Letters, AreNotMadeWhereTheRelayStopsBeforeAnUnmatchedEvent) {
    emit("Odd");
    Process running = relay({{"a", "Even"}, {"b", "Even"}}, "unmatched = \"stop\"");
    const auto ended = running.wait(60s);
    ASSERT_TRUE(ended);
    EXPECT_EQ(ended->code, 2);
    EXPECT_THAT(running.stderr_text(),
                AllOf(HasSubstr("no route takes event"), HasSubstr("event type 'Odd'"),
                      HasSubstr("add a route for it")));
    EXPECT_TRUE(result({"dead", "list"}).empty());
    EXPECT_EQ(backlog(), 1);
    Process mended = relay({{"a", "Even"}, {"b", "Even"}, {"c", "Odd"}}, "unmatched = \"stop\"");
    ASSERT_TRUE(eventually(60s, "it is delivered", [&] { return received("c") == 1; }));
    EXPECT_EQ(mended.stop(), kStopped);
}

TEST_P(Letters, ThatDieAgainWriteALineCountTheirTriesAndMoveTheCounter) {
    emit("Odd", "elsewhere");
    Process strict = relay({{"a", ""}}, "", "allowed_topics = [\"orders\"]");
    ASSERT_TRUE(eventually_letters(1));
    for (int tries = 2; tries <= 3; ++tries) {
        result({"dead", "retry", "--all"});
        ASSERT_TRUE(eventually(60s, "it died once more", [&] {
            return result({"dead", "list"})[0]["attempts"] == tries &&
                   result({"status"})["routes"][0]["dead_total"] == tries;
        }));
        EXPECT_EQ(result({"dead", "list"})[0]["state"], "dead");
    }
    EXPECT_EQ(strict.stop(), kStopped);
    const std::string log = strict.stderr_text();
    std::size_t lines = 0;
    for (auto at = log.find("event=dead_letter"); at != std::string::npos;
         at = log.find("event=dead_letter", at + 1)) {
        ++lines;
    }
    EXPECT_EQ(lines, 3U) << log;
    EXPECT_THAT(log, HasSubstr("attempts=3"));
}

TEST_P(Letters, AreFoundByTheirIdInWhateverLettersItWasCopied) {
    emit("Odd", "elsewhere");
    Process strict = relay({{"a", ""}}, "", "allowed_topics = [\"orders\"]");
    ASSERT_TRUE(eventually_letters(1));
    EXPECT_EQ(strict.stop(), kStopped);
    std::string id = result({"dead", "list"})[0]["id"];
    for (char& c : id) c = static_cast<char>(std::toupper(c));
    EXPECT_EQ(result({"dead", "show", id}).size(), 1U);
    result({"dead", "discard", id});
    EXPECT_TRUE(result({"dead", "list"}).empty());
}

TEST_P(Letters, ThatAreBeingRetriedAreNotDiscarded) {
    emit("Odd", "elsewhere");
    emit("Even", "elsewhere");
    emit("Even", "elsewhere");
    {
        Process strict = relay({{"a", ""}}, "", "allowed_topics = [\"orders\"]");
        ASSERT_TRUE(eventually_letters(3));
        EXPECT_EQ(strict.stop(), kStopped);
    }
    const std::string odd = result({"dead", "list", "--event-type", "Odd"})[0]["id"];
    EXPECT_EQ(result({"dead", "retry", odd})["matched"], 1);
    const auto discard = [&](const std::string& which) {
        return outbox_.run({"dead", "discard", which, "--db", url_});
    };
    const Finished named = discard(odd);
    EXPECT_NE(named.status.code, 0);
    EXPECT_THAT(named.err, AllOf(HasSubstr("OB_CONFLICT"),
                                 HasSubstr("nothing was discarded: 1 is being retried")));
    EXPECT_EQ(result({"dead", "discard", "--all", "--dry-run"})["matched"], 2);
    const Finished all = discard("--all");
    EXPECT_EQ(all.status.code, 0) << all.err;
    EXPECT_THAT(all.out, HasSubstr("discarded 2 dead letters"));
    EXPECT_THAT(all.err, HasSubstr("left alone: 1 is being retried"));
    ASSERT_TRUE(eventually_letters(1));

    Process lenient = relay({{"a", ""}});
    ASSERT_TRUE(eventually_letters(0));
    EXPECT_EQ(received("a"), 1);
    EXPECT_EQ(lenient.stop(), kStopped);
}

// Two operators: the second decides while the first's retry is not yet committed.
TEST_P(Letters, ThatSomebodyElseHasRetriedMeanwhileAreToldOf) {
    emit("Odd", "elsewhere");
    {
        Process strict = relay({{"a", ""}}, "", "allowed_topics = [\"orders\"]");
        ASSERT_TRUE(eventually_letters(1));
        EXPECT_EQ(strict.stop(), kStopped);
    }
    const std::string id = result({"dead", "list"})[0]["id"];
    const auto beside_a_retry = [&](std::vector<std::string> command) {
        command.insert(command.begin(), "dead");
        command.insert(command.end(), {"--db", url_});
        const auto second = [&] { return outbox_.run(command); };
        return beside("UPDATE outbox_dead_letters SET retry_requested_at = " + now(), second);
    };
    const Finished named = beside_a_retry({"discard", id});
    EXPECT_NE(named.status.code, 0);
    EXPECT_THAT(named.err, AllOf(HasSubstr("OB_CONFLICT"),
                                 HasSubstr("nothing was discarded: 1 is being retried")));
    const Finished all = beside_a_retry({"discard", "--all"});
    EXPECT_THAT(all.out, HasSubstr("discarded 0 dead letters"));
    EXPECT_THAT(all.err, HasSubstr("left alone: 1 is being retried"));
    const Finished edited = beside_a_retry({"edit", id, "--key", "other"});
    EXPECT_NE(edited.status.code, 0);
    EXPECT_THAT(edited.err, HasSubstr("it is being retried"));
    EXPECT_EQ(result({"dead", "list"}).size(), 1);
}

// Nobody will.
TEST_P(Letters, ThatWereToBeRetriedByARouteThatIsGoneCanBeDiscarded) {
    emit("Odd", "elsewhere");
    {
        Process strict = relay({{"a", ""}, {"b", "Even"}}, "", "allowed_topics = [\"orders\"]");
        ASSERT_TRUE(eventually_letters(1));
        EXPECT_EQ(strict.stop(), kStopped);
    }
    result({"dead", "retry", "--all"});
    ASSERT_EQ(outbox_.run({"routes", "retire", "a", "--yes", "--db", url_}).status.code, 0);
    EXPECT_EQ(result({"dead", "discard", "--all"})["matched"], 1);
    EXPECT_TRUE(eventually_letters(0));
}

// A table of Debezium's shape, for which there are all formats.
class Formats : public Letters {
  protected:
    void SetUp() override {
        Letters::SetUp();
        sql("CREATE TABLE outboxevent (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), "
            "aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, "
            "payload jsonb, region text, position bigint GENERATED ALWAYS AS IDENTITY UNIQUE)");
    }
    void insert(const std::string& payload) {
        sql("INSERT INTO outboxevent (aggregatetype, aggregateid, type, payload, region) VALUES "
            "('Order', 'o-1', 'Placed', '" +
            payload + "', 'eu')");
    }
    Process relay_as(const std::vector<std::pair<std::string, std::string>>& formats) {
        std::string text =
            "[source]\nurl = \"" + url_ +
            "\"\nafter_publish = \"delete\"\n[source.table]\npreset = \"debezium\"\n"
            "name = \"public.outboxevent\"\nmetadata_columns = [\"type\", \"region\"]\n"
            "metadata_as = \"text\"\n";
        for (const auto& [name, format] : formats) {
            text += "[[route]]\nname = \"" + name + "\"\nto = \"mailbox+" + box(name) +
                    "\"\nformat = \"" + format + "\"\n";
            if (format != "debezium") continue;
            text +=
                "[route.debezium]\n\"value.schemas.enable\" = false\n"
                "\"header.schemas.enable\" = false\n"
                "\"table.expand.json.payload\" = true\n"
                "\"table.fields.additional.placement\" = \"type:header:kind\"\n";
        }
        return outbox_.start_relay(
            {"--config", outbox_.write("relay.toml", text), "--admin", "off"});
    }
    // "HEADERS PAYLOAD" of the last message.
    std::string last(const std::string& name) {
        return Sqlite(outbox_.file(name + ".db"))
            .value(
                "SELECT headers || ' ' || payload FROM outbox_mailbox ORDER BY position DESC "
                "LIMIT 1");
    }
    std::vector<std::string> of_table(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--db", url_, "--table", "public.outboxevent"});
        return arguments;
    }
};

TEST_P(Formats, EachRouteHasItsOwnAndALetterIsWrittenInTheOneThatItsRouteHasByThen) {
    insert(R"({"n": 1.50})");
    Process first = relay_as({{"a", "raw"}, {"b", "cloudevents-structured"}, {"c", "debezium"}});
    ASSERT_TRUE(eventually(60s, "each has it", [&] {
        return received("a") == 1 && received("b") == 1 && received("c") == 1;
    }));
    EXPECT_THAT(last("a"), AllOf(HasSubstr(R"("region":"eu")"), HasSubstr(R"( {"n": 1.50})")));
    EXPECT_THAT(last("b"), AllOf(HasSubstr("application/cloudevents+json"),
                                 HasSubstr(R"("type":"Placed")"), HasSubstr(R"({"n": 1.50}})")));
    EXPECT_THAT(last("c"), AllOf(HasSubstr(R"("kind":"\"Placed\"")"), HasSubstr(R"( {"n":1.5})")));
    ASSERT_EQ(first.stop(), kStopped);
    insert("[1, 2]");  // which ends Debezium's engine
    Process second = relay_as({{"a", "raw"}, {"b", "cloudevents-structured"}, {"c", "debezium"}});
    const auto letters = [&] {
        return json::parse(outbox_.run(of_table({"dead", "list", "--json"})).out).size();
    };
    ASSERT_TRUE(eventually(60s, "one gives it up", [&] { return letters() == 1; }));
    ASSERT_EQ(second.stop(), kStopped);
    ASSERT_EQ(outbox_.run(of_table({"dead", "retry", "--all"})).status.code, 0);
    Process third = relay_as({{"a", "raw"}, {"b", "raw"}, {"c", "cloudevents"}});
    ASSERT_TRUE(eventually(60s, "it has it", [&] { return letters() == 0; }));
    ASSERT_EQ(third.stop(), kStopped);
    EXPECT_THAT(last("c"), AllOf(HasSubstr(R"("ce_type":"Placed")"),
                                 HasSubstr(R"("ce_region":"eu")"), HasSubstr(" [1, 2]")));
    EXPECT_EQ(received("a") + received("b") + received("c"), 6);
}

TEST(HeldTables, AreWaitedForForShortAndTheirHolderIsNamed) {
    OutboxBinary outbox;
    const std::string url = shared_postgres().create_database();
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    Pg holder(url);
    const std::string tables = holder.value(
        "SELECT string_agg(relname, ', ') FROM pg_class WHERE relkind IN ('r', 'p') AND "
        "relnamespace = 'public'::regnamespace");
    holder.exec("SET application_name = 'a dump'; BEGIN; LOCK " + tables);
    std::vector<std::pair<std::string, std::future<Finished>>> commands;
    for (const std::vector<std::string>& command :
         std::vector<std::vector<std::string>>{{"status", "--db"},
                                               {"dead", "list", "--db"},
                                               {"explain", "--key", "k", "--db"},
                                               {"scheduled", "list", "--db"},
                                               {"tenant", "list", "--db"},
                                               {"replay", "list", "--from"}}) {
        commands.emplace_back(command.front(), std::async(std::launch::async, [&, command] {
                                  auto words = command;
                                  words.push_back(url);
                                  return outbox.run(words);
                              }));
    }
    for (auto& [name, command] : commands) {
        const Finished ended = command.get();
        EXPECT_NE(ended.status.code, 0) << name;
        EXPECT_THAT(ended.err, AllOf(HasSubstr("OB_CONFLICT"),
                                     HasSubstr("probably pid " +
                                               std::to_string(PQbackendPID(holder.handle())) +
                                               " (a dump, user postgres, since ")))
            << name;
    }
}

INSTANTIATE_TEST_SUITE_P(On, Formats, testing::Values("postgres"),
                         [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(On, Letters, testing::Values("postgres", "sqlite"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace outbox::test
