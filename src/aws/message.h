#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/spi/sink.h>

namespace outbox::aws {

/// What services have no place for.
inline constexpr std::string_view kKeyAttribute = "outbox-key";
inline constexpr std::string_view kBodyAttribute = "outbox-body";  ///< "null", "empty", "base64"
inline constexpr std::string_view kHeadersAttribute = "outbox-headers";
inline constexpr std::size_t kMaxAttributes = 10;
inline constexpr std::string_view kAttributeType = "String";  ///< Of all.

/// A record as a message. Views are of the record, or of this, which therefore does not move.
struct Message {
    Message() = default;
    Message(const Message&) = delete;
    Message& operator=(const Message&) = delete;

    std::string_view body;
    std::vector<std::pair<std::string_view, std::string_view>> attributes;
    std::string group;             ///< Empty where the topic is not FIFO, as is the next.
    std::string deduplication_id;  ///< By which repeats are known.
    std::size_t bytes = 0;         ///< As services count: the body, and names, types and values.

    std::string encoded;  ///< What `body` or the one attribute may be of.
    std::string headers;
};

/// The topic keeps the order of its groups, by its name, URL or ARN.
[[nodiscard]] bool is_fifo(std::string_view topic);

/// Writes the record's message for a topic; or says why none can carry it. `suffix`: of the id by
/// which what is FIFO knows repeats.
[[nodiscard]] std::optional<std::string> make_message(const spi::Record& record, bool fifo,
                                                      std::string_view suffix, Message& out);

/// True for what is taken as text: UTF-8 of the characters that XML 1.0 allows.
[[nodiscard]] bool is_text(std::string_view text);

/// `value` where it may be a group or a deduplication id (1 to 128 visible characters of ASCII);
/// else its SHA-256 in hex.
[[nodiscard]] std::string fifo_id(std::string_view value);

}  // namespace outbox::aws
