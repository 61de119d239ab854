#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

namespace outbox {

namespace claim {
class ObjectStore;
}  // namespace claim

/// Where payloads are that a route keeps outside of its records (`claim_check`). Set in a
/// consumer's options: a message with the header `claim-check` has its payload fetched and compared
/// with size and SHA-256 of its headers before the handler sees it; `Message::payload` is the
/// payload then. Without it handlers get the note that stands in its place.
///
/// The payload is fetched before the transaction begins, one at a time by each worker: such
/// messages are applied one by one. A store that is away, or refuses who we are, is an outage: the
/// message waits, no attempt is counted, its key keeps its order. An object that is gone, altered
/// or too large is a dead letter (`OB_OBJECT_GONE`, `OB_OBJECT_ALTERED`, `OB_PAYLOAD_TOO_LARGE`),
/// which keeps the reference: once the object is there again, the letter can be retried.
struct ClaimStore {
    std::function<std::unique_ptr<claim::ObjectStore>()> open;
    std::size_t max_bytes = std::size_t{256} << 20;  ///< Of one payload, held by each worker.
};

/// `file:///folder`. Throws `Error` `kConfigInvalid` for a URL that it cannot read.
ClaimStore file_claims(std::string_view url);
/// The table outbox_objects of `postgresql://...`, or of `sqlite:///path`. Throw as `file_claims`.
ClaimStore libpq_claims(std::string_view url);
ClaimStore sqlite_claims(std::string_view url);
/// `s3://bucket/prefix`, with the parameters of docs/claim-check.md. Throws as `file_claims`. Needs
/// the library outbox_claim_s3 to be linked.
ClaimStore s3_claims(std::string_view url);

}  // namespace outbox
