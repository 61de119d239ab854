#include "spans.h"

#include <utility>

#include "runtime/log.h"
#ifdef OUTBOX_WITH_HTTP
#include "net/certificates.h"
#include "tracing/otlp_config.h"
#include "tracing/otlp_exporter.h"
#endif

namespace outbox::app {

#ifdef OUTBOX_WITH_HTTP
namespace {

void log_change(const std::string& error) {
    if (error.empty()) {
        runtime::log(runtime::LogLevel::kInfo, "spans_taken", {});
    } else {
        runtime::log(runtime::LogLevel::kWarn, "spans_not_taken", {{"error", error}});
    }
}

}  // namespace

Result<Spans> open_spans(const std::string& url, const std::string& instance) {
    if (url.empty()) return Spans();
    auto endpoint = tracing::make_otlp_endpoint(url);
    if (!endpoint.ok()) return endpoint.error();
    auto exporter = std::make_shared<tracing::OtlpExporter>(
        *std::move(endpoint), tracing::SpanSource{"outbox", instance, OUTBOX_VERSION}, log_change);
    Spans spans;
    spans.queue = &exporter->queue();
    spans.stats = [exporter = exporter.get()] {
        return runtime::MetricsSnapshot::Spans{exporter->sent(), exporter->dropped()};
    };
    spans.exporter = std::move(exporter);
    return spans;
}

Status check_spans_settings(const std::string& url) {
    if (url.empty()) return {};
    const auto endpoint = tracing::make_otlp_endpoint(url);
    return endpoint.ok() ? net::check_files(*endpoint) : endpoint.status();
}

Status check_spans(const std::string& url) {
    const auto endpoint = tracing::make_otlp_endpoint(url);
    return endpoint.ok() ? tracing::OtlpExporter::check(*endpoint) : endpoint.status();
}

std::string weakness_of_spans(const std::string& url) {
    return url.empty() ? std::string() : tracing::otlp_weakness(url);
}
#else
Status check_spans(const std::string& /*url*/) {
    return {ErrorCode::kUnsupported, Advice::kStop,
            "--otlp-endpoint is left out of this program: it was built without libcurl"};
}

Status check_spans_settings(const std::string& url) {
    return url.empty() ? Status() : check_spans(url);
}

Result<Spans> open_spans(const std::string& url, const std::string& /*instance*/) {
    return url.empty() ? Result<Spans>(Spans()) : Result<Spans>(check_spans(url));
}

std::string weakness_of_spans(const std::string& /*url*/) {
    return {};
}
#endif

}  // namespace outbox::app
