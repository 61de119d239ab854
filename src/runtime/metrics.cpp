#include "runtime/metrics.h"

#include <algorithm>
#include <array>
#include <limits>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <ranges>

namespace outbox::runtime {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::array kMetrics{
    MetricSpec{"outbox_backlog", "gauge", "", "Events not yet published."},
    MetricSpec{"outbox_oldest_age_seconds", "gauge", "", "Age of the oldest unpublished event."},
    MetricSpec{"outbox_failed", "gauge", "", "Events that failed and will be tried again."},
    MetricSpec{"outbox_dead", "gauge", "", "Dead letters."},
    MetricSpec{"outbox_owed", "gauge", "",
               "Delivered rows that the table refuses to have marked or removed, or that somebody "
               "held when they were to be marked; and delayed events that the outbox table "
               "refuses."},
    MetricSpec{"outbox_scheduled", "gauge", "", "Delayed events that are not yet due."},
    MetricSpec{"outbox_leader", "gauge", "", "1 while this relay holds the lease."},
    MetricSpec{"outbox_lease_epoch", "gauge", "", "Epoch of the lease this relay held last."},
    MetricSpec{"outbox_database_up", "gauge", "", "1 while the database answers."},
    MetricSpec{"outbox_limit", "gauge", "limit", "The limits that bound this relay."},
    MetricSpec{"outbox_spans_sent_total", "counter", "", "Spans that the receiver of OTLP took."},
    MetricSpec{"outbox_spans_dropped_total", "counter", "",
               "Spans that it refused, or for which there was no room."},
    MetricSpec{"outbox_published_total", "counter", "route", "Events published."},
    MetricSpec{"outbox_dead_letters_total", "counter", "route", "Events given up on."},
    MetricSpec{"outbox_publish_errors_total", "counter", "route, reason",
               "Failures to publish, by error code."},
    MetricSpec{"outbox_publish_latency_seconds", "histogram", "route",
               "From when an event occurred, or a delayed one was due, to its acknowledgement."},
    MetricSpec{"outbox_queued", "gauge", "route", "Events read and not yet sent."},
    MetricSpec{"outbox_in_flight", "gauge", "route", "Events sent and not yet acknowledged."},
    MetricSpec{"outbox_unrecorded", "gauge", "route",
               "Events sent and not yet recorded; they repeat after a kill."},
    MetricSpec{"outbox_waiting", "gauge", "route", "Events behind a failing event of their key."},
    MetricSpec{"outbox_tenant_waiting", "gauge", "route, tenant",
               "Events of a tenant that the relay has read and not published: of those of whom "
               "most wait, and of all others as tenant `other`."},
    MetricSpec{"outbox_tenants_paused", "gauge", "route", "Tenants of which nothing is sent."},
    MetricSpec{"outbox_held_bytes", "gauge", "route", "Bytes of events held in memory."},
    MetricSpec{"outbox_circuit_state", "gauge", "route", "0 closed, 1 open, 2 half open."},
    MetricSpec{"outbox_parts_down", "gauge", "route",
               "Parts of the destination (topics, partitions) that are down while others answer."},
    MetricSpec{"outbox_stream", "gauge", "route",
               "1 while events come from the database's log, 0 while the table is polled."},
    MetricSpec{"outbox_stream_joins_total", "counter", "route",
               "Times a route went from polling to the stream."},
    MetricSpec{"outbox_stream_falls_back_total", "counter", "route",
               "Times a route went from the stream back to polling."},
    MetricSpec{"outbox_stream_lag_bytes", "gauge", "route",
               "Bytes of the database's log that were written and not read yet."},
    MetricSpec{"outbox_stream_kept_bytes", "gauge", "route",
               "Bytes of its log that the database keeps for the stream; at 4 GiB it is left."},
    MetricSpec{"outbox_webhook_dispatching", "gauge", "route",
               "1 while this relay delivers webhooks; 0 while another does, or none can."},
    MetricSpec{"outbox_webhook_endpoints", "gauge", "route", "Endpoints that are enabled."},
    MetricSpec{"outbox_webhook_endpoints_disabled", "gauge", "route",
               "Endpoints that are disabled."},
    MetricSpec{"outbox_webhook_endpoints_paused", "gauge", "route",
               "Enabled endpoints that are down, or asked for a pause."},
    MetricSpec{"outbox_webhook_waiting", "gauge", "route",
               "Deliveries that wait, by the last count; at most 100,000 for each endpoint."},
    MetricSpec{"outbox_webhook_dead", "gauge", "route",
               "Deliveries given up on and kept, by the last count."},
    MetricSpec{"outbox_webhook_in_flight", "gauge", "route", "Requests under way."},
    MetricSpec{"outbox_webhook_delivered_total", "counter", "route", "Webhooks delivered."},
    MetricSpec{"outbox_webhook_failures_total", "counter", "route", "Attempts that failed."},
    MetricSpec{"outbox_webhook_missed_total", "counter", "route",
               "Events that an endpoint will not get, as its queue was full."},
};

class Page {
  public:
    explicit Page(std::string source) : source_(std::move(source)) {}

    /// Appends a metric to the family of that name and gives its value to fill.
    ClientMetric& add(std::string_view name, std::vector<ClientMetric::Label> labels = {}) {
        MetricFamily& family = family_of(name);
        ClientMetric metric;
        metric.label.push_back({"source", source_});
        metric.label.insert(metric.label.end(), labels.begin(), labels.end());
        family.metric.push_back(std::move(metric));
        return family.metric.back();
    }
    void gauge(std::string_view name, double value, std::vector<ClientMetric::Label> labels = {}) {
        add(name, std::move(labels)).gauge.value = value;
    }
    void counter(std::string_view name, double value, std::vector<ClientMetric::Label> labels) {
        add(name, std::move(labels)).counter.value = value;
    }
    /// As its declaration has it; what is not declared is not shown.
    void value(std::string_view name, double value, std::vector<ClientMetric::Label> labels) {
        const auto* spec = std::find_if(kMetrics.begin(), kMetrics.end(),
                                        [&](const MetricSpec& m) { return m.name == name; });
        if (spec == kMetrics.end()) return;
        if (spec->type == "counter") {
            counter(name, value, std::move(labels));
        } else {
            gauge(name, value, std::move(labels));
        }
    }
    [[nodiscard]] std::string text() const {
        return prometheus::TextSerializer().Serialize(families_);
    }

  private:
    MetricFamily& family_of(std::string_view name) {
        for (MetricFamily& family : families_) {
            if (family.name == name) return family;
        }
        const auto* spec = std::find_if(kMetrics.begin(), kMetrics.end(),
                                        [&](const MetricSpec& m) { return m.name == name; });
        MetricFamily family;
        family.name = std::string(name);
        family.help = std::string(spec->help);
        family.type = spec->type == "counter"     ? MetricType::Counter
                      : spec->type == "histogram" ? MetricType::Histogram
                                                  : MetricType::Gauge;
        families_.push_back(std::move(family));
        return families_.back();
    }

    std::string source_;
    std::vector<MetricFamily> families_;
};

template <typename T>
double number(const std::atomic<T>& value) {
    return static_cast<double>(value.load(std::memory_order_relaxed));
}

void add_latency(Page& page, const std::vector<ClientMetric::Label>& labels,
                 const relay::LatencyHistogram& latency) {
    using Histogram = relay::LatencyHistogram;
    auto& histogram = page.add("outbox_publish_latency_seconds", labels).histogram;
    std::uint64_t count = 0;
    for (std::size_t i = 0; i <= Histogram::kBoundsMs.size(); ++i) {
        count += latency.count(i);
        const bool last = i == Histogram::kBoundsMs.size();
        ClientMetric::Bucket bucket;
        bucket.cumulative_count = count;
        bucket.upper_bound =
            last ? std::numeric_limits<double>::infinity() : Histogram::kBoundsMs.at(i) / 1000.0;
        histogram.bucket.push_back(bucket);
    }
    histogram.sample_count = count;
    histogram.sample_sum = latency.sum_s();
}

void add_route(Page& page, const std::string& name, const relay::RouteStats& stats) {
    const std::vector<ClientMetric::Label> labels{{"route", name}};
    page.counter("outbox_published_total", number(stats.published), labels);
    page.counter("outbox_dead_letters_total", number(stats.dead), labels);
    page.gauge("outbox_queued", number(stats.queued), labels);
    page.gauge("outbox_in_flight", number(stats.in_flight), labels);
    page.gauge("outbox_unrecorded", number(stats.unrecorded), labels);
    page.gauge("outbox_waiting", number(stats.waiting), labels);
    const relay::RouteStats::Tenants tenants = stats.tenants();
    for (const auto& [tenant, waiting] : tenants.waiting) {
        page.gauge("outbox_tenant_waiting", static_cast<double>(waiting),
                   {{"route", name}, {"tenant", tenant}});
    }
    page.gauge("outbox_tenants_paused", static_cast<double>(tenants.paused), labels);
    page.gauge("outbox_held_bytes", number(stats.held_bytes), labels);
    page.gauge("outbox_circuit_state",
               static_cast<double>(stats.circuit.load(std::memory_order_relaxed)), labels);
    page.gauge("outbox_parts_down", number(stats.parts_down), labels);
    page.gauge("outbox_stream", number(stats.on_stream), labels);
    page.counter("outbox_stream_joins_total", number(stats.stream_joins), labels);
    page.counter("outbox_stream_falls_back_total", number(stats.stream_falls), labels);
    page.gauge("outbox_stream_lag_bytes", number(stats.stream_lag_bytes), labels);
    page.gauge("outbox_stream_kept_bytes", number(stats.stream_kept_bytes), labels);
    for (std::size_t i = 0; i < stats.errors.size(); ++i) {
        const double count = number(stats.errors.at(i));
        if (count == 0) continue;
        const std::string reason(error_code_name(static_cast<ErrorCode>(i)));
        page.counter("outbox_publish_errors_total", count, {{"route", name}, {"reason", reason}});
    }
    for (const auto& [name_of_metric, value] : stats.sink_stats()) {
        page.value(name_of_metric, static_cast<double>(value), labels);
    }
    add_latency(page, labels, stats.latency);
}

}  // namespace

std::string render_metrics(const MetricsSnapshot& snapshot) {
    Page page(snapshot.source);
    page.gauge("outbox_backlog", static_cast<double>(snapshot.database_stats.backlog));
    page.gauge("outbox_oldest_age_seconds", snapshot.database_stats.oldest_age_s);
    page.gauge("outbox_failed", static_cast<double>(snapshot.database_stats.failing));
    page.gauge("outbox_dead", static_cast<double>(snapshot.database_stats.dead));
    page.gauge("outbox_owed", static_cast<double>(snapshot.database_stats.owed));
    page.gauge("outbox_scheduled", static_cast<double>(snapshot.database_stats.scheduled));
    page.gauge("outbox_leader", snapshot.leading ? 1 : 0);
    page.gauge("outbox_lease_epoch", static_cast<double>(snapshot.epoch));
    page.gauge("outbox_database_up", snapshot.database ? 1 : 0);
    page.gauge("outbox_limit", static_cast<double>(snapshot.max_unrecorded),
               {{"limit", "max_unrecorded"}});
    page.gauge("outbox_limit", static_cast<double>(snapshot.max_in_flight_bytes),
               {{"limit", "max_in_flight_bytes"}});
    if (snapshot.spans) {
        page.counter("outbox_spans_sent_total", static_cast<double>(snapshot.spans->sent), {});
        page.counter("outbox_spans_dropped_total", static_cast<double>(snapshot.spans->dropped),
                     {});
    }
    for (const auto& route : snapshot.routes | std::views::take(kMaxRouteLabels)) {
        add_route(page, route.name, *route.stats);
    }
    return page.text();
}

std::span<const MetricSpec> metric_table() {
    return kMetrics;
}

}  // namespace outbox::runtime
