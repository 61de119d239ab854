#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "examples/orders/journal.h"
#include "examples/orders/money.h"
#include "examples/orders/order.h"
#include "tests/support/files.h"

namespace orders {
namespace {

RC_GTEST_PROP(Money, IsTheSameAfterPrintingAndReading, ()) {
    const Money money{*rc::gen::inRange<std::int64_t>(0, Money::kMaxCents + 1)};
    RC_ASSERT(Money::parse(money.text()) == money);
}

TEST(Money, ReadsJsonNumbersExactly) {
    EXPECT_EQ(Money::parse("99.99"), Money{9999});
    EXPECT_EQ(Money::parse("0.1"), Money{10});
    EXPECT_EQ(Money::parse("0"), Money{0});
    EXPECT_EQ(Money::parse("0.00"), Money{0});
    EXPECT_EQ(Money::parse("0e9"), Money{0});
    EXPECT_EQ(Money::parse("7"), Money{700});
    EXPECT_EQ(Money::parse("1.2300"), Money{123});
    EXPECT_EQ(Money::parse("1e2"), Money{10000});
    EXPECT_EQ(Money::parse("1.5E+1"), Money{1500});
    EXPECT_EQ(Money::parse("1250e-3"), Money{125});
    EXPECT_EQ(Money::parse("9999999999.99"), Money{Money::kMaxCents});
}

TEST(Money, RefusesWhatItCannotHoldExactly) {
    for (const char* text : {"", "-1", "-0.01", "1.005", "0.001", "10000000000", "1e10", "1e-3",
                             "1e999999999999", "NaN", "1.2.3", "0x10", "1e", " 1"})
        EXPECT_FALSE(Money::parse(text)) << text;
}

TEST(Money, PrintsTwoDecimals) {
    EXPECT_EQ(Money{5}.text(), "0.05");
    EXPECT_EQ(Money{100}.text(), "1.00");
    EXPECT_EQ(Money{9999}.text(), "99.99");
}

std::map<std::string, std::string> faults_of(const std::string& body) {
    const auto parsed = parse_new_order(body);
    const auto* refusal = std::get_if<Refusal>(&parsed);
    return refusal != nullptr ? refusal->fields : std::map<std::string, std::string>{};
}

TEST(NewOrder, NamesEveryFieldAtFault) {
    const auto faults = faults_of(R"({"user_id":"","quantity":0,"total_amount":"1"})");
    EXPECT_EQ(faults.size(), 4U);
    EXPECT_EQ(faults.at("product_id"), "is missing");
    EXPECT_EQ(faults.at("quantity"), "must be a whole number from 1 to 1000000");
    EXPECT_TRUE(faults.contains("user_id"));
    EXPECT_TRUE(faults.contains("total_amount"));
}

TEST(NewOrder, IgnoresFieldsItDoesNotKnowHoweverDeepTheyAre) {
    std::string deep(10'000, '[');
    deep.append(10'000, ']');
    const auto parsed =
        parse_new_order(R"({"note":{"quantity":0,"a":[{"user_id":1}]},"deep":)" + deep +
                        R"(,"user_id":"u","product_id":"p","quantity":2,"total_amount":99.99})");
    ASSERT_TRUE(std::holds_alternative<OrderRequest>(parsed)) << std::get<Refusal>(parsed).json();
    EXPECT_EQ(std::get<OrderRequest>(parsed).order.total_amount, Money{9999});
}

TEST(NewOrder, RefusesAFieldThatIsGivenTwice) {
    const auto parsed = parse_new_order(
        R"({"user_id":"u","product_id":"p","quantity":2,"quantity":3,"total_amount":1})");
    ASSERT_TRUE(std::holds_alternative<Refusal>(parsed));
    EXPECT_EQ(std::get<Refusal>(parsed).error, "the field \"quantity\" is given twice");
}

TEST(Journal, AHalfLineThatAFullDiskLeftIsRemovedAtTheNextStart) {
    const outbox::test::TemporaryFolder folder("journal");
    const auto path = folder / "journal";
    std::ofstream(path) << "{\"id\":\"a\"}\n{\"id\":\"b";
    Journal(path).committed({"c", "k", 1});
    EXPECT_EQ(outbox::test::read_file(path),
              "{\"id\":\"a\"}\n"
              R"({"id":"c","key":"k","n":1,"state":"committed"})"
              "\n");
}

TEST(Journal, RefusesAFileThatAnotherProcessWritesTo) {
    const outbox::test::TemporaryFolder folder("journal");
    const Journal first(folder / "journal");
    EXPECT_THROW(Journal(folder / "journal"), std::runtime_error);
}

}  // namespace
}  // namespace orders
