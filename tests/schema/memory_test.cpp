// What checks and schemas take of memory, by each operator new of this program.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <malloc.h>
#include <new>
#include <thread>
#include <vector>

#include "schema/json_schema.h"
#include "schema/registry.h"

namespace {

std::atomic<std::size_t> g_now{0};
std::atomic<std::size_t> g_most{0};

}  // namespace

void* operator new(std::size_t size) {
    void* const memory = std::malloc(size);
    if (memory == nullptr) throw std::bad_alloc();
    const std::size_t now = g_now += malloc_usable_size(memory);
    std::size_t most = g_most;
    while (most < now && !g_most.compare_exchange_weak(most, now)) {
    }
    return memory;
}
void operator delete(void* memory) noexcept {
    g_now -= malloc_usable_size(memory);
    std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
    operator delete(memory);
}

namespace outbox::test {
namespace {

using schema::JsonSchema;

JsonSchema compiled(std::string_view text) {
    std::string why;
    auto schema = JsonSchema::compile(text, {}, why);
    EXPECT_TRUE(schema) << why;
    return *std::move(schema);
}

// In an array, so often.
std::string many(std::string_view item, int count) {
    std::string text = "[" + std::string(item);
    for (int i = 1; i < count; ++i) text.append(",").append(item);
    return text + "]";
}

TEST(SchemaMemory, ACheckTakesNoMoreThan20BytesForEachValueAndName) {
    constexpr int kCount = 200'000;
    constexpr std::size_t kBeside = 64 << 10;
    struct Case {
        std::string payload;
        std::size_t values;  // and names
    };
    for (const auto& [payload, values] :
         {Case{many("0", kCount), kCount}, Case{many("[]", kCount), kCount},
          Case{many(R"({"b":0,"a":0})", kCount), 5 * kCount}, Case{many(R"("\n")", kCount), kCount},
          Case{many(R"({"\n":"\n"})", kCount), 3 * kCount}}) {
        for (const std::string_view rules :
             {"{}", R"({"items": {"not": {"const": {"c": 0}}}})", R"({"enum": [1]})"}) {
            const auto schema = compiled(rules);
            const std::size_t before = g_now;
            g_most = before;
            static_cast<void>(schema.check(payload));
            EXPECT_LE(g_most - before, 20 * values + kBeside)
                << payload.substr(0, 20) << ' ' << rules;
            EXPECT_EQ(g_now, before);
        }
    }
}

TEST(SchemaMemory, UniqueItemsTakeNoMoreThanAsMuchAgain) {
    constexpr std::size_t kCount = 200'000;
    std::string payload = "[0";
    for (std::size_t i = 1; i < kCount; ++i) payload += "," + std::to_string(i);
    payload += ']';
    const auto schema = compiled(R"({"uniqueItems": true})");
    const std::size_t before = g_now;
    g_most = before;
    EXPECT_FALSE(schema.check(payload));
    EXPECT_LE(g_most - before, 2 * 20 * kCount);
}

TEST(SchemaMemory, OfLargePayloadsOneIsCheckedAtATime) {
    auto config = schema::make_registry_config("http://127.0.0.1:9");
    ASSERT_TRUE(config.ok());
    schema::Registry registry(*std::move(config));
    constexpr std::size_t kCount = 1'000'000;
    const std::string payload = many("0", kCount);
    const auto schema = compiled(R"({"items": {"type": "integer"}})");
    const std::size_t before = g_now;
    g_most = before;
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            JsonSchema::Violation violation;
            EXPECT_EQ(registry.check_payload(schema, payload, {}, violation),
                      JsonSchema::Outcome::kHolds);
        });
    }
    threads.clear();
    EXPECT_LE(g_most - before, 20 * kCount);
    std::stop_source stop;
    stop.request_stop();
    JsonSchema::Violation violation;
    EXPECT_EQ(registry.check_payload(schema, payload, stop.get_token(), violation),
              JsonSchema::Outcome::kStopped);
    EXPECT_EQ(registry.check_payload(schema, payload, {}, violation), JsonSchema::Outcome::kHolds);
}

// But for patterns, which are PCRE2's.
TEST(SchemaMemory, ASchemaCountsWhatItTakes) {
    std::string wide = R"({"properties": {"p": true)";
    for (int i = 0; i < 2'000; ++i) {
        wide += ", \"p" + std::to_string(i) + R"(": {"required": ["aaaaaaaaaaaaaaaaaaaaaaaa"]})";
    }
    for (const std::string& text :
         {R"({"enum": )" + many("0", 50'000) + "}", R"({"examples": )" + many("[]", 50'000) + "}",
          R"({"allOf": )" + many(R"({"minLength": 1})", 2'000) + "}", wide + "}}"}) {
        const std::size_t before = g_now;
        const auto schema = compiled(text);
        const std::size_t taken = g_now - before;
        EXPECT_GE(schema.bytes(), taken / 10 * 8) << text.substr(0, 20);
        EXPECT_LE(schema.bytes(), taken / 10 * 14) << text.substr(0, 20);
    }
}

}  // namespace
}  // namespace outbox::test
