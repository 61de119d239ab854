#include "consumer/claims.h"

#include <utility>

#include "claim/file_store.h"

namespace outbox {

Result<std::optional<claim::Claim>> consumer::Claims::of(const Message& message) const {
    if (!store_) return std::optional<claim::Claim>();
    return claim::read_claim(message.headers_json);
}

Result<std::string> consumer::Claims::ask(const claim::Claim& claim, const std::stop_token& stop) {
    constexpr int kRests = 2;
    const std::int64_t began = clock_.boot_us();
    if (away_ && began < away_until_us_) return *away_;
    // One byte more, so that an object that has grown is told from one that is too large.
    auto bytes = store_->get(claim.name(), static_cast<std::size_t>(claim.size) + 1, stop);
    away_.reset();
    if (!bytes.ok() && bytes.error().advice == Advice::kRetryDestination) {
        const std::int64_t now = clock_.boot_us();
        away_ = bytes.error();
        away_until_us_ = now + kRests * (now - began);
    }
    return bytes;
}

Result<std::string> consumer::Claims::get(const claim::Claim& claim, const std::stop_token& stop) {
    if (claim.size > max_bytes_) return object_too_large(*store_, claim.name(), max_bytes_);
    auto bytes = ask(claim, stop);
    if (!bytes.ok()) {
        const ErrorCode code = bytes.error().code;
        if (code == ErrorCode::kPayloadTooLarge) {  // it has grown
            return claim::verify(claim, std::string(claim.size + 1, ' '));
        }
        // Not removed but never there: the store was changed while the message was under way.
        if (code == ErrorCode::kObjectGone && claim.store() != store_->url()) {
            return object_elsewhere(*store_, claim.name(), claim.store());
        }
        return bytes.status();
    }
    if (Status whole = claim::verify(claim, *bytes); !whole.ok()) return whole;
    return bytes;
}

ClaimStore file_claims(std::string_view url) {
    static_cast<void>(claim::open_file_store(url).value_or_throw());
    return {
        .open = [url = std::string(url)] { return claim::open_file_store(url).value_or_throw(); }};
}

}  // namespace outbox
