#include "webhook/verdict.h"

#include <utility>

#include "core/utf8.h"
#include "net/http_status.h"
#include "webhook/retry_after.h"

namespace outbox::webhook {
namespace {

using Kind = Verdict::Kind;

constexpr std::size_t kMostText = 500;

constexpr int class_of(int status) {
    return status / 100;
}

std::string_view meaning_of(int status) {
    switch (status) {
        case 400:
            return "the receiver cannot read it";
        case 401:
        case 403:
            return "the receiver does not accept it; does it know the endpoint's secret?";
        case 404:
            return "there is nothing at this URL now";
        case 405:
            return "the URL takes no POST";
        case 408:
            return "the receiver was too slow";
        case net::http_status::kGone:
            return "the receiver wants no more events";
        case 413:
            return "the payload is too large for the receiver";
        case 415:
            return "the receiver does not take this content type";
        case net::http_status::kTooManyRequests:
            return "too many requests for the receiver";
        case net::http_status::kBadGateway:
        case net::http_status::kGatewayTimeout:
            return "nobody answers behind the receiver's proxy";
        case net::http_status::kServiceUnavailable:
            return "the receiver is not available";
        default:
            break;
    }
    switch (class_of(status)) {
        case 3:
            return "redirects are not followed; give the endpoint the URL that it leads to";
        case 5:
            return "the receiver failed";
        default:
            return "only 2xx says that it was taken";
    }
}

Kind kind_of(int status) {
    switch (status) {
        case net::http_status::kGone:
            return Kind::kGone;
        case net::http_status::kTooManyRequests:
        case net::http_status::kServiceUnavailable:
            return Kind::kBusy;
        case net::http_status::kBadGateway:
        case net::http_status::kGatewayTimeout:
            return Kind::kDown;  // as if the proxy were not there
        default:
            return class_of(status) == 2 ? Kind::kDone : Kind::kRefused;
    }
}

}  // namespace

Verdict judge_answer(int status, std::string_view retry_after, std::int64_t now_s) {
    Verdict verdict{kind_of(status), {}, {}};
    if (verdict.kind == Kind::kDone) return verdict;
    verdict.text = "HTTP " + std::to_string(status) + ": " + std::string(meaning_of(status));
    if (verdict.kind != Kind::kBusy) return verdict;
    verdict.wait = parse_retry_after(retry_after, now_s);
    if (verdict.wait)
        verdict.text += ", and asks for " + std::to_string(verdict.wait->count()) + " s";
    return verdict;
}

Verdict judge_fault(std::string_view word, std::string_view text) {
    return {Kind::kDown, {}, std::string(word) + ": " + to_printable(text.substr(0, kMostText))};
}

Verdict not_sent(std::string why) {
    return {Kind::kDown, {}, std::move(why)};
}

Verdict own_fault(std::string why) {
    return {Kind::kOwnFault, {}, std::move(why)};
}

}  // namespace outbox::webhook
