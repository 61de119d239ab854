#include <string>

#include <outbox/consumer/claims.h>

#include "claim/s3_store.h"

namespace outbox {

ClaimStore s3_claims(std::string_view url) {
    static_cast<void>(claim::open_s3_store(url).value_or_throw());
    return {
        .open = [url = std::string(url)] { return claim::open_s3_store(url).value_or_throw(); }};
}

}  // namespace outbox
