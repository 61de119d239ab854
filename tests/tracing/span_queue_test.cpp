#include "tracing/span_queue.h"

#include <chrono>
#include <gtest/gtest.h>
#include <string>
#include <thread>

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using tracing::Span;
using tracing::SpanQueue;

Span span_of(std::uint64_t id) {
    Span span;
    span.id = id;
    return span;
}

TEST(SpanQueue, GivesThemInTheirOrder) {
    SpanQueue queue;
    for (std::uint64_t id = 1; id <= 5; ++id) queue.offer(span_of(id));
    const auto first = queue.take(3, 0ms);
    const auto second = queue.take(3, 0ms);
    ASSERT_EQ(first.size(), 3U);
    ASSERT_EQ(second.size(), 2U);
    EXPECT_EQ(first.front().id, 1U);
    EXPECT_EQ(first.back().id, 3U);
    EXPECT_EQ(second.front().id, 4U);
    EXPECT_TRUE(queue.take(3, 0ms).empty());
}

TEST(SpanQueue, FullItDropsAndCounts) {
    SpanQueue queue;
    for (std::uint64_t id = 1; id <= SpanQueue::kMaxSpans + 7; ++id) queue.offer(span_of(id));
    EXPECT_EQ(queue.dropped(), 7U);
    EXPECT_EQ(queue.take(SpanQueue::kMaxSpans + 7, 0ms).back().id, SpanQueue::kMaxSpans);
    queue.offer(span_of(1));
    EXPECT_EQ(queue.dropped(), 7U);
}

TEST(SpanQueue, AFullBatchEndsTheWait) {
    SpanQueue queue;
    std::thread offers([&] {
        for (std::uint64_t id = 1; id <= 3; ++id) queue.offer(span_of(id));
    });
    EXPECT_EQ(queue.take(3, 1h).size(), 3U);
    offers.join();
}

TEST(SpanQueue, AwakeItWaitsForNothing) {
    SpanQueue queue;
    std::thread wakes([&] { queue.wake(); });
    EXPECT_TRUE(queue.take(3, 1h).empty());
    wakes.join();
    queue.offer(span_of(1));
    EXPECT_EQ(queue.take(3, 1h).size(), 1U);
}

}  // namespace
}  // namespace outbox::test
