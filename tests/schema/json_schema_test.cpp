// What the official suite does not ask: limits, exact numbers, keywords of other drafts, messages.

#include "schema/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schema/json_document.h"

namespace outbox::test {
namespace {

using schema::JsonSchema;
using schema::References;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

JsonSchema compiled(std::string_view text, const References& references = {}) {
    std::string why;
    auto schema = JsonSchema::compile(text, references, why);
    EXPECT_TRUE(schema) << why;
    return *std::move(schema);
}

std::string refusal_of(std::string_view text) {
    std::string why;
    EXPECT_FALSE(JsonSchema::compile(text, {}, why)) << text;
    return why;
}

// "path: rule (place)", or "".
std::string fault(const JsonSchema& schema, std::string_view payload) {
    const auto violation = schema.check(payload);
    if (!violation) return "";
    return violation->path + ": " + violation->rule + " (" + violation->place + ")";
}

std::string repeated(std::string_view text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += text;
    return out;
}

TEST(JsonSchema, NamesThePathThatIsWrongAndTheRule) {
    const auto schema = compiled(R"({
        "properties": {"items": {"items": {"required": ["sku"], "properties": {
            "sku": {"type": "string"}, "quantity": {"minimum": 1}, "a/b~c": {"const": 7}}}}}})");
    EXPECT_EQ(fault(schema, R"({"items": [{"sku": "x", "quantity": 0}]})"),
              "/items/0/quantity: is less than 1 "
              "(/properties/items/items/properties/quantity/minimum)");
    EXPECT_EQ(fault(schema, R"({"items": [{"sku": "x"}, {}]})"),
              "/items/1: has no property 'sku' (/properties/items/items/required)");
    EXPECT_EQ(fault(schema, R"({"items": [{"sku": 4711}]})"),
              "/items/0/sku: is a number, and has to be of the type string "
              "(/properties/items/items/properties/sku/type)");
    EXPECT_EQ(fault(schema, R"({"items": [{"sku": "x", "a/b~c": 8}]})"),
              "/items/0/a~1b~0c: is not the value of const "
              "(/properties/items/items/properties/a~1b~0c/const)");
}

TEST(JsonSchema, ShowsNoValueOfThePayloadAndNoControlCharacter) {
    const auto schema = compiled(R"({"additionalProperties": {"enum": ["a"], "pattern": "^a"}})");
    const std::string text = fault(schema, "{\"x\\u001b[31m\": \"s3cret\"}");
    EXPECT_THAT(text, Not(HasSubstr("s3cret")));
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
    EXPECT_THAT(text, HasSubstr("enum"));
}

TEST(JsonSchema, OfAlternativesTellsWhichCameNearest) {
    const auto schema = compiled(R"({"anyOf": [
        {"type": "string"}, {"properties": {"a": {"properties": {"b": {"maximum": 3}}}}}]})");
    EXPECT_EQ(fault(schema, R"({"a": {"b": 4}})"),
              "/a/b: is more than 3 (none of anyOf fits) "
              "(/anyOf/1/properties/a/properties/b/maximum)");
    EXPECT_EQ(fault(schema, R"({"a": {"b": 3}})"), "");
    EXPECT_EQ(fault(compiled(R"({"anyOf": [{"type": "string"}, {"type": "null"}]})"), "7"),
              ": is like none of anyOf (/anyOf)");
}

TEST(JsonSchema, KeepsNumbersExact) {
    const auto least = compiled(R"({"minimum": 9007199254740993})");
    EXPECT_NE(fault(least, "9007199254740992"), "");
    EXPECT_EQ(fault(least, "9007199254740993"), "");
    EXPECT_EQ(fault(least, "1e400"), "");
    const auto constant = compiled(R"({"const": 0.1000000000000000055511151231257827})");
    EXPECT_NE(fault(constant, "0.1"), "");
    EXPECT_EQ(fault(constant, "1000000000000000055511151231257827e-34"), "");
    const auto cents = compiled(R"({"multipleOf": 0.01})");
    EXPECT_EQ(fault(cents, "123456789012345678901234567890.12"), "");
    EXPECT_NE(fault(cents, "123456789012345678901234567890.123"), "");
    EXPECT_EQ(fault(cents, "-1e300"), "");
    const auto seventh = compiled(R"({"multipleOf": 7})");
    EXPECT_EQ(fault(seventh, "86419753086419753086419753077"), "");
    EXPECT_NE(fault(seventh, "86419753086419753086419753078"), "");
    EXPECT_EQ(fault(seventh, "7e999999999999"), "");
    EXPECT_NE(fault(seventh, "1e999999999999"), "");
    const auto unique = compiled(R"({"uniqueItems": true})");
    EXPECT_EQ(fault(unique, "[9007199254740993, 9007199254740992]"), "");
    EXPECT_NE(fault(unique, "[1, 1.0]"), "");
    EXPECT_NE(fault(unique, "[10e22222222222222222, 1e22222222222222222]"), "") << "as large";
    const auto integer = compiled(R"({"type": "integer"})");
    EXPECT_EQ(fault(integer, "1.50e1"), "");
    EXPECT_NE(fault(integer, "9007199254740993.5"), "");
}

TEST(JsonSchema, ARecursionWithoutEndIsAFaultAndNotACrash) {
    for (const std::string_view text :
         {R"({"$ref": "#"})", R"({"allOf": [{"$ref": "#"}]})", R"({"not": {"$ref": "#"}})",
          R"({"if": {"$ref": "#"}, "then": {"$ref": "#"}})",
          R"({"definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}},
              "$ref": "#/definitions/a"})"}) {
        EXPECT_THAT(fault(compiled(text), "{}"), HasSubstr("refers to itself without end")) << text;
    }
}

TEST(JsonSchema, ASchemaMayReferToItselfForWhatIsWithin) {
    const auto tree = compiled(
        R"({"type": "object", "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}})");
    EXPECT_EQ(fault(tree, repeated(R"({"next": )", 100) + "null" + repeated("}", 100)), "");
    EXPECT_THAT(fault(tree, repeated(R"({"next": )", 100) + "7" + repeated("}", 100)),
                HasSubstr("is like none of anyOf"));
}

// What is deepest fits the stack, with sanitizers, too.
TEST(JsonSchema, SubschemasWithinOneAnotherHaveALimit) {
    const auto schema = compiled(repeated(R"({"allOf": [)", 45) +
                                 R"({"properties": {"next": {"$ref": "#"}}})" + repeated("]}", 45));
    EXPECT_EQ(fault(schema, repeated(R"({"next": )", 9) + "7" + repeated("}", 9)), "");
    EXPECT_THAT(fault(schema, repeated(R"({"next": )", 100) + "7" + repeated("}", 100)),
                HasSubstr("nested too deeply"));
}

TEST(JsonSchema, NothingTakesMoreStepsThanItMay) {
    std::string text = R"({"definitions": {"d30": {"type": "object"})";
    for (int i = 0; i < 30; ++i) {
        const std::string next = R"({"$ref": "#/definitions/d)" + std::to_string(i + 1) + "\"}";
        text += ", \"d" + std::to_string(i) + R"(": {"allOf": [)" + next + ", " + next + "]}";
    }
    text += R"(}, "$ref": "#/definitions/d0"})";
    EXPECT_THAT(fault(compiled(text), "{}"), HasSubstr("steps to check"));
}

// Each of these is one step by the count of subschemas, and a millisecond or more of time.
TEST(JsonSchema, TextsThatAreGoneOverCountAsSteps) {
    constexpr int kTimes = 1'000;
    const auto many = [](const std::string& rule) {
        return compiled(R"({"definitions": {"d": )" + rule + R"(}, "allOf": [)" +
                        repeated(R"({"$ref": "#/definitions/d"}, )", kTimes) + "{}]}");
    };
    const std::string digits(500'000, '7');
    for (const std::string_view rule :
         {R"({"minimum": 1})", R"({"type": "integer"})", R"({"multipleOf": 7})"}) {
        EXPECT_THAT(fault(many(std::string(rule)), digits), HasSubstr("steps to check")) << rule;
    }
    EXPECT_THAT(fault(many(R"({"maxLength": 500000})"), "\"" + digits + "\""),
                HasSubstr("steps to check"));
    EXPECT_THAT(fault(many(R"({"properties": {"a": true}})"), "{\"" + digits + "\": 1}"),
                HasSubstr("steps to check"));
    const std::string names = repeated(R"("a", )", 30'000) + R"("a")";
    EXPECT_THAT(fault(many(R"({"required": [)" + names + "]}"), R"({"a": 1})"),
                HasSubstr("steps to check"));
    // Where nothing is gone over nothing is counted, and what is too long is no value of an enum.
    EXPECT_EQ(fault(many(R"({"type": "number"})"), digits), "");
    const std::string items = "[" + repeated("0,", 500'000) + "0]";
    EXPECT_EQ(fault(many(R"({"maxItems": 500001})"), items), "");
    EXPECT_EQ(fault(many(R"({"not": {"enum": [7, [0]]}})"), items), "");
}

TEST(JsonSchema, ACheckEndsWhereItIsToldTo) {
    std::stop_source stop;
    JsonSchema::Violation violation;
    std::string items = "[0";
    for (int i = 0; i < 20'000; ++i) items += ",0";
    items += ']';
    const auto schema = compiled(R"({"items": {"type": "integer"}})");
    EXPECT_EQ(schema.check(items, stop.get_token(), violation), JsonSchema::Outcome::kHolds);
    const auto pattern = compiled(R"({"pattern": "^(a+)+$"})");
    stop.request_stop();
    EXPECT_EQ(schema.check(items, stop.get_token(), violation), JsonSchema::Outcome::kStopped);
    EXPECT_EQ(pattern.check("\"" + std::string(50, 'a') + "b\"", stop.get_token(), violation),
              JsonSchema::Outcome::kStopped);
}

TEST(JsonSchema, TellsTheFirstItemThatIsThereTwice) {
    const auto schema = compiled(R"({"uniqueItems": true})");
    EXPECT_THAT(fault(schema, R"([1, {"a": 1, "b": 2}, 3, {"b": 2, "a": 1.0}, 1])"),
                HasSubstr("has the item 3 twice"));
    EXPECT_THAT(fault(schema, "[0, 0, 0, 0]"), HasSubstr("has the item 1 twice"));
    EXPECT_EQ(fault(schema, R"([1, "1", [1], true, null])"), "");
}

TEST(JsonSchema, APayloadMayHaveNoMoreValuesThanTheLimit) {
    const auto any = compiled("{}");
    const auto zeros = [](std::size_t count) {
        std::string text(2 * count + 1, '0');
        for (std::size_t i = 0; i < text.size(); i += 2) text[i] = ',';
        text.front() = '[';
        text.back() = ']';
        return text;
    };
    EXPECT_EQ(fault(any, zeros(schema::JsonDocument::kMaxValues - 1)), "");
    EXPECT_THAT(fault(any, zeros(schema::JsonDocument::kMaxValues)),
                HasSubstr("more than 10000000 values and names"));
}

TEST(JsonSchema, APatternTakesNoMoreStepsThanItMay) {
    const auto schema = compiled(R"({"pattern": "^(a+)+$"})");
    EXPECT_EQ(fault(schema, "\"aaaa\""), "");
    EXPECT_THAT(fault(schema, "\"" + std::string(50, 'a') + "b\""), HasSubstr("steps to search"));
    const std::string many(200'000, 'a');
    // Ends, however it does.
    static_cast<void>(fault(compiled(R"({"pattern": "^(a|b)*$"})"), "\"" + many + "\""));
    // No place takes many steps, and all of them together do.
    EXPECT_THAT(fault(compiled(R"({"pattern": "a+$"})"), "\"" + many + "b\""),
                HasSubstr("steps to search"));
    std::string items = "[\"x\"";
    for (int i = 0; i < 2'000; ++i) items += ",\"" + std::string(15, 'a') + "b\"";
    EXPECT_THAT(fault(compiled(R"({"items": {"not": {"pattern": "^(a+)+$"}}})"), items + "]"),
                HasSubstr("steps to search"));
    EXPECT_EQ(fault(compiled(R"({"pattern": "^[a-z]+$"})"), "\"" + many + "\""), "");
}

TEST(JsonSchema, HalfOfASurrogatePairHidesNothingFromAPattern) {
    EXPECT_NE(fault(compiled(R"({"not": {"pattern": "b"}})"), R"("b\ud800")"), "");
    EXPECT_EQ(fault(compiled(R"({"pattern": "^a.b$"})"), R"("a\udc00b")"), "");
    EXPECT_NE(fault(compiled(R"({"patternProperties": {"^x": {"type": "integer"}}})"),
                    R"({"x\ud800": "text"})"),
              "");
}

TEST(JsonSchema, RefusesPatternsThatAreTooLargeOrForeign) {
    EXPECT_THAT(refusal_of(R"({"pattern": ")" + std::string(200'000, 'a') + "\"}"),
                HasSubstr("more than 4096 bytes"));
    EXPECT_THAT(
        refusal_of(R"({"pattern": ")" + repeated("(", 1'000) + repeated(")", 1'000) + "\"}"),
        HasSubstr("not usable"));
    EXPECT_THAT(refusal_of(R"({"patternProperties": {"[": true}})"), HasSubstr("'['"));
    EXPECT_THAT(refusal_of(R"({"pattern": "a\\Z"})"), HasSubstr("ECMA 262 has not"));
    EXPECT_THAT(refusal_of(R"({"pattern": "(*UCP)a"})"), HasSubstr("nothing to repeat"));
}

TEST(JsonSchema, CompiledPatternsCountAndHaveALimit) {
    const std::string large = R"("(a(b(c)){1,50}){1,20}")";
    EXPECT_GT(compiled(R"({"pattern": )" + large + "}").bytes(), 10'000U);
    std::string all = R"({"patternProperties": {"x": true)";
    for (int i = 0; i < 5'000; ++i) {
        all += R"(, "(a(b(c)){1,50}){1,20})" + std::to_string(i) + "\": true";
    }
    EXPECT_THAT(refusal_of(all + "}}"), HasSubstr("patterns take more than 8388608 bytes"));
}

TEST(JsonSchema, ReadsPatternsAsEcma262Does) {
    EXPECT_NE(fault(compiled(R"({"pattern": "^\\d$"})"), "\"\xd9\xa3\""), "");  // an Arabic digit
    EXPECT_NE(fault(compiled(R"({"pattern": "^a$"})"), R"("a\n")"), "");
    EXPECT_EQ(fault(compiled(R"({"pattern": "^\\u00e9[^]$"})"), "\"\xc3\xa9\xc3\xa9\""), "");
    EXPECT_EQ(fault(compiled(R"({"pattern": "^(?!b)\\w+$"})"), R"("abc")"), "");
    EXPECT_NE(fault(compiled(R"({"pattern": "^(?!b)\\w+$"})"), R"("bc")"), "");
    EXPECT_EQ(fault(compiled(R"({"pattern": "^[[:alpha:]]$"})"), R"(":]")"), "");
}

TEST(JsonSchema, RefusesWhatItWouldNotLookAt) {
    EXPECT_THAT(refusal_of(R"({"$schema": "https://json-schema.org/draft/2020-12/schema"})"),
                HasSubstr("none of the drafts 4, 6 and 7"));
    EXPECT_THAT(refusal_of(R"({"properties": {"a": {"dependentRequired": {}}}})"),
                HasSubstr("at /properties/a: 'dependentRequired' is a keyword of a later draft"));
    EXPECT_THAT(refusal_of(R"({"$schema": "http://json-schema.org/draft-04/schema#", "const": 1})"),
                HasSubstr("'const'"));
    EXPECT_THAT(refusal_of(R"({"$schema": "http://json-schema.org/draft-06/schema#", "if": {}})"),
                HasSubstr("'if'"));
}

TEST(JsonSchema, PassesOverWordsThatAreNoKeywords) {
    const auto schema = compiled(
        R"({"title": "t", "x-owner": 7, "javaType": "a.B", "format": "date", "type": "string",
            "properties": {"unevaluatedItems": {"type": "string"}}})");
    EXPECT_EQ(fault(schema, R"("no date")"), "");
}

TEST(JsonSchema, RefusesWhatIsNoSchema) {
    for (const std::string_view text : {"",
                                        "{",
                                        "[]",
                                        "7",
                                        R"({"type": "text"})",
                                        R"({"type": []})",
                                        R"({"minimum": "1"})",
                                        R"({"minLength": -1})",
                                        R"({"minLength": 1.5})",
                                        R"({"required": "a"})",
                                        R"({"required": [1]})",
                                        R"({"properties": []})",
                                        R"({"properties": {"a": 1}})",
                                        R"({"allOf": []})",
                                        R"({"items": 3})",
                                        R"({"enum": 3})",
                                        R"({"multipleOf": 0})",
                                        R"({"$ref": "#/definitions/none"})",
                                        R"({"$ref": "http://elsewhere.example/x"})",
                                        R"({"definitions": {"a": {"type": 3}}})",
                                        R"({"uniqueItems": 1})",
                                        "\xff"}) {
        EXPECT_THAT(refusal_of(text), Not(IsEmpty())) << text;
    }
    EXPECT_THAT(refusal_of(repeated("{\"not\":", 200) + "{}" + repeated("}", 200)),
                HasSubstr("more than 128"));
}

TEST(JsonSchema, APayloadThatCannotBeReadViolates) {
    const auto any = compiled("{}");
    EXPECT_EQ(fault(any, "{"), ": is not JSON ()");
    EXPECT_EQ(fault(any, ""), ": is not JSON ()");
    EXPECT_THAT(fault(any, repeated("[", 129) + repeated("]", 129)), HasSubstr("more than 128"));
    EXPECT_EQ(fault(any, repeated("[", 128) + repeated("]", 128)), "");
}

TEST(JsonSchema, FindsWhatItRefersToByTheNameOfTheReference) {
    const References references{{"address.json", R"({"required": ["city"]})"},
                                {"http://x.example/c", R"({"definitions": {"d": {"const": 1}}})"}};
    const auto schema = compiled(R"({"properties": {
        "to": {"$ref": "address.json"}, "c": {"$ref": "http://x.example/c#/definitions/d"}}})",
                                 references);
    EXPECT_THAT(fault(schema, R"({"to": {}})"), HasSubstr("/to: has no property 'city'"));
    EXPECT_NE(fault(schema, R"({"c": 2})"), "");
    EXPECT_EQ(fault(schema, R"({"to": {"city": "x"}, "c": 1})"), "");
    // A reference's name counts also where the schema has an address of its own.
    const auto named = compiled(
        R"({"$id": "http://y.example/deep/a", "properties": {"to": {"$ref": "address.json"}}})",
        references);
    EXPECT_NE(fault(named, R"({"to": {}})"), "");
}

}  // namespace
}  // namespace outbox::test
