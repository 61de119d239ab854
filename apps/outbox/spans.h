#pragma once

#include <functional>
#include <memory>
#include <string>

#include <outbox/result.h>

#include "runtime/metrics.h"
#include "tracing/span_queue.h"

namespace outbox::app {

/// Where a relay's spans go: the receiver of OTLP that --otlp-endpoint names.
struct Spans {
    tracing::SpanQueue* queue = nullptr;                          ///< Null: there is none.
    std::function<runtime::MetricsSnapshot::Spans()> stats = {};  ///< From any thread.
    std::shared_ptr<void> exporter = {};  ///< Sends them as long as this lives.
};

/// None for an empty URL. Connects later, and logs what becomes of it. `instance`: who the relay
/// is. Errors: kConfigInvalid, kUnsupported where this program was built without libcurl.
Result<Spans> open_spans(const std::string& url, const std::string& instance);

/// The URL and the files that it names. Contacts nobody.
Status check_spans_settings(const std::string& url);

/// Asks the receiver.
Status check_spans(const std::string& url);

/// What of the way there is in clear or unverified; empty URL: none.
std::string weakness_of_spans(const std::string& url);

}  // namespace outbox::app
