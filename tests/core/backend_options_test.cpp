#include "core/backend_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

namespace outbox {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr auto kOptions = all_options(
    std::array{
        BackendOption{.name = "loud", .type = OptionType::kFlag, .fallback = "true"},
        BackendOption{.name = "wait_ms",
                      .type = OptionType::kInteger,
                      .fallback = "20",
                      .unit = "ms",
                      .min = 1,
                      .max = 60},
        BackendOption{.name = "max_len",
                      .type = OptionType::kInteger,
                      .min = 1,
                      .max = std::numeric_limits<std::int64_t>::max()},
    },
    std::array{
        BackendOption{.name = "group", .fallback = "all"},
        BackendOption{.name = "owner", .repeatable = true},
    });
constexpr std::array kNeeds{
    BackendOption{.name = "key", .required = true, .help = "made by `make-key`"}};

using Query = std::vector<std::pair<std::string, std::string>>;
using Table = std::map<std::string, std::string>;

Result<BackendValues> read(const Query& query, const Table& table = {},
                           std::span<const BackendOption> options = kOptions) {
    return read_backend_options({"Parrot", "parrot.", options}, query, table);
}

std::string refusal(const Query& query, std::span<const BackendOption> options = kOptions) {
    const auto values = read(query, {}, options);
    if (values.ok()) return "taken";
    EXPECT_EQ(values.error().code, ErrorCode::kConfigInvalid);
    EXPECT_EQ(values.error().advice, Advice::kStop);
    return values.error().message;
}

TEST(BackendOptions, WhatIsNotGivenHasItsDeclaredDefault) {
    const auto values = read({}).value_or_throw();
    EXPECT_TRUE(values.flag("loud"));
    EXPECT_EQ(values.integer("wait_ms"), 20);
    EXPECT_EQ(values.text("group"), "all");
    EXPECT_THAT(values.list("owner"), IsEmpty());
    EXPECT_FALSE(values.given("wait_ms"));
}

TEST(BackendOptions, ValuesHaveTheirTypesAndTheTableWins) {
    const auto values = read({{"parrot.loud", "false"}, {"wait_ms", "1"}, {"owner", "a"}},
                             {{"parrot.wait_ms", "60"}, {"owner", "b"}, {"parrot.group", ""}})
                            .value_or_throw();
    EXPECT_FALSE(values.flag("loud"));
    EXPECT_EQ(values.size("wait_ms"), 60U);
    EXPECT_TRUE(values.given("wait_ms"));
    EXPECT_EQ(values.text("group"), "");
    EXPECT_THAT(values.list("owner"), ElementsAre("a", "b"));
}

TEST(BackendOptions, AnUnknownOneIsRefusedWithThoseThatThereAreAndTheClosest) {
    EXPECT_EQ(
        refusal({{"wait_m", "1"}}),
        "Parrot has no option 'wait_m'; there are loud, wait_ms, max_len, group and owner; did "
        "you mean 'wait_ms'?");
    EXPECT_EQ(refusal({{"zebra-crossing", "1"}}),
              "Parrot has no option 'zebra-crossing'; there are loud, wait_ms, max_len, group and "
              "owner");
    EXPECT_EQ(refusal({{"zebra", "1"}}, kNeeds), "Parrot has no option 'zebra'; there is key");
    EXPECT_EQ(refusal({{"x", "1"}}, {}), "Parrot has no option 'x'; there are none");
}

TEST(BackendOptions, AValueOfAnotherTypeOrOutOfRangeIsRefused) {
    for (const char* const value : {"yes", "1", "", "True"}) {
        EXPECT_EQ(refusal({{"loud", value}}),
                  "parrot.loud is '" + std::string(value) + "'; it is true or false");
    }
    for (const char* const value :
         {"0", "61", "x", "", "5x", " 5", "1.5", "99999999999999999999"}) {
        EXPECT_EQ(refusal({{"wait_ms", value}}), "parrot.wait_ms is '" + std::string(value) +
                                                     "'; it is a number from 1 to 60 (ms)");
    }
    EXPECT_EQ(refusal({{"max_len", "0"}}), "parrot.max_len is '0'; it is a number from 1");
}

TEST(BackendOptions, OneThatIsGivenTwiceInOnePlaceIsRefusedWithAndWithoutItsPrefix) {
    const std::string twice = "Parrot is given 'wait_ms' twice; leave one of them out";
    EXPECT_EQ(refusal({{"wait_ms", "2"}, {"parrot.wait_ms", "1"}}), twice);
    EXPECT_EQ(refusal({{"parrot.wait_ms", "1"}, {"wait_ms", "1"}}), twice);
    EXPECT_EQ(refusal({{"wait_ms", "1"}, {"wait_ms", "1"}}), twice);
    const auto table = read({}, {{"wait_ms", "2"}, {"parrot.wait_ms", "1"}});
    ASSERT_FALSE(table.ok());
    EXPECT_EQ(table.error().message, twice);
    const auto values = read({{"owner", "a"}, {"parrot.owner", "b"}}).value_or_throw();
    EXPECT_THAT(values.list("owner"), ElementsAre("a", "b"));
}

TEST(BackendOptions, ARequiredOneHasAValueThatIsNotEmpty) {
    for (const Query& query : {Query{}, Query{{"key", ""}}}) {
        EXPECT_EQ(refusal(query, kNeeds), "Parrot needs the option key: made by `make-key`");
    }
    EXPECT_EQ(read({{"key", "k"}}, {}, kNeeds).value_or_throw().text("key"), "k");
}

TEST(BackendOptionsDeathTest, AskingForWhatIsNotDeclaredIsADefect) {
    const auto values = read({}).value_or_throw();
    EXPECT_DEATH(static_cast<void>(values.flag("lod")), "");
    EXPECT_DEATH(static_cast<void>(values.flag("wait_ms")), "");
    EXPECT_DEATH(static_cast<void>(values.list("group")), "");
}

}  // namespace
}  // namespace outbox
