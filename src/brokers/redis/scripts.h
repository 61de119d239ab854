#pragma once

#include <string>
#include <string_view>

namespace outbox::redis {

// What runs inside the server, as EVALSHA. A batch names its session and its number: the server
// takes none of an earlier session and none that does not follow the last one it took, so that
// what failed is never overtaken, whatever is still on its way through the network.

/// Begins a session, which ends those before it. Keys: session, ids; arguments: window, and
/// for how many seconds the server keeps the producer in memory behind its last batch (0: for
/// ever). Gives the
/// session's number and the ids that are remembered.
extern const std::string_view kBeginScript;
/// Appends a batch to its streams. Keys: session, ids; arguments: session, batch, window, max_len,
/// how many streams are taken up again, how long as above, and their names; then of each record:
/// stream, number of texts, texts, which are fields and values, the id first. Gives index and error
/// of each record that failed; an empty one lay behind another of its stream.
///
/// The streams are no declared keys: one that the user may not write to would refuse the batch.
extern const std::string_view kBatchScript;
/// Fails where a batch would, and changes nothing. Key: any that nobody has.
extern const std::string_view kProbeScript;

[[nodiscard]] std::string session_key(std::string_view producer);
[[nodiscard]] std::string ids_key(std::string_view producer);
[[nodiscard]] std::string probe_key(std::string_view producer);

}  // namespace outbox::redis
