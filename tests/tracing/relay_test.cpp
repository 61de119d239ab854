// A relay that tells a receiver of OTLP of what it publishes.

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/eventually.h"
#include "tests/support/http_client.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/tracing/receiver.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kWriter = "00f067aa0ba902b7";

class TracingRelay : public testing::Test {
  protected:
    void SetUp() override {
        url_ = shared_postgres().create_database();
        database_ = std::make_unique<Pg>(url_);
        ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
    }

    std::string destination() const { return "shop=mailbox+" + url_; }
    std::vector<std::string> arguments(const std::string& endpoint,
                                       const std::vector<std::string>& more = {}) const {
        std::vector<std::string> all{"--from",          url_,     "--to",    destination(),
                                     "--otlp-endpoint", endpoint, "--admin", "off"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    Finished check(const std::string& endpoint, const std::vector<std::string>& more = {}) {
        auto all = arguments(endpoint, more);
        all.insert(all.begin(), {"relay", "--check"});
        return outbox_.run(all);
    }
    // Gives the event's id.
    std::string emit(const std::string& key, const std::string& flags,
                     const std::string& topic = "orders") {
        const std::string parent =
            flags.empty() ? "NULL" : "'00-" + kTrace + "-" + kWriter + "-" + flags + "'";
        return database_->value("SELECT outbox_emit(topic => '" + topic + "', key => '" + key +
                                "', event_type => 'placed', payload => '{}', traceparent => " +
                                parent + ")");
    }
    void emit_many(int count) {
        database_->exec(
            "SELECT outbox_emit(topic => 'orders', key => n::text, payload => '{}', "
            "traceparent => '00-" +
            kTrace + "-" + kWriter + "-01') FROM generate_series(1, " + std::to_string(count) +
            ") n");
    }
    void await_mailbox(long long count) {
        ASSERT_TRUE(eventually(120s, std::to_string(count) + " messages", [&] {
            return database_->number("SELECT count(*) FROM outbox_mailbox") >= count;
        }));
    }
    static void await_spans(const SpanReceiver& receiver, std::size_t count) {
        ASSERT_TRUE(eventually(60s, std::to_string(count) + " spans",
                               [&] { return receiver.spans().size() >= count; }));
    }
    static void await_log(const Process& running, const std::string& text) {
        EXPECT_TRUE(eventually(60s, text, [&] {
            return running.stderr_text().find(text) != std::string::npos;
        })) << running.stderr_text();
    }
    static std::size_t times_in(const std::string& text, const std::string& what) {
        std::size_t count = 0;
        for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
            ++count;
        }
        return count;
    }

    OutboxBinary outbox_;
    std::string url_;
    std::unique_ptr<Pg> database_;
};

TEST_F(TracingRelay, AnEventHasASpanInTheTraceOfItsWriterWhereThatIsSampled) {
    const SpanReceiver receiver;
    emit("none", "");
    emit("unsampled", "00");
    const std::string id = emit("sampled", "01");
    const long long written_us = database_->number(
        "SELECT extract(epoch FROM occurred_at) * 1e6 FROM outbox_events WHERE id = '" + id + "'");
    Process relay = outbox_.start_relay(arguments(receiver.url()));
    await_spans(receiver, 1);
    await_mailbox(3);
    EXPECT_EQ(relay.stop().code, 0);
    const auto spans = receiver.spans();
    ASSERT_EQ(spans.size(), 1U);
    const SeenSpan& span = spans.front();
    EXPECT_EQ(span.trace, kTrace);
    EXPECT_EQ(span.parent, kWriter);
    EXPECT_NE(span.id, std::string(16, '0'));
    EXPECT_EQ(span.name, "outbox.publish");
    EXPECT_EQ(span.kind, 4);
    EXPECT_EQ(span.status, 0);
    EXPECT_GE(span.start_us, written_us);
    EXPECT_GE(span.us, 0);
    EXPECT_EQ(span.attributes.at("messaging.message.id"), id);
    EXPECT_EQ(span.attributes.at("messaging.destination.name"), "orders");
    EXPECT_EQ(span.attributes.at("messaging.operation.type"), "send");
    EXPECT_EQ(span.attributes.at("outbox.route"), "shop");
    EXPECT_EQ(span.attributes.at("outbox.event_type"), "placed");
    EXPECT_EQ(span.attributes.at("outbox.attempt"), "1");
    EXPECT_EQ(span.resource.at("service.name"), "outbox");
}

TEST_F(TracingRelay, EachFailedAttemptHasASpanWithItsErrorAndTheLogNamesTheTrace) {
    const SpanReceiver receiver;
    Process relay = outbox_.start_relay(arguments(receiver.url(), {"--allowed-topic", "orders"}));
    const std::string id = emit("bad", "01", "others");
    emit("good", "01");
    await_log(relay, "event=dead_letter");
    EXPECT_THAT(relay.stderr_text(), HasSubstr("trace_id=" + kTrace));
    await_spans(receiver, 2);
    auto spans = receiver.spans();
    const auto failed = std::find_if(spans.begin(), spans.end(),
                                     [](const SeenSpan& span) { return span.status != 0; });
    ASSERT_NE(failed, spans.end());
    EXPECT_EQ(failed->status, 2);
    EXPECT_EQ(failed->attributes.at("messaging.message.id"), id);
    EXPECT_THAT(failed->attributes.at("error.type"), HasSubstr("OB_"));
    EXPECT_THAT(failed->error, HasSubstr("others"));
    EXPECT_EQ(spans.size(), 2U);
}

TEST_F(TracingRelay, AReceiverThatIsAwayOrBusyDelaysNoEventAndGetsTheSpansLater) {
    const SpanReceiver receiver;
    receiver.set_mode("status 503");
    Process relay = outbox_.start_relay(arguments(receiver.url()));
    emit_many(1'000);
    await_mailbox(1'000);
    await_log(relay, "event=spans_not_taken");
    EXPECT_TRUE(receiver.spans().empty());
    receiver.set_mode("take");
    await_spans(receiver, 1'000);
    await_log(relay, "event=spans_taken");
    EXPECT_EQ(times_in(relay.stderr_text(), "event=spans_not_taken"), 1U);
    EXPECT_EQ(relay.stop().code, 0);
    EXPECT_EQ(receiver.spans().size(), 1'000U);
}

TEST_F(TracingRelay, BeyondItsRoomSpansAreDroppedAndCountedAndNoEventIs) {
    const SpanReceiver receiver;
    receiver.set_mode("status 503");
    const int port = free_port();
    auto all = arguments(receiver.url());
    all.back() = "127.0.0.1:" + std::to_string(port);
    Process relay = outbox_.start_relay(all);
    emit_many(20'000);
    await_mailbox(20'000);
    const std::string page = http(port, "GET", "/metrics").body;
    const auto at = page.find("\noutbox_spans_dropped_total{");
    ASSERT_NE(at, std::string::npos) << page;
    EXPECT_GT(std::stod(page.substr(page.find("} ", at) + 2)), 0);
    EXPECT_THAT(page, HasSubstr("outbox_spans_sent_total"));
}

TEST_F(TracingRelay, WhatIsRefusedIsGivenUpAndSaidOnceWithoutTheSecret) {
    const SpanReceiver receiver("Bearer t0ken-secret");
    Process relay = outbox_.start_relay(arguments(receiver.url(":wr0ng-token@")));
    emit_many(600);
    await_mailbox(600);
    await_log(relay, "event=spans_not_taken");
    emit_many(600);
    await_mailbox(1'200);
    EXPECT_EQ(relay.stop().code, 0);
    const std::string log = relay.stderr_text();
    EXPECT_EQ(times_in(log, "event=spans_not_taken"), 1U);
    EXPECT_THAT(log, HasSubstr("check the user, password or token"));
    EXPECT_THAT(log, Not(HasSubstr("wr0ng-token")));
    EXPECT_TRUE(receiver.spans().empty());
    Process right = outbox_.start_relay(arguments(receiver.url(":t0ken-secret@")));
    emit("right", "01");
    await_spans(receiver, 1);
}

TEST_F(TracingRelay, ARelayThatStopsSendsWhatItHasAndDoesNotWaitForOneThatHangs) {
    const SpanReceiver receiver;
    emit_many(100);
    {
        Process relay = outbox_.start_relay(arguments(receiver.url()));
        await_mailbox(100);
        EXPECT_EQ(relay.stop().code, 0);
    }
    EXPECT_EQ(receiver.spans().size(), 100U);
    receiver.set_mode("hang");
    emit_many(100);
    Process relay = outbox_.start_relay(arguments(receiver.url()));
    await_mailbox(200);
    EXPECT_EQ(relay.stop(60s).code, 0);
    EXPECT_EQ(receiver.spans().size(), 100U);
}

TEST_F(TracingRelay, CheckAsksTheReceiverAndWrongUrlsAreRefused) {
    const SpanReceiver receiver;
    const Finished good = check(receiver.url());
    EXPECT_EQ(good.status.code, 0) << good.out;
    EXPECT_THAT(good.out, HasSubstr("spans to " + receiver.url()));
    EXPECT_TRUE(receiver.spans().empty());
    const Finished elsewhere = check(receiver.url() + "/other");
    EXPECT_EQ(elsewhere.status.code, 1);
    EXPECT_THAT(elsewhere.out, HasSubstr("/v1/traces is added"));
    const Finished nobody = check("http://127.0.0.1:" + std::to_string(free_port()));
    EXPECT_EQ(nobody.status.code, 1);
    EXPECT_THAT(nobody.out, HasSubstr("problem  spans: "));
    const Finished wrong = check("grpc://collector:4317");
    EXPECT_EQ(wrong.status.code, 2) << wrong.err;
    const Finished clear = check("http://collector.example.com:4318", {"--require-tls"});
    EXPECT_EQ(clear.status.code, 2);
    EXPECT_THAT(clear.err, HasSubstr("the receiver of spans"));
}

}  // namespace
}  // namespace outbox::test
