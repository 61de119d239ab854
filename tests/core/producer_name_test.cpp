#include "core/producer_name.h"

#include <gtest/gtest.h>
#include <set>

namespace outbox {
namespace {

TEST(ProducerName, IsAnotherForEachLifeOfALedger) {
    const LedgerLife life{.database = "7301/16388",
                          .table = "16401/16403/p",
                          .since_us = 1'700'000'000'000'000,
                          .source = "public.outbox_events"};
    std::set<std::string> names{producer_name(life)};
    const auto add = [&](auto change) {
        LedgerLife other = life;
        change(other);
        names.insert(producer_name(other));
    };
    add([](LedgerLife& other) { other.database = "7301/16389"; });
    add([](LedgerLife& other) { other.table = "16401/16404/p"; });
    add([](LedgerLife& other) { ++other.since_us; });
    add([](LedgerLife& other) { other.source = "public.outbox_events/acme"; });
    // Parts do not run into each other.
    add([](LedgerLife& other) {
        other.database = "7301";
        other.table = "16388|16401/16403/p";
        other.source = "p|" + other.source;
    });
    EXPECT_EQ(names.size(), 6U);
    EXPECT_EQ(producer_name(life), producer_name(LedgerLife(life)));
}

}  // namespace
}  // namespace outbox
