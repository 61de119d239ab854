#include "claim/object_store.h"

#include "claim/claim.h"
#include "core/utf8.h"
#include "net/sha256.h"

namespace outbox::claim {
namespace {

constexpr std::string_view kProbe = "written by outbox relay --check";

}  // namespace

const std::string& probe_name() {
    static const std::string name = object_name("outbox", "check", net::sha256_hex(kProbe));
    return name;
}

Status check(ObjectStore& store) {
    const std::string& name = probe_name();
    if (Status put = store.put(name, kProbe, {}); !put.ok()) return put;
    const auto got = store.get(name, kProbe.size(), {});
    if (!got.ok()) return got.error();
    if (*got == kProbe) return {};
    return {ErrorCode::kObjectAltered, Advice::kRetryDestination,
            store.url() + " gives other bytes back than were written"};
}

ErrorInfo object_gone(const ObjectStore& store, std::string_view name) {
    return {ErrorCode::kObjectGone,
            Advice::kDeadLetter,
            {},
            "the payload at " + store.url() + "/" + std::string(name) +
                " is not there any more: it was removed before the message was handled. Keep "
                "payloads longer than topics and dead letters keep messages"};
}

ErrorInfo object_elsewhere(const ObjectStore& store, std::string_view name,
                           std::string_view elsewhere) {
    constexpr std::size_t kMostShown = 200;
    return {ErrorCode::kObjectGone,
            Advice::kRetryDestination,
            {},
            "the payload " + std::string(name) + " is not in " + store.url() +
                ", and its message says that it is in " +
                to_printable(elsewhere.substr(0, kMostShown)) +
                "; copy the objects from there, or give the consumer that store until such "
                "messages are done"};
}

ErrorInfo no_object_table(const ObjectStore& store, std::string_view where) {
    return {ErrorCode::kSinkUnavailable,
            Advice::kRetryDestination,
            {},
            "object store " + store.url() + ": there is no table outbox_objects" +
                std::string(where) + "; is it the store that the relay writes to?"};
}

ErrorInfo object_too_large(const ObjectStore& store, std::string_view name, std::size_t max_bytes) {
    return {ErrorCode::kPayloadTooLarge,
            Advice::kDeadLetter,
            {},
            "the payload at " + store.url() + "/" + std::string(name) + " has more than " +
                std::to_string(max_bytes) +
                " bytes, which this consumer takes at most; raise "
                "ClaimStore::max_bytes"};
}

}  // namespace outbox::claim
