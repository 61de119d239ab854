#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/pg.h"
#include "tests/support/process.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

constexpr int kFaultsFound = 1;
constexpr int kUnusableInput = 2;

class VerifyCommand : public testing::Test {
  protected:
    std::string file(const std::string& name, const std::string& text) {
        const auto path = folder_ / name;
        std::ofstream(path) << text;
        return path.string();
    }
    static Finished verify(std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), {OUTBOX, "verify"});
        return run({.command = arguments}, std::chrono::seconds(60));
    }
    static std::string last_line(const std::string& text) {
        const auto end = text.find_last_not_of('\n');
        return text.substr(text.rfind('\n', end) + 1);
    }
    TemporaryFolder folder_{"verify"};
};

const std::string kTwoProduced =
    "{\"id\":\"a\",\"key\":\"k\",\"n\":1}\n"
    "{\"id\":\"b\",\"key\":\"k\",\"n\":2}\n";

TEST_F(VerifyCommand, AcceptsACleanHistoryOfSeveralFiles) {
    const auto more = file("more", "{\"id\":\"c\",\"key\":\"other\",\"n\":1}\n");
    const std::string seen = kTwoProduced + "{\"id\":\"c\",\"key\":\"other\",\"n\":1}\n" +
                             "{\"id\":\"a\",\"key\":\"k\",\"n\":1,\"applied\":false}\n";
    const Finished finished = verify({"--produced", file("p", kTwoProduced), more, "--received",
                                      file("r1", seen), file("r2", seen)});
    EXPECT_EQ(finished.status.code, 0) << finished.err;
    EXPECT_TRUE(
        last_line(finished.out)
            .starts_with(
                "lost 0, ghosts 0, out of order 0, repeats applied 0, "
                "never applied 0, dead letters 0 (3 events produced, 8 lines received, 2 of them"))
        << finished.out;
}

TEST_F(VerifyCommand, NamesEachFaultAndFails) {
    const Finished finished =
        verify({"--produced", file("p", kTwoProduced + "{\"id\":\"c\",\"key\":\"k\",\"n\":3}\n"),
                "--received",
                file("r",
                     "{\"id\":\"b\",\"key\":\"k\",\"n\":2,\"applied\":true}\n"
                     "{\"id\":\"a\",\"key\":\"k\",\"n\":1,\"applied\":true}\n"
                     "{\"id\":\"b\",\"key\":\"k\",\"n\":2,\"applied\":true}\n"
                     "{\"id\":\"x\",\"key\":\"k\",\"n\":9,\"applied\":true}\n")});
    EXPECT_EQ(finished.status.code, kFaultsFound);
    EXPECT_TRUE(last_line(finished.out)
                    .starts_with("lost 1, ghosts 1, out of order 1, repeats applied 1, "
                                 "never applied 0, dead letters 0 "))
        << finished.out;
    for (const char* text :
         {"lost: c, key k, n 3", "ghost: x", "out of order: a, key k, n 1", "repeat applied: b"})
        EXPECT_NE(finished.out.find(text), std::string::npos) << text << "\n" << finished.out;
}

TEST_F(VerifyCommand, WhatWasOnlyEverDroppedAsARepeatIsAFault) {
    const auto produced = file("p", kTwoProduced);
    const auto received = file("r",
                               "{\"id\":\"a\",\"applied\":false}\n"
                               "{\"id\":\"b\",\"applied\":true}\n");
    const Finished finished = verify({"--produced", produced, "--received", received});
    EXPECT_EQ(finished.status.code, kFaultsFound) << finished.out << finished.err;
    EXPECT_NE(finished.out.find("never applied: a, key k, n 1, at " + received), std::string::npos)
        << finished.out;
    EXPECT_TRUE(last_line(finished.out)
                    .starts_with("lost 0, ghosts 0, out of order 0, repeats applied 0, "
                                 "never applied 1, dead letters 0 "))
        << finished.out;
    const Finished json = verify({"--json", "--produced", produced, "--received", received});
    EXPECT_EQ(nlohmann::json::parse(json.out).at("never_applied"), 1) << json.out;
}

TEST_F(VerifyCommand, CountsTheOrderFromZeroToo) {
    const auto produced = file("p",
                               "{\"id\":\"a\",\"key\":\"k\",\"n\":0}\n"
                               "{\"id\":\"b\",\"key\":\"k\",\"n\":1}\n");
    const Finished finished =
        verify({"--produced", produced, "--received",
                file("r", "{\"id\":\"b\",\"applied\":true}\n{\"id\":\"a\",\"applied\":true}\n")});
    EXPECT_EQ(finished.status.code, kFaultsFound) << finished.out << finished.err;
    EXPECT_NE(finished.out.find("out of order: a, key k, n 0"), std::string::npos) << finished.out;
}

TEST_F(VerifyCommand, ProvesNothingFromJournalsWithoutAnEvent) {
    const auto page = (folder_ / "orders.prom").string();
    const auto empty = file("empty", "");
    const Finished finished =
        verify({"--produced", empty, "--received", empty, "--textfile", page});
    EXPECT_EQ(finished.status.code, kUnusableInput) << finished.out;
    EXPECT_NE(finished.err.find("--produced: names no event"), std::string::npos) << finished.err;
    EXPECT_FALSE(std::filesystem::exists(page));
    const auto full = file("full", kTwoProduced);
    EXPECT_EQ(verify({"--produced", empty, full, "--received", full}).status.code, 0);
}

TEST_F(VerifyCommand, ProvesNothingFromIntentsAlone) {
    const auto page = (folder_ / "orders.prom").string();
    const std::string intents = "{\"id\":\"a\",\"state\":\"intent\"}\n";
    const auto none = file("none", "{\"id\":\"x\",\"state\":\"rolled_back\"}\n" + intents);
    const auto full = file("full", kTwoProduced);
    const auto intended = file("intended", intents + "{\"id\":\"b\",\"state\":\"intent\"}\n");
    const Finished nothing_committed =
        verify({"--produced", none, "--received", intended, "--textfile", page});
    EXPECT_EQ(nothing_committed.status.code, kFaultsFound) << "a ghost";
    const Finished nothing =
        verify({"--produced", none, "--received", file("empty", ""), "--textfile", page + "2"});
    EXPECT_EQ(nothing.status.code, kUnusableInput) << nothing.out;
    EXPECT_NE(nothing.err.find("names no event that was committed"), std::string::npos)
        << nothing.err;
    EXPECT_FALSE(std::filesystem::exists(page + "2"));
    const Finished unapplied = verify({"--produced", full, "--received", full, intended});
    EXPECT_EQ(unapplied.status.code, kUnusableInput) << unapplied.out;
    EXPECT_NE(unapplied.err.find(intended + " holds intents alone"), std::string::npos)
        << unapplied.err;
    // Where there is a fault, it is told.
    const Finished lost = verify({"--produced", full, "--received", file("one", intents)});
    EXPECT_EQ(lost.status.code, kFaultsFound) << lost.err;
}

TEST_F(VerifyCommand, ReadsTheJournalsOfAConsumersMembersByTheirTimes) {
    const auto journal = [&](const std::string& name, const std::string& id, const char* time) {
        return file(name, R"({"id":")" + id + R"(","applied":true,"consumer":"stock")" +
                              (*time == 0 ? "" : std::string(",\"at\":") + time) + "}\n");
    };
    const auto produced = file("p", kTwoProduced);
    const auto look = [&](const char* time_of_a, const char* time_of_b) {
        return verify({"--produced", produced, "--received", journal("of b", "b", time_of_b),
                       journal("of a", "a", time_of_a)});
    };
    const Finished good = look("10", "11");
    EXPECT_EQ(good.status.code, 0) << good.out << good.err;
    EXPECT_EQ(good.out.find("not proved"), std::string::npos) << good.out;
    const Finished bad = look("12", "11");
    EXPECT_EQ(bad.status.code, kFaultsFound) << bad.out << bad.err;
    EXPECT_NE(bad.out.find("out of order: a, key k, n 1, at stock"), std::string::npos) << bad.out;
    const Finished unknown = look("", "");
    EXPECT_EQ(unknown.status.code, 0) << unknown.out << unknown.err;
    EXPECT_NE(unknown.out.find("order not proved: key k, at stock: another journal"),
              std::string::npos)
        << unknown.out;
    EXPECT_NE(unknown.out.find(", order of 1 keys not proved)"), std::string::npos) << unknown.out;
    const Finished json = verify(
        {"--json", "--produced", produced, "--received", folder_ / "of b", folder_ / "of a"});
    const auto all = nlohmann::json::parse(json.out);
    EXPECT_EQ(all.at("unordered_keys"), 1);
    EXPECT_EQ(all.at("first_unordered")[0].at("why"), "several_journals");
}

TEST_F(VerifyCommand, SaysWhereTwoEventsOfAKeyHaveOneN) {
    const auto both = file("p",
                           "{\"id\":\"a\",\"key\":\"k\",\"n\":1}\n"
                           "{\"id\":\"b\",\"key\":\"k\",\"n\":1}\n");
    const Finished finished = verify({"--produced", both, "--received", both});
    EXPECT_EQ(finished.status.code, 0) << finished.out << finished.err;
    EXPECT_NE(finished.out.find("another event of it has the n of b"), std::string::npos)
        << finished.out;
}

TEST_F(VerifyCommand, LeavesItsVerdictForPrometheus) {
    const auto page = folder_ / "orders.prom";
    const auto produced = file("p", kTwoProduced);
    const auto received = file("r", "{\"id\":\"a\",\"key\":\"k\",\"n\":1}\n");
    const auto verified = [&](const std::string& to) {
        return verify({"--produced", produced, "--received", received, "--textfile", to});
    };
    EXPECT_EQ(verified(page.string()).status.code, kFaultsFound);
    std::ostringstream text;
    text << std::ifstream(page).rdbuf();
    EXPECT_NE(text.str().find("outbox_verify_lost{produced=\"" + produced + "\"} 1\n"),
              std::string::npos)
        << text.str();
    EXPECT_NE(text.str().find("outbox_verify_never_applied{"), std::string::npos);
    EXPECT_NE(text.str().find("outbox_verify_excused{"), std::string::npos);
    EXPECT_NE(text.str().find("outbox_verify_time_seconds{"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(page.string() + ".tmp"));
    const Finished nowhere = verified((folder_ / "missing" / "orders.prom").string());
    EXPECT_EQ(nowhere.status.code, kUnusableInput);
    EXPECT_NE(nowhere.err.find("orders.prom: cannot be written (No such file or directory)"),
              std::string::npos)
        << nowhere.err;
}

TEST_F(VerifyCommand, NamesWhatAnIntentAloneSpeaksFor) {
    const std::string ended = "{\"id\":\"a\",\"key\":\"k\",\"n\":1,\"applied\":true}\n";
    const auto received =
        file("r", ended + "{\"id\":\"b\",\"key\":\"k\",\"n\":2,\"state\":\"intent\"}\n");
    const auto page = folder_ / "orders.prom";
    const Finished finished = verify({"--produced", file("p", kTwoProduced), "--received", received,
                                      "--textfile", page.string()});
    EXPECT_EQ(finished.status.code, 0) << finished.out << finished.err;
    EXPECT_NE(finished.out.find("uncertain: b, key k, n 2, at " + received), std::string::npos)
        << finished.out;
    std::ostringstream text;
    text << std::ifstream(page).rdbuf();
    EXPECT_NE(text.str().find("outbox_verify_uncertain{"), std::string::npos) << text.str();
    const Finished unknown = verify({"--json", "--produced",
                                     file("q", kTwoProduced + "{\"id\":\"c\",\"key\":\"k\",\"n\":3,"
                                                              "\"state\":\"intent\"}\n"),
                                     "--received", file("s", kTwoProduced)});
    const auto all = nlohmann::json::parse(unknown.out);
    EXPECT_EQ(all.at("uncertain"), 1);
    EXPECT_EQ(all.at("first_uncertain")[0].at("id"), "c");
    EXPECT_EQ(all.at("first_uncertain")[0].at("consumer"), "");
}

TEST_F(VerifyCommand, GivesTheSameAsJson) {
    const Finished finished = verify({"--json", "--produced", file("p", kTwoProduced), "--received",
                                      file("r", "{\"id\":\"a\"}\n")});
    EXPECT_EQ(finished.status.code, kFaultsFound);
    const auto all = nlohmann::json::parse(finished.out);
    EXPECT_EQ(all.at("ok"), false);
    EXPECT_EQ(all.at("lost"), 1);
    EXPECT_EQ(all.at("first_faults")[0].at("id"), "b");
}

TEST_F(VerifyCommand, NamesFileAndLineOfWhatIsNoJournal) {
    const auto good = file("good", kTwoProduced);
    for (const std::string& bad :
         {std::string("x"), std::string("[]"), std::string("{\"id\":7}"), std::string("{\"id\":"),
          std::string("{\"id\":\"a\",\"n\":-1}"), std::string("\xff\xfe")}) {
        const auto path = file("bad", kTwoProduced + bad + "\n");
        for (const auto& arguments :
             {std::vector<std::string>{"--produced", path, "--received", good},
              {"--produced", good, "--received", path}}) {
            const Finished finished = verify(arguments);
            EXPECT_EQ(finished.status.code, kUnusableInput) << bad;
            EXPECT_NE(finished.err.find(path + ":3: "), std::string::npos) << finished.err;
            EXPECT_TRUE(finished.out.empty()) << finished.out;
        }
    }
}

TEST_F(VerifyCommand, RefusesMissingFilesAndOptions) {
    const auto good = file("good", kTwoProduced);
    const auto missing = (folder_ / "missing").string();
    EXPECT_EQ(verify({"--produced", missing, "--received", good}).status.code, kUnusableInput);
    EXPECT_EQ(verify({"--produced", good, "--received", folder_.path().string()}).status.code,
              kUnusableInput);
    EXPECT_EQ(verify({"--produced", good}).status.code, kUnusableInput);
    EXPECT_EQ(verify({"--received", good}).status.code, kUnusableInput);
    EXPECT_EQ(verify({"--produced", "--received", good}).status.code, kUnusableInput);
    EXPECT_EQ(verify({good}).status.code, kUnusableInput);
}

TEST_F(VerifyCommand, LeavesOutALineThatWasCutOffAtTheEnd) {
    const Finished finished = verify({"--produced", file("p", kTwoProduced + "{\"id\":\"c\",\"ke"),
                                      "--received", file("r", kTwoProduced)});
    EXPECT_EQ(finished.status.code, 0) << finished.out << finished.err;
}

TEST_F(VerifyCommand, CountsDeadLettersOfTheDatabaseInsteadOfLosses) {
    const std::string url = shared_postgres().create_database();
    ASSERT_EQ(run({.command = {OUTBOX, "migrate", "--db", url}}).status.code, 0);
    Pg(url).exec(
        "INSERT INTO outbox_dead_letters (source, route, position, id, attempts, error_code, error)"
        " VALUES ('public.outbox_events', 'default', 1, 'b', 1, 'OB_TOPIC_INVALID', 'not "
        "allowed')");
    const std::vector<std::string> files{
        "--produced", file("p", kTwoProduced), "--received",
        file("r", "{\"id\":\"a\",\"key\":\"k\",\"n\":1,\"applied\":true}\n")};
    EXPECT_EQ(verify(files).status.code, kFaultsFound);
    std::vector<std::string> with_database = files;
    with_database.insert(with_database.end(), {"--db", url});
    const Finished finished = verify(with_database);
    EXPECT_EQ(finished.status.code, 0) << finished.out << finished.err;
    EXPECT_NE(finished.out.find("dead letter: b (route default): OB_TOPIC_INVALID: not allowed"),
              std::string::npos)
        << finished.out;
    EXPECT_TRUE(last_line(finished.out)
                    .starts_with("lost 0, ghosts 0, out of order 0, repeats applied 0, "
                                 "never applied 0, dead letters 1 "))
        << finished.out;
    EXPECT_NE(finished.out.find("excused: b, key k, n 2, at " + files.back()), std::string::npos)
        << finished.out;
    EXPECT_NE(finished.out.find(" 1 excused)"), std::string::npos) << finished.out;

    // No route took it, so that no consumer has it.
    Pg(url).exec("UPDATE outbox_dead_letters SET unmatched = true");
    with_database.insert(with_database.begin() + 4,
                         file("s", "{\"id\":\"a\",\"key\":\"k\",\"n\":1,\"applied\":true}\n"));
    const Finished unmatched = verify(with_database);
    EXPECT_EQ(unmatched.status.code, 0) << unmatched.out << unmatched.err;
    EXPECT_EQ(unmatched.out.find("excused"), std::string::npos) << unmatched.out;
}

TEST_F(VerifyCommand, ReadsManyLines) {
    constexpr int kLines = 50'000;
    std::string text;
    for (int i = 0; i < kLines; ++i)
        text += R"({"id":"01939d3e-7c00-7aaa-8000-)" + std::to_string(100'000'000'000 + i) +
                R"(","key":"k-)" + std::to_string(i % 1000) + R"(","n":)" +
                std::to_string(i / 1000 + 1) + "}\n";
    const auto all = file("all", text);
    const Finished finished = verify({"--produced", all, "--received", all});
    EXPECT_EQ(finished.status.code, 0) << finished.err;
    EXPECT_NE(finished.out.find("(50000 events produced, 50000 lines received, 0 of them"),
              std::string::npos)
        << finished.out;
}

template <typename Look>
void expect_it_only_looks(Look look) {
    for (const char* query :
         {"DELETE FROM effects RETURNING id", "DELETE FROM effects",
          "SELECT id FROM effects; DELETE FROM effects",
          "SELECT id FROM effects; SELECT id FROM effects", "-- nothing", "COMMIT"}) {
        const Finished finished = look(query);
        EXPECT_EQ(finished.status.code, kUnusableInput) << query << "\n" << finished.out;
        EXPECT_NE(finished.err.find("--effect-query: must be one query, which changes nothing: "),
                  std::string::npos)
            << finished.err;
    }
}

TEST_F(VerifyCommand, LooksAtTheEffectsThemselves) {
    const std::string url = shared_postgres().create_database();
    Pg db(url);
    db.exec(
        "CREATE TABLE effects (seq int GENERATED ALWAYS AS IDENTITY, id text, key text, n int); "
        "INSERT INTO effects (id, key, n) VALUES ('a', 'k', 1), ('b', 'k', 2)");
    const auto look = [&](const std::string& query) {
        return verify(
            {"--produced", file("p", kTwoProduced), "--effect-db", url, "--effect-query", query});
    };
    const std::string query = "SELECT id, key, n FROM effects ORDER BY seq";
    EXPECT_EQ(look(query).status.code, 0) << look(query).err;
    EXPECT_EQ(look("SELECT id FROM effects").status.code, 0);
    db.exec("INSERT INTO effects (id, key, n) VALUES ('a', 'k', 1)");
    EXPECT_NE(look(query).out.find("repeats applied 1"), std::string::npos) << look(query).out;
    EXPECT_EQ(look(query).status.code, kFaultsFound);
    EXPECT_NE(look(query + " LIMIT 1").out.find("lost 1,"), std::string::npos);
    // A message given up on by the consumer is not lost.
    db.exec(
        "CREATE TABLE outbox_inbox_dead_letters (message_id text); "
        "INSERT INTO outbox_inbox_dead_letters VALUES ('b')");
    EXPECT_NE(look(query + " LIMIT 1").out.find("lost 0,"), std::string::npos);
    expect_it_only_looks(look);
    const Finished apart = look("SELECT id FROM effects; COMMIT; DELETE FROM effects");
    EXPECT_EQ(apart.status.code, kUnusableInput) << apart.out;
    EXPECT_EQ(look("COPY effects TO STDOUT").status.code, kUnusableInput);
    EXPECT_EQ(look("COPY effects FROM STDIN").status.code, kUnusableInput);
    EXPECT_EQ(db.number("SELECT count(*) FROM effects"), 3);
    EXPECT_EQ(look("SELECT id, key, 'x' FROM effects").status.code, kUnusableInput);
    EXPECT_EQ(verify({"--produced", file("p", kTwoProduced), "--effect-db", url}).status.code,
              kUnusableInput);
}

TEST_F(VerifyCommand, LooksAtTheEffectsOfASqliteDatabase) {
    const auto path = folder_ / "effects.db";
    Sqlite db(path.string());
    db.exec("CREATE TABLE effects (id text); INSERT INTO effects VALUES ('a'), ('b')");
    const auto look = [&](const std::string& query) {
        return verify({"--produced", file("p", kTwoProduced), "--effect-db",
                       "sqlite://" + path.string(), "--effect-query", query});
    };
    EXPECT_EQ(look("SELECT id FROM effects").status.code, 0) << look("SELECT id FROM effects").err;
    EXPECT_EQ(look("SELECT id FROM effects;  -- all\n").status.code, 0);
    expect_it_only_looks(look);
    EXPECT_EQ(db.number("SELECT count(*) FROM effects"), 2);
}

}  // namespace
}  // namespace outbox::test
