// What customers and their receivers give to webhooks: URLs, filters, what is to be allowed,
// headers of events, Retry-After; and fence tokens out of a header. Nothing is read beyond what
// came, and what was taken means the same when it is read again.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/base64.h"
#include "core/fence.h"
#include "webhook/address_guard.h"
#include "webhook/endpoint_url.h"
#include "webhook/event_filter.h"
#include "webhook/request.h"
#include "webhook/retry_after.h"
#include "webhook/verdict.h"

namespace {

using namespace outbox::webhook;

void check(bool holds) {
    if (!holds) std::abort();
}

void read_url(std::string_view text) {
    const auto url = parse_endpoint_url(text, {.allow_http = true});
    if (!url.ok()) return;
    const auto again = parse_endpoint_url(url->text, {.allow_http = true});
    check(again.ok() && again->text == url->text && again->host == url->host &&
          again->port == url->port && url->port != 0);
    check(url->text.find_first_of("\\#\r\n ") == std::string::npos);
    check(url->address.has_value() || !parse_address(url->host));
}

void read_address(std::string_view text) {
    const auto address = parse_address(text);
    if (address) {
        check(parse_address(to_text(*address)) == address);
        check(classify(*address) == classify(unmapped(*address)));
    }
    if (const auto range = parse_range(text)) check(range->holds(range->first));
    const auto guard = AddressGuard::make(text);
    // No range lets a metadata service through.
    const Address metadata = parse_address("169.254.169.254").value();
    if (guard.ok() && text.find("169.254.169.254") == std::string_view::npos) {
        check(guard->refusal("[", metadata).has_value());
    }
}

void read_headers(std::string_view text) {
    for (const auto& [name, value] : event_headers(text)) {
        check(!name.empty() && !name.starts_with("webhook-") && name != "host");
        check(name.find_first_of(": \r\n") == std::string::npos);
        check(value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
    }
    if (const auto why = why_not_carried(text)) {
        check(why->find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
    }
    check(webhook_id(text).find_first_of(". \r\n") == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    read_url(text);
    read_address(text);
    read_headers(text);
    if (const auto filter = EventFilter::make(text); filter.ok()) {
        check(EventFilter::make(filter->text())->text() == filter->text());
        static_cast<void>(filter->wants(text.substr(size / 2)));
    }
    constexpr std::int64_t kNow = 1'800'000'000;
    if (const auto wait = parse_retry_after(text, kNow)) {
        check(wait->count() >= 0 && *wait <= kMostRetryAfter);
    }
    static_cast<void>(judge_answer(static_cast<int>(size % 700), text, kNow));
    if (const auto bytes = outbox::base64_decode(text)) {
        check(outbox::base64_encode(*bytes) == text);
    }
    if (const auto ids = outbox::parse_fence(text); ids.ok()) {
        check(ids->size() <= outbox::kMaxFencedEvents);
        check(ids->size() != 1 || outbox::fence_token(*ids) == text);
    }
    return 0;
}
