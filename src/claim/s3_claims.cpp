#include <string>

#include <outbox/consumer/claims.h>

#include "claim/s3_store.h"

namespace outbox {

ClaimStore s3_claims(std::string_view url) {
    claim::check_s3_files(url).or_throw();
    return {
        .open = [url = std::string(url)] { return claim::open_s3_store(url).value_or_throw(); }};
}

}  // namespace outbox
