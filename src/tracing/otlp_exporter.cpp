#include "tracing/otlp_exporter.h"

#include <algorithm>
#include <utility>

#include "core/redact.h"
#include "core/retry_policy.h"
#include "core/utf8.h"

namespace outbox::tracing {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLook{50};  // for the end
constexpr core::RetryPolicy kBackoff{1'000, 30'000, 0};
constexpr std::size_t kMaxAnswer = std::size_t{64} << 10;
constexpr std::size_t kShownBytes = 200;

net::HttpOptions http_options(const net::HttpEndpoint& endpoint) {
    net::HttpOptions options = http_options_of(endpoint);
    options.max_response_bytes = kMaxAnswer;
    options.cut_responses = true;
    options.max_connections_per_host = 1;
    options.max_connections = 1;
    return options;
}

Result<net::HttpRequest> request_of(const net::HttpEndpoint& endpoint, std::string body) {
    net::HttpRequest request{.method = "POST",
                             .url = endpoint.base + "/v1/traces",
                             .headers = {{"Content-Type", "application/json"}},
                             .body = std::move(body),
                             .timeout = OtlpExporter::kRequestTime};
    Status proven = net::add_authorization(endpoint, request.headers);
    if (!proven.ok()) return std::move(proven).error();
    return request;
}

// What became of a request.
struct Answer {
    enum class Means : std::uint8_t { kTaken, kAgain, kRefused };
    Means means = Means::kTaken;
    ErrorInfo error;  // not for kTaken
};

std::string_view remedy_of(int status) {
    if (status == 401 || status == 403) return "; check the user, password or token in its URL";
    if (status == 404 || status == 405) {
        return "; is it a receiver of OTLP over HTTP? Its port is usually 4318, and /v1/traces is "
               "added to the URL";
    }
    if (status >= 300 && status < 400) return "; redirects are not followed: write where it is";
    return "";
}

// As the protocol has it: 429, 502, 503 and 504 pass, all else does not.
Answer judge(const net::HttpEndpoint& endpoint, const net::HttpOutcome& outcome) {
    const std::string where = "OTLP at " + endpoint.base + ": ";
    const auto fails = [&](Answer::Means means, ErrorCode code, std::string text) {
        const Advice advice =
            means == Answer::Means::kAgain ? Advice::kRetryDestination : Advice::kStop;
        return Answer{means, {code, advice, {}, where + std::move(text)}};
    };
    if (outcome.fault) {
        return fails(Answer::Means::kAgain, ErrorCode::kConnectFailed, outcome.fault->text);
    }
    const int status = outcome.status;
    if (status >= 200 && status < 300) return {};
    std::string text = "it answers " + std::to_string(status);
    if (!outcome.body.empty()) {
        text += " (" + to_printable(outcome.body.substr(0, kShownBytes)) + ")";
    }
    text += remedy_of(status);
    if (status == 429 || (status >= 502 && status <= 504)) {
        return fails(Answer::Means::kAgain, ErrorCode::kConnectFailed, std::move(text));
    }
    const bool login = status == 401 || status == 403;
    return fails(Answer::Means::kRefused,
                 login ? ErrorCode::kAuthFailed : ErrorCode::kConfigInvalid, std::move(text));
}

// Until there is an answer, or `over` says that nobody waits for it any more.
Answer post(net::HttpClient& http, const net::HttpEndpoint& endpoint, std::string body,
            const std::function<bool()>& over, std::string* answered = nullptr) {
    auto request = request_of(endpoint, std::move(body));
    if (!request.ok()) return {Answer::Means::kAgain, request.error()};
    http.start(0, *std::move(request));
    std::vector<net::HttpOutcome> outcomes;
    while (outcomes.empty()) {
        http.poll(kLook, outcomes);
        if (!outcomes.empty() || !over()) continue;
        http.cancel_all();
        return {Answer::Means::kAgain,
                {ErrorCode::kConnectFailed,
                 Advice::kRetryDestination,
                 {},
                 "OTLP at " + endpoint.base + ": no answer before the end"}};
    }
    if (answered != nullptr) *answered = std::move(outcomes.front().body);
    return judge(endpoint, outcomes.front());
}

}  // namespace

OtlpExporter::OtlpExporter(net::HttpEndpoint endpoint, SpanSource source, Tell tell)
    : endpoint_(std::move(endpoint)),
      source_(std::move(source)),
      tell_(std::move(tell)),
      http_(http_options(endpoint_)),
      random_(std::random_device()()),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

OtlpExporter::~OtlpExporter() {
    thread_.request_stop();
    queue_.wake();
    thread_.join();
}

Status OtlpExporter::check(const net::HttpEndpoint& endpoint) {
    net::HttpClient http(http_options(endpoint));
    const Answer answer = post(http, endpoint, write_otlp({}, {}), [] { return false; });
    return answer.means == Answer::Means::kTaken ? Status() : Status(answer.error);
}

void OtlpExporter::run(const std::stop_token& stop) {
    while (true) {
        const std::vector<Span> spans = queue_.take(kBatch, kLinger);
        if (!spans.empty()) {
            send(spans, stop);
        } else if (stop.stop_requested()) {
            return;
        }
    }
}

void OtlpExporter::send(std::span<const Span> spans, const std::stop_token& stop) {
    const std::string body = write_otlp(source_, spans);
    const auto over = [&] {
        if (!stop.stop_requested()) return false;
        if (!end_) end_ = Clock::now() + kLastTries;
        return Clock::now() >= *end_;
    };
    for (std::uint32_t attempts = 1; !over(); ++attempts) {
        std::string answered;
        const Answer answer = post(http_, endpoint_, body, over, &answered);
        if (answer.means == Answer::Means::kTaken) {
            const PartialSuccess partial = read_partial_success(answered);
            const std::uint64_t refused = std::min<std::uint64_t>(partial.refused, spans.size());
            refused_.fetch_add(refused, std::memory_order_relaxed);
            sent_.fetch_add(spans.size() - refused, std::memory_order_relaxed);
            told(refused == 0 ? std::string()
                              : "OTLP at " + endpoint_.base + ": it takes some spans and refuses " +
                                    "others: " + partial.why);
            return;
        }
        told(redact(answer.error.message));
        if (answer.means == Answer::Means::kRefused) break;
        const auto again =
            Clock::now() + std::chrono::microseconds(kBackoff.delay_us(attempts, random_()));
        while (Clock::now() < again && !stop.stop_requested()) std::this_thread::sleep_for(kLook);
        if (stop.stop_requested()) std::this_thread::sleep_for(kLook);
    }
    refused_.fetch_add(spans.size(), std::memory_order_relaxed);
}

void OtlpExporter::told(const std::string& error) {
    if (error == last_error_) return;
    last_error_ = error;
    tell_(error);
}

}  // namespace outbox::tracing
