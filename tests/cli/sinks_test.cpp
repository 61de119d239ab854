// What each built-in destination says of itself, for machines and for people.
#include <fstream>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/files.h"
#include "tests/support/process.h"

namespace outbox::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

json sinks() {
    const Finished ended = run({.command = {OUTBOX_BINARY, "sinks", "--json"}});
    EXPECT_EQ(ended.status.code, 0) << ended.err;
    return json::parse(ended.out);
}

json drops(const std::string& kind, const json& more = json::object()) {
    json out{{"kind", kind}, {"option", nullptr}, {"setting", nullptr}, {"note", nullptr}};
    out.update(more);
    return out;
}

json limit(const std::string& what, const json& most, const json& setting,
           const std::string& unit = "bytes") {
    return {{"what", what}, {"most", most}, {"unit", unit}, {"setting", setting}};
}

json fifo(const std::string& what) {
    return {
        {"guarantee", "at_least_once"},
        {"order", "one_at_a_time"},
        {"unordered", "standard " + what + "s"},
        {"drops_repeats",
         drops("for_time", {{"seconds", 300}, {"note", "by FIFO " + what + "s alone"}})},
        {"limits",
         {limit("record with its attributes", 1'048'576, "MaximumMessageSize of the " + what)}}};
}

json plain(const std::string& guarantee, const std::string& order) {
    return {{"guarantee", guarantee},
            {"order", order},
            {"unordered", nullptr},
            {"drops_repeats", nullptr},
            {"limits", json::array()}};
}

json with(json base, const json& more) {
    base.update(more);
    return base;
}

// By the names of the destinations; without how their options are written.
json expected() {
    json queue = fifo("queue");
    queue["limits"].push_back(limit("name of the queue", 80, nullptr));
    const json at_a_time = plain("at_least_once", "one_at_a_time");
    return {
        {"kafka", with(plain("at_least_once", "fail_stop_per_topic"),
                       {{"limits", {limit("record", nullptr, "max.message.bytes of the topic")}}})},
        {"mailbox",
         with(plain("exactly_once_while_kept", "fail_stop"),
              {{"drops_repeats", drops("while_kept", {{"note", "with the inbox for ever"}})}})},
        {"mqtt", with(at_a_time,
                      {{"limits",
                        {limit("record", nullptr, "maximum packet size of the broker"),
                         limit("name of a header", 65'535, nullptr),
                         limit("value of a header", 65'535, nullptr), limit("key", 65'535, nullptr),
                         limit("content type", 65'535, nullptr)}}})},
        {"nats",
         with(
             at_a_time,
             {{"drops_repeats", drops("for_time", {{"seconds", 120},
                                                   {"setting", "duplicate_window of the stream"}})},
              {"limits",
               {limit("record with its headers", nullptr, "max_payload of the server"),
                limit("record with its headers", nullptr, "max_msg_size of the stream")}}})},
        {"null", plain("none", "fail_stop")},
        {"pulsar",
         with(at_a_time,
              {{"limits",
                {limit("record with its headers", nullptr, "maxMessageSize of the brokers"),
                 limit("record with its headers", nullptr, "max-message-size of the topic")}}})},
        {"rabbitmq",
         with(at_a_time, {{"limits",
                           {limit("record", nullptr, "max_message_size of the broker"),
                            limit("headers and key", nullptr, "frame_max of the connection"),
                            limit("routing key", 255, nullptr), limit("id", 255, nullptr),
                            limit("type", 255, nullptr), limit("name of a header", 255, nullptr),
                            limit("content type", 255, nullptr)}}})},
        {"redis",
         with(plain("at_least_once", "fail_stop"),
              {{"drops_repeats",
                drops("of_last", {{"ids", 10'000},
                                  {"option", "dedup_window"},
                                  {"note",
                                   "as long as the server keeps its data: a failover may lose "
                                   "some of it"}})},
               {"limits",
                {limit("value", nullptr, "proto-max-bulk-len of the server"),
                 limit("headers", 3'500, nullptr, "headers")}}})},
        {"sns", fifo("topic")},
        {"sqs", queue},
        {"stdout", plain("none", "fail_stop")},
        {"webhook",
         with(at_a_time,
              {{"drops_repeats",
                drops("while_kept",
                      {{"note", "until it is delivered; receivers drop repeats by `webhook-id`"}})},
               {"limits",
                {limit("deliveries that wait for an endpoint", 100'000, nullptr, "deliveries"),
                 limit("endpoints of a database", 10'000, nullptr, "endpoints")}}})},
    };
}

TEST(Sinks, EachBuiltInOneSaysWhatItPromises) {
    json found = json::object();
    for (json sink : sinks()) {
        for (const char* const key : {"schemes", "url", "options", "other_options"}) {
            EXPECT_TRUE(sink.contains(key)) << key;
            sink.erase(key);
        }
        const std::string name = sink.at("name");
        sink.erase("name");
        found[name] = sink;
    }
    const json wanted = expected();
    for (const auto& [name, sink] : wanted.items()) {
        EXPECT_EQ(found.value(name, json()).dump(1), sink.dump(1)) << name;
    }
    EXPECT_EQ(found.size(), wanted.size());
}

// An option that sets the window is one that the destination has, with that default.
TEST(Sinks, OptionsAreDeclaredWithTypesRangesAndDefaults) {
    for (const json& sink : sinks()) {
        std::map<std::string, json> options;
        for (const json& option : sink.at("options")) {
            EXPECT_FALSE(option.at("meaning").get<std::string>().empty()) << option;
            options[option.at("name")] = option;
        }
        EXPECT_EQ(options.size(), sink.at("options").size()) << "one name twice";
        const json& drops_repeats = sink.at("drops_repeats");
        if (drops_repeats.is_null() || drops_repeats.at("option").is_null()) continue;
        const json& option = options.at(drops_repeats.at("option"));
        EXPECT_EQ(option.at("type"), "integer");
        EXPECT_EQ(option.at("default"), std::to_string(drops_repeats.at("ids").get<int>()));
        EXPECT_EQ(option.at("max"), 1'000'000);
        EXPECT_EQ(option.at("unit"), "ids");
    }
}

// Also where its URL is a database's.
TEST(Sinks, OptionsStandInTheTableOfTheRoute) {
    const TemporaryFolder folder("sinks");
    const std::string database = "sqlite://" + (folder / "shop.db").string();
    ASSERT_EQ(run({.command = {OUTBOX_BINARY, "migrate", "--db", database}}).status.code, 0);
    const auto check = [&](const std::string& option) {
        const std::string file = folder / "outbox.toml";
        std::ofstream(file) << "[[route]]\nname = \"r\"\nto = \"mailbox+" << database
                            << "\"\n[route.mailbox]\n"
                            << option << "\n";
        return run(
            {.command = {OUTBOX_BINARY, "relay", "--check", "--from", database, "--config", file}});
    };
    const Finished well = check("mailbox = \"orders\"");
    EXPECT_EQ(well.status.code, 0) << well.out << well.err;
    const Finished unknown = check("malbox = \"orders\"");
    EXPECT_EQ(unknown.status.code, 2) << unknown.out << unknown.err;
    EXPECT_THAT(unknown.err, HasSubstr("a mailbox has no option 'malbox'; there are mailbox and "
                                       "owner; did you mean 'mailbox'?"));
    const Finished empty = check("mailbox = \"\"");
    EXPECT_EQ(empty.status.code, 2) << empty.out << empty.err;
}

TEST(Sinks, PeopleReadTheSame) {
    const Finished ended = run({.command = {OUTBOX_BINARY, "sinks"}});
    EXPECT_EQ(ended.status.code, 0) << ended.err;
    EXPECT_THAT(
        ended.out,
        AllOf(HasSubstr("one event of a key at a time; none in standard queues\n"),
              HasSubstr("for 120 s, or as duplicate_window of the stream says\n"),
              HasSubstr("of the last 10,000 ids, or as the option dedup_window says; as long as"),
              HasSubstr("record with its attributes: 1,048,576 bytes, or MaximumMessageSize of the "
                        "queue\n"),
              HasSubstr("dedup_window (0 to 1000000 ids; default 10000): ids of a route"),
              HasSubstr("key_file (file, required): file with the key"),
              HasSubstr("those of librdkafka, by their names there\n")));
}

}  // namespace
}  // namespace outbox::test
