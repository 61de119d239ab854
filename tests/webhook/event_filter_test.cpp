#include "webhook/event_filter.h"

#include <gtest/gtest.h>

namespace outbox::webhook {
namespace {

EventFilter filter(std::string_view text) {
    auto made = EventFilter::make(text);
    EXPECT_TRUE(made.ok()) << text;
    return std::move(*made);
}

TEST(WebhookEventFilter, AStarStandsForAnyText) {
    EXPECT_TRUE(filter("order.*").wants("order.created"));
    EXPECT_TRUE(filter("order.*").wants("order.line.added"));
    EXPECT_TRUE(filter("order.*").wants("order."));
    EXPECT_FALSE(filter("order.*").wants("order"));
    EXPECT_FALSE(filter("order.*").wants("Order.created"));
    EXPECT_FALSE(filter("order.*").wants("preorder.created"));
    EXPECT_TRUE(filter("*.created").wants("order.created"));
    EXPECT_FALSE(filter("*.created").wants("order.created.late"));
    EXPECT_TRUE(filter("o*r.c*d").wants("order.created"));
    EXPECT_TRUE(filter("**").wants("x"));
    EXPECT_TRUE(filter("a*b*c").wants("a-b-b-c"));
    EXPECT_FALSE(filter("a*b*c").wants("a-c-b"));
    EXPECT_TRUE(filter("order.created").wants("order.created"));
    EXPECT_FALSE(filter("order.created").wants("order_created"));
}

TEST(WebhookEventFilter, OneOfItsPatternsIsEnough) {
    const EventFilter some = filter(" order.*,  invoice.paid order.*\n");
    EXPECT_EQ(some.text(), "order.*,invoice.paid");
    EXPECT_TRUE(some.wants("invoice.paid"));
    EXPECT_FALSE(some.wants("invoice.sent"));
    EXPECT_EQ(filter(some.text()).text(), some.text());
}

TEST(WebhookEventFilter, NoneMeansEveryEvent) {
    EXPECT_EQ(filter("").text(), "*");
    EXPECT_EQ(filter(" , ").text(), "*");
    EXPECT_TRUE(filter("").wants("anything"));
    EXPECT_TRUE(EventFilter().wants(""));
    EXPECT_FALSE(filter("a*").wants(""));
}

TEST(WebhookEventFilter, IsBounded) {
    EXPECT_FALSE(EventFilter::make(std::string(256, 'a')).ok());
    EXPECT_TRUE(EventFilter::make(std::string(255, 'a')).ok());
    std::string many;
    for (int i = 0; i < 100; ++i) many += std::to_string(i) + ",";
    EXPECT_TRUE(EventFilter::make(many + "99").ok());
    EXPECT_FALSE(EventFilter::make(many + "100").ok());
    EXPECT_FALSE(EventFilter::make("a\x1b").ok());
    EXPECT_FALSE(EventFilter::make("\xFF").ok());
}

}  // namespace
}  // namespace outbox::webhook
