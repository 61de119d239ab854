#pragma once

#include <string_view>

#include <outbox/consumer/queue.h>

namespace outbox {

/// A group of a stream of Redis (tested with 7.0; it needs commands of 6.2):
/// `redis(s)://user:password@host:port/database?stream=NAME&group=NAME`, with the options of the
/// sink that are about the connection (docs/brokers/redis.md). The group must be there (`XGROUP
/// CREATE NAME GROUP 0 MKSTREAM`).
///
/// The entry's field `id` is `Message::id`, `key` is `Message::key`, `value` the payload (none
/// where there is no such field), the stream `Message::topic`; the other fields become
/// `Message::headers_json`. What a member had taken when it died goes to another, or to its
/// successor before anything newer: one member alone keeps the order of keys across its restarts,
/// several do not.
///
/// Throws `Error` `kConfigInvalid` for a URL or a file of certificates that it cannot use,
/// `kAuthFailed` for a file with a secret. Later such a file is an outage, reported and waited for.
Queue redis_queue(std::string_view url);

}  // namespace outbox
