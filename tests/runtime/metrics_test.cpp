#include "runtime/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace outbox::runtime {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Metrics, ShowFiguresOfTheTableAndOfEachRoute) {
    relay::RouteStats stats;
    stats.published = 12;
    stats.errors[static_cast<std::size_t>(ErrorCode::kSinkUnavailable)] = 3;
    stats.latency.add_us(4'000);
    stats.latency.add_us(7'000'000);
    MetricsSnapshot snapshot;
    snapshot.source = "public.outbox_events";
    snapshot.database_stats.backlog = 7;
    snapshot.database_stats.oldest_age_s = 1.5;
    snapshot.leading = true;
    snapshot.routes.push_back({"billing", &stats});
    const std::string page = render_metrics(snapshot);
    EXPECT_THAT(page, HasSubstr("outbox_backlog{source=\"public.outbox_events\"} 7\n"));
    EXPECT_THAT(page, HasSubstr("outbox_oldest_age_seconds{source=\"public.outbox_events\"} 1.5"));
    EXPECT_THAT(page, HasSubstr("outbox_published_total{source=\"public.outbox_events\","
                                "route=\"billing\"} 12\n"));
    EXPECT_THAT(page, HasSubstr("reason=\"OB_SINK_UNAVAILABLE\"} 3\n"));
    EXPECT_THAT(page, Not(HasSubstr("OB_INTERNAL")));
    EXPECT_THAT(page, HasSubstr("le=\"0.005\"} 1\n"));
    EXPECT_THAT(page, HasSubstr("le=\"+Inf\"} 2\n"));
    EXPECT_THAT(page, HasSubstr("# TYPE outbox_publish_latency_seconds histogram"));
}

TEST(Metrics, CountWhatWaitsOfTheTenantsOfWhomMostDoesAndOfAllOthers) {
    relay::RouteStats stats;
    stats.set_tenants({.waiting = {{"acme", 12}, {"a \"b\"", 3}, {"other", 2}}, .paused = 1});
    MetricsSnapshot snapshot;
    snapshot.source = "public.outbox_events";
    snapshot.routes.push_back({"billing", &stats});
    const std::string page = render_metrics(snapshot);
    const std::string labels = "{source=\"public.outbox_events\",route=\"billing\"";
    EXPECT_THAT(page, HasSubstr("# TYPE outbox_tenant_waiting gauge\n"));
    EXPECT_THAT(page, HasSubstr("outbox_tenant_waiting" + labels + ",tenant=\"acme\"} 12\n"));
    EXPECT_THAT(page, HasSubstr("outbox_tenant_waiting" + labels +
                                R"(,tenant="a \"b\""} 3)"
                                "\n"));
    EXPECT_THAT(page, HasSubstr("outbox_tenant_waiting" + labels + ",tenant=\"other\"} 2\n"));
    EXPECT_THAT(page, HasSubstr("outbox_tenants_paused" + labels + "} 1\n"));
}

TEST(Metrics, TellWhereARouteReadsAndHowOftenThatChanged) {
    relay::RouteStats stats;
    stats.begin_path();
    stats.set_path({"polling", "catching up"});
    stats.set_path({"stream", ""});
    stats.set_path({"polling", "the stream was cut"});
    stats.set_path({"polling", "no slot is free"});
    stats.set_path({"stream", ""});
    stats.stream_lag_bytes = 4096;
    stats.stream_kept_bytes = 8192;
    MetricsSnapshot snapshot;
    snapshot.source = "t";
    snapshot.routes.push_back({"r", &stats});
    const auto line = [](const std::string& name, int value) {
        return name + "{source=\"t\",route=\"r\"} " + std::to_string(value) + "\n";
    };
    std::string page = render_metrics(snapshot);
    EXPECT_THAT(page, HasSubstr(line("outbox_stream", 1)));
    EXPECT_THAT(page, HasSubstr(line("outbox_stream_joins_total", 2)));
    EXPECT_THAT(page, HasSubstr(line("outbox_stream_falls_back_total", 1)));
    EXPECT_THAT(page, HasSubstr(line("outbox_stream_lag_bytes", 4096)));
    EXPECT_THAT(page, HasSubstr(line("outbox_stream_kept_bytes", 8192)));
    stats.begin_path();  // a new term, which fell back from nothing
    page = render_metrics(snapshot);
    EXPECT_THAT(page, HasSubstr(line("outbox_stream", 0)));
    EXPECT_THAT(page, HasSubstr(line("outbox_stream_falls_back_total", 1)));
}

TEST(Metrics, LimitTheNumberOfRouteLabels) {
    relay::RouteStats stats;
    stats.published = 1;
    MetricsSnapshot snapshot;
    for (std::size_t i = 0; i < kMaxRouteLabels + 3; ++i) {
        snapshot.routes.push_back({"r" + std::to_string(i), &stats});
    }
    const std::string page = render_metrics(snapshot);
    EXPECT_THAT(page, HasSubstr("route=\"r63\""));
    EXPECT_THAT(page, Not(HasSubstr("route=\"r64\"")));
}

}  // namespace
}  // namespace outbox::runtime
