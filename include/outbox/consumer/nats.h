#pragma once

#include <string_view>

#include <outbox/consumer/queue.h>

namespace outbox {

/// A pull consumer of a stream of NATS JetStream (tested with 2.9):
/// `nats://user:password@host:port?stream=NAME&consumer=NAME` (`tls://` with TLS), with the options
/// of the sink that are about the connection (docs/brokers/nats.md). The consumer must be there, be
/// durable and acknowledge explicitly (`nats consumer add STREAM NAME --pull --ack explicit`).
///
/// The header `id`, else `Nats-Msg-Id`, is `Message::id`, `outbox-key` is `Message::key`, the
/// subject `Message::topic`; the other headers become `Message::headers_json`. What a member had
/// taken when it died comes again after the consumer's `ack_wait`: one member alone waits so long
/// at its start and keeps the order of keys across its restarts, several do not.
///
/// Throws `Error` `kConfigInvalid` for a URL or a file of certificates that it cannot use,
/// `kAuthFailed` for a file with a secret. Later such a file is an outage, reported and waited for.
Queue nats_queue(std::string_view url);

}  // namespace outbox
