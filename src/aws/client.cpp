#include "aws/client.h"

#include <utility>

#include "core/redact.h"
#include "core/utf8.h"
#include "net/http_date.h"
#include "net/http_status.h"

namespace outbox::aws {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kMostText = 1'000;  // of what an answer says
constexpr seconds kUnlikeSkew{60};        // services refuse 15 minutes
// One of the two clocks may say 1970; no clock is farther off, and more than this does not add up
// in nanoseconds.
constexpr seconds kMostSkew = std::chrono::years(100);

net::HttpOptions http_options(const Config& config) {
    return {.ca_file = config.ca_file,
            .cert_file = config.cert_file,
            .key_file = config.key_file,
            .verify = config.verify,
            .max_connections_per_host = config.connections,
            .max_connections = config.connections};
}

std::string url_of(const Config& config) {
    const net::Host& host = config.hosts.front();
    const bool bracket = host.name.find(':') != std::string::npos;
    return (config.tls ? "https://" : "http://") + (bracket ? "[" + host.name + "]" : host.name) +
           ":" + std::to_string(host.port) + "/";
}

}  // namespace

Client::Client(const Config& config)
    : config_(config),
      url_(url_of(config)),
      http_(http_options(config)),
      keys_(config_, config_, config_.region, config_.service->product.prefix),
      timeout_(config.stuck_after) {}

std::optional<ErrorInfo> Client::start(std::uint64_t token, Call call) {
    const auto current = keys_.current();
    if (!current.ok()) return current.error();
    net::HttpRequest request{.method = "POST",
                             .url = url_,
                             .headers = config_.service->headers(call.action),
                             .body = std::move(call.body),
                             .timeout = timeout_,
                             .connect_timeout = config_.connect_timeout};
    if (const net::AwsCredentials* key = *current) {
        request.sigv4 = net::SigV4{.region = config_.region,
                                   .service = std::string(config_.service->name),
                                   .access_key = key->access_key,
                                   .secret_key = key->secret_key,
                                   .session_token = key->session_token,
                                   .clock_skew = clock_skew_};
    }
    signed_by_[token] = keys_.number();
    http_.start(token, std::move(request));
    return std::nullopt;
}

void Client::poll(milliseconds most, std::vector<Answer>& out) {
    outcomes_.clear();
    keys_.drive();
    http_.poll(most, outcomes_);
    for (net::HttpOutcome& outcome : outcomes_) out.push_back(read(std::move(outcome)));
}

Answer Client::read(net::HttpOutcome outcome) {
    Answer answer{.token = outcome.token};
    const std::uint64_t key = signed_by_.extract(outcome.token).mapped();
    if (outcome.fault) {
        answer.fault =
            Fault{std::string(net::word_of(outcome.fault->kind)), outcome.fault->text, false};
    } else if (outcome.status != net::http_status::kOk) {
        answer.fault = config_.service->read_fault(outcome.status, outcome.body);
        answer.fault->whole = true;
        // What it says of a signature quotes the request, with the session token.
        answer.fault->text = to_storable_text(redacted_line(answer.fault->text), kMostText);
        compare_clocks(outcome, *answer.fault);
        // Whoever renews the key, or gives one with more rights, may have done so.
        const auto code = to_error(*config_.service, *answer.fault, "").code;
        if (code == ErrorCode::kAuthFailed || code == ErrorCode::kNoRights) {
            keys_.refused(key, code == ErrorCode::kNoRights);
        }
    }
    answer.body = std::move(outcome.body);
    return answer;
}

// A signature holds for some minutes of the service's clock, so the next ones keep to it.
void Client::compare_clocks(const net::HttpOutcome& outcome, Fault& fault) {
    if (!is_about_time(fault)) return;
    const auto ours = std::chrono::floor<seconds>(std::chrono::system_clock::now());
    const auto theirs = net::parse_http_date(outcome.header("date"), ours);
    if (!theirs) return;
    const seconds skew = *theirs - ours;
    if (std::chrono::abs(skew) > kMostSkew) return;
    if (std::chrono::abs(skew - clock_skew_) < kUnlikeSkew) return;
    clock_skew_ = skew;
    fault.name = "CLOCK";
    fault.text += "; its clock is " + std::to_string(std::chrono::abs(skew).count()) +
                  (skew.count() > 0 ? " s ahead of" : " s behind") + " this machine's";
}

Result<std::string> Client::ask(Call call, milliseconds most) {
    timeout_ = most;
    if (auto failed = start(0, std::move(call))) return *std::move(failed);
    std::vector<Answer> answers;
    while (answers.empty()) poll(most, answers);
    if (answers[0].fault) {
        return to_error(*config_.service, *answers[0].fault, name_of_server(config_));
    }
    return std::move(answers[0].body);
}

}  // namespace outbox::aws
