#include "claim/s3_store.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "claim/s3_answers.h"
#include "claim/s3_config.h"
#include "claim/s3_errors.h"
#include "core/redact.h"
#include "core/transport.h"
#include "net/aws_keys.h"
#include "net/certificates.h"
#include "net/http_client.h"

namespace outbox::claim {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{100};  // for `stop`
constexpr milliseconds kRequestTime{15'000};
constexpr std::chrono::seconds kIdle{15};   // of an answer, however long all of it may take
constexpr std::size_t kBytesPerMs = 1'000;  // as slow as a way there may be
constexpr std::size_t kFaultBytes = std::size_t{64} << 10;

net::HttpOptions http_options(const S3Config& config, std::size_t max_bytes) {
    return {.ca_file = config.ca_file,
            .cert_file = config.cert_file,
            .key_file = config.key_file,
            .verify = config.verify,
            .max_response_bytes = std::max(max_bytes, kFaultBytes),
            .max_connections_per_host = 1,
            .max_connections = 1};
}

class S3Store final : public ObjectStore {
  public:
    explicit S3Store(S3Config config)
        : config_(std::move(config)),
          url_("s3://" + config_.bucket +
               (config_.prefix.empty()
                    ? ""
                    : "/" + config_.prefix.substr(0, config_.prefix.size() - 1))),
          keys_(config_, config_, config_.region, "") {}

    [[nodiscard]] const std::string& url() const override { return url_; }

    Status put(std::string_view name, std::string_view bytes,
               const std::stop_token& stop) override {
        const auto answer = ask({.method = "PUT",
                                 .url = address(name),
                                 .headers = {{"Content-Type", "application/octet-stream"}},
                                 .body = std::string(bytes),
                                 .timeout = time_for(bytes.size())},
                                0, stop);
        if (!answer.ok()) return answer.error();
        const auto fault = read_s3_stored(answer->status, answer->header("etag"), answer->body);
        return fault ? Status(refusal(*fault, name)) : Status();
    }

    Result<std::string> get(std::string_view name, std::size_t max_bytes,
                            const std::stop_token& stop) override {
        auto answer = ask({.method = "GET",
                           .url = address(name),
                           .timeout = time_for(max_bytes),
                           .idle_timeout = kIdle},
                          max_bytes, stop);
        if (!answer.ok()) return answer.error();
        const S3Headers headers{.etag = answer->header("etag"),
                                .content_type = answer->header("content-type"),
                                .tells_its_end = !answer->header("content-length").empty() ||
                                                 !answer->header("transfer-encoding").empty()};
        if (const auto fault = read_s3_object(answer->status, headers, answer->body)) {
            return refusal(*fault, name);
        }
        if (answer->fault) return object_too_large(*this, name, max_bytes);
        return std::move(answer->body);
    }

  private:
    [[nodiscard]] std::string address(std::string_view name) const {
        return config_.base + config_.prefix + std::string(name);
    }
    static milliseconds time_for(std::size_t bytes) {
        return kRequestTime + milliseconds(bytes / kBytesPerMs);
    }

    // Its fault, if any, is that the body is too large.
    Result<net::HttpOutcome> ask(net::HttpRequest request, std::size_t max_bytes,
                                 const std::stop_token& stop) {
        if (!http_ || max_bytes > limit_) {
            limit_ = std::max(max_bytes, kFaultBytes);
            http_.emplace(http_options(config_, limit_));
        }
        if (Status signed_by = add_signature(request, stop); !signed_by.ok()) return signed_by;
        request.connect_timeout = config_.connect_timeout;
        http_->start(0, std::move(request));
        std::vector<net::HttpOutcome> outcomes;
        while (outcomes.empty()) {
            http_->poll(kLook, outcomes);
            keys_.drive();
            if (!outcomes.empty() || !stop.stop_requested()) continue;
            http_->cancel_all();
            return to_error({"STOPPED", "the relay stops", 0}, what());
        }
        net::HttpOutcome& outcome = outcomes.front();
        if (outcome.fault && outcome.fault->kind != net::HttpFault::Kind::kTooLarge) {
            return to_error(fault_of_http(*outcome.fault), what());
        }
        return std::move(outcome);
    }

    Status add_signature(net::HttpRequest& request, const std::stop_token& stop) {
        const auto current = keys_.current(stop);
        if (!current.ok()) return current.error();
        if (const net::AwsCredentials* key = *current) {
            request.sigv4 = net::SigV4{.region = config_.region,
                                       .service = "s3",
                                       .access_key = key->access_key,
                                       .secret_key = key->secret_key,
                                       .session_token = key->session_token};
        }
        return {};
    }

    ErrorInfo refusal(S3Fault fault, std::string_view name) {
        // What it says of a signature quotes the request.
        fault.text = redacted_line(fault.text);
        const bool of_object = fault.name == "NoSuchKey";
        ErrorInfo error = to_error(
            fault, of_object ? "the payload at " + url_ + "/" + std::string(name) : what());
        // Whoever renews the key, or gives one with more rights, may have done so.
        if (error.code == ErrorCode::kAuthFailed || error.code == ErrorCode::kNoRights) {
            keys_.refused(keys_.number(), error.code == ErrorCode::kNoRights);
        }
        return error;
    }

    [[nodiscard]] std::string what() const { return "object store " + url_; }

    const S3Config config_;
    const std::string url_;
    std::size_t limit_ = 0;
    std::optional<net::HttpClient> http_;
    net::AwsKeys keys_;
};

}  // namespace

Result<std::unique_ptr<ObjectStore>> open_s3_store(std::string_view url) {
    auto config = make_s3_config(url);
    if (!config.ok()) return config.error();
    return std::unique_ptr<ObjectStore>(std::make_unique<S3Store>(*std::move(config)));
}

std::string s3_weakness(std::string_view url) {
    const auto config = make_s3_config(url);
    if (!config.ok()) return {};
    if (is_remote(config->hosts.front().name)) {
        if (!config->tls) return "is reached in clear: use an endpoint with https://";
        if (!config->verify) return "is reached without proof who it is: remove verify";
    }
    return net::weakness_of_key(*config, *config, config->region);
}

Status check_s3_files(std::string_view url) {
    const auto config = make_s3_config(url);
    return config.ok() ? net::check_files(*config) : config.status();
}

Result<std::string> s3_key_origin(std::string_view url) {
    const auto config = make_s3_config(url);
    if (!config.ok()) return config.error();
    return net::origin_of_key(*config, *config, config->region, "");
}

}  // namespace outbox::claim
