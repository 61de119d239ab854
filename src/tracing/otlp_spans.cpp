#include <random>
#include <unistd.h>
#include <utility>

#include <outbox/consumer/spans.h>
#include <outbox/result.h>

#include "net/certificates.h"
#include "tracing/otlp_config.h"
#include "tracing/otlp_exporter.h"

namespace outbox {

SpanExport otlp_spans(std::string_view url, std::string service,
                      std::function<void(const std::string& error)> on_change) {
    net::HttpEndpoint endpoint = tracing::make_otlp_endpoint(url).value_or_throw();
    net::check_files(endpoint).or_throw();
    if (on_change == nullptr) on_change = [](const std::string&) {};
    const auto exporter = std::make_shared<tracing::OtlpExporter>(
        std::move(endpoint),
        tracing::SpanSource{std::move(service), "pid " + std::to_string(getpid()), {}},
        std::move(on_change));
    return {std::shared_ptr<tracing::SpanQueue>(exporter, &exporter->queue())};
}

}  // namespace outbox
