#include "tests/cli/routes.h"

#include <gmock/gmock.h>
#include <sstream>

namespace outbox::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_P(Routes, AreListedWithTheirDestinationsAndWhatTheyHaveNotFinished) {
    EXPECT_EQ(result({"routes", "list"}), json::array());
    EXPECT_THAT(run_on({"routes", "list"}).out, HasSubstr("has no routes: a relay makes its"));
    emit("01");
    emit("02");
    let_one_finish(subscriber("near"));
    const json list = result({"routes", "list"});
    ASSERT_EQ(list.size(), 2U);
    EXPECT_EQ(list[0]["name"], "far");
    EXPECT_EQ(list[0]["destination"], json());
    EXPECT_EQ(list[0]["unfinished"], 2);
    EXPECT_EQ(list[0]["unfinished_is_more"], false);
    EXPECT_EQ(list[1]["name"], "near");
    EXPECT_EQ(list[1]["unfinished"], 0);
    EXPECT_THAT(list[1]["destination"].get<std::string>(), HasSubstr("mailbox default"));
    EXPECT_THAT(list[1]["since"].get<std::string>(), HasSubstr("20"));
    const Finished text = run_on({"routes", "list"});
    EXPECT_THAT(text.out, AllOf(HasSubstr("DESTINATION"), HasSubstr("(the next one met)")));
}

TEST_P(Routes, CountWhatTheyHaveNotFinishedUpToALimit) {
    emit("01");
    let_one_die("near", subscriber("near"), "02");
    EXPECT_EQ(route("near")["dead"], 1);
    const std::string columns = "INSERT INTO outbox_events (topic, key, event_type, payload";
    sql(on_sqlite() ? columns +
                          ", id) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
                          "FROM n WHERE i < 20001) SELECT 'o', 'k', 'M', '1', 'e' || i FROM n"
                    : columns + ") SELECT 'o', 'k', 'M', '1' FROM generate_series(1, 20001)");
    EXPECT_EQ(route("near")["unfinished"], 20'000);
    EXPECT_EQ(route("near")["unfinished_is_more"], true);
    EXPECT_THAT(run_on({"routes", "list"}).out, HasSubstr(" 20,000+ "));
    const Finished refused = run_on({"routes", "retire", "near"});
    EXPECT_EQ(refused.status.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("has not finished 20,000+ events"));
}

TEST_P(Routes, AcceptLetsARunningRelayGoOnAtAnotherDestination) {
    const std::string first = subscriber("first");
    const std::string second = subscriber("second");
    emit("01");
    {
        Process running = relay({mailbox("billing", first)});
        ASSERT_TRUE(eventually(60s, "the destination is known", [&] {
            return route("billing")["unfinished"] == 0 && !route("billing")["destination"].empty();
        }));
        ASSERT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    emit("02");
    Process running = relay({mailbox("billing", second)});
    ASSERT_TRUE(eventually(60s, "the relay says how it is settled", [&] {
        return running.stderr_text().find("outbox routes accept billing") != std::string::npos;
    }));
    EXPECT_EQ(received(second), "");
    const Finished accepted = run_on({"routes", "accept", "billing"});
    EXPECT_EQ(accepted.status.code, 0) << accepted.err;
    EXPECT_THAT(accepted.out, HasSubstr("route billing takes the destination that it meets next"));
    EXPECT_TRUE(eventually(60s, "it goes on there", [&] { return received(second) == "02"; }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_EQ(received(first), "01");
}

TEST_P(Routes, RenamedTakeAlongWhatTheyHaveFinished) {
    const std::string near = subscriber("near");
    emit("01");
    emit("02");
    let_one_finish(near);
    const json before = route("near");
    const Finished renamed = run_on({"routes", "rename", "near", "billing"});
    EXPECT_EQ(renamed.status.code, 0) << renamed.err;
    EXPECT_THAT(renamed.out, HasSubstr("--to billing=URL"));
    json after = route("billing");
    after["name"] = "near";
    EXPECT_EQ(after, before);
    for (const std::string table :
         {"outbox_routes", on_sqlite() ? "outbox_ledger_segments" : "outbox_ledger",
          "outbox_route_stats"}) {
        EXPECT_EQ(sql("SELECT count(*) FROM " + table + " WHERE route = 'near'"), "0") << table;
        EXPECT_EQ(sql("SELECT count(*) FROM " + table + " WHERE route = 'billing'"), "1") << table;
    }
    Process running = relay({mailbox("billing", near), "far=null:"});
    EXPECT_TRUE(eventually(60s, "all is finished",
                           [&] { return sql("SELECT count(*) FROM outbox_events") == "0"; }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_EQ(received(near), "01 02") << "sent again under the new name";
}

TEST_P(Routes, RenamedTakeAlongDeadLettersAndFigures) {
    const std::string near = subscriber("near");
    let_one_die("old", near, "01");
    ASSERT_EQ(run_on({"routes", "retire", "old"}).status.code, 0);
    let_one_die("near", near, "02");
    // Figures of the retired route are there still.
    ASSERT_EQ(run_on({"routes", "rename", "near", "old"}).status.code, 0);
    EXPECT_EQ(result({"dead", "list", "--route", "old"}).size(), 2U);
    const json status = result({"status"});
    ASSERT_EQ(status["routes"].size(), 1U);
    EXPECT_EQ(status["routes"][0]["dead_total"], 2);
    EXPECT_EQ(run_on({"routes", "rename", "old", "near"}).status.code, 0);
    EXPECT_EQ(result({"status"})["routes"][0]["dead_total"], 2);
}

TEST_P(Routes, WhatOneSaidLastGoesWithItsNameOrDestination) {
    const std::string near = subscriber("near");
    emit("01");
    emit("02");
    let_one_finish(near);
    const auto fail = [&] {
        sql("UPDATE outbox_route_stats SET last_error = 'OB_X: near is down'");
    };
    const auto last_error = [&](const std::string& name) {
        const json status = result({"status"});
        for (const json& one : status["routes"]) {
            if (one["name"] == name) return one.value("last_error", "");
        }
        return std::string("no such route");
    };
    fail();
    EXPECT_NE(last_error("near"), "");
    ASSERT_EQ(run_on({"routes", "accept", "near"}).status.code, 0);
    EXPECT_EQ(last_error("near"), "");
    EXPECT_NE(last_error("far"), "");
    fail();
    ASSERT_EQ(run_on({"routes", "rename", "near", "billing"}).status.code, 0);
    EXPECT_EQ(last_error("billing"), "");
    // Figures of a former route of the name are there.
    sql("INSERT INTO outbox_route_stats (source, route, updated_at) SELECT source, 'near', "
        "updated_at FROM outbox_route_stats WHERE route = 'billing'");
    fail();
    ASSERT_EQ(run_on({"routes", "rename", "billing", "near"}).status.code, 0);
    EXPECT_EQ(last_error("near"), "");
    EXPECT_NE(last_error("far"), "");
}

TEST_P(Routes, RenameIsRefusedWhereItWouldMixRoutes) {
    emit("01");
    emit("02");
    let_one_finish(subscriber("near"));
    const Finished taken = run_on({"routes", "rename", "near", "far"});
    EXPECT_EQ(taken.status.code, 1);
    EXPECT_THAT(taken.err, HasSubstr("a route 'far' is there already"));
    const Finished missing = run_on({"routes", "rename", "neer", "x"});
    EXPECT_EQ(missing.status.code, 1);
    EXPECT_THAT(missing.err, HasSubstr("has no route 'neer'; its routes: 'far', 'near'"));
    EXPECT_EQ(run_on({"routes", "rename", "near", "a b"}).status.code, 2);
    EXPECT_EQ(run_on({"routes", "rename", "near"}).status.code, 2);
    EXPECT_EQ(run_on({"routes", "rename", "near", "a", "b"}).status.code, 2);
    const std::string two =
        "INSERT INTO outbox_dead_letters (source, route, id, attempts, error_code, error" +
        std::string(on_sqlite() ? ", died_at" : "") + ") SELECT source, r, 'e', 1, 'c', 'x'" +
        (on_sqlite() ? ", 1" : "") +
        " FROM outbox_routes, (SELECT 'near' AS r UNION SELECT 'gone') n WHERE route = 'near'";
    sql(two);
    const Finished letters = run_on({"routes", "rename", "near", "gone"});
    EXPECT_EQ(letters.status.code, 1);
    EXPECT_THAT(letters.err, HasSubstr("dead letters of one event"));
    EXPECT_EQ(result({"routes", "list"}).size(), 2U);
}

TEST_P(Routes, ChangesThatARelayWouldNotSeeAreRefusedWhileOneRuns) {
    const std::string near = subscriber("near");
    Process running = relay({mailbox("near", near)});
    ASSERT_TRUE(eventually(60s, "the route is known", [&] { return !route("near").is_null(); }));
    for (const std::vector<std::string>& command : {std::vector<std::string>{"rename", "near", "x"},
                                                    {"retire", "near"},
                                                    {"continue"},
                                                    {"begin"}}) {
        std::vector<std::string> arguments{"routes"};
        arguments.insert(arguments.end(), command.begin(), command.end());
        const Finished refused = run_on(arguments);
        EXPECT_EQ(refused.status.code, 1) << command[0];
        EXPECT_THAT(refused.err,
                    AllOf(HasSubstr(":" + std::to_string(running.pid())), HasSubstr("kill -TERM")));
    }
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_EQ(run_on({"routes", "rename", "near", "x"}).status.code, 0);
}

TEST_P(Routes, ARelayThatWasStoppedMeanwhileFindsThatTheyChanged) {
    const std::string near = subscriber("near");
    Process running = relay({mailbox("near", near), away("far")}, {"--lease-ttl-ms", "2000"});
    emit("01");
    ASSERT_TRUE(eventually(60s, "it is there", [&] { return received(near) == "01"; }));
    running.kill(SIGSTOP);
    ASSERT_TRUE(eventually(60s, "its lease is over", [&] {
        return run_on({"routes", "rename", "near", "x"}).status.code == 0;
    }));
    const std::string epoch = sql("SELECT epoch FROM outbox_lease");
    running.kill(SIGCONT);
    emit("02");
    EXPECT_TRUE(eventually(60s, "it begins anew, as owner of the next epoch", [&] {
        return sql("SELECT count(*) FROM outbox_lease WHERE epoch > " + epoch) == "1" ||
               !running.running();
    }));
    running.stop();
}

TEST_P(Routes, OneInThePlaceOfTheOnlyOneIsNotSentWhatTheTableKeeps) {
    sql(on_sqlite() ? "CREATE TRIGGER keeps BEFORE DELETE ON outbox_events BEGIN SELECT "
                      "RAISE(IGNORE); END"
                    : "CREATE FUNCTION keeps() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN "
                      "NULL; END'; CREATE TRIGGER keeps BEFORE DELETE ON outbox_events FOR EACH "
                      "ROW EXECUTE FUNCTION keeps()");
    const std::string first = subscriber("first");
    const std::string second = subscriber("second");
    emit("01");
    Process one = relay({mailbox("first", first)});
    ASSERT_TRUE(eventually(60s, "it has finished it", [&] {
        return received(first) == "01" && route("first")["unfinished"] == 0;
    }));
    ASSERT_EQ(one.stop(), (ExitStatus{0, 0}));
    Process other = relay({mailbox("second", second)});
    ASSERT_TRUE(eventually(60s, "it leads", [&] { return !route("second").is_null(); }));
    emit("02");
    EXPECT_TRUE(eventually(60s, "what is new comes", [&] { return !received(second).empty(); }));
    ASSERT_EQ(other.stop(), (ExitStatus{0, 0}));
    EXPECT_EQ(received(second), "02");
}

TEST_P(Routes, RetiredAreForgottenAndWhatOnlyTheyHadNotFinishedIsFinished) {
    const std::string near = subscriber("near");
    emit("01");
    emit("02");
    let_one_finish(near);
    const Finished asked = run_on({"routes", "retire", "far"});
    EXPECT_EQ(asked.status.code, 2);
    EXPECT_THAT(asked.err, AllOf(HasSubstr("has not finished 2 events"), HasSubstr("--yes")));
    EXPECT_EQ(result({"routes", "list"}).size(), 2U);
    {
        Process refused = relay({mailbox("near", near)});
        const auto ended = refused.wait(60s);
        ASSERT_TRUE(ended);
        EXPECT_EQ(ended->code, 5);
        EXPECT_THAT(refused.stderr_text(), HasSubstr("outbox routes retire 'far'"));
    }
    const Finished retired = run_on({"routes", "retire", "far", "--yes"});
    EXPECT_EQ(retired.status.code, 0) << retired.err;
    EXPECT_EQ(retired.out, "route far is retired; it had not finished 2 events\n");
    ASSERT_EQ(result({"routes", "list"}).size(), 1U);
    Process running = relay({mailbox("near", near)});
    EXPECT_TRUE(eventually(60s, "the events are finished",
                           [&] { return sql("SELECT count(*) FROM outbox_events") == "0"; }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_EQ(received(near), "01 02");
    const Finished again = run_on({"routes", "retire", "far"});
    EXPECT_EQ(again.status.code, 1);
    EXPECT_THAT(again.err, HasSubstr("has no route 'far'; its routes: 'near'"));
}

TEST_P(Routes, DeadLettersOfARetiredOneStayAndAreNotRetriedForEver) {
    const std::string near = subscriber("near");
    let_one_die("old", near, "01");
    const Finished retired = run_on({"routes", "retire", "old"});
    EXPECT_EQ(retired.status.code, 0) << retired.err;
    EXPECT_THAT(retired.out, HasSubstr("1 dead letter of it stays: outbox dead retry --route old"));
    EXPECT_EQ(result({"dead", "list"})[0]["state"], "no such route");
    json status = result({"status"});
    ASSERT_EQ(status["routes"].size(), 1U);
    EXPECT_EQ(status["routes"][0]["retired"], true);
    EXPECT_THAT(run_on({"status"}).out,
                HasSubstr("route old is retired; its dead letters: outbox dead retry"));

    Process running = relay({mailbox("near", near)});
    ASSERT_TRUE(eventually(60s, "the route is known", [&] { return !route("near").is_null(); }));
    EXPECT_EQ(run_on({"dead", "retry", "--all", "--dry-run"}).status.code, 1);
    const Finished refused = run_on({"dead", "retry", id("01")});
    EXPECT_EQ(refused.status.code, 1);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("no route 'old' any more"),
                                   HasSubstr("its routes: 'near'"), HasSubstr("--to ROUTE")));
    EXPECT_THAT(refused.out, IsEmpty());
    EXPECT_EQ(result({"dead", "list"})[0]["retry_requested_at"], json());

    const Finished wrong = run_on({"dead", "retry", "--all", "--to", "neer"});
    EXPECT_EQ(wrong.status.code, 1);
    EXPECT_THAT(wrong.err, HasSubstr("no route 'neer'; its routes: 'near'"));
    EXPECT_EQ(result({"dead", "retry", "--route", "old", "--to", "near", "--dry-run"})["matched"],
              1);
    EXPECT_EQ(result({"dead", "list"})[0]["route"], "old");
    const Finished rerouted = run_on({"dead", "retry", "--route", "old", "--to", "near"});
    EXPECT_EQ(rerouted.status.code, 0) << rerouted.err;
    EXPECT_THAT(rerouted.out, HasSubstr("by route near"));
    EXPECT_TRUE(eventually(60s, "it is delivered", [&] { return received(near) == "01"; }));
    EXPECT_TRUE(eventually(60s, "it is no dead letter", [&] {
        return result({"dead", "list"}).empty() && result({"status"})["routes"].size() == 1;
    }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_P(Routes, ReroutingDoesNotMakeTwoDeadLettersOfAnEventOne) {
    const std::string near = subscriber("near");
    let_one_die("old", near, "01");
    const std::string columns = on_sqlite() ? ", died_at" : "";
    sql("INSERT INTO outbox_dead_letters (source, route, id, attempts, error_code, error" +
        columns + ") SELECT source, 'gone', id, attempts, error_code, error" + columns +
        " FROM outbox_dead_letters");
    for (const std::string filter : {"--all", "--route=gone"}) {
        const Finished refused = run_on({"dead", "retry", filter, "--to", "old"});
        EXPECT_EQ(refused.status.code, 1) << filter;
        EXPECT_THAT(refused.err, HasSubstr("'gone' and 'old' have dead letters of one event"));
    }
    EXPECT_EQ(result({"dead", "list"}).size(), 2U);
    EXPECT_EQ(run_on({"dead", "retry", "--all", "--to", "old", "--consumer", "c"}).status.code, 2);
}

TEST_P(Routes, BeginForgetsWhatWasFinishedAndContinueKeepsIt) {
    const std::string near = subscriber("near");
    emit("01");
    emit("02");
    let_one_finish(near);
    const Finished kept = run_on({"routes", "continue"});
    EXPECT_EQ(kept.status.code, 0) << kept.err;
    EXPECT_EQ(route("near")["unfinished"], 0);
    if (!on_sqlite()) {
        Process running = relay({mailbox("near", near), away("far")});
        EXPECT_TRUE(eventually(60s, "the ledger knows its table again", [&] {
            return sql("SELECT count(*) FROM outbox_ledger WHERE life IS NULL") == "0";
        }));
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    const Finished begun = run_on({"routes", "begin"});
    EXPECT_EQ(begun.status.code, 0) << begun.err;
    EXPECT_THAT(begun.out, HasSubstr("1 route had finished is forgotten"));
    EXPECT_EQ(route("near")["unfinished"], 2);
    EXPECT_EQ(route("far")["unfinished"], 2);
    const std::string anew = subscriber("anew");
    ASSERT_EQ(run_on({"routes", "accept", "near"}).status.code, 0);
    Process running = relay({mailbox("near", anew), "far=null:"});
    EXPECT_TRUE(eventually(60s, "all of it is sent", [&] { return received(anew) == "01 02"; }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_P(Routes, ATableWithoutPositionsHasThemToo) {
    sql("CREATE TABLE orders_outbox (id text PRIMARY KEY, aggregate_type text NOT NULL, "
        "aggregate_id text NOT NULL, event_type text NOT NULL, payload text NOT NULL, created_at " +
        std::string(on_sqlite() ? "text" : "timestamptz") + " NOT NULL, processed_at " +
        (on_sqlite() ? "text" : "timestamptz") +
        "); INSERT INTO orders_outbox VALUES ('01', 'Order', '1', 'Made', '1', '2026-01-01', NULL)"
        ", ('02', 'Order', '2', 'Made', '1', '2026-01-01', NULL)");
    const std::vector<std::string> table{"--table", "orders_outbox"};
    const auto with_table = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), table.begin(), table.end());
        return run_on(arguments);
    };
    const auto unfinished = [&](const std::string& name) {
        for (const json& one : json::parse(with_table({"routes", "list", "--json"}).out)) {
            if (one["name"] == name) return one["unfinished"].get<int>();
        }
        return -1;
    };
    const std::string near = subscriber("near");
    {
        Process running = relay({mailbox("near", near), away("far")}, table);
        ASSERT_TRUE(eventually(60s, "the near route has finished",
                               [&] { return unfinished("near") == 0 && unfinished("far") == 2; }));
        ASSERT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    EXPECT_EQ(with_table({"routes", "retire", "far"}).status.code, 2);
    EXPECT_EQ(with_table({"routes", "rename", "far", "farther"}).status.code, 0);
    EXPECT_EQ(with_table({"routes", "retire", "farther", "--yes"}).status.code, 0);
    Process running = relay({mailbox("near", near)}, table);
    EXPECT_TRUE(eventually(60s, "the rows are marked", [&] {
        return sql("SELECT count(*) FROM orders_outbox WHERE processed_at IS NULL") == "0";
    }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_EQ(received(near), "01 02");
}

// Relays of one table, each for a tenant of its own, whose routes have one name: what is done to
// acme's is done to no other.
class RoutesOfTenants : public Routes {
  protected:
    void SetUp() override {
        Routes::SetUp();
        near_ = subscriber("near");
        emit_of("acme", "01");
        emit_of("globex", "02");
    }

    void emit_of(const std::string& tenant, const std::string& payload) {
        sql("INSERT INTO outbox_events (id, topic, key, event_type, payload, tenant_id) VALUES ('" +
            id(payload) + "', 'orders', 'k" + payload + "', 'Made', '1', '" + tenant + "')");
    }
    json route_of(const std::string& tenant, const std::string& name) {
        for (const json& one : result({"routes", "list"})) {
            const std::string source = one["source"];
            if (one["name"] == name && source.ends_with("outbox_events/" + tenant)) return one;
        }
        return {};
    }
    // Its near route has finished everything, and its far one nothing.
    void let_far_lag(const std::string& tenant, const std::string& finished) {
        Process running = relay({mailbox("near", near_), away("far")}, {"--tenant", tenant});
        ASSERT_TRUE(eventually(60s, "the far route lags", [&] {
            const json near = route_of(tenant, "near");
            const json far = route_of(tenant, "far");
            return received(near_) == finished && !near.is_null() && near["unfinished"] == 0 &&
                   !far.is_null() && far["unfinished"] == 1;
        }));
        ASSERT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    void let_both_lag() {
        let_far_lag("acme", "01");
        let_far_lag("globex", "01 02");
    }
    // The command that the relay's error has, up to its "--db", without the quotes.
    static std::vector<std::string> remedy(const std::string& error, const std::string& begin) {
        const auto at = error.find(begin);
        EXPECT_NE(at, std::string::npos) << error;
        if (at == std::string::npos) return {};
        std::vector<std::string> words;
        std::istringstream text(error.substr(at, error.find(" --db URL", at) - at));
        for (std::string word; text >> word;) {
            std::erase(word, '\'');
            words.push_back(word);
        }
        words.erase(words.begin());  // outbox
        return words;
    }

    std::string near_;
};

TEST_P(RoutesOfTenants, AreRetiredOneByOneAndLoseNothingOfAnother) {
    let_both_lag();
    const std::string rows = "SELECT count(*) FROM outbox_events";
    const Finished gone = run_on_relay({mailbox("near", near_)}, {"--tenant", "acme"});
    EXPECT_EQ(gone.status.code, 5);
    std::vector<std::string> words = remedy(gone.err, "outbox routes retire");
    EXPECT_EQ(words, (std::vector<std::string>{"routes", "retire", "far", "--tenant", "acme"}));
    const Finished asked = run_on(words);
    EXPECT_EQ(asked.status.code, 2);
    EXPECT_THAT(asked.err, AllOf(HasSubstr("outbox_events/acme has not finished 1 event"),
                                 HasSubstr("--default-tenant")));
    words.emplace_back("--yes");
    const Finished retired = run_on(words);
    EXPECT_EQ(retired.status.code, 0) << retired.err;
    EXPECT_THAT(retired.out, HasSubstr("outbox_events/acme is retired; it had not finished 1 "
                                       "event"));
    EXPECT_TRUE(route_of("acme", "far").is_null());
    EXPECT_EQ(route_of("globex", "far")["unfinished"], 1);
    {
        Process running = relay({mailbox("near", near_)}, {"--tenant", "acme"});
        EXPECT_TRUE(eventually(60s, "acme's event is finished", [&] { return sql(rows) == "1"; }));
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    const Finished kept = run_on_relay({mailbox("near", near_)}, {"--tenant", "globex"});
    EXPECT_EQ(kept.status.code, 5) << "globex's route is to be missed still";
    const std::string far = subscriber("far");
    Process running = relay({mailbox("near", near_), mailbox("far", far)}, {"--tenant", "globex"});
    EXPECT_TRUE(eventually(60s, "it is delivered", [&] { return received(far) == "02"; }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_EQ(received(near_), "01 02");
}

TEST_P(RoutesOfTenants, AreChangedBesideARelayOfOthers) {
    let_far_lag("acme", "01");
    Process running = relay({mailbox("near", near_), away("far")}, {"--tenant", "globex"});
    ASSERT_TRUE(eventually(60s, "it leads", [&] { return received(near_) == "01 02"; }));
    const std::string epoch = "SELECT epoch FROM outbox_lease WHERE source LIKE '%globex'";
    const std::string before = sql(epoch);
    EXPECT_EQ(run_on({"routes", "rename", "far", "x", "--tenant", "globex"}).status.code, 1);
    EXPECT_EQ(run_on({"routes", "retire", "far", "--tenant", "globex", "--yes"}).status.code, 1);
    EXPECT_EQ(run_on({"routes", "begin"}).status.code, 1) << "of every tenant";
    const Finished renamed = run_on({"routes", "rename", "near", "x", "--tenant", "acme"});
    EXPECT_EQ(renamed.status.code, 0) << renamed.err;
    const Finished retired = run_on({"routes", "retire", "far", "--tenant", "acme", "--yes"});
    EXPECT_EQ(retired.status.code, 0) << retired.err;
    emit_of("globex", "03");
    EXPECT_TRUE(eventually(60s, "it goes on", [&] { return received(near_) == "01 02 03"; }));
    EXPECT_EQ(sql(epoch), before);
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_P(RoutesOfTenants, AreRenamedOneByOne) {
    let_both_lag();
    const Finished gone =
        run_on_relay({mailbox("near", near_), away("farther")}, {"--tenant", "acme"});
    std::vector<std::string> words = remedy(gone.err, "outbox routes rename");
    EXPECT_EQ(words,
              (std::vector<std::string>{"routes", "rename", "far", "NEW", "--tenant", "acme"}));
    if (words.size() > 3) words[3] = "farther";
    const Finished renamed = run_on(words);
    EXPECT_EQ(renamed.status.code, 0) << renamed.err;
    EXPECT_THAT(renamed.out, HasSubstr("outbox_events/acme is now farther"));
    EXPECT_EQ(route_of("acme", "farther")["unfinished"], 1);
    EXPECT_EQ(route_of("globex", "far")["unfinished"], 1);
    EXPECT_TRUE(route_of("globex", "farther").is_null());
    // A name that only another has is free.
    EXPECT_EQ(run_on({"routes", "rename", "near", "farther", "--tenant", "globex"}).status.code, 0);
    const std::string far = subscriber("far");
    Process running =
        relay({mailbox("farther", near_), mailbox("far", far)}, {"--tenant", "globex"});
    EXPECT_TRUE(eventually(60s, "it is delivered", [&] { return received(far) == "02"; }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

// Runs are the table's, and say by the tenants that they send whose they are.
TEST_P(RoutesOfTenants, RenamedTakeTheirReplaysAlong) {
    let_both_lag();
    const std::string table = on_sqlite() ? "outbox_events" : "public.outbox_events";
    const auto begin_run = [&](const std::string& run, const std::string& selection,
                               const std::string& state) {
        sql("INSERT INTO outbox_replays (run, source, route, selection, destination, met, rate, "
            "as_new, reason, os_user, expected, place_end, state, runner" +
            std::string(on_sqlite() ? ", started_at, updated_at" : "") + ") VALUES ('" + run +
            "', '" + table + "', 'far', '" + selection + "', '', '', 1, " +
            (on_sqlite() ? "0" : "false") + ", '', '', 1, '', '" + state + "', 'r'" +
            (on_sqlite() ? ", 1, 1" : "") + ")");
    };
    begin_run("r1", R"({"tenants":["acme"]})", "failed");
    begin_run("r2", R"({"tenants":["acme","globex"]})", "failed");
    begin_run("r3", "{}", "failed");
    begin_run("r4", R"({"tenants":["globex"]})", "running");
    const auto later = [&](const std::string& run) {
        sql("UPDATE outbox_replays SET runner_until = " +
            std::string(on_sqlite() ? "9000000000000000" : "now() + interval '1 hour'") +
            " WHERE run = '" + run + "'");
    };
    later("r4");
    const std::string names = "SELECT route FROM outbox_replays ORDER BY run";
    const Finished renamed = run_on({"routes", "rename", "far", "x", "--tenant", "acme"});
    EXPECT_EQ(renamed.status.code, 0) << renamed.err << "a run of others stops nothing";
    EXPECT_EQ(sql(names), "x far far far");
    const Finished refused = run_on({"routes", "rename", "far", "y", "--tenant", "globex"});
    EXPECT_EQ(refused.status.code, 1);
    EXPECT_THAT(refused.err, HasSubstr("outbox replay cancel r4"));
    sql("UPDATE outbox_replays SET runner_until = NULL");
    EXPECT_EQ(run_on({"routes", "rename", "far", "y", "--tenant", "globex"}).status.code, 0);
    EXPECT_EQ(sql(names), "x y y y") << "nobody else has one of the name";
}

TEST_P(RoutesOfTenants, TakeAnotherDestinationOneByOne) {
    let_both_lag();
    const std::string other = subscriber("other");
    emit_of("acme", "03");
    emit_of("globex", "04");
    {
        Process running = relay({mailbox("near", other), away("far")}, {"--tenant", "acme"});
        ASSERT_TRUE(eventually(60s, "the relay says how it is settled", [&] {
            return running.stderr_text().find("outbox routes accept near --tenant acme;") !=
                   std::string::npos;
        }));
        const Finished untold = run_on({"routes", "accept", "near"});
        EXPECT_EQ(untold.status.code, 1);
        EXPECT_THAT(untold.err, HasSubstr("outbox_events/globex (--tenant globex)"));
        EXPECT_EQ(received(other), "");
        EXPECT_EQ(run_on({"routes", "accept", "near", "--tenant", "acme"}).status.code, 0);
        EXPECT_TRUE(eventually(60s, "it goes on there", [&] { return received(other) == "03"; }));
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    EXPECT_NE(route_of("globex", "near")["destination"], json());
    Process running = relay({mailbox("near", other), away("far")}, {"--tenant", "globex"});
    EXPECT_TRUE(eventually(60s, "globex's is refused still", [&] {
        return running.stderr_text().find("event=destination_changed") != std::string::npos;
    }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_EQ(received(other), "03");
}

TEST_P(RoutesOfTenants, AreRefusedWhereNobodySaysWhose) {
    const auto state = [&] {
        return sql(
            "SELECT source || route || coalesce(destination, '?') FROM outbox_routes ORDER "
            "BY 1");
    };
    const auto refused = [&](const std::vector<std::string>& more, const std::string& text) {
        for (const std::vector<std::string>& command : {std::vector<std::string>{"accept", "near"},
                                                        {"rename", "near", "x"},
                                                        {"retire", "near", "--yes"}}) {
            std::vector<std::string> arguments{"routes"};
            arguments.insert(arguments.end(), command.begin(), command.end());
            arguments.insert(arguments.end(), more.begin(), more.end());
            const std::string before = state();
            const Finished done = run_on(arguments);
            EXPECT_EQ(done.status.code, 1) << command[0] << done.out;
            EXPECT_THAT(done.err, HasSubstr(text)) << command[0];
            EXPECT_EQ(state(), before) << command[0];
        }
    };
    let_far_lag("acme", "01");
    refused({}, "outbox_events/acme (--tenant acme): say whose is meant");
    refused({"--tenant", "globex"}, "outbox_events/globex has no route 'near'; it has none");
    refused({"--tenant", ""}, "there is one of ");
    let_far_lag("globex", "01 02");
    refused({}, "outbox_events/acme (--tenant acme), ");
    refused({},
            "outbox_events/globex (--tenant globex): say whose is meant, by --tenant as its "
            "relay has it; nothing was changed");
    refused({"--tenant", "acme", "--tenant", "globex"}, "has no route 'near'");
    EXPECT_EQ(run_on({"routes", "retire", "near", "--tenant", "acme", "--tenant", ""}).status.code,
              2);
    // The relay of all misses both.
    const Finished gone = run_on_relay({mailbox("near", near_)}, {});
    EXPECT_EQ(gone.status.code, 5);
    EXPECT_THAT(gone.err, AllOf(HasSubstr("outbox routes retire 'far' --tenant acme --db URL"),
                                HasSubstr("the same with --tenant globex)")));
    // As the relay's configuration has them.
    const std::string file = outbox_.write("acme.toml", "[source]\ntenant = ['acme']\n").string();
    EXPECT_EQ(run_on({"routes", "retire", "far", "--yes", "--config", file}).status.code, 0);
    EXPECT_TRUE(route_of("acme", "far").is_null());
    EXPECT_FALSE(route_of("globex", "far").is_null());
}

// Of a relay of all tenants that one of some follows.
TEST_P(RoutesOfTenants, OfTheRelayOfAllAreNamedAmongOthers) {
    {
        Process running = relay({away("near"), away("far")});
        ASSERT_TRUE(eventually(60s, "the routes are known",
                               [&] { return result({"routes", "list"}).size() == 2; }));
        ASSERT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    {
        Process running = relay({away("near"), away("far")}, {"--tenant", "acme"});
        ASSERT_TRUE(eventually(60s, "acme's are known",
                               [&] { return result({"routes", "list"}).size() == 4; }));
        ASSERT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    const Finished gone = run_on_relay({mailbox("near", near_)}, {"--tenant", "globex"});
    EXPECT_EQ(gone.status.code, 5);
    EXPECT_THAT(gone.err, HasSubstr("outbox routes retire 'far' --tenant '' --db URL"));
    EXPECT_EQ(run_on({"routes", "retire", "far", "--tenant", "", "--yes"}).status.code, 0);
    EXPECT_FALSE(route_of("acme", "far").is_null());
    Process running = relay({mailbox("near", near_)}, {"--tenant", "globex"});
    EXPECT_TRUE(eventually(60s, "it is delivered", [&] { return received(near_) == "02"; }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

INSTANTIATE_TEST_SUITE_P(Databases, RoutesOfTenants, testing::Values(kPostgres, kSqlite),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(Routes, OfSomeTenantsAreTheTablesToo) {
    sql("INSERT INTO outbox_events (id, topic, key, event_type, payload, tenant_id) VALUES ('" +
        id("01") + "', 'o', 'k', 'M', '1', 'a'), ('" + id("02") +
        "', 'o', 'k', 'M', '1', 'b'), "
        "('" +
        id("03") + "', 'o', 'k', 'M', '1', 'a')");
    {
        Process running = relay({away("far")}, {"--tenant", "a"});
        ASSERT_TRUE(eventually(60s, "the route is known", [&] { return !route("far").is_null(); }));
        EXPECT_EQ(run_on({"routes", "retire", "far", "--yes", "--tenant", "a"}).status.code, 1);
        ASSERT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    EXPECT_EQ(route("far")["unfinished"], 2);
    EXPECT_THAT(route("far")["source"].get<std::string>(), HasSubstr("outbox_events/a"));
    EXPECT_THAT(run_on({"routes", "list"}).out, HasSubstr("SOURCE"));
    EXPECT_EQ(run_on({"routes", "retire", "far", "--yes", "--tenant", "a"}).status.code, 0);
}

// A relay that serves other tenants than before goes on with what it left.
TEST_P(Routes, DeadLettersGoAlongWhenTheTenantsChange) {
    const std::string near = subscriber("near");
    const auto deliver = [&](const std::vector<std::string>& tenants, const std::string& payload) {
        EXPECT_EQ(result({"status"})["dead"], 1) << "whatever tenants its relay served";
        Process running = relay({mailbox("near", near)}, tenants);
        ASSERT_TRUE(eventually(60s, "the relay leads", [&] {
            return result({"status"})["lease"]["held"] == true &&
                   result({"dead", "list"})[0]["state"] == "dead";
        }));
        EXPECT_EQ(run_on({"dead", "retry", id(payload)}).status.code, 0);
        EXPECT_TRUE(eventually(60s, "it is delivered and no dead letter", [&] {
            return received(near).find(payload) != std::string::npos &&
                   result({"status"})["dead"] == 0;
        }));
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
        EXPECT_THAT(running.stderr_text(), HasSubstr("goes on with what a relay of"));
    };
    let_one_die("near", near, "01");
    deliver({"--tenant", "default"}, "01");
    // Back to all.
    emit("02", "elsewhere");
    {
        Process strict =
            relay({mailbox("near", near)}, {"--allowed-topic", "orders", "--tenant", "default"});
        ASSERT_TRUE(eventually(60s, "the event is dead", [&] {
            return sql("SELECT count(*) FROM outbox_dead_letters") == "1" &&
                   sql("SELECT count(*) FROM outbox_events") == "0";
        }));
        ASSERT_EQ(strict.stop(), (ExitStatus{0, 0}));
    }
    deliver({}, "02");
    EXPECT_EQ(result({"routes", "list"}).size(), 1U);
}

TEST_P(Routes, OneOfMoreTenantsKnowsWhatOneOfFewerHasFinished) {
    const std::string near = subscriber("near");
    for (const char* payload : {"01", "02"}) emit(payload);
    {
        Process running = relay({mailbox("near", near), away("far")}, {"--tenant", "default"});
        ASSERT_TRUE(eventually(60s, "the near route has finished", [&] {
            return route("near")["unfinished"] == 0 && route("far")["unfinished"] == 2;
        }));
        ASSERT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    sql(near, "DELETE FROM outbox_mailbox");  // what is sent again is seen
    emit("03");
    Process running = relay({mailbox("near", near), away("far")});
    ASSERT_TRUE(eventually(60s, "the new event comes", [&] { return !received(near).empty(); }));
    EXPECT_EQ(received(near), "03");
    EXPECT_TRUE(
        eventually(60s, "it is recorded", [&] { return route("near")["unfinished"] == 0; }));
    // Fewer again: its ledgers would speak of tenants that are not served.
    const Finished refused =
        run_on_relay({mailbox("near", near), away("far")}, {"--tenant", "default"});
    EXPECT_NE(refused.status.code, 0);
    EXPECT_THAT(refused.err, HasSubstr("two relays would publish the same events"));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    const Finished fewer =
        run_on_relay({mailbox("near", near), away("far")}, {"--tenant", "default"});
    EXPECT_NE(fewer.status.code, 0);
    EXPECT_THAT(fewer.err, AllOf(HasSubstr("would send them again to all"),
                                 HasSubstr("outbox routes retire NAME")));
    EXPECT_EQ(received(near), "03");
}

TEST_P(Routes, OneTakenOutWhileTheTenantsAreSplitIsMissed) {
    const std::string near = subscriber("near");
    emit("01");
    {
        Process running = relay({away("near"), away("far")});
        ASSERT_TRUE(eventually(60s, "the routes are known", [&] {
            return route("near")["unfinished"] == 1 && route("far")["unfinished"] == 1;
        }));
        ASSERT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    const Finished refused = run_on_relay({mailbox("near", near)}, {"--tenant", "default"});
    EXPECT_NE(refused.status.code, 0);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("OB_ROUTE_GONE"), HasSubstr("'far'")));
    EXPECT_EQ(received(near), "");
    EXPECT_EQ(run_on({"routes", "retire", "far", "--yes"}).status.code, 0);
    Process running = relay({mailbox("near", near)}, {"--tenant", "default"});
    ASSERT_TRUE(eventually(60s, "it is delivered", [&] { return received(near) == "01"; }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_P(Routes, OfATenantWithACommaAreNotThoseOfTwoTenants) {
    const std::string near = subscriber("near");
    for (const std::string payload : {"01", "02", "03"}) {
        const std::string tenant = payload == "01" ? "a,b" : payload == "02" ? "a" : "b";
        sql("INSERT INTO outbox_events (id, topic, key, event_type, payload, tenant_id) VALUES ('" +
            id(payload) + "', 'orders', 'k', 'Made', '1', '" + tenant + "')");
    }
    const auto deliver = [&](const std::vector<std::string>& tenants, const std::string& all) {
        Process running = relay({mailbox("near", near)}, tenants);
        EXPECT_TRUE(eventually(60s, "they come", [&] { return received(near) == all; }));
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    };
    deliver({"--tenant", "a,b"}, "01");
    deliver({"--tenant", "a", "--tenant", "b"}, "01 02 03");
    EXPECT_EQ(sql("SELECT count(DISTINCT source) FROM outbox_routes"), "2");
    EXPECT_EQ(sql("SELECT count(DISTINCT source) FROM outbox_lease"), "2");
}

TEST_P(Routes, OneOfATenantWithACommaIsNotRetiredBeforeItHasFinished) {
    for (const std::string payload : {"01", "02", "03"}) {
        const std::string tenant = payload == "01"   ? "Acme, b"
                                   : payload == "02" ? "back\\slash"
                                                     : " b";
        sql("INSERT INTO outbox_events (id, topic, key, event_type, payload, tenant_id) VALUES ('" +
            id(payload) + "', 'orders', 'k', 'Made', '1', '" + tenant + "')");
    }
    {
        Process running = relay({away("far")}, {"--tenant", "Acme, b", "--tenant", "back\\slash"});
        ASSERT_TRUE(eventually(60s, "the route is known", [&] { return !route("far").is_null(); }));
        ASSERT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    EXPECT_EQ(route("far")["unfinished"], 2) << "and not those of others";
    for (const std::string tenant : {"Acme, b", "back\\slash"}) {
        const Finished late =
            run_on({"tenant", "drain", tenant, "--reason", "moves", "--within", "1s"});
        EXPECT_EQ(late.status.code, 6) << late.out;
        EXPECT_THAT(late.err, HasSubstr("1 event of tenant"));
    }
    const Finished refused =
        run_on({"routes", "retire", "far", "--tenant", "back\\slash", "--tenant", "Acme, b"});
    EXPECT_EQ(refused.status.code, 2) << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("has not finished 2 events"));
    const Finished gone =
        run_on_relay({"near=null:"}, {"--tenant", "Acme, b", "--tenant", "back\\slash"});
    EXPECT_THAT(gone.err, HasSubstr("outbox routes retire 'far' --tenant 'Acme, b' --tenant "));
}

// Only the relays know whose events without a name are.
TEST_P(Routes, OneOfSomeTenantsIsNotRetiredWhileEventsThatNameNoneMayBeIts) {
    sql("INSERT INTO outbox_events (id, topic, key, event_type, payload, tenant_id) VALUES ('" +
        id("01") + "', 'orders', 'k', 'Made', '1', '')");
    {
        Process running = relay({away("far")}, {"--tenant", "acme", "--default-tenant", "acme"});
        ASSERT_TRUE(eventually(60s, "the route is known", [&] { return !route("far").is_null(); }));
        ASSERT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    EXPECT_EQ(route("far")["unfinished"], 1);
    const std::vector<std::string> retire{"routes", "retire", "far", "--tenant", "acme"};
    const auto retire_with = [&](const std::string& name) {
        std::vector<std::string> arguments = retire;
        arguments.insert(arguments.end(), {"--default-tenant", name});
        return run_on(arguments).status.code;
    };
    const Finished untold = run_on(retire);
    EXPECT_EQ(untold.status.code, 2) << untold.out;
    EXPECT_THAT(untold.err, AllOf(HasSubstr("has not finished 1 event"),
                                  HasSubstr("give --default-tenant NAME as it has it")));
    EXPECT_EQ(retire_with("acme"), 2);
    EXPECT_EQ(retire_with("other"), 0);
}

TEST_P(Routes, ACheckTellsWhatTheLedgerWouldSayAndWritesNothing) {
    const std::string near = subscriber("near");
    const std::string other = subscriber("other");
    emit("01");
    let_one_die("near", near, "02");
    {
        Process running = relay({mailbox("near", near), away("far")});
        ASSERT_TRUE(eventually(60s, "the far route lags", [&] {
            return !route("far").is_null() && route("near")["unfinished"] == 0;
        }));
        emit("03");
        ASSERT_TRUE(eventually(60s, "the near route has finished", [&] {
            return route("near")["unfinished"] == 0 && route("far")["unfinished"] == 1;
        }));
        ASSERT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    const auto check = [&](const std::vector<std::string>& destinations) {
        std::vector<std::string> arguments{"relay", "--check", "--from", url_};
        for (const std::string& to : destinations) arguments.insert(arguments.end(), {"--to", to});
        return outbox_.run(arguments);
    };
    const std::string before =
        sql("SELECT source || route || coalesce(destination, '') FROM outbox_routes ORDER BY 1");
    const Finished gone = check({mailbox("near", near)});
    EXPECT_EQ(gone.status.code, 1);
    EXPECT_THAT(gone.out, AllOf(HasSubstr("problem"), HasSubstr("OB_ROUTE_GONE"),
                                HasSubstr("outbox routes retire 'far'")));
    const Finished elsewhere = check({mailbox("near", other), mailbox("far", other)});
    EXPECT_EQ(elsewhere.status.code, 1);
    EXPECT_THAT(elsewhere.out,
                AllOf(HasSubstr("OB_DESTINATION_CHANGED"), HasSubstr("outbox routes accept near")));
    const Finished good = check({mailbox("near", near), mailbox("far", other)});
    EXPECT_EQ(good.status.code, 0) << good.out;
    EXPECT_EQ(
        sql("SELECT source || route || coalesce(destination, '') FROM outbox_routes ORDER BY 1"),
        before);
}

TEST_P(Routes, AFileWithoutARouteThatHasEventsLeftIsRefusedByARunningRelay) {
    const std::string near = subscriber("near");
    const auto write = [&](const std::string& more) {
        return outbox_
            .write("outbox.toml", "[source]\nurl = \"" + url_ +
                                      "\"\n[[route]]\nname = \"near\"\nto = \"mailbox+" + near +
                                      "\"\n" + more)
            .string();
    };
    const std::string nowhere = away("far");
    const std::string file = write("[[route]]\nname = \"far\"\nto = \"" +
                                   nowhere.substr(nowhere.find('=') + 1) + "\"\n");
    emit("01");
    Process running = outbox_.start_relay({"--config", file, "--admin", "off"});
    ASSERT_TRUE(eventually(60s, "it comes", [&] { return received(near) == "01"; }));
    write("");
    running.kill(SIGHUP);
    ASSERT_TRUE(eventually(60s, "the file is refused", [&] {
        const std::string said = running.stderr_text();
        return said.find("event=reload_refused") != std::string::npos &&
               said.find("outbox routes retire 'far'") != std::string::npos;
    }));
    emit("02");
    EXPECT_TRUE(eventually(60s, "it goes on", [&] { return received(near) == "01 02"; }));
    EXPECT_EQ(route("far")["unfinished"], 2);
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST_P(Routes, WhatWasDoneIsToldAsJsonToo) {
    const std::string box = subscriber("box");
    emit("01");
    emit("02");
    let_one_finish(box);
    EXPECT_EQ(result({"routes", "accept", "far"}), (json{{"route", "far"}, {"ledgers", 1}}));
    EXPECT_EQ(result({"routes", "rename", "far", "farther"}),
              (json{{"route", "farther"}, {"was", "far"}, {"ledgers", 1}}));
    EXPECT_EQ(run_on({"routes", "retire", "farther", "--json"}).status.code, 2);
    EXPECT_EQ(
        result({"routes", "retire", "farther", "--yes"}),
        (json{
            {"route", "farther"}, {"unfinished", 2}, {"unfinished_is_more", false}, {"dead", 0}}));
    const std::string table = on_sqlite() ? "outbox_events" : "public.outbox_events";
    const json kept = result({"routes", "continue"});
    EXPECT_EQ(kept["table"], table);
    EXPECT_TRUE(kept["routes"].is_number());
    EXPECT_EQ(result({"routes", "begin"}), (json{{"table", table}, {"routes", 1}}));

    EXPECT_EQ(result({"migrate"}), (json{{"applied", json::array()}}));
    EXPECT_EQ(run_on({"migrate", "--print", "--json"}).status.code, 2);
    EXPECT_EQ(run_on({"routes", "retire", "near", "--yes"}).status.code, 0);
    sql("DELETE FROM outbox_events");
    EXPECT_THAT(result({"migrate", "--uninstall", "--only", "producer"})["removed"],
                testing::Contains("outbox_events"));
    const json made = result({"migrate"});
    ASSERT_FALSE(made["applied"].empty());
    EXPECT_EQ(made["applied"][0]["side"], "producer");
    EXPECT_EQ(made["applied"][0]["version"], 1);
}

TEST_P(Routes, EachChangeOfThemIsALineOfTheAuditAndWhatIsRefusedIsNone) {
    emit("01");
    emit("02");
    let_one_finish(subscriber("box"));
    EXPECT_EQ(run_on({"routes", "retire", "far"}).status.code, 2);
    EXPECT_EQ(run_on({"routes", "rename", "far", "near"}).status.code, 1);
    EXPECT_EQ(sql("SELECT count(*) FROM outbox_audit"), "0");
    for (const std::vector<std::string>& change : {std::vector<std::string>{"accept", "far"},
                                                   {"rename", "far", "farther"},
                                                   {"retire", "farther", "--yes"},
                                                   {"continue"},
                                                   {"begin"},
                                                   {"continue"}}) {
        std::vector<std::string> command{"routes"};
        command.insert(command.end(), change.begin(), change.end());
        EXPECT_EQ(run_on(command).status.code, 0) << change.front();
    }
    // Nothing is to be settled on SQLite, nor a second time.
    const std::string settled =
        on_sqlite()
            ? ""
            : "routes continue: what 1 route had finished holds for the table as it is now ";
    EXPECT_EQ(sql("SELECT action || ': ' || detail FROM outbox_audit ORDER BY audit_id"),
              "routes accept: route far routes rename: route far is now farther "
              "routes retire: route farther, which had not finished 2 events " +
                  settled + "routes begin: what 1 route had finished is forgotten");
    EXPECT_EQ(sql("SELECT DISTINCT source FROM outbox_audit WHERE os_user <> ''"),
              on_sqlite() ? "outbox_events" : "public.outbox_events");
    // One that cannot be written keeps the change from being made.
    sql("DROP TABLE outbox_audit");
    const json before = route("near");
    EXPECT_NE(run_on({"routes", "accept", "near"}).status.code, 0);
    EXPECT_NE(run_on({"routes", "rename", "near", "other"}).status.code, 0);
    EXPECT_NE(run_on({"routes", "retire", "near", "--yes"}).status.code, 0);
    EXPECT_EQ(route("near"), before);
}

TEST_P(Routes, WithoutSideTablesTheAnswerIsClear) {
    const std::string bare = database("bare");
    if (on_sqlite()) sql(bare, "PRAGMA user_version = 1");  // makes the file
    const auto on_bare = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.end(),
                         {"--db", bare, "--table", "own", "--preset", "delete-when-sent"});
        return outbox_.run(arguments);
    };
    EXPECT_EQ(on_bare({"routes", "list"}).status.code, 4) << "no such table";
    const std::string time = on_sqlite() ? "text" : "timestamptz";
    sql(bare,
        "CREATE TABLE own (id text PRIMARY KEY, aggregate_type text, aggregate_id text, "
        "event_type text, payload text, created_at " +
            time + ")");
    const Finished list = on_bare({"routes", "list"});
    EXPECT_EQ(list.status.code, 0) << list.err;
    EXPECT_THAT(list.out, HasSubstr("has no routes"));
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"accept", "x"}, {"rename", "x", "y"}, {"retire", "x"}}) {
        std::vector<std::string> arguments{"routes"};
        arguments.insert(arguments.end(), command.begin(), command.end());
        const Finished refused = on_bare(arguments);
        EXPECT_EQ(refused.status.code, 1) << command[0];
        EXPECT_THAT(refused.err, HasSubstr("has no route 'x'; it has none: a relay makes"));
    }
    EXPECT_EQ(on_bare({"routes", "continue"}).status.code, 0);
    EXPECT_EQ(on_bare({"routes", "begin"}).status.code, 0);
}

TEST_P(Routes, WrongInputIsRefused) {
    for (const std::vector<std::string>& arguments : {std::vector<std::string>{"routes", "accept"},
                                                      {"routes", "accept", "a", "b"},
                                                      {"routes", "retire"},
                                                      {"routes", "continue", "x"},
                                                      {"routes", "begin", "x"},
                                                      {"routes", "list", "x"},
                                                      {"routes", "lst"},
                                                      {"routes"},
                                                      {"routes", "accept", "x", "--yes"}}) {
        EXPECT_EQ(run_on(arguments).status.code, 2) << arguments.back();
    }
    const Finished unknown = run_on({"routes", "accept", "x'; --"});
    EXPECT_EQ(unknown.status.code, 1);
    EXPECT_THAT(unknown.err, HasSubstr("has no route 'x'; --'"));
    EXPECT_THAT(outbox_.run({"routes", "rename", "--help"}).out,
                AllOf(HasSubstr("outbox routes rename OLD NEW [options]"), HasSubstr("Examples:")));
}

INSTANTIATE_TEST_SUITE_P(Databases, Routes, testing::Values(kPostgres, kSqlite),
                         [](const auto& kind) { return std::string(kind.param); });

// Only PostgreSQL tells a table from a copy of it.
TEST(RoutesOfARestoredTable, AreSettledByContinueOrBegin) {
    OutboxBinary outbox;
    const std::string url = shared_postgres().create_database();
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    Pg database(url);
    const std::string mailbox = "near=mailbox+" + url;
    const std::string away =
        "far=mailbox+postgresql://app@127.0.0.1:" + std::to_string(free_port()) + "/x";
    const auto received = [&] { return database.number("SELECT count(*) FROM outbox_mailbox"); };
    const auto relay = [&] {
        return outbox.start_relay({"--from", url, "--admin", "off", "--to", mailbox, "--to", away});
    };
    database.exec("SELECT outbox_emit(topic => 'orders', key => 'k', payload => '{}')");
    {
        Process running = relay();
        ASSERT_TRUE(eventually(60s, "the ledger is written", [&] {
            return database.number("SELECT count(*) FROM outbox_ledger") == 1;
        }));
        ASSERT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    ASSERT_EQ(received(), 1);
    database.exec("UPDATE outbox_ledger SET life = '1 2 3'");
    {
        Process refused = relay();
        const auto ended = refused.wait(60s);
        ASSERT_TRUE(ended);
        EXPECT_EQ(ended->code, 5);
        EXPECT_THAT(refused.stderr_text(),
                    AllOf(HasSubstr("outbox routes continue"), HasSubstr("outbox routes begin")));
    }
    const Finished kept = outbox.run({"routes", "continue", "--db", url});
    EXPECT_EQ(kept.status.code, 0) << kept.err;
    EXPECT_THAT(kept.out, HasSubstr("what 1 route had finished holds for public.outbox_events"));
    EXPECT_THAT(outbox.run({"routes", "continue", "--db", url}).out,
                HasSubstr("nothing to settle"));
    {
        Process running = relay();
        database.exec("SELECT outbox_emit(topic => 'orders', key => 'k', payload => '{}')");
        ASSERT_TRUE(eventually(60s, "it goes on", [&] { return received() == 2; }));
        EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    }
    database.exec("UPDATE outbox_ledger SET life = '1 2 3'; DELETE FROM outbox_mailbox");
    EXPECT_EQ(outbox.run({"routes", "begin", "--db", url}).status.code, 0);
    Process running = relay();
    EXPECT_TRUE(
        eventually(60s, "all that the table holds is sent", [&] { return received() == 2; }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
}

TEST(RoutesOfARestoredTable, AreNotSaidToBeSettledWhereThatFailed) {
    OutboxBinary outbox;
    const std::string url = shared_postgres().create_database();
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    Pg database(url);
    database.exec(
        "INSERT INTO outbox_routes (source, route, life) VALUES ('public.outbox_events', 'near', "
        "'1 2 3'); INSERT INTO outbox_ledger (source, route, segment, life, done) VALUES "
        "('public.outbox_events', 'near', 0, '1 2 3', 0::bit(65536)); CREATE FUNCTION refuse() "
        "RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'not now'; END$$; CREATE "
        "TRIGGER refuse BEFORE UPDATE ON outbox_routes FOR EACH ROW EXECUTE FUNCTION refuse()");
    const Finished refused = outbox.run({"routes", "continue", "--db", url});
    EXPECT_NE(refused.status.code, 0) << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("not now"));
    EXPECT_EQ(database.value("SELECT life FROM outbox_ledger"), "1 2 3");
    database.exec("DROP TRIGGER refuse ON outbox_routes");
    EXPECT_THAT(outbox.run({"routes", "continue", "--db", url}).out,
                HasSubstr("what 1 route had finished holds"));
    EXPECT_EQ(database.value("SELECT count(*) FROM outbox_ledger WHERE life IS NULL"), "1");
}

// A single route was named "default" once.
TEST(RoutesOfAnEarlierVersion, KeepWhatTheyKnewUnderTheirNewName) {
    OutboxBinary outbox;
    const std::string url = shared_postgres().create_database();
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    Pg database(url);
    database.exec(
        "INSERT INTO outbox_route_stats (source, route, published_total) VALUES "
        "('public.outbox_events', 'default', 7)");
    Process running =
        outbox.start_relay({"--from", url, "--admin", "off", "--to", "mailbox+" + url});
    EXPECT_TRUE(eventually(60s, "the route is taken over", [&] {
        const Finished status = outbox.run({"status", "--db", url, "--json"});
        const json routes = json::parse(status.out)["routes"];
        return routes.size() == 1 && routes[0]["name"] == "mailbox" &&
               routes[0]["published_total"] == 7;
    }));
    EXPECT_EQ(running.stop(), (ExitStatus{0, 0}));
    EXPECT_THAT(running.stderr_text(),
                HasSubstr("'default' of an earlier version is now 'mailbox'"));
}

}  // namespace
}  // namespace outbox::test
