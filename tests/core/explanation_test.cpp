#include "core/explanation.h"

#include <gtest/gtest.h>

namespace outbox {
namespace {

constexpr std::int64_t kNow = 1'780'000'000'000'000;  // 2026-05-28T20:26:40Z
constexpr std::int64_t kSecond = 1'000'000;

// An event that a route has not finished, and a relay that leads.
Facts facts() {
    Facts out;
    out.id = "01939d3e-7c00-7aaa-8000-000000000001";
    out.table = {.name = "public.outbox_events",
                 .removes = true,
                 .keeps_ledger = true,
                 .ids_are_uuids = true,
                 .tells_writers = true};
    out.trace.row = TracedEvent{.id = out.id,
                                .position = 7,
                                .topic = "orders",
                                .key = "o-1",
                                .occurred_at_us = kNow - 60 * kSecond};
    out.trace.routes = {{.route = "billing", .source = out.table.name}};
    out.lease.held = true;
    out.routes = {{.name = "billing", .circuit = "closed"}};
    out.now_us = kNow;
    return out;
}

std::string reasons(const Explanation& explanation) {
    std::string out;
    for (const Waiting& one : explanation.waits) {
        out.append(out.empty() ? "" : " ").append(one.reason);
    }
    return out;
}

bool says(const Explanation& explanation, std::string_view part) {
    for (const std::string& remark : explanation.remarks) {
        if (remark.find(part) != std::string::npos) return true;
    }
    for (const Waiting& one : explanation.waits) {
        if (one.text.find(part) != std::string::npos) return true;
    }
    for (const Moment& one : explanation.timeline) {
        if (one.text.find(part) != std::string::npos) return true;
    }
    return false;
}

TEST(Explanation, OfAnEventThatNothingHoldsDoesNotGuess) {
    Facts all = facts();
    EXPECT_TRUE(says(explain(all), "nothing that the database knows holds it; the relay's log"));
    EXPECT_TRUE(says(explain(all), "a tenant_share its tenant "));
    all.trace.row->occurred_at_us = kNow - kSecond;
    EXPECT_TRUE(says(explain(all), "it is under way, or is recorded within a second or so"));
    EXPECT_EQ(reasons(explain(all)), "under_way");
}

TEST(Explanation, NamesATransactionThatIsOpenForLongWhereNothingElseHoldsTheEvent) {
    Facts all = facts();
    all.writers = {{.pid = 1, .state = "active", .began_at_us = kNow - kSecond},
                   {.pid = 2,
                    .user = "app",
                    .application = "shop",
                    .state = "idle in transaction",
                    .began_at_us = kNow - 600 * kSecond,
                    .statement_at_us = kNow - 300 * kSecond}};
    const Explanation seen = explain(all);
    EXPECT_EQ(reasons(seen), "open_transaction");
    EXPECT_TRUE(says(seen,
                     "pid 2 (application 'shop', user app), idle in transaction, begun "
                     "2026-05-28T20:16:40Z (10 min ago), last statement "
                     "2026-05-28T20:21:40Z (5 min ago)"));
    all.routes[0].circuit = "open";
    EXPECT_EQ(reasons(explain(all)), "circuit_open");
}

TEST(Explanation, OfADelayedEventThatIsLongDueSaysWhetherNobodyMovesItOrTheTableRefusesIt) {
    Facts all = facts();
    all.trace.delayed = true;
    all.trace.routes.clear();
    all.trace.row->available_at_us = kNow - 60 * kSecond;
    all.lease.held = true;
    EXPECT_EQ(reasons(explain(all)), "delayed");
    EXPECT_TRUE(says(explain(all), "has not moved it into the outbox table"));
    all.trace.row->available_at_us = kNow - kSecond;
    EXPECT_TRUE(says(explain(all), "only a relay that leads moves what is due"));
    all.trace.row->available_at_us = kNow - 60 * kSecond;
    all.lease.held = false;
    EXPECT_EQ(reasons(explain(all)), "delayed no_relay");
}

TEST(Explanation, OfATenantThatIsPausedSaysSinceWhenByWhomAndWhy) {
    Facts all = facts();
    all.trace.row->tenant_id = "acme";
    all.paused = {{"globex", "no", "user ann", kNow},
                  {"acme", "moves", "user bob", kNow - kSecond}};
    const Explanation seen = explain(all);
    EXPECT_EQ(reasons(seen), "tenant_paused");
    EXPECT_TRUE(says(seen,
                     "its tenant acme is paused since 2026-05-28T20:26:39Z (1 s ago) by user bob: "
                     "moves; `outbox tenant resume acme"));
    all.trace.row->tenant_id = "initech";
    EXPECT_EQ(reasons(explain(all)), "under_way");
}

TEST(Explanation, OfALetterThatWasRetriedSaysThatItsTenantIsPaused) {
    Facts all = facts();
    all.trace.row.reset();
    all.trace.routes.clear();
    all.paused = {{"acme", "moves", "user bob", kNow - kSecond}};
    all.dead = {DeadInfo{.id = all.id, .route = "r", .tenant_id = "acme"}};
    EXPECT_EQ(reasons(explain(all)), "");
    all.dead[0].retry_requested_at_us = kNow;
    EXPECT_EQ(reasons(explain(all)), "tenant_paused");
    all.dead[0].tenant_id = "globex";
    EXPECT_EQ(reasons(explain(all)), "");
}

TEST(Explanation, TellsWhetherAMissingTopicIsTheEvents) {
    Facts all = facts();
    all.routes[0].last_error_at_us = kNow;
    all.routes[0].last_error = "OB_TOPIC_UNKNOWN: topic orders does not exist";
    EXPECT_EQ(reasons(explain(all)), "route_error");
    EXPECT_TRUE(says(explain(all), "names the topic of this event, 'orders'"));
    all.routes[0].last_error = "OB_TOPIC_UNKNOWN: topic bills does not exist";
    EXPECT_TRUE(says(explain(all), "names another topic than this event's, 'orders'"));
    // From before the event: it is no reason that is known.
    all.routes[0].last_error_at_us = kNow - 120 * kSecond;
    EXPECT_EQ(reasons(explain(all)), "under_way");
    EXPECT_TRUE(says(explain(all), "From before the event: the route's last error, at "));
}

TEST(Explanation, OfATopicThatIsDownCountsNoAttempts) {
    Facts all = facts();
    all.trace.routes[0].failing =
        FailingEvent{.next_attempt_us = kNow - kSecond, .error_code = "OB_TOPIC_UNKNOWN"};
    EXPECT_EQ(reasons(explain(all)), "part_down");
    EXPECT_TRUE(says(explain(all), "is missing (the event names 'orders'), and no attempt"));
    EXPECT_EQ(explain(all).waits[0].next_attempt_us, 0);
    all.trace.routes[0].failing->error_code = "OB_SINK_TIMEOUT";
    EXPECT_TRUE(says(explain(all),
                     "the topic, partition or store that it needs is down, and no attempt is "
                     "counted"));
    all.trace.routes[0].earlier = {.id = "e1", .failing = all.trace.routes[0].failing};
    all.trace.routes[0].failing.reset();
    EXPECT_EQ(reasons(explain(all)), "behind");
    EXPECT_TRUE(
        says(explain(all),
             "of which the topic, partition or store that it needs is down: OB_SINK_TIMEOUT"));
}

TEST(Explanation, HidesWhatIsSecretInErrors) {
    Facts all = facts();
    all.trace.routes[0].failing =
        FailingEvent{.attempts = 2, .error = "at postgresql://u:s3cr3t-word@h/db"};
    all.routes[0].last_error = "at amqp://u:s3cr3t-word@h";
    all.routes[0].circuit = "open";
    all.dead = {{.id = all.id, .route = "other", .error = "at nats://u:s3cr3t-word@h"}};
    EXPECT_FALSE(says(explain(all), "s3cr3t"));
}

TEST(Explanation, OfALetterThatBlocksItsKeyFollowsTheConfiguration) {
    Facts all = facts();
    all.dead_of_key = {{.id = "e1", .route = "billing"}};
    EXPECT_TRUE(says(explain(all), "only its configuration says"));
    all.blocks_key = [](const std::string&) { return true; };
    EXPECT_EQ(reasons(explain(all)), "behind_dead");
    EXPECT_FALSE(says(explain(all), "only its configuration says"));
    all.blocks_key = [](const std::string&) { return false; };
    EXPECT_EQ(reasons(explain(all)), "under_way");
}

TEST(Explanation, DoesNotTakeADiscardedLetterForAnAcknowledgement) {
    Facts all = facts();
    all.trace.routes[0].finished = true;
    EXPECT_EQ(explain(all).state, "sent");
    EXPECT_TRUE(says(explain(all), "acknowledged by its destination, and recorded"));
    all.audit = {{.at_us = kNow, .who = "root", .action = "dead discard", .detail = "ids"}};
    EXPECT_FALSE(says(explain(all), "and recorded"));
    EXPECT_TRUE(says(explain(all), "or its dead letter was of this route and discarded"));
}

// The audit names the first 1,000 of what was ended at once.
TEST(Explanation, DoesNotTakeALetterForAnAcknowledgementThatManyWereDiscardedWith) {
    Facts all = facts();
    all.trace.routes[0].finished = true;
    all.audit = {{.at_us = kNow,
                  .who = "root",
                  .action = "dead discard",
                  .detail = "route billing",
                  .events = 1'500,
                  .is_unnamed = true}};
    EXPECT_FALSE(says(explain(all), "and recorded"));
    EXPECT_TRUE(says(explain(all), "its dead letter was one of the 1500 that `dead discard`"));
    EXPECT_FALSE(says(explain(all), "by root")) << "nothing says that it was done to this one";
    all.audit[0].at_us = all.trace.row->occurred_at_us - kSecond;
    EXPECT_TRUE(says(explain(all), "and recorded")) << "it was written since";
    all.audit[0].at_us = kNow;
    all.trace = {};
    EXPECT_EQ(explain(all).state, "unknown");
    EXPECT_TRUE(says(explain(all), "its dead letter may have been one of the 1500"));
}

// As in an adopted table with a status column: FAILED is no longer pending.
TEST(Explanation, DoesNotTakeARowThatWasGivenUpOnForOneThatWasPublished) {
    Facts all = facts();
    all.trace.row->finished = true;
    all.dead = {{.id = all.id, .route = "billing"}};
    EXPECT_EQ(explain(all).state, "dead");
    EXPECT_TRUE(says(explain(all), "given up on, as its row says"));
    EXPECT_FALSE(says(explain(all), "published, as"));
    all.dead.clear();
    all.audit = {{.at_us = kNow, .who = "root", .action = "dead discard", .detail = "ids"}};
    EXPECT_EQ(explain(all).state, "gone");
    EXPECT_TRUE(says(explain(all), "its dead letter was discarded"));
    EXPECT_FALSE(says(explain(all), "published, as"));
    all.trace.row->finished_at_us = kNow;
    EXPECT_EQ(explain(all).state, "sent") << "it was delivered since";
    EXPECT_TRUE(says(explain(all), "published, as its row says"));
}

TEST(Explanation, OfARowThatIsGoneWhileItFailedIsNotThatOfAnUnknownId) {
    Facts all = facts();
    all.trace.row.reset();
    all.trace.routes[0].failing = FailingEvent{.attempts = 2};
    EXPECT_EQ(explain(all).state, "gone");
    EXPECT_TRUE(says(explain(all), "attempts of it are still known"));
    all.trace.routes.clear();
    EXPECT_EQ(explain(all).state, "unknown");
}

TEST(Explanation, SaysWhichConsumersMayHaveForgottenAnId) {
    Facts all = facts();
    all.trace = {};
    all.received =
        ReceivedMessages{.found = {},
                         .consumers = {{.name = "early", .floor_us = 1'700'000'000'000'000},
                                       {.name = "late", .floor_us = kNow}}};
    const Explanation seen = explain(all);  // made in December of 2024
    EXPECT_EQ(seen.state, "unknown");
    EXPECT_TRUE(says(seen,
                     "consumer late may have forgotten it: ids of messages from before "
                     "2026-05-28T20:26:40Z were pruned"));
    EXPECT_FALSE(says(seen, "consumer early"));
}

// The row is gone: its route has finished it by writing it down for the endpoints.
TEST(Explanation, OfAnEventThatEndpointsWaitForSaysWhyEachDoes) {
    Facts all = facts();
    all.trace = {};
    all.webhooks.emplace();
    EXPECT_EQ(explain(all).state, "unknown");
    EXPECT_TRUE(says(explain(all), "no endpoint of webhooks in the databases that were asked"));
    EndpointDelivery one{.endpoint = "shop", .event_id = all.id, .written_at_us = kNow - kSecond};
    const auto with = [&](const EndpointDelivery& delivery) {
        all.webhooks->found = {delivery};
        return explain(all);
    };
    EXPECT_EQ(with(one).state, "waiting");
    EXPECT_EQ(reasons(with(one)), "endpoint_under_way");
    one.earlier = {.count = 1'000, .more = true};
    EXPECT_TRUE(says(with(one),
                     "endpoint shop: nothing that the database knows holds it, and "
                     "1000 or more go there before it"));
    one.behind = "other";
    EXPECT_EQ(reasons(with(one)), "endpoint_behind");
    EXPECT_EQ(with(one).waits[0].behind, "other");
    one.paused_until_us = kNow + 90 * kSecond;
    one.last_error = "HTTP 503";
    EXPECT_EQ(reasons(with(one)), "endpoint_paused endpoint_behind");
    EXPECT_TRUE(
        says(with(one), "its circuit is open until 2026-05-28T20:28:10Z (in 90 s): HTTP 503"));
    one.behind.clear();
    one.failing = {.attempts = 2,
                   .first_failed_us = kNow - kSecond,
                   .next_attempt_us = kNow + 9 * kSecond,
                   .error = "HTTP 500 with bearer"};
    EXPECT_EQ(reasons(with(one)), "endpoint_paused endpoint_failing");
    EXPECT_TRUE(says(with(one), "it failed 2 times; the next attempt is due at"));
    one.endpoint_disabled = true;
    one.disabled_because = "HTTP 410";
    EXPECT_EQ(reasons(with(one)), "endpoint_disabled");
    EXPECT_TRUE(says(with(one), "it is disabled: HTTP 410; `outbox webhook enable shop`"));
    one.endpoint_disabled = false;
    one.dead = true;
    EXPECT_EQ(with(one).state, "dead");
    EXPECT_TRUE(with(one).waits.empty());
    EXPECT_TRUE(says(with(one), "endpoint shop was given up on"));
    // One that waits beside one that is dead; nobody delivers, and another route has not sent it.
    EndpointDelivery other{.endpoint = "bank", .event_id = all.id};
    all.trace = facts().trace;
    all.webhooks->found = {one, other};
    all.webhooks->more = true;
    all.webhooks->found[1].served = false;
    const Explanation seen = explain(all);
    EXPECT_EQ(seen.state, "waiting");
    EXPECT_EQ(reasons(seen), "under_way endpoint_not_served endpoint_under_way");
    EXPECT_TRUE(says(seen, "more endpoints than are named"));
}

TEST(Explanation, ReadsTheTimeOfAnIdOfVersion7Alone) {
    EXPECT_EQ(second_text(time_of_uuid7("01939d3e-7c00-7aaa-8000-000000000001")),
              "2024-12-06T18:32:18Z");
    EXPECT_EQ(second_text(time_of_uuid7("01939D3E-7C00-7AAA-8000-000000000001")),
              "2024-12-06T18:32:18Z");
    EXPECT_EQ(time_of_uuid7("01939d3e-7c00-4aaa-8000-000000000001"), 0);
    EXPECT_EQ(time_of_uuid7("o-1"), 0);
}

}  // namespace
}  // namespace outbox
