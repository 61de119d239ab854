#include "consumer/idempotency_answers.h"

#include <array>
#include <nlohmann/json.hpp>

#include <outbox/error.h>

#include "core/ascii.h"

namespace outbox {

using What = IdempotentAnswer::What;

IdempotentAnswer problem_answer(What what, int status, std::string_view title,
                                std::string_view detail) {
    const nlohmann::ordered_json body{
        {"type", "about:blank"}, {"title", title}, {"status", status}, {"detail", detail}};
    return {what,
            status,
            {{"Content-Type", "application/problem+json"}},
            body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"};
}

namespace consumer {
namespace {

constexpr int kConflict = 409;
constexpr int kUnprocessable = 422;

// What belongs to one caller's session must not be handed to another connection.
bool may_be_stored(const std::string& name) {
    const std::string plain = lower(name);
    return plain != "set-cookie" && plain != "authorization";
}

}  // namespace

IdempotentAnswer repeat_of(int status, std::string_view headers_json, std::string_view body) {
    IdempotentAnswer answer{What::kRepeat, status, {}, std::string(body)};
    const auto headers = nlohmann::ordered_json::parse(headers_json, nullptr, false);
    if (!headers.is_object()) return answer;
    for (const auto& [name, value] : headers.items()) {
        if (value.is_string()) answer.headers.emplace_back(name, value.get<std::string>());
        if (!value.is_array()) continue;
        for (const auto& one : value) {
            if (one.is_string()) answer.headers.emplace_back(name, one.get<std::string>());
        }
    }
    return answer;
}

IdempotentAnswer answer_not_kept() {
    return problem_answer(What::kNoAnswer, kConflict, "The request was done already",
                          "A request with this Idempotency-Key was done before; its answer is not "
                          "kept. Ask for the result instead of sending it again.");
}

IdempotentAnswer still_running() {
    IdempotentAnswer answer = problem_answer(
        What::kRunning, kConflict, "A request with this Idempotency-Key is under way",
        "Send the same request again later to get its answer.");
    answer.headers.emplace_back("Retry-After", "1");
    return answer;
}

IdempotentAnswer other_request() {
    return problem_answer(What::kOtherRequest, kUnprocessable,
                          "The Idempotency-Key was used for another request",
                          "A key stands for one request: send the first body again, or use a new "
                          "key for a new request.");
}

std::string storable_headers(const Headers& headers) {
    auto json = nlohmann::ordered_json::object();
    for (const auto& [name, value] : headers) {
        if (!may_be_stored(name)) continue;
        const auto known = json.find(name);
        if (known == json.end()) {
            json[name] = value;
        } else if (known->is_array()) {
            known->push_back(value);
        } else {
            *known = nlohmann::ordered_json::array({*known, value});
        }
    }
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void check_claim(const ClaimOptions& options) {
    const auto require = [](bool condition, const char* message) {
        if (!condition) throw Error(ErrorCode::kConfigInvalid, Advice::kStop, message);
    };
    constexpr std::int64_t kMaxRetentionS = std::int64_t{10} * 366 * 86'400;
    constexpr std::int64_t kMaxLeaseMs = std::int64_t{7} * 86'400'000;
    require(options.retention_s > 0 && options.retention_s <= kMaxRetentionS,
            "ClaimOptions::retention_s must be 1 s to 10 years");
    require(options.lease_ms >= 0 && options.lease_ms <= kMaxLeaseMs,
            "ClaimOptions::lease_ms must be 0 (one transaction) to 7 days");
}

void throw_lease_lost(const IdempotentRequest& request) {
    throw Error(ErrorCode::kConflict, Advice::kStop,
                "the claim on key '" + std::string(request.key) +
                    "' is not this attempt's any more: its lease ran out and another attempt took "
                    "over, or it was completed already; roll back, and give the work a longer "
                    "lease_ms");
}

}  // namespace consumer
}  // namespace outbox
